/* Reads a spool twice: counts its records first, then decodes them into arrays of that size. A file that ends within a
 * record was cut, which is not an error; anything else that no writer writes is one. */
#include "cupti/spool_impl.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/file.h"

typedef struct reader {
    const unsigned char *bytes;
    size_t at, end;
    const char *path;
    ckpt_err *err;
} reader;

static ckpt_code refuse(const reader *r, const char *found, uint64_t value, const char *wanted)
{
    return CKPT_FAIL(r->err, CKPT_BAD_INPUT, "%.200s: byte %zu: %s %" PRIu64 ", wanted %s", r->path, r->at, found,
                     value, wanted);
}

/* false: the number does not end before `end`. One of more than 64 bits loses the upper ones; no rule depends on
 * them. */
static bool take_number(const unsigned char *bytes, size_t *at, size_t end, uint64_t *number)
{
    uint64_t sum = 0;
    for (unsigned shift = 0; *at < end && shift < 7 * CKPT_SPOOL_VARINT_MAX; shift += 7) {
        const unsigned char byte = bytes[(*at)++];
        sum |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = sum;
            return true;
        }
    }
    return false;
}

/* Copies a text to a C string. */
static ckpt_code take_text(const reader *r, size_t from, size_t to, ckpt_arena *out, const char **text)
{
    if (memchr(r->bytes + from, '\0', to - from) != NULL) {
        return refuse(r, "a text with byte", 0, "none");
    }
    char *const copy = ckpt_arena_take(out, to - from + 1, 1);
    if (copy == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for its names", r->path);
    }
    memcpy(copy, r->bytes + from, to - from);
    *text = copy;
    return CKPT_OK;
}

/* Reads the head. *whole is false if the file ends within it. */
static ckpt_code read_head(reader *r, ckpt_arena *out, ckpt_spool_content *content, bool *whole)
{
    const size_t magic = strlen(CKPT_SPOOL_MAGIC);
    uint64_t version = 0, process = 0, length = 0;
    if (memcmp(r->bytes, CKPT_SPOOL_MAGIC, r->end < magic ? r->end : magic) != 0) {
        return CKPT_FAIL(r->err, CKPT_BAD_INPUT, "%.200s: no spool: it does not begin with \"" CKPT_SPOOL_MAGIC "\"",
                         r->path);
    }
    r->at = r->end < magic ? r->end : magic;
    *whole = false;
    if (!take_number(r->bytes, &r->at, r->end, &version)) {
        return CKPT_OK;
    }
    if (version != CKPT_SPOOL_VERSION) {
        return refuse(r, "version", version, "1: is libckpt_inject.so of the same release?");
    }
    if (!take_number(r->bytes, &r->at, r->end, &process)) {
        return CKPT_OK;
    }
    if (process > INT32_MAX) {
        return refuse(r, "process", process, "a process number");
    }
    content->process = (uint32_t)process;
    if (!take_number(r->bytes, &r->at, r->end, &length)) {
        return CKPT_OK;
    }
    if (length > CKPT_SPOOL_TEXT_MAX) {
        return refuse(r, "a name of bytes:", length, "a shorter one");
    }
    if (length > r->end - r->at) {
        return CKPT_OK;
    }
    CKPT_TRY(take_text(r, r->at, r->at + length, out, &content->program));
    r->at += length;
    *whole = true;
    return CKPT_OK;
}

/* Finds the next record, bytes[r->at .. *end). *whole is false if the file ends before its end. */
static ckpt_code next_record(reader *r, size_t *end, bool *whole)
{
    uint64_t length = 0;
    *whole = false;
    size_t at = r->at;
    if (!take_number(r->bytes, &at, r->end, &length)) {
        return r->end - r->at < CKPT_SPOOL_VARINT_MAX ? CKPT_OK : refuse(r, "a length of bytes:", 11, "10 at most");
    }
    if (length == 0 || length > CKPT_SPOOL_RECORD_MAX) {
        return refuse(r, "a record of bytes:", length, "1 to 8320");
    }
    if (length > r->end - at) {
        return CKPT_OK;
    }
    r->at = at;
    *end = at + length;
    *whole = true;
    return CKPT_OK;
}

static ckpt_code count_activities(reader r, int *count, bool *cut)
{
    while (r.at < r.end) {
        size_t end = 0;
        bool whole = false;
        CKPT_TRY(next_record(&r, &end, &whole));
        if (!whole) {
            *cut = true;
            return CKPT_OK;
        }
        *count += r.bytes[r.at] < CKPT_ACTIVITY_KIND_COUNT;
        r.at = end;
    }
    return CKPT_OK;
}

typedef struct decoder {
    const char **name; /* by number; NULL: not defined so far */
    uint64_t last_start;
} decoder;

static ckpt_code decode_name(reader *r, size_t end, decoder *d, ckpt_arena *out)
{
    uint64_t number = 0;
    if (!take_number(r->bytes, &r->at, end, &number)) {
        return refuse(r, "a name's number that ends after byte", end, "within its record");
    }
    if (number >= CKPT_SPOOL_NAMES) {
        return refuse(r, "a name's number", number, "0 to 8191");
    }
    return take_text(r, r->at, end, out, &d->name[number]);
}

