/* The recorder. CUPTI keeps our callbacks for the rest of the process and calls them on threads of its own. So buffers
 * outlive a recorder, and each names the session it was given out for. There are two locks. The lock of the buffers is
 * held for a few instructions only, because programs wait when CUPTI asks for a buffer. The lock of the records is held
 * while a buffer is read. */
#include "cupti/recorder.h"

#ifdef CKPT_HAVE_CUPTI
#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "cupti/cupti_impl.h"

enum {
    BUFFER_BYTES = 2 << 20, /* about 8000 launches; NVIDIA recommends 1 to 10 MB */
    SLACK_BYTES = 1024,     /* zeros behind a buffer: more than any record */
    MOST_BUFFERS = 256,     /* beyond them records are dropped and counted */
    STUCK = 130000,         /* may deadlock when kernels are disabled while a thread launches; 13.0.1 does not */
    NONE_ALLOWED = 27,      /* CUDA 12.9: before, CUPTI crashes when it gets no buffer (pytorch/kineto#1275) */
    POOL_LIMIT = 32         /* of CUPTI's own 3 MB buffers, which we ask it to page-lock */
};

struct ckpt_recorder {
    ckpt_cupti cupti;
    ckpt_recorder_options options;
    CUpti_SubscriberHandle subscriber;
    uint64_t session;
    /* Under records_lock: */
    ckpt_records *records;
    ckpt_recorder_report report;
    int64_t lost; /* records that found no memory */
};

typedef struct buffer {
    struct buffer *next;
    uint64_t session; /* of the recorder it was given out for */
    alignas(16) uint8_t bytes[BUFFER_BYTES + SLACK_BYTES];
} buffer;

static pthread_mutex_t buffers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    buffer *idle, *out; /* out: CUPTI has them */
    uint64_t session;   /* of the open recorder; 0: none */
    uint64_t sessions;
    int64_t count, most;
    bool must;    /* CUPTI must always get a buffer: beyond the limit, and without a recorder */
    bool refused; /* a buffer, for lack of memory */
} pool;

static pthread_mutex_t records_lock = PTHREAD_MUTEX_INITIALIZER;
static ckpt_recorder *recorder_open; /* under records_lock */

static void CUPTIAPI give_buffer(uint8_t **bytes, size_t *size, size_t *most_records)
{
    *bytes = NULL;
    *size = *most_records = 0;
    pthread_mutex_lock(&buffers_lock);
    buffer *b = pool.session != 0 ? pool.idle : NULL;
    if (b != NULL) {
        pool.idle = b->next;
    } else if (pool.must || (pool.session != 0 && pool.count < MOST_BUFFERS)) {
        b = ckpt_memory_get(sizeof *b);
        pool.refused = pool.refused || b == NULL;
        pool.count += b != NULL;
        pool.most = pool.count > pool.most ? pool.count : pool.most;
    }
    if (b != NULL) {
        b->session = pool.session;
        b->next = pool.out;
        pool.out = b;
        *bytes = b->bytes;
        *size = BUFFER_BYTES;
    }
    pthread_mutex_unlock(&buffers_lock);
}

/* Removes the buffer from those that CUPTI has. NULL: it is not ours. */
static buffer *take_back(const uint8_t *bytes)
{
    pthread_mutex_lock(&buffers_lock);
    buffer **at = &pool.out;
    while (*at != NULL && (*at)->bytes != bytes) {
        at = &(*at)->next;
    }
    buffer *const b = *at;
    if (b != NULL) {
        *at = b->next;
    }
    pthread_mutex_unlock(&buffers_lock);
    return b;
}

static void put_away(buffer *b)
{
    pthread_mutex_lock(&buffers_lock);
    if (pool.session != 0) {
        b->next = pool.idle;
        pool.idle = b;
    } else {
        pool.count--;
        ckpt_memory_put(b);
    }
    pthread_mutex_unlock(&buffers_lock);
}

