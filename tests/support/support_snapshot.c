/* What tests of memory snapshots share. */
#include "tests/support/support_snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two programs use this file, and may run at the same time in one folder. */
static const char *own_name(const char *suffix)
{
    static char name[60];
    snprintf(name, sizeof name, "snapshot-%ld.%s", (long)getpid(), suffix);
    return name;
}

ckpt_code ckpt_test_snapshot_import(const char *path, ckpt_arena *arena, ckpt_trace **trace, ckpt_err *err)
{
    ckpt_test_notes[0] = '\0';
    return ckpt_import_snapshot(path, ckpt_test_take_note, arena, trace, err);
}

ckpt_bytes ckpt_test_allocated(const ckpt_event *event)
{
    ckpt_bytes sum = 0;
    for (int c = 0; c < CKPT_CAT_OUTSIDE; c++) {
        sum += event->bytes[c];
    }
    return sum;
}

bool ckpt_test_is_memory(const ckpt_event *event)
{
    return event->span == CKPT_SPAN_ALLOCATE || event->span == CKPT_SPAN_FREE;
}

void ckpt_test_snapshot_sums(const ckpt_trace *trace)
{
    const ckpt_event **const live = calloc((size_t)trace->event_count, sizeof *live);
    int count = 0;
    ckpt_bytes peak = 0;
    assert_non_null(live);
    for (int i = 0; i < trace->event_count; i++) {
        const ckpt_event *const event = &trace->event[i];
        ckpt_bytes sum = 0;
        if (ckpt_test_is_memory(event)) {
            int k = 0;
            while (k < count && live[k]->address != event->address) {
                k++;
            }
            if (k < count) {
                live[k] = live[--count];
            }
            if (event->span == CKPT_SPAN_ALLOCATE) {
                live[count++] = event;
            }
        }
        for (int k = 0; k < count; k++) {
            sum += live[k]->size_bytes;
        }
        peak = sum > peak ? sum : peak;
        CHECK(ckpt_test_allocated(event) == sum, "event %d: %lld bytes, wanted %lld", i,
              (long long)ckpt_test_allocated(event), (long long)sum);
        CHECK(i == 0 || event->start_ns >= event[-1].start_ns, "event %d is before the one before it", i);
    }
    assert_int_equal(trace->peak_bytes, peak);
    free(live);
    ckpt_text text;
    ckpt_arena arena;
    ckpt_err err = {0};
    const ckpt_trace *recomputed = NULL;
    ckpt_text_init(&text);
    ckpt_arena_init(&arena);
    ckpt_trace_write(trace, &text);
    const char *const path = ckpt_test_file(own_name("json"), text.bytes, text.length);
    CHECK_OK(ckpt_trace_read(path, &arena, &recomputed, &err), err);
    remove(path);
    ckpt_arena_fini(&arena);
    ckpt_text_fini(&text);
}

size_t ckpt_test_pickle(const char *text, char bytes[CKPT_TEST_PICKLE_ROOM])
{
    size_t length = 2;
    memcpy(bytes, "\x80\2", 2);
    for (const char *at = text; *at != '\0';) {
        char *end = NULL;
        const long long number = strtoll(at, &end, 10);
        CHECK(length + 300 < CKPT_TEST_PICKLE_ROOM, "too long for the test");
        if (end != at && strchr("-0123456789", *at) != NULL) {
            memcpy(bytes + length, "\x8a\x08", 2);
            memcpy(bytes + length + 2, &number, 8); /* little-endian, as the machines we run on */
            length += 10;
            at = end;
            continue;
        }
        if (*at == '\'') {
            const size_t size = strcspn(at + 1, "'");
            bytes[length++] = 'U';
            bytes[length++] = (char)size;
            memcpy(bytes + length, at + 1, size);
            length += size;
            at += size + 2;
            continue;
        }
        const char *const is = strchr("{}[]N", *at);
        const char *const becomes = is == NULL ? "" : (const char *[]){"}(", "u", "](", "e", "N"}[is - "{}[]N"];
        memcpy(bytes + length, becomes, strlen(becomes));
        length += strlen(becomes);
        at++;
    }
    bytes[length++] = '.';
    return length;
}

ckpt_code ckpt_test_snapshot_text(const char *text, ckpt_arena *arena, ckpt_trace **trace, ckpt_err *err)
{
    static char bytes[CKPT_TEST_PICKLE_ROOM];
    const size_t length = ckpt_test_pickle(text, bytes);
    const char *const path = ckpt_test_file(own_name("pickle"), bytes, length);
    const ckpt_code code = ckpt_test_snapshot_import(path, arena, trace, err);
    remove(path);
    return code;
}
