/* CSV in, packed, CSV out. Fields are cut at commas; spaces around them and a carriage return at the end of a line are
 * nothing. Quotes are letters like others. */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "planner/placement/pack.h"

enum { ID, LOWER, UPPER, SIZE, COLUMNS, FIELDS_MAX = 64, SHOWN = 40 };
static const char *const column_name[COLUMNS] = {"id", "lower", "upper", "size"};

typedef struct field {
    const char *text;
    int length;
    int column; /* of the text, from 1 */
} field;

typedef struct reader {
    const char *path;
    const char *at, *end;
    int line;
    field field[FIELDS_MAX];
    int fields; /* of this line; more than FIELDS_MAX are counted only */
    int wanted; /* of every line */
    int where[COLUMNS];
} reader;

/* What was found, as far as it can be shown in a line. */
typedef struct shown {
    char text[SHOWN + 4];
} shown;

static shown show(const field *f)
{
    shown s = {{0}};
    const int length = f->length < SHOWN ? f->length : SHOWN;
    for (int i = 0; i < length; i++) {
        const char c = f->text[i];
        s.text[i] = (char)(c >= ' ' && c <= '~' ? c : '?');
    }
    memcpy(&s.text[length], "...", f->length > SHOWN ? 3 : 0);
    return s;
}

#define FAIL_AT(r, f, ...) fail_at((r), (f), CKPT_FAIL(err, CKPT_BAD_INPUT, __VA_ARGS__), err)

static ckpt_code fail_at(const reader *r, const field *f, ckpt_code code, ckpt_err *err)
{
    ckpt_err_at(err, "%.200s:%d:%d", strcmp(r->path, "-") == 0 ? "standard input" : r->path, r->line, f->column);
    return code;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next line that is not empty, cut into fields. False: there is none. */
static bool next_line(reader *r)
{
    while (r->at < r->end) {
        const char *const start = r->at;
        const char *stop = memchr(start, '\n', (size_t)(r->end - start));
        stop = stop != NULL ? stop : r->end;
        r->at = stop < r->end ? stop + 1 : stop;
        r->line++;
        r->fields = 0;
        bool empty = true;
        for (const char *from = start; from <= stop;) {
            const char *to = memchr(from, ',', (size_t)(stop - from));
            to = to != NULL ? to : stop;
            const char *first = from;
            const char *last = to;
            while (first < last && is_space(*first)) {
                first++;
            }
            while (last > first && is_space(last[-1])) {
                last--;
            }
            empty = empty && first == last && to == stop;
            if (r->fields < FIELDS_MAX) {
                r->field[r->fields] = (field){first, (int)(last - first), (int)(first - start) + 1};
            }
            r->fields++;
            from = to + 1;
        }
        if (!empty) {
            return true;
        }
    }
    return false;
}

static bool is_name(const field *f, const char *name)
{
    return (size_t)f->length == strlen(name) && memcmp(f->text, name, strlen(name)) == 0;
}

static ckpt_code read_header(reader *r, ckpt_err *err)
{
    if (r->end - r->at >= 3 && memcmp(r->at, "\xEF\xBB\xBF", 3) == 0) {
        r->at += 3; /* the mark some programs put before UTF-8 */
    }
    const field top = {.text = "", .column = 1};
    if (!next_line(r)) {
        r->line = 1;
        return FAIL_AT(r, &top, "found nothing, wanted a first line with the columns id, lower, upper and size");
    }
    if (r->fields > FIELDS_MAX) {
        return FAIL_AT(r, &top, "found %d columns, wanted at most %d", r->fields, FIELDS_MAX);
    }
    r->wanted = r->fields;
    for (int c = 0; c < COLUMNS; c++) {
        r->where[c] = -1;
        for (int k = 0; k < r->fields; k++) {
            if (is_name(&r->field[k], column_name[c]) && r->where[c] >= 0) {
                return FAIL_AT(r, &r->field[k], "found column '%s' a second time, wanted it once", column_name[c]);
            }
            r->where[c] = is_name(&r->field[k], column_name[c]) ? k : r->where[c];
        }
        if (r->where[c] < 0) {
            return FAIL_AT(r, &top, "found no column '%s' in '%s...', wanted a first line such as id,lower,upper,size",
                           column_name[c], show(&r->field[0]).text);
        }
    }
    return CKPT_OK;
}

static ckpt_code read_number(const reader *r, int column, int64_t *number, ckpt_err *err)
{
    const field *const f = &r->field[r->where[column]];
    int64_t n = 0;
    bool fits = true;
    bool digits = f->length > 0;
    for (int i = 0; i < f->length; i++) {
        digits = digits && f->text[i] >= '0' && f->text[i] <= '9';
        fits = fits && digits && ckpt_product(n, 10, &n) && ckpt_sum(n, f->text[i] - '0', &n);
    }
    if (!digits) {
        return FAIL_AT(r, f, "found %s '%s', wanted a whole number from 0", column_name[column], show(f).text);
    }
    if (!fits) {
        return FAIL_AT(r, f, "found %s %s, wanted less than 2^63", column_name[column], show(f).text);
    }
    *number = n;
    return CKPT_OK;
}

static ckpt_code read_row(const reader *r, ckpt_pack_row *row, ckpt_err *err)
{
    if (r->fields != r->wanted) {
        const int last = r->fields < FIELDS_MAX ? r->fields : FIELDS_MAX;
        return FAIL_AT(r, &r->field[last - 1], "found %d fields, wanted %d as in the first line", r->fields, r->wanted);
    }
    const field *const id = &r->field[r->where[ID]];
    if (id->length == 0) {
        return FAIL_AT(r, id, "found no id, wanted one");
    }
    *row = (ckpt_pack_row){.id = id->text, .id_length = (size_t)id->length, .line = r->line, .column = id->column};
    CKPT_TRY(read_number(r, LOWER, &row->lower, err));
    CKPT_TRY(read_number(r, UPPER, &row->upper, err));
    CKPT_TRY(read_number(r, SIZE, &row->size, err));
    if (row->lower >= row->upper) {
        return FAIL_AT(r, &r->field[r->where[UPPER]], "found upper %lld at lower %lld, wanted it above",
                       (long long)row->upper, (long long)row->lower);
    }
    return CKPT_OK;
}

static int compare_ids(const void *a, const void *b)
{
    const ckpt_pack_row *const x = *(const ckpt_pack_row *const *)a;
    const ckpt_pack_row *const y = *(const ckpt_pack_row *const *)b;
    const size_t length = x->id_length < y->id_length ? x->id_length : y->id_length;
    const int order = memcmp(x->id, y->id, length);
    if (order != 0) {
        return order;
    }
    return x->id_length != y->id_length ? (x->id_length < y->id_length ? -1 : 1)
                                        : (x->line > y->line) - (x->line < y->line);
}

static ckpt_code check_ids(const reader *r, const ckpt_pack_row *row, int count, ckpt_arena *scratch, ckpt_err *err)
{
    const ckpt_pack_row **const order = CKPT_NEW(scratch, const ckpt_pack_row *, count);
    if (order == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "ids of %d buffers", count);
    }
    for (int i = 0; i < count; i++) {
        order[i] = &row[i];
    }
    qsort(order, (size_t)count, sizeof *order, compare_ids);
    for (int i = 1; i < count; i++) {
        const ckpt_pack_row *const x = order[i - 1];
        const ckpt_pack_row *const y = order[i];
        if (x->id_length == y->id_length && memcmp(x->id, y->id, x->id_length) == 0) {
            reader at = *r;
            at.line = y->line;
            const field id = {y->id, (int)y->id_length, y->column};
            return FAIL_AT(&at, &id, "found id '%s' as in line %d, wanted each once", show(&id).text, x->line);
        }
    }
    return CKPT_OK;
}

