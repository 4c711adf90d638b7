/* One thing that a CUDA program did: the contents of CUPTI's activity records in one type that needs no CUPTI. */
#ifndef CKPT_CUPTI_ACTIVITY_H
#define CKPT_CUPTI_ACTIVITY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/units.h"

typedef enum ckpt_activity_kind {
    CKPT_ACTIVITY_KERNEL,
    CKPT_ACTIVITY_COPY,
    CKPT_ACTIVITY_FILL,     /* a memset of the device */
    CKPT_ACTIVITY_ALLOCATE, /* device memory; an instant */
    CKPT_ACTIVITY_RELEASE,
    CKPT_ACTIVITY_CALL,     /* of the runtime or driver, on the host */
    CKPT_ACTIVITY_OVERHEAD, /* host time that recording itself took */
    CKPT_ACTIVITY_RANGE,    /* NVTX, pushed and popped by one thread, or started and ended */
    CKPT_ACTIVITY_MARK,     /* NVTX, an instant */
    CKPT_ACTIVITY_KIND_COUNT
} ckpt_activity_kind;

typedef enum ckpt_copy_way {
    CKPT_COPY_OTHER, /* host to host, peer to peer, unknown */
    CKPT_COPY_TO_HOST,
    CKPT_COPY_TO_DEVICE,
    CKPT_COPY_ON_DEVICE
} ckpt_copy_way;

/* Times are in ns of CUPTI's clock. Fields that do not apply are 0 or "". */
typedef struct ckpt_activity {
    ckpt_activity_kind kind;
    ckpt_copy_way way;        /* copies */
    const char *name;         /* kernel (as the compiler named it), call, range; never NULL */
    ckpt_ns start_ns, end_ns; /* end_ns >= start_ns */
    uint32_t device, context, stream;
    uint32_t correlation; /* the same for a call and for what it started; 0: none */
    uint64_t tag;         /* the innermost ckpt_recorder_push around the call that started it; 0: none */
    uint32_t process, thread;
    int64_t bytes;    /* copied, filled, allocated, released */
    uint64_t address; /* of the allocation */
} ckpt_activity;

/* Did it run on the device? Kernels, copies and fills did. */
bool ckpt_activity_ran(const ckpt_activity *activity);

/* "kernel", "copy", ... */
const char *ckpt_activity_kind_name(ckpt_activity_kind kind);

#endif
