#include "cupti/activity.h"

bool ckpt_activity_ran(const ckpt_activity *activity)
{
    return activity->kind == CKPT_ACTIVITY_KERNEL || activity->kind == CKPT_ACTIVITY_COPY ||
           activity->kind == CKPT_ACTIVITY_FILL;
}

const char *ckpt_activity_kind_name(ckpt_activity_kind kind)
{
    static const char *const names[CKPT_ACTIVITY_KIND_COUNT] = {"kernel", "copy",     "fill",  "allocate", "release",
                                                                "call",   "overhead", "range", "mark"};
    return kind >= 0 && kind < CKPT_ACTIVITY_KIND_COUNT ? names[kind] : "unknown";
}
