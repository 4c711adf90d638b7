/* Streams of activity records in files:
 *
 *     ckpt-cupti-stream/1 VERSION    of cuptiGetVersion
 *     # ...
 *     record HEX                     the bytes of one record, pointers as zero
 *     name OFFSET TEXT               the pointer at OFFSET of the record above points to TEXT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cupti_double/cupti_double_impl.h"

enum { LONGEST_LINE = 4096, KERNEL_NAME = 104, MARKER_NAME = 40 };

static FILE *written;

static uint32_t name_offset(uint32_t kind)
{
    return kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? KERNEL_NAME
           : kind == CUPTI_ACTIVITY_KIND_MARKER          ? MARKER_NAME
                                                         : 0;
}

void double_stream_write(const double_record *record)
{
    if (written == NULL && cupti_double.write != NULL) {
        written = fopen(cupti_double.write, "w");
        if (written != NULL) {
            fprintf(written, "ckpt-cupti-stream/1 %u\n# written by the double of libcupti, not by a GPU\n",
                    cupti_double.controls.version);
        }
    }
    if (written == NULL) {
        return;
    }
    uint32_t kind = 0;
    const char *name = NULL;
    unsigned char bytes[LARGEST_RECORD];
    memcpy(bytes, record->bytes, sizeof bytes);
    memcpy(&kind, bytes, sizeof kind);
    const uint32_t at = name_offset(kind);
    if (at > 0 && at + sizeof name <= record->size) {
        memcpy((void *)&name, bytes + at, sizeof name);
        memset(bytes + at, 0, sizeof name);
    }
    fputs("record ", written);
    for (uint32_t i = 0; i < record->size; i++) {
        fprintf(written, "%02x", bytes[i]);
    }
    fputc('\n', written);
    if (name != NULL) {
        fprintf(written, "name %u %s\n", at, name);
    }
    fflush(written);
}

void double_stream_close(void)
{
    if (written != NULL) {
        fclose(written);
        written = NULL;
    }
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool play_record(const char *text)
{
    unsigned char bytes[LARGEST_RECORD];
    const size_t digits = strlen(text);
    if (digits % 2 != 0 || digits / 2 > sizeof bytes) {
        return false;
    }
    for (size_t i = 0; i < digits / 2; i++) {
        const int high = hex(text[2 * i]);
        const int low = hex(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        bytes[i] = (unsigned char)(16 * high + low);
    }
    double_add(bytes, (uint32_t)(digits / 2), false);
    return true;
}

static bool play_line(const char *line)
{
    unsigned at = 0;
    int text = 0;
    double_state *const d = &cupti_double;
    if (line[0] == '#' || line[0] == '\0') {
        return true;
    }
    if (strncmp(line, "record ", 7) == 0) {
        return play_record(line + 7);
    }
    if (sscanf(line, "name %u %n", &at, &text) != 1 || text == 0 || d->count == 0 ||
        at + sizeof(char *) > d->record[d->count - 1].size) {
        return false;
    }
    const char *const name = double_name(line + text);
    memcpy(d->record[d->count - 1].bytes + at, (const void *)&name, sizeof name);
    return true;
}

int double_stream_play(const char *path)
{
    char line[LONGEST_LINE];
    unsigned version = 0;
    FILE *const file = fopen(path, "r");
    bool good =
        file != NULL && fgets(line, sizeof line, file) != NULL && sscanf(line, "ckpt-cupti-stream/1 %u", &version) == 1;
    cupti_double.controls.version = good ? version : cupti_double.controls.version;
    while (good && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        good = play_line(line);
    }
    if (file != NULL) {
        fclose(file);
    }
    if (!good) {
        fprintf(stderr, "cupti double: %s: no stream of records\n", path);
    }
    return good ? 0 : -1;
}
