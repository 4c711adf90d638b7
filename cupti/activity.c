#include "cupti/activity.h"

const char *ckpt_activity_kind_name(ckpt_activity_kind kind)
{
    static const char *const names[CKPT_ACTIVITY_KIND_COUNT] = {"kernel", "copy",     "fill",  "allocate", "release",
                                                                "call",   "overhead", "range", "mark"};
    return kind >= 0 && kind < CKPT_ACTIVITY_KIND_COUNT ? names[kind] : "unknown";
}
