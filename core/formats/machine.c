/* What the host can tell about itself, from uname and /proc/cpuinfo. A machine that does not tell leaves "". */
#include "core/formats/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "core/formats/machine_impl.h"
#include "core/json/json_member.h"

int ckpt_machine_threads(void)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : online > CKPT_THREADS_MAX ? CKPT_THREADS_MAX : (int)online;
}

void ckpt_machine_processor(char *name, size_t room)
{
    snprintf(name, room, "unknown processor");
    FILE *const file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) {
        return;
    }
    char line[512];
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "model name", 10) == 0) {
            const char *const colon = strchr(line, ':');
            if (colon != NULL) {
                line[strcspn(line, "\n")] = '\0';
                snprintf(name, room, "%s", colon + 1 + strspn(colon + 1, " \t"));
                break;
            }
        }
    }
    fclose(file);
}

/* Bytes that are no printable ASCII become '?': a command line need not be UTF-8, a JSON file must. */
static void make_plain(char *text)
{
    for (char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e) {
            *c = '?';
        }
    }
}

/* The command as typed, without the folder the program lies in. */
static ckpt_code join_command(int argc, char *const *argv, ckpt_arena *out, const char **command, ckpt_err *err)
{
    size_t room = 1;
    for (int i = 0; i < argc; i++) {
        room += strlen(argv[i]) + 1;
    }
    char *const joined = ckpt_arena_take(out, room, 1);
    if (joined == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the command line");
    }
    size_t length = 0;
    for (int i = 0; i < argc; i++) {
        const char *const slash = i == 0 ? strrchr(argv[i], '/') : NULL;
        const char *const word = slash != NULL ? slash + 1 : argv[i];
        length += (size_t)snprintf(joined + length, room - length, "%s%s", i > 0 ? " " : "", word);
    }
    make_plain(joined);
    *command = joined;
    return CKPT_OK;
}

ckpt_code ckpt_machine_read(int threads, const char *libraries, int argc, char *const *argv, ckpt_arena *out,
                            ckpt_machine *machine, ckpt_err *err)
{
    char processor[256];
    ckpt_machine_processor(processor, sizeof processor);
    struct utsname host;
    if (uname(&host) < 0) {
        memset(&host, 0, sizeof host);
    }
    char date[40] = "";
    const time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL) {
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    }
    char *const device = ckpt_arena_format(out, "cpu: %s, %d thread%s, %s %s %s", processor, threads,
                                           threads == 1 ? "" : "s", host.sysname, host.release, host.machine);
    char *const kept_libraries = ckpt_arena_text(out, libraries);
    char *const kept_date = ckpt_arena_text(out, date);
    if (device == NULL || kept_libraries == NULL || kept_date == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the machine block");
    }
    make_plain(device);
    const char *command = NULL;
    CKPT_TRY(join_command(argc, argv, out, &command, err));
    *machine = (ckpt_machine){
        .device = device,
        .driver = "",
        .clocks = "",
        .libraries = kept_libraries,
        .commit = ckpt_commit,
        .command = command,
        .date = kept_date,
        .threads = threads,
    };
    return CKPT_OK;
}

/* "580.65.06" out of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  ..."; "" when there is none. */
static void read_driver(char *driver, size_t room)
{
    char line[256];
    driver[0] = '\0';
    FILE *const file = fopen("/proc/driver/nvidia/version", "r");
    if (file == NULL) {
        return;
    }
    char *const got = fgets(line, sizeof line, file);
    fclose(file);
    const char *number = got;
    while (number != NULL && *number != '\0' && strspn(number, "0123456789.") < 5) { /* not the 64 of x86_64 */
        number += strcspn(number, " \t\n");
        number += strspn(number, " \t\n");
    }
    if (number != NULL) {
        snprintf(driver, room, "%.*s", (int)strspn(number, "0123456789."), number);
    }
}

ckpt_code ckpt_machine_set_gpu(ckpt_machine *machine, const char *device, ckpt_arena *out, ckpt_err *err)
{
    char driver[64];
    read_driver(driver, sizeof driver);
    char *const kept_device = ckpt_arena_text(out, device);
    char *const kept_driver = ckpt_arena_text(out, driver);
    if (kept_device == NULL || kept_driver == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the machine block");
    }
    make_plain(kept_device);
    machine->device = kept_device;
    machine->driver = kept_driver;
    machine->threads = 0;
    machine->gpu = true;
    return CKPT_OK;
}

static const struct {
    const char *key;
    size_t offset;
} texts[] = {
    {"device", offsetof(ckpt_machine, device)}, {"driver", offsetof(ckpt_machine, driver)},
    {"clocks", offsetof(ckpt_machine, clocks)}, {"libraries", offsetof(ckpt_machine, libraries)},
    {"commit", offsetof(ckpt_machine, commit)}, {"command", offsetof(ckpt_machine, command)},
    {"date", offsetof(ckpt_machine, date)},
};
enum { TEXTS = sizeof texts / sizeof *texts };

void ckpt_machine_write(const ckpt_machine *machine, ckpt_json_writer *w)
{
    ckpt_json_begin_object(w, "machine", CKPT_JSON_TIGHT);
    for (int i = 0; i < TEXTS; i++) {
        const char *const *const value = (const char *const *)(const void *)((const char *)machine + texts[i].offset);
        ckpt_json_put_or_empty(w, texts[i].key, *value);
    }
    ckpt_json_put_text(w, "target", machine->gpu ? "gpu" : "cpu");
    ckpt_json_put_int(w, "threads", machine->threads);
    ckpt_json_end(w);
}

ckpt_code ckpt_machine_item(const ckpt_item *parent, ckpt_arena *out, ckpt_machine *machine, ckpt_err *err)
{
    *machine = (ckpt_machine){"", "", "", "", "", "", "", 0, false};
    ckpt_item item;
    if (!ckpt_item_find(parent, "machine", &item)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_object(&item, err));
    for (int i = 0; i < TEXTS; i++) {
        const char **const value = (const char **)(void *)((char *)machine + texts[i].offset);
        CKPT_TRY(ckpt_member_text(&item, texts[i].key, "", out, value, err));
    }
    int64_t threads = 0;
    CKPT_TRY(ckpt_member_target(&item, out, &machine->gpu, err));
    CKPT_TRY(ckpt_member_int(&item, "threads", 0, INT32_MAX, 0, &threads, err));
    machine->threads = (int)threads;
    return CKPT_OK;
}
