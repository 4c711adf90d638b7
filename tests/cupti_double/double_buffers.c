/* Records into the client's buffers and back to it: what CUPTI does on cuptiActivityFlushAll and when a buffer is full.
 * The lock is let go around the client's functions, which may call CUPTI. */
#include <stdlib.h>
#include <string.h>

#include "tests/cupti_double/cupti_double_impl.h"

typedef struct delivery {
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    double_record *record;
    size_t count;
    uint64_t most, cut; /* bytes in one buffer; which buffers are cut off */
    uint64_t buffers, refused;
    bool keep;
} delivery;

/* Back to the client, or to be given back later: then the lock is not held by anybody else. */
static void complete(const delivery *d, uint8_t *buffer, size_t size, size_t valid)
{
    double_state *const s = &cupti_double;
    if (d->keep && s->kept_count < MOST_KEPT) {
        s->kept[s->kept_count++] = (double_kept){buffer, size, valid};
    } else {
        d->complete(NULL, 0, buffer, size, valid);
    }
}

void double_deliver_kept(void)
{
    double_state *const s = &cupti_double;
    while (s->kept_count > 0) {
        const double_kept kept = s->kept[--s->kept_count];
        pthread_mutex_unlock(&s->lock);
        s->complete(NULL, 0, kept.buffer, kept.size, kept.valid);
        pthread_mutex_lock(&s->lock);
    }
}

static void *deliver(void *context)
{
    delivery *const d = context;
    for (size_t i = 0; i < d->count;) {
        uint8_t *buffer = NULL;
        size_t size = 0;
        size_t most_records = 0;
        d->request(&buffer, &size, &most_records);
        if (buffer == NULL && cupti_double.controls.version < 27) {
            abort(); /* as CUPTI before CUDA 12.9 */
        }
        if (buffer == NULL || (uintptr_t)buffer % ACTIVITY_RECORD_ALIGNMENT != 0) {
            d->refused += d->count - i;
            return NULL;
        }
        const size_t room = d->most > 0 && d->most < size ? d->most : size;
        size_t used = 0;
        size_t records = 0;
        const size_t written = (d->count - i + 1) * LARGEST_RECORD; /* no more than that; libcupti clears all of it */
        memset(buffer, 0, written < size ? written : size);
        while (i < d->count && used + d->record[i].size <= room && (most_records == 0 || records < most_records)) {
            memcpy(buffer + used, d->record[i].bytes, d->record[i].size);
            used += d->record[i].size;
            records++;
            i++;
        }
        if (records == 0) { /* no buffer of this client holds it */
            d->refused++;
            i++;
        }
        d->buffers++;
        const size_t short_by = d->cut > 0 && d->buffers % d->cut == 0 ? 20 : 0;
        complete(d, buffer, size, used > short_by ? used - short_by : 0);
    }
    return NULL;
}

static void take_ready(delivery *job)
{
    double_state *const d = &cupti_double;
    size_t kept = 0;
    for (size_t i = 0; i < d->count; i++) {
        if (d->record[i].held && d->controls.running) {
            const double_record held = d->record[i];
            d->record[kept++] = held;
        } else {
            job->record[job->count++] = d->record[i];
        }
    }
    d->count = kept;
    if (d->controls.reverse) {
        for (size_t i = 0; i < job->count / 2; i++) {
            const double_record other = job->record[i];
            job->record[i] = job->record[job->count - 1 - i];
            job->record[job->count - 1 - i] = other;
        }
    }
}

void double_deliver(void)
{
    double_state *const d = &cupti_double;
    if (d->request == NULL || d->complete == NULL || d->count == 0) {
        return;
    }
    delivery job = {.request = d->request,
                    .complete = d->complete,
                    .most = d->controls.buffer,
                    .cut = d->controls.cut,
                    .buffers = d->buffers,
                    .keep = d->controls.keep,
                    .record = malloc(d->count * sizeof *job.record)};
    if (job.record == NULL) {
        abort();
    }
    take_ready(&job);
    for (size_t i = 0; i < job.count; i++) {
        double_stream_write(&job.record[i]);
    }
    const bool on_thread = d->controls.thread;
    pthread_mutex_unlock(&d->lock);
    pthread_t thread;
    if (on_thread && pthread_create(&thread, NULL, deliver, &job) == 0) {
        pthread_join(thread, NULL);
    } else {
        deliver(&job);
    }
    pthread_mutex_lock(&d->lock);
    d->buffers = job.buffers;
    d->refused += job.refused;
    free(job.record);
}

void double_end_running(void)
{
    for (size_t i = 0; i < cupti_double.count; i++) {
        double_record *const record = &cupti_double.record[i];
        if (record->held && cupti_double.controls.running) {
            memset(record->bytes + offsetof(CUpti_ActivityKernel9, start), 0, 2 * sizeof(uint64_t));
            record->held = false;
        }
    }
}