/* Keeps a decoded record, or gives it to the sink. */
static void take_record(ckpt_recorder *r, ckpt_cupti_record_kind kind, const ckpt_cupti_record *record)
{
    ckpt_activity whole = record->activity;
    ckpt_cupti_record range;
    bool complete = kind == CKPT_CUPTI_ACTIVITY;
    bool good = true;
    if (kind == CKPT_CUPTI_RANGE_START || kind == CKPT_CUPTI_RANGE_END) {
        good = ckpt_records_range(r->records, kind, record, &whole, &complete);
        if (complete && whole.end_ns < whole.start_ns) {
            kind = CKPT_CUPTI_ODD;
            complete = false;
        }
    }
    if (complete && whole.kind == CKPT_ACTIVITY_CALL) {
        if (r->options.sink == NULL) {
            good = ckpt_records_call(r->records, whole.correlation, whole.start_ns);
        }
        complete = good && r->options.calls;
    }
    if (complete && r->options.sink != NULL) {
        r->options.sink(r->options.context, &whole);
    } else if (complete) {
        range.activity = whole;
        good = ckpt_records_add(r->records, CKPT_CUPTI_ACTIVITY, &range);
    } else if (kind == CKPT_CUPTI_TAG && r->options.sink == NULL) {
        good = ckpt_records_add(r->records, kind, record);
    }
    r->report.odd += kind == CKPT_CUPTI_ODD;
    r->lost += !good;
}

/* Does the buffer end in the middle of a record? libcupti does not tell: to it the buffer ends before that record. So
 * we offer it the zeros behind the buffer too: then it shows a record that was cut, and nothing after a whole one. */
static bool is_cut(const ckpt_cupti *cupti, uint8_t *bytes, size_t valid, CUpti_Activity *last)
{
    CUpti_Activity *next = last;
    return cupti->cuptiActivityGetNextRecord(bytes, BUFFER_BYTES + SLACK_BYTES, &next) == CUPTI_SUCCESS &&
           (size_t)((uint8_t *)next - bytes) < valid;
}

static void read_buffer(ckpt_recorder *r, uint8_t *bytes, size_t valid)
{
    CUpti_Activity *record = NULL;
    CUpti_Activity *last = NULL;
    CUptiResult result = CUPTI_SUCCESS;
    while (valid > 0 && (result = r->cupti.cuptiActivityGetNextRecord(bytes, valid, &record)) == CUPTI_SUCCESS) {
        ckpt_cupti_record decoded;
        const ckpt_cupti_record_kind kind = ckpt_cupti_decode(&r->cupti, record, &decoded);
        take_record(r, kind, &decoded);
        last = record;
    }
    if (valid > 0 && (result != CUPTI_ERROR_MAX_LIMIT_REACHED || is_cut(&r->cupti, bytes, valid, last))) {
        r->report.odd++;
    }
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *bytes, size_t size, size_t valid)
{
    (void)context;
    (void)stream;
    (void)size;
    buffer *const b = bytes != NULL ? take_back(bytes) : NULL;
    if (b == NULL) {
        return;
    }
    pthread_mutex_lock(&records_lock);
    if (recorder_open != NULL && recorder_open->session == b->session) {
        read_buffer(recorder_open, bytes, valid < BUFFER_BYTES ? valid : BUFFER_BYTES);
    }
    pthread_mutex_unlock(&records_lock);
    put_away(b);
}

/* We use no callbacks of the callback API, but CUPTI requires a function. */
static void CUPTIAPI no_callback(void *context, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    (void)context;
    (void)domain;
    (void)id;
    (void)data;
}

static ckpt_code subscribe(ckpt_recorder *r, ckpt_err *err)
{
    char holder[128] = "";
    ckpt_cupti_subscriber parameters = {sizeof parameters, "ckpt", holder, sizeof holder - 1};
    const CUptiResult result = r->cupti.cuptiSubscribe_v2 != NULL
                                   ? r->cupti.cuptiSubscribe_v2(&r->subscriber, no_callback, NULL, &parameters)
                                   : r->cupti.cuptiSubscribe(&r->subscriber, no_callback, NULL);
    return result == CUPTI_SUCCESS ? CKPT_OK : ckpt_cupti_fail(&r->cupti, result, "starting to record", holder, err);
}

