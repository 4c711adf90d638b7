/* What tests of the recorder share: the double of libcupti (tests/cupti_double), opened, and a recorder on it. For
 * builds with CUPTI's headers. */
#ifndef CKPT_TESTS_SUPPORT_CUPTI_H
#define CKPT_TESTS_SUPPORT_CUPTI_H

#include "tests/support/support_test.h"

#include "cupti/recorder.h"
#include "tests/cupti_double/cupti_double.h"

#define CKPT_TEST_DOUBLE ckpt_bin_file("libcupti_double.so")

/* The double's own functions. */
typedef struct ckpt_twin_functions {
    __typeof__(ckpt_cupti_double_reset) *reset;
    __typeof__(ckpt_cupti_double_control) *control;
    __typeof__(ckpt_cupti_double_script) *script;
    __typeof__(ckpt_cupti_double_run) *run;
    __typeof__(ckpt_cupti_double_record) *record;
    __typeof__(ckpt_cupti_double_deliver) *deliver;
    __typeof__(ckpt_cupti_double_enabled) *enabled;
    __typeof__(ckpt_cupti_double_calls) *calls;
} ckpt_twin_functions;
extern ckpt_twin_functions ckpt_twin;

/* The recorder under test, with what it collected last. */
typedef struct ckpt_rec_state {
    ckpt_recorder_options options;
    ckpt_recorder *recorder;
    ckpt_arena arena;
    const ckpt_activity *got;
    int count;
} ckpt_rec_state;
extern ckpt_rec_state ckpt_rec;

int ckpt_rec_group(void **state); /* set-up of a group: find the double */
int ckpt_rec_leave(void **state); /* tear-down of a test, which may have failed */

void ckpt_rec_begin(const char *controls); /* a fresh double under these, and no recorder */
void ckpt_rec_open(void);
void ckpt_rec_tagged(uint64_t tag, const char *items); /* let these happen under a tag */
void ckpt_rec_collect(void);
void ckpt_rec_close(void);
void ckpt_rec_end(void);                    /* close; nothing may be left */
void ckpt_rec_declined(const char *wanted); /* opening gives CKPT_DEVICE and one line with `wanted` in it */

/* Of what was collected: the n-th of a kind, and how many. */
const ckpt_activity *ckpt_rec_nth(ckpt_activity_kind kind, int n);
int ckpt_rec_count(ckpt_activity_kind kind);
ckpt_recorder_report ckpt_rec_told(void);

/* Random numbers from the seed that ckpt_rec_seed printed. */
void ckpt_rec_seed(int argc, char **argv);
uint64_t ckpt_rec_draw(void);

#endif
