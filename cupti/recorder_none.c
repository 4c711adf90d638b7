/* The recorder of a build without CUPTI's headers. */
#include "cupti/recorder.h"

#ifndef CKPT_HAVE_CUPTI

#define NONE(err) CKPT_FAIL(err, CKPT_DEVICE, "this build has no CUPTI: its headers were not there")

ckpt_code ckpt_recorder_open(const ckpt_recorder_options *options, ckpt_recorder **recorder, ckpt_err *err)
{
    (void)options;
    (void)recorder;
    return NONE(err);
}

void ckpt_recorder_stop(ckpt_recorder *recorder)
{
    (void)recorder;
}

void ckpt_recorder_close(ckpt_recorder *recorder)
{
    (void)recorder;
}

ckpt_code ckpt_recorder_push(ckpt_recorder *recorder, uint64_t tag, ckpt_err *err)
{
    (void)recorder;
    (void)tag;
    return NONE(err);
}

ckpt_code ckpt_recorder_pop(ckpt_recorder *recorder, ckpt_err *err)
{
    (void)recorder;
    return NONE(err);
}

ckpt_code ckpt_recorder_collect(ckpt_recorder *recorder, ckpt_arena *out, const ckpt_activity **activity, int *count,
                                ckpt_err *err)
{
    (void)recorder;
    (void)out;
    (void)activity;
    (void)count;
    return NONE(err);
}

ckpt_code ckpt_recorder_flush(ckpt_recorder *recorder, ckpt_err *err)
{
    (void)recorder;
    return NONE(err);
}

ckpt_code ckpt_recorder_flush_last(ckpt_recorder *recorder, ckpt_err *err)
{
    (void)recorder;
    return NONE(err);
}

void ckpt_recorder_tell(const ckpt_recorder *recorder, ckpt_recorder_report *report)
{
    (void)recorder;
    *report = (ckpt_recorder_report){.library = "none", .device_bytes = -1};
}

const char *ckpt_recorder_describe(const ckpt_recorder *recorder, ckpt_arena *out)
{
    (void)recorder;
    return ckpt_arena_text(out, "this build has no CUPTI");
}
#endif