/* Asks CUPTI to keep its own buffers on the host. Not every device can (confidential computing). CUPTI then takes
 * device memory and does not say how much. */
static void set_attributes(ckpt_recorder *r)
{
    uint8_t yes = 1;
    size_t limit = POOL_LIMIT;
    size_t yes_size = sizeof yes;
    size_t limit_size = sizeof limit;
    const bool pinned = r->cupti.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_MEM_ALLOCATION_TYPE_HOST_PINNED,
                                                           &yes_size, &yes) == CUPTI_SUCCESS;
    r->report.device_bytes = pinned ? 0 : -1;
    (void)r->cupti.cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &limit_size, &limit);
    (void)r->cupti.cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM); /* the numbers that the system uses */
}

/* What we ask CUPTI to record, in this order. Tags belong to calls, so a recorder with tags records calls as well. */
typedef enum want { ALWAYS, WHERE_POSSIBLE, MEMORY, CALLS, TAGS, RANGES } want;
static const struct {
    CUpti_ActivityKind kind;
    want want;
    const char *what;
} kinds[] = {
    {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, ALWAYS, "recording kernels"},
    {CUPTI_ACTIVITY_KIND_MEMCPY, ALWAYS, "recording copies"},
    {CUPTI_ACTIVITY_KIND_MEMCPY2, WHERE_POSSIBLE, "recording copies to other GPUs"},
    {CUPTI_ACTIVITY_KIND_MEMSET, ALWAYS, "recording fills"},
    {CUPTI_ACTIVITY_KIND_OVERHEAD, WHERE_POSSIBLE, "recording overhead"},
    {CUPTI_ACTIVITY_KIND_MEMORY2, MEMORY, "recording memory"},
    {CUPTI_ACTIVITY_KIND_RUNTIME, CALLS, "recording calls of the runtime"},
    {CUPTI_ACTIVITY_KIND_DRIVER, CALLS, "recording calls of the driver"},
    {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, TAGS, "tagging calls"},
    {CUPTI_ACTIVITY_KIND_MARKER, RANGES, "recording NVTX ranges"},
};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

static bool wanted(const ckpt_recorder_options *options, want w)
{
    switch (w) {
    case MEMORY: return options->memory;
    case CALLS: return options->calls || options->sink == NULL;
    case TAGS: return options->sink == NULL;
    case RANGES: return options->ranges;
    default: return true;
    }
}

static void disable(const ckpt_recorder *r)
{
    for (int i = 0; i < KIND_COUNT; i++) {
        if (wanted(&r->options, kinds[i].want)) {
            (void)r->cupti.cuptiActivityDisable(kinds[i].kind);
        }
    }
}

static ckpt_code enable(ckpt_recorder *r, ckpt_err *err)
{
    const CUptiResult registered = r->cupti.cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    if (registered != CUPTI_SUCCESS) {
        return ckpt_cupti_fail(&r->cupti, registered, "giving it buffers", "", err);
    }
    for (int i = 0; i < KIND_COUNT; i++) {
        const CUptiResult result =
            wanted(&r->options, kinds[i].want) ? r->cupti.cuptiActivityEnable(kinds[i].kind) : CUPTI_SUCCESS;
        if (result != CUPTI_SUCCESS && kinds[i].want != WHERE_POSSIBLE) {
            disable(r);
            return ckpt_cupti_fail(&r->cupti, result, kinds[i].what, "", err);
        }
    }
    return CKPT_OK;
}

/* From now on buffers are given out for `r`. NULL: no more are given out. */
static void hand_over(ckpt_recorder *r)
{
    pthread_mutex_lock(&records_lock);
    recorder_open = r;
    pthread_mutex_unlock(&records_lock);
    pthread_mutex_lock(&buffers_lock);
    pool.session = r != NULL ? r->session : 0;
    pool.must = r != NULL ? r->cupti.version < NONE_ALLOWED : pool.must;
    while (r == NULL && pool.idle != NULL) {
        buffer *const gone = pool.idle;
        pool.idle = gone->next;
        pool.count--;
        ckpt_memory_put(gone);
    }
    pool.most = pool.count;
    pool.refused = false;
    pthread_mutex_unlock(&buffers_lock);
}

