/* One counter per thread and event, each by itself, because groups of counters cannot be both read and inherited. Every
 * thread there is gets a counter, and the threads that it starts inherit it, so OpenMP's pool may exist before or not;
 * reading a counter gives the sum over its thread and all that inherited it. Counters run all the time, and a
 * measurement is the difference of two readings: a reset would not reach what finished threads have counted. */
#if defined(__linux__) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* syscall */
#endif
#include "profiler/counters.h"

#include <stddef.h>

#if defined(__linux__)
#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/memory.h"

enum { KINDS = 3 };

/* As PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING lays it out. */
typedef struct ckpt_reading {
    uint64_t value, enabled_ns, running_ns;
} ckpt_reading;

typedef struct ckpt_counter {
    int file;
    int kind; /* index in ckpt_counts */
    ckpt_reading before;
} ckpt_counter;

struct ckpt_counters {
    ckpt_counter *counter;
    int count, room;
};

static int open_counter(const ckpt_counter_event *event, pid_t thread)
{
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = event->type;
    attr.config = event->config;
    attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    attr.inherit = 1;
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;
    return (int)syscall(SYS_perf_event_open, &attr, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static ckpt_code add_counter(ckpt_counters *counters, int file, int kind, ckpt_err *err)
{
    if (counters->count == counters->room) {
        const int room = counters->room > 0 ? 2 * counters->room : 64;
        void *const more = ckpt_memory_resize(counters->counter, (size_t)room * sizeof *counters->counter);
        if (more == NULL) {
            close(file);
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d hardware counters", room);
        }
        counters->counter = more;
        counters->room = room;
    }
    counters->counter[counters->count++] = (ckpt_counter){.file = file, .kind = kind};
    return CKPT_OK;
}

static void drop_after(ckpt_counters *counters, int count)
{
    while (counters->count > count) {
        close(counters->counter[--counters->count].file);
    }
}

/* One event on all threads or on none: a part of the sum would look like the whole. */
static ckpt_code open_kind(ckpt_counters *counters, DIR *threads, const ckpt_counter_event *event, int kind,
                           ckpt_err *err)
{
    const int before = counters->count;
    rewinddir(threads);
    for (const struct dirent *entry = readdir(threads); entry != NULL; entry = readdir(threads)) {
        const long thread = strtol(entry->d_name, NULL, 10);
        if (thread <= 0) {
            continue; /* . and .. */
        }
        const int file = open_counter(event, (pid_t)thread);
        if (file >= 0) {
            CKPT_TRY(add_counter(counters, file, kind, err));
        } else if (errno != ESRCH) { /* the thread has ended meanwhile */
            drop_after(counters, before);
            return CKPT_OK;
        }
    }
    return CKPT_OK;
}

static ckpt_reading read_counter(const ckpt_counter *counter)
{
    ckpt_reading reading;
    const ssize_t got = read(counter->file, &reading, sizeof reading);
    return got == (ssize_t)sizeof reading ? reading : counter->before; /* else: as if nothing had been counted */
}

ckpt_code ckpt_counters_create_for(const ckpt_counter_event event[3], ckpt_counters **counters, ckpt_err *err)
{
    ckpt_counters *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for hardware counters");
    }
    ckpt_code code = CKPT_OK;
    DIR *const threads = opendir("/proc/self/task");
    for (int kind = 0; threads != NULL && kind < KINDS && code == CKPT_OK; kind++) {
        code = open_kind(made, threads, &event[kind], kind, err);
    }
    if (threads != NULL) {
        closedir(threads);
    }
    if (code != CKPT_OK || made->count == 0) {
        ckpt_counters_destroy(made);
        if (code == CKPT_OK) {
            *counters = NULL;
        }
        return code;
    }
    *counters = made;
    return CKPT_OK;
}

ckpt_code ckpt_counters_create(ckpt_counters **counters, ckpt_err *err)
{
    static const ckpt_counter_event event[KINDS] = {{PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
                                                    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
                                                    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES}};
    return ckpt_counters_create_for(event, counters, err);
}

void ckpt_counters_destroy(ckpt_counters *counters)
{
    if (counters != NULL) {
        drop_after(counters, 0);
        ckpt_memory_put(counters->counter);
        ckpt_memory_put(counters);
    }
}

void ckpt_counters_start(ckpt_counters *counters)
{
    for (int i = 0; counters != NULL && i < counters->count; i++) {
        counters->counter[i].before = read_counter(&counters->counter[i]);
    }
}

void ckpt_counters_stop(ckpt_counters *counters, ckpt_counts *counts)
{
    double sum[KINDS] = {0};
    for (int i = 0; counters != NULL && i < counters->count; i++) {
        const ckpt_counter *const counter = &counters->counter[i];
        const ckpt_reading now = read_counter(counter);
        const double enabled = (double)(now.enabled_ns - counter->before.enabled_ns);
        const double running = (double)(now.running_ns - counter->before.running_ns);
        if (running > 0) {
            sum[counter->kind] += (double)(now.value - counter->before.value) * (enabled / running);
        }
    }
    *counts = (ckpt_counts){(int64_t)(sum[0] + 0.5), (int64_t)(sum[1] + 0.5), (int64_t)(sum[2] + 0.5)};
}

#else /* no such system */

ckpt_code ckpt_counters_create_for(const ckpt_counter_event event[3], ckpt_counters **counters, ckpt_err *err)
{
    (void)event;
    (void)err;
    *counters = NULL;
    return CKPT_OK;
}

ckpt_code ckpt_counters_create(ckpt_counters **counters, ckpt_err *err)
{
    return ckpt_counters_create_for(NULL, counters, err);
}

void ckpt_counters_destroy(ckpt_counters *counters)
{
    (void)counters;
}

void ckpt_counters_start(ckpt_counters *counters)
{
    (void)counters;
}

void ckpt_counters_stop(ckpt_counters *counters, ckpt_counts *counts)
{
    (void)counters;
    *counts = (ckpt_counts){0, 0, 0};
}

#endif
