/* libcupti as this folder uses it: a table of its functions, and its records decoded. Only for files that are compiled
 * with CUPTI's headers (CKPT_HAVE_CUPTI). */
#ifndef CKPT_CUPTI_CUPTI_IMPL_H
#define CKPT_CUPTI_CUPTI_IMPL_H

#include <cupti.h>

#include "core/base/memory.h"
#include "core/base/status.h"
#include "cupti/activity.h"

#if CUPTI_API_VERSION < 19
#error "CUPTI's headers are too old: those of CUDA 12.0 or later are needed"
#endif

/* One line per function: X(name). All of them are required. */
#define CKPT_CUPTI_FUNCTIONS(X)                                                                                        \
    X(cuptiGetVersion)                                                                                                 \
    X(cuptiGetResultString)                                                                                            \
    X(cuptiSubscribe)                                                                                                  \
    X(cuptiUnsubscribe)                                                                                                \
    X(cuptiActivityRegisterCallbacks)                                                                                  \
    X(cuptiActivityEnable)                                                                                             \
    X(cuptiActivityDisable)                                                                                            \
    X(cuptiActivityFlushAll)                                                                                           \
    X(cuptiActivityGetNextRecord)                                                                                      \
    X(cuptiActivityGetNumDroppedRecords)                                                                               \
    X(cuptiActivitySetAttribute)                                                                                       \
    X(cuptiActivityPushExternalCorrelationId)                                                                          \
    X(cuptiActivityPopExternalCorrelationId)                                                                           \
    X(cuptiSetThreadIdType)                                                                                            \
    X(cuptiGetCallbackName)

/* CUpti_SubscriberParams of CUPTI 13.0, for headers that do not have it. */
typedef struct ckpt_cupti_subscriber {
    size_t size;
    const char *name;
    char *holder;
    size_t holder_size;
} ckpt_cupti_subscriber;

typedef struct ckpt_cupti {
#define CKPT_CUPTI_MEMBER(function) __typeof__(function) *function;
    CKPT_CUPTI_FUNCTIONS(CKPT_CUPTI_MEMBER)
#undef CKPT_CUPTI_MEMBER
    /* Since 13.0; NULL: missing. */
    CUptiResult(CUPTIAPI *cuptiSubscribe_v2)(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
                                             void *context, ckpt_cupti_subscriber *parameters);
    uint32_t version;
    char name[32]; /* "CUPTI 13.0.1" */
} ckpt_cupti;

/* Finds libcupti and fills `cupti`; `library` as in ckpt_recorder_options. libcupti is never closed, because its
 * threads go on. Errors: CKPT_DEVICE. */
CKPT_MUST_USE ckpt_code ckpt_cupti_load(const char *library, ckpt_cupti *cupti, ckpt_err *err);

/* Is there an NVIDIA driver (libcuda.so.1)? */
bool ckpt_cupti_driver(void);

/* CKPT_DEVICE, with one line that says why `what` ("recording kernels") failed. `holder`: the tool that records
 * already, or "". */
ckpt_code ckpt_cupti_fail(const ckpt_cupti *cupti, CUptiResult result, const char *what, const char *holder,
                          ckpt_err *err);

/* What a record is about. */
typedef enum ckpt_cupti_record_kind {
    CKPT_CUPTI_OTHER,       /* not recorded */
    CKPT_CUPTI_ACTIVITY,    /* activity */
    CKPT_CUPTI_TAG,         /* the call with activity.correlation has activity.tag */
    CKPT_CUPTI_RANGE_START, /* activity.name, start_ns; its end has the same marker */
    CKPT_CUPTI_RANGE_END,   /* end_ns */
    CKPT_CUPTI_ODD          /* no times, a clock that ran backwards, numbers beyond 63 bits */
} ckpt_cupti_record_kind;

typedef struct ckpt_cupti_record {
    ckpt_activity activity; /* its name lives as the record: it is CUPTI's, or `text` */
    uint32_t marker;
    char text[96];
} ckpt_cupti_record;

/* Decodes a record from cuptiActivityGetNextRecord: whole, 8-byte aligned, of a version that ckpt_cupti_load accepts.
 * `cupti` gives the names of calls. */
ckpt_cupti_record_kind ckpt_cupti_decode(const ckpt_cupti *cupti, const CUpti_Activity *record, ckpt_cupti_record *out);

/* What was recorded and not collected yet. Every function may return false: no memory. */
typedef struct ckpt_records ckpt_records;

ckpt_records *ckpt_records_create(void); /* NULL: no memory */
void ckpt_records_destroy(ckpt_records *records);
/* Keeps a record of any kind but OTHER and ODD. */
bool ckpt_records_add(ckpt_records *records, ckpt_cupti_record_kind kind, const ckpt_cupti_record *record);
/* Keeps when a call began, for the tags and the skew of what it started. */
bool ckpt_records_call(ckpt_records *records, uint32_t correlation, ckpt_ns start_ns);
/* Takes half of a range. If the other half is there, fills `whole` and sets *complete. */
bool ckpt_records_range(ckpt_records *records, ckpt_cupti_record_kind kind, const ckpt_cupti_record *half,
                        ckpt_activity *whole, bool *complete);
/* Copies everything that was kept to `out`, joined with its tags and sorted, and forgets it, even after an error.
 * *skew_ns grows to the longest time that something started before its call did. */
CKPT_MUST_USE ckpt_code ckpt_records_collect(ckpt_records *records, ckpt_arena *out, const ckpt_activity **activity,
                                             int *count, ckpt_ns *skew_ns, ckpt_err *err);

#endif