/* A forked child is not recorded, and a lock that another thread of the parent held stays locked in it. CUPTI may call
 * our callbacks in the child, for example when it exits: they must not wait. */
static void in_child(void)
{
    pthread_mutex_init(&records_lock, NULL);
    pthread_mutex_init(&buffers_lock, NULL);
    recorder_open = NULL;
    pool.session = 0;
    pool.idle = pool.out = NULL;
}

static ckpt_code start(ckpt_recorder *r, ckpt_err *err)
{
    static bool watched;
    watched = watched || pthread_atfork(NULL, NULL, in_child) == 0;
    CKPT_TRY(ckpt_cupti_load(r->options.library, &r->cupti, err));
    r->report.library = r->cupti.name;
    r->options.library = NULL; /* the caller's */
    r->records = ckpt_records_create();
    if (r->records == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "the records of %s", r->cupti.name);
    }
    CKPT_TRY(subscribe(r, err));
    set_attributes(r);
    hand_over(r);
    const ckpt_code code = enable(r, err);
    if (code != CKPT_OK) {
        (void)r->cupti.cuptiUnsubscribe(r->subscriber);
        hand_over(NULL);
    }
    return code;
}

/* Claims or (NULL) releases the right to be the one open recorder. */
static bool claim(uint64_t *session)
{
    static bool taken;
    pthread_mutex_lock(&buffers_lock);
    const bool free = !taken;
    taken = session != NULL;
    if (free && session != NULL) {
        *session = ++pool.sessions;
    }
    pthread_mutex_unlock(&buffers_lock);
    return free;
}

ckpt_code ckpt_recorder_open(const ckpt_recorder_options *options, ckpt_recorder **recorder, ckpt_err *err)
{
    uint64_t session = 0;
    ckpt_code code = CKPT_OK;
    if (!claim(&session)) {
        return CKPT_FAIL(err, CKPT_DEVICE, "this process is being recorded already: one recorder at a time");
    }
    ckpt_recorder *const r = ckpt_memory_get(sizeof *r);
    if (r == NULL) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "a recorder of %zu bytes", sizeof *r);
    } else {
        r->options = *options;
        r->session = session;
        code = start(r, err);
    }
    if (code != CKPT_OK) {
        if (r != NULL) {
            ckpt_records_destroy(r->records);
        }
        ckpt_memory_put(r);
        claim(NULL);
        return code;
    }
    *recorder = r;
    return CKPT_OK;
}

void ckpt_recorder_stop(ckpt_recorder *r)
{
    if (r->cupti.version != STUCK) {
        disable(r);
    }
}

void ckpt_recorder_close(ckpt_recorder *r)
{
    if (r == NULL) {
        return;
    }
    disable(r);
    /* Buffers come back and their records go to the sink, without those of work that still runs. */
    (void)r->cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    (void)r->cupti.cuptiUnsubscribe(r->subscriber);
    hand_over(NULL);
    ckpt_records_destroy(r->records);
    ckpt_memory_put(r);
    claim(NULL);
}

ckpt_code ckpt_recorder_push(ckpt_recorder *r, uint64_t tag, ckpt_err *err)
{
    assert(tag > 0);
    const CUptiResult result =
        r->cupti.cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, tag);
    return result == CUPTI_SUCCESS ? CKPT_OK : ckpt_cupti_fail(&r->cupti, result, "beginning a tag", "", err);
}

ckpt_code ckpt_recorder_pop(ckpt_recorder *r, ckpt_err *err)
{
    uint64_t tag = 0;
    const CUptiResult result =
        r->cupti.cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &tag);
    if (result == CUPTI_ERROR_QUEUE_EMPTY) {
        return CKPT_FAIL(err, CKPT_DEVICE, "a tag ends that this thread did not begin");
    }
    return result == CUPTI_SUCCESS ? CKPT_OK : ckpt_cupti_fail(&r->cupti, result, "ending a tag", "", err);
}