enum { WAY, NAME, START, LONG, DEVICE, CONTEXT, STREAM, CORRELATION, TAG, THREAD, BYTES, ADDRESS, NUMBERS };

/* The largest value of each number of an activity. The start is checked after the last one is added. */
static const uint64_t most[NUMBERS] = {
    [WAY] = CKPT_COPY_ON_DEVICE, [NAME] = CKPT_SPOOL_NAMES - 1, [START] = UINT64_MAX,  [LONG] = INT64_MAX,
    [DEVICE] = UINT32_MAX,       [CONTEXT] = UINT32_MAX,        [STREAM] = UINT32_MAX, [CORRELATION] = UINT32_MAX,
    [TAG] = UINT64_MAX,          [THREAD] = UINT32_MAX,         [BYTES] = INT64_MAX,   [ADDRESS] = UINT64_MAX,
};

static ckpt_code decode_activity(reader *r, size_t end, decoder *d, uint32_t process, ckpt_activity *activity)
{
    uint64_t number[NUMBERS];
    for (int i = 0; i < NUMBERS; i++) {
        if (!take_number(r->bytes, &r->at, end, &number[i])) {
            return refuse(r, "an activity that ends after number", (uint64_t)i, "12");
        }
        if (number[i] > most[i]) {
            return refuse(r, "a number of an activity:", number[i], "what a recorder gives");
        }
    }
    if (r->at != end) {
        return refuse(r, "an activity with more bytes:", end - r->at, "12 numbers");
    }
    const uint64_t start = d->last_start + ckpt_spool_unzigzag(number[START]);
    d->last_start = start;
    if (start > INT64_MAX || number[LONG] > INT64_MAX - start) {
        return refuse(r, "an activity's time:", start, "63 bits");
    }
    if (d->name[number[NAME]] == NULL) {
        return refuse(r, "an activity with name", number[NAME], "one that was written before");
    }
    *activity = (ckpt_activity){
        .kind = activity->kind,
        .way = (ckpt_copy_way)number[WAY],
        .name = d->name[number[NAME]],
        .start_ns = (ckpt_ns)start,
        .end_ns = (ckpt_ns)(start + number[LONG]),
        .device = (uint32_t)number[DEVICE],
        .context = (uint32_t)number[CONTEXT],
        .stream = (uint32_t)number[STREAM],
        .correlation = (uint32_t)number[CORRELATION],
        .tag = number[TAG],
        .process = process,
        .thread = (uint32_t)number[THREAD],
        .bytes = (int64_t)number[BYTES],
        .address = number[ADDRESS],
    };
    return CKPT_OK;
}

static ckpt_code decode_records(reader *r, ckpt_arena *out, ckpt_activity *activity, ckpt_spool_content *content)
{
    decoder d = {CKPT_NEW(out, const char *, CKPT_SPOOL_NAMES), 0};
    if (d.name == NULL) {
        return CKPT_FAIL(r->err, CKPT_NO_MEMORY, "%.200s: no memory for its names", r->path);
    }
    while (r->at < r->end) {
        size_t end = 0;
        bool whole = false;
        CKPT_TRY(next_record(r, &end, &whole));
        if (!whole) {
            return CKPT_OK;
        }
        const unsigned kind = r->bytes[r->at++];
        if (kind < CKPT_ACTIVITY_KIND_COUNT) {
            activity[content->count].kind = (ckpt_activity_kind)kind;
            CKPT_TRY(decode_activity(r, end, &d, content->process, &activity[content->count]));
            content->count++;
        } else if (kind == CKPT_SPOOL_KIND_NAME) {
            CKPT_TRY(decode_name(r, end, &d, out));
        } else if (kind >= CKPT_SPOOL_KIND_WORD && kind < CKPT_SPOOL_KIND_WORD + CKPT_SPOOL_WORD_COUNT) {
            CKPT_TRY(take_text(r, r->at, end, out, &content->word[kind - CKPT_SPOOL_KIND_WORD]));
        } else {
            return refuse(r, "a record of kind", kind, "an activity's, 32, or 64 to 67");
        }
        r->at = end;
    }
    return CKPT_OK;
}

ckpt_code ckpt_spool_read(const char *path, ckpt_arena *out, ckpt_spool_content *content, ckpt_err *err)
{
    const char *bytes = NULL;
    size_t length = 0;
    CKPT_TRY(ckpt_file_read(path, out, &bytes, &length, err));
    reader r = {(const unsigned char *)bytes, 0, length, path, err};
    ckpt_spool_content made = {.program = ""};
    bool whole = false;
    CKPT_TRY(read_head(&r, out, &made, &whole));
    int count = 0;
    made.cut = !whole;
    if (whole) {
        CKPT_TRY(count_activities(r, &count, &made.cut));
        ckpt_activity *const activity = CKPT_NEW(out, ckpt_activity, count);
        if (activity == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s: no memory for %d activities", path, count);
        }
        made.activity = activity;
        CKPT_TRY(decode_records(&r, out, activity, &made));
    }
    *content = made;
    return CKPT_OK;
}
