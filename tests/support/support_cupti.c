#include "tests/support/support_cupti.h"

#ifdef CKPT_HAVE_CUPTI
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

ckpt_twin_functions ckpt_twin;
ckpt_rec_state ckpt_rec;

int ckpt_rec_group(void **state)
{
    void *const handle = dlopen(CKPT_TEST_DOUBLE, RTLD_NOW);
    CHECK(handle != NULL, "%s", dlerror());
#define FIND(function)                                                                                                 \
    *(void **)&ckpt_twin.function = dlsym(handle, "ckpt_cupti_double_" #function);                                     \
    assert_non_null(ckpt_twin.function)
    FIND(reset);
    FIND(control);
    FIND(script);
    FIND(run);
    FIND(record);
    FIND(deliver);
    FIND(enabled);
    FIND(calls);
    return 0;
}

void ckpt_rec_begin(const char *controls)
{
    ckpt_twin.reset();
    CHECK(ckpt_twin.control(controls) == 0, "%s", controls);
    ckpt_rec.options =
        (ckpt_recorder_options){.library = CKPT_TEST_DOUBLE, .memory = true, .calls = true, .ranges = true};
    ckpt_rec.recorder = NULL;
    ckpt_arena_init(&ckpt_rec.arena);
}

void ckpt_rec_open(void)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_recorder_open(&ckpt_rec.options, &ckpt_rec.recorder, &err), err);
}

void ckpt_rec_tagged(uint64_t tag, const char *items)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_recorder_push(ckpt_rec.recorder, tag, &err), err);
    CHECK(ckpt_twin.run(items) == 0, "%s", items);
    CHECK_OK(ckpt_recorder_pop(ckpt_rec.recorder, &err), err);
}

void ckpt_rec_collect(void)
{
    ckpt_err err = {0};
    CHECK_OK(ckpt_recorder_collect(ckpt_rec.recorder, &ckpt_rec.arena, &ckpt_rec.got, &ckpt_rec.count, &err), err);
}

void ckpt_rec_close(void)
{
    ckpt_recorder_close(ckpt_rec.recorder);
    ckpt_rec.recorder = NULL;
}

void ckpt_rec_end(void)
{
    ckpt_rec_close();
    ckpt_arena_fini(&ckpt_rec.arena);
    assert_int_equal(ckpt_memory_live(), 0);
}

void ckpt_rec_declined(const char *wanted)
{
    ckpt_err err = {0};
    ckpt_recorder *none = NULL;
    const ckpt_code code = ckpt_recorder_open(&ckpt_rec.options, &none, &err);
    CHECK(code == CKPT_DEVICE, "code %d: %s", (int)code, err.msg);
    CHECK(strstr(err.msg, wanted) != NULL, "'%s' does not say '%s'", err.msg, wanted);
    CHECK(strchr(err.msg, '\n') == NULL, "more than a line: %s", err.msg);
    assert_null(none);
    assert_int_equal(ckpt_memory_live(), 0);
}

const ckpt_activity *ckpt_rec_nth(ckpt_activity_kind kind, int n)
{
    for (int i = 0; i < ckpt_rec.count; i++) {
        if (ckpt_rec.got[i].kind == kind && n-- == 0) {
            return &ckpt_rec.got[i];
        }
    }
    fail_msg("no %s number %d", ckpt_activity_kind_name(kind), n);
    return NULL;
}

int ckpt_rec_count(ckpt_activity_kind kind)
{
    int count = 0;
    for (int i = 0; i < ckpt_rec.count; i++) {
        count += ckpt_rec.got[i].kind == kind;
    }
    return count;
}

ckpt_recorder_report ckpt_rec_told(void)
{
    ckpt_recorder_report report;
    ckpt_recorder_tell(ckpt_rec.recorder, &report);
    return report;
}

int ckpt_rec_leave(void **state)
{
    ckpt_rec_close();
    ckpt_arena_fini(&ckpt_rec.arena);
    return 0;
}

static uint64_t random_state = 20261120;

void ckpt_rec_seed(int argc, char **argv)
{
    random_state = argc > 1 ? strtoull(argv[1], NULL, 10) | 1 : random_state;
    print_message("seed %llu\n", (unsigned long long)random_state);
}

uint64_t ckpt_rec_draw(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}
#endif