static ckpt_code flush(ckpt_recorder *r, uint32_t flags, ckpt_err *err)
{
    size_t dropped = 0;
    const CUptiResult result = r->cupti.cuptiActivityFlushAll(flags);
    if (r->cupti.cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped) == CUPTI_SUCCESS) {
        pthread_mutex_lock(&records_lock);
        r->report.dropped += (int64_t)dropped;
        pthread_mutex_unlock(&records_lock);
    }
    return result == CUPTI_SUCCESS ? CKPT_OK : ckpt_cupti_fail(&r->cupti, result, "giving its records back", "", err);
}

ckpt_code ckpt_recorder_flush(ckpt_recorder *r, ckpt_err *err)
{
    return flush(r, 0, err);
}

ckpt_code ckpt_recorder_flush_last(ckpt_recorder *r, ckpt_err *err)
{
    return flush(r, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED, err);
}

/* Was memory short since the last call? */
static bool went_short(ckpt_recorder *r, int64_t *lost)
{
    pthread_mutex_lock(&buffers_lock);
    const bool refused = pool.refused;
    pool.refused = false;
    pthread_mutex_unlock(&buffers_lock);
    *lost = r->lost;
    r->lost = 0;
    return refused || *lost > 0;
}

/* A plain flush keeps buffers with incomplete records, and sometimes others for no visible reason. A forced flush
 * returns these too. The device has finished, so no record in them is incomplete. */
ckpt_code ckpt_recorder_collect(ckpt_recorder *r, ckpt_arena *out, const ckpt_activity **activity, int *count,
                                ckpt_err *err)
{
    int64_t lost = 0;
    const ckpt_activity *all = NULL;
    int n = 0;
    CKPT_TRY(flush(r, 0, err));
    CKPT_TRY(flush(r, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED, err));
    pthread_mutex_lock(&records_lock);
    ckpt_code code = ckpt_records_collect(r->records, out, &all, &n, &r->report.skew_ns, err);
    if (went_short(r, &lost) && code == CKPT_OK) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %" PRId64 " records or for a buffer of %d bytes", lost,
                         BUFFER_BYTES);
    }
    pthread_mutex_unlock(&records_lock);
    if (code == CKPT_OK) {
        *activity = all;
        *count = n;
    }
    return code;
}

void ckpt_recorder_tell(const ckpt_recorder *r, ckpt_recorder_report *report)
{
    pthread_mutex_lock(&records_lock);
    *report = r->report;
    report->dropped += r->lost;
    pthread_mutex_unlock(&records_lock);
    pthread_mutex_lock(&buffers_lock);
    report->host_bytes = pool.most * (int64_t)sizeof(buffer);
    pthread_mutex_unlock(&buffers_lock);
}

const char *ckpt_recorder_describe(const ckpt_recorder *r, ckpt_arena *out)
{
    char host[CKPT_UNITS_TEXT];
    ckpt_recorder_report report;
    ckpt_recorder_tell(r, &report);
    const char *text = ckpt_arena_format(out, "%s, %s of host memory, %s, %" PRId64 " records dropped", report.library,
                                         ckpt_bytes_show(report.host_bytes, host),
                                         report.device_bytes == 0 ? "its own buffers page-locked there too"
                                                                  : "an unknown part of the GPU's",
                                         report.dropped);
    if (text != NULL && report.odd > 0) {
        text = ckpt_arena_format(out, "%s, %" PRId64 " left out that had no valid times or were cut off", text,
                                 report.odd);
    }
    if (text != NULL && report.skew_ns > 0) {
        char skew[CKPT_UNITS_TEXT];
        text = ckpt_arena_format(out, "%s, clocks of host and device at least %s apart", text,
                                 ckpt_ns_show(report.skew_ns, skew));
    }
    return text;
}
#endif