static int compare_moments(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int find_moment(const int64_t *moment, int count, int64_t wanted)
{
    int low = 0;
    int high = count - 1;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (moment[middle] < wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Moments become steps: any 64-bit time will do. */
static ckpt_code fill_allocations(ckpt_pack *pack, ckpt_arena *out, ckpt_arena *scratch, ckpt_err *err)
{
    int64_t *const moment = CKPT_NEW(scratch, int64_t, 2 * (size_t)pack->count);
    pack->allocation = CKPT_NEW(out, ckpt_allocation, pack->count);
    if (moment == NULL || pack->allocation == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "allocations of %d buffers", pack->count);
    }
    for (int i = 0; i < pack->count; i++) {
        moment[2 * i] = pack->row[i].lower;
        moment[2 * i + 1] = pack->row[i].upper;
    }
    qsort(moment, 2 * (size_t)pack->count, sizeof *moment, compare_moments);
    int moments = 0;
    for (int i = 0; i < 2 * pack->count; i++) {
        if (i == 0 || moment[i] != moment[moments - 1]) {
            moment[moments++] = moment[i];
        }
    }
    for (int i = 0; i < pack->count; i++) {
        const ckpt_pack_row *const row = &pack->row[i];
        pack->allocation[i] = (ckpt_allocation){.name = "",
                                                .buffer = i,
                                                .from = find_moment(moment, moments, row->lower),
                                                .to = find_moment(moment, moments, row->upper) - 1,
                                                .bytes = row->size};
    }
    return ckpt_allocations_live(pack->allocation, pack->count, scratch, &pack->live, err);
}

static ckpt_code read_rows(reader *r, ckpt_pack *pack, ckpt_arena *out, ckpt_arena *scratch, ckpt_err *err)
{
    size_t room = 1;
    for (const char *c = r->at; c < r->end; c++) {
        room += *c == '\n';
    }
    CKPT_TRY(read_header(r, err));
    ckpt_pack_row *const row = room < INT32_MAX / 2 ? CKPT_NEW(out, ckpt_pack_row, room) : NULL;
    if (row == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu lines", room);
    }
    while (next_line(r)) {
        CKPT_TRY(read_row(r, &row[pack->count++], err));
    }
    pack->row = row;
    CKPT_TRY(check_ids(r, row, pack->count, scratch, err));
    CKPT_TRY_WHILE(err, fill_allocations(pack, out, scratch, err), "adding up the sizes in %.200s", r->path);
    return CKPT_OK;
}

ckpt_code ckpt_pack_read(const char *path, ckpt_arena *out, ckpt_pack **made, ckpt_err *err)
{
    const char *bytes = NULL;
    size_t length = 0;
    CKPT_TRY(ckpt_file_read(path, out, &bytes, &length, err));
    ckpt_pack *const pack = CKPT_NEW(out, ckpt_pack, 1);
    if (pack == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%.200s", path);
    }
    reader r = {.path = path, .at = bytes, .end = bytes + length};
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    const ckpt_code code = read_rows(&r, pack, out, &scratch, err);
    ckpt_arena_fini(&scratch);
    *made = code == CKPT_OK ? pack : *made;
    return code;
}

void ckpt_pack_write(const ckpt_pack *pack, ckpt_text *text)
{
    ckpt_text_add(text, "id,lower,upper,size,offset\n");
    for (int i = 0; i < pack->count; i++) {
        const ckpt_pack_row *const row = &pack->row[i];
        ckpt_text_put(text, row->id, row->id_length);
        ckpt_text_add(text, ",%lld,%lld,%lld,%lld\n", (long long)row->lower, (long long)row->upper,
                      (long long)row->size, (long long)pack->allocation[i].offset);
    }
}

static ckpt_code write_pack(const ckpt_pack *pack, const char *output, ckpt_err *err)
{
    ckpt_text text;
    ckpt_text_init(&text);
    ckpt_pack_write(pack, &text);
    return ckpt_file_write_text(output, &text, err);
}

static ckpt_code pack_within(ckpt_pack *pack, ckpt_bytes capacity, const ckpt_plan_options *options,
                             ckpt_arena *scratch, ckpt_bytes *taken, ckpt_err *err)
{
    const int most = options->effort < CKPT_EFFORT_NORMAL  ? options->effort
                     : options->effort == CKPT_EFFORT_MOST ? CKPT_EFFORT_MOST
                                                           : CKPT_EFFORT_MORE;
    *taken = CKPT_BYTES_MAX;
    for (int effort = CKPT_EFFORT_LOW; effort <= most && *taken > capacity; effort++) {
        ckpt_plan_options with = *options;
        with.effort = effort;
        CKPT_TRY(ckpt_allocations_pack(pack->allocation, pack->count, capacity, &with, scratch, taken, err));
        if (ckpt_plan_stopped(options) || capacity < pack->live) {
            break;
        }
    }
    return CKPT_OK;
}

static ckpt_code candidates(const char *path, const char *output, const char *capacity,
                            const ckpt_plan_options *options, ckpt_arena *arena, ckpt_text *summary, bool *within,
                            ckpt_err *err)
{
    const ckpt_ns start = ckpt_clock_ns();
    ckpt_pack *pack = NULL;
    CKPT_TRY(ckpt_pack_read(path, arena, &pack, err));
    ckpt_bytes room = pack->live;
    if (capacity != NULL) {
        CKPT_TRY_WHILE(err, ckpt_bytes_parse(capacity, pack->live, &room, err), "reading the capacity");
    }
    ckpt_bytes taken = 0;
    CKPT_TRY(pack_within(pack, room, options, arena, &taken, err));
    CKPT_TRY(write_pack(pack, output, err));
    *within = taken <= room;
    const double lost = taken > 0 ? 100.0 * (double)(taken - pack->live) / (double)taken : 0;
    ckpt_text_add(
        summary, "%d buffers %s %lld bytes: %lld taken, live bound %lld, %.2f %% lost to fragmentation, %.3f s\n",
        pack->count,
        *within             ? "packed within"
        : room < pack->live ? "need more than"
                            : "not packed within",
        (long long)room, (long long)taken, (long long)pack->live, lost, (double)(ckpt_clock_ns() - start) * 1e-9);
    return CKPT_OK;
}

ckpt_code ckpt_pack_file(const char *path, const char *output, const char *capacity, const ckpt_plan_options *options,
                         ckpt_text *summary, bool *within, ckpt_err *err)
{
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    const ckpt_code code = candidates(path, output, capacity, options, &arena, summary, within, err);
    ckpt_arena_fini(&arena);
    return code;
}
