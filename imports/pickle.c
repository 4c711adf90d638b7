/* The stack machine of Python's pickles, without the instructions that name or call code.
 * Source: CPython, Lib/pickletools.py, which describes each opcode; PEP 307 (protocol 2), 3154 (4) and 574 (5).
 * Nothing here recurses: nested values are on the machine's own stack, which grows by at most one value per byte. */
#include "imports/pickle_impl.h"

#include <string.h>

#include "core/base/file.h"

enum { FIRST_ROOM = 8, PROTOCOL_MIN = 2, PROTOCOL_MAX = 5, NAME_MAX_BYTES = 60 };

typedef struct machine {
    const unsigned char *bytes;
    size_t length, at; /* `at`: behind the current opcode, then behind its argument */
    size_t opcode_at;
    const ckpt_opcode *opcode;
    ckpt_arena *arena;
    ckpt_pickle_value **stack;
    int stack_count, stack_room;
    int *mark; /* stack_count at each open mark */
    int mark_count, mark_room;
    ckpt_pickle_value **memo;     /* NULL: unused */
    size_t memo_count, memo_room; /* memo_count: entries in use, which is the next number of MEMOIZE */
    ckpt_pickle_value *constant;  /* None, False, True */
    int64_t value_count;
    ckpt_err *err;
} machine;

static ckpt_code no_memory(const machine *m)
{
    return CKPT_FAIL(m->err, CKPT_NO_MEMORY, "no memory for a pickle of %zu bytes", m->length);
}

/* "found opcode APPENDS at byte 17: <why>" */
static ckpt_code bad(const machine *m, const char *why)
{
    return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "found opcode %s at byte %zu: %s", m->opcode->name, m->opcode_at, why);
}

/* Makes room for one more element of `size` bytes; the array may move. */
static ckpt_code grow(const machine *m, void **array, int count, int *room, size_t size)
{
    if (count < *room) {
        return CKPT_OK;
    }
    const int more = *room == 0 ? FIRST_ROOM : 2 * *room; /* at most 2^30 bytes in a file: never beyond 2^31 */
    void *const moved = ckpt_arena_take(m->arena, (size_t)more, size);
    if (moved == NULL) {
        return no_memory(m);
    }
    if (count > 0) {
        memcpy(moved, *array, (size_t)count * size);
    }
    *array = moved;
    *room = more;
    return CKPT_OK;
}

static ckpt_code push(machine *m, ckpt_pickle_value *value)
{
    void *stack = m->stack;
    CKPT_TRY(grow(m, &stack, m->stack_count, &m->stack_room, sizeof *m->stack));
    m->stack = stack;
    m->stack[m->stack_count++] = value;
    return CKPT_OK;
}

static ckpt_code push_new(machine *m, ckpt_pickle_value value)
{
    ckpt_pickle_value *const made = CKPT_NEW(m->arena, ckpt_pickle_value, 1);
    if (made == NULL) {
        return no_memory(m);
    }
    *made = value;
    m->value_count++;
    return push(m, made);
}

/* The lowest stack position that an opcode may take: that of the last open mark. */
static int floor_of(const machine *m)
{
    return m->mark_count > 0 ? m->mark[m->mark_count - 1] : 0;
}

static ckpt_code need(const machine *m, int count)
{
    return m->stack_count - floor_of(m) >= count ? CKPT_OK : bad(m, "it takes more values than there are");
}

/* Removes the last mark; *first: where its values begin. */
static ckpt_code pop_mark(machine *m, int *first)
{
    if (m->mark_count == 0) {
        return bad(m, "no mark was set for it");
    }
    *first = m->mark[--m->mark_count];
    return CKPT_OK;
}

static ckpt_code take(machine *m, uint64_t count, const unsigned char **bytes)
{
    if (count > m->length - m->at) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "found opcode %s at byte %zu with %llu bytes to follow, but the file ends after %zu",
                         m->opcode->name, m->opcode_at, (unsigned long long)count, m->length - m->at);
    }
    *bytes = m->bytes + m->at;
    m->at += (size_t)count;
    return CKPT_OK;
}

/* An unsigned little-endian number of 1 to 8 bytes. */
static ckpt_code take_number(machine *m, int width, uint64_t *number)
{
    const unsigned char *byte = NULL;
    CKPT_TRY(take(m, (uint64_t)width, &byte));
    *number = 0;
    for (int i = 0; i < width; i++) {
        *number |= (uint64_t)byte[i] << (8 * i);
    }
    return CKPT_OK;
}

static ckpt_code push_int(machine *m, int64_t value)
{
    return push_new(m, (ckpt_pickle_value){.type = CKPT_PICKLE_INT, .as.integer = value});
}

/* LONG1 and LONG4: two's complement, little-endian. Bytes beyond the eighth may only repeat the sign. */
static ckpt_code push_long(machine *m)
{
    uint64_t width = 0;
    const unsigned char *byte = NULL;
    CKPT_TRY(take_number(m, m->opcode->width, &width));
    if (m->opcode->width == 4 && width > INT32_MAX) {
        return bad(m, "its length is negative");
    }
    CKPT_TRY(take(m, width, &byte));
    const unsigned char sign = width > 0 && byte[width - 1] >= 0x80 ? 0xff : 0;
    uint64_t value = sign != 0 ? UINT64_MAX : 0;
    for (uint64_t i = 0; i < width; i++) {
        if (i < 8) {
            value = (value & ~((uint64_t)0xff << (8 * i))) | (uint64_t)byte[i] << (8 * i);
        } else if (byte[i] != sign) {
            return bad(m, "an integer beyond 63 bits");
        }
    }
    if (width > 8 && (value >> 63 != 0) != (sign != 0)) {
        return bad(m, "an integer beyond 63 bits");
    }
    int64_t integer;
    memcpy(&integer, &value, sizeof integer);
    return push_int(m, integer);
}

static ckpt_code push_fixed_int(machine *m)
{
    uint64_t value = 0;
    CKPT_TRY(take_number(m, m->opcode->width, &value));
    return push_int(m, m->opcode->width == 4 ? (int64_t)(int32_t)(uint32_t)value : (int64_t)value);
}

static ckpt_code push_real(machine *m)
{
    const unsigned char *byte = NULL;
    CKPT_TRY(take(m, 8, &byte));
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++) { /* big-endian, unlike all other numbers */
        bits = bits << 8 | byte[i];
    }
    ckpt_pickle_value value = {.type = CKPT_PICKLE_REAL};
    memcpy(&value.as.real, &bits, sizeof bits);
    return push_new(m, value);
}

static ckpt_code push_bytes(machine *m)
{
    uint64_t length = 0;
    const unsigned char *bytes = NULL;
    CKPT_TRY(take_number(m, m->opcode->width, &length));
    CKPT_TRY(take(m, length, &bytes));
    if (length > INT32_MAX) {
        return bad(m, "a text of more than 2^31 bytes");
    }
    return push_new(m, (ckpt_pickle_value){.type = (ckpt_pickle_type)m->opcode->makes,
                                           .count = (int)length,
                                           .as.bytes = (const char *)bytes});
}

/* Makes a tuple or a set of the values from `first` on, or an empty container. */
static ckpt_code push_items(machine *m, int first)
{
    const int count = m->stack_count - first;
    const ckpt_pickle_value **const item = CKPT_NEW(m->arena, const ckpt_pickle_value *, count);
    if (item == NULL) {
        return no_memory(m);
    }
    if (count > 0) {
        memcpy(item, m->stack + first, (size_t)count * sizeof *item);
    }
    m->stack_count = first;
    return push_new(m, (ckpt_pickle_value){
                           .type = (ckpt_pickle_type)m->opcode->makes, .count = count, .as.item = item, .room = count});
}

/* Adds the values from `first` on to the container below them. */
static ckpt_code add_items(machine *m, int first)
{
    const int per_item = m->opcode->makes == CKPT_PICKLE_DICT ? 2 : 1;
    const int count = m->stack_count - first;
    if (first <= floor_of(m)) {
        return bad(m, "there is nothing to put its values into");
    }
    ckpt_pickle_value *const into = m->stack[first - 1];
    const ckpt_pickle_type wanted = (ckpt_pickle_type)m->opcode->makes;
    if (into->type != wanted) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "found opcode %s at byte %zu: it puts values into %s, wanted %s",
                         m->opcode->name, m->opcode_at, ckpt_pickle_type_name(into->type),
                         ckpt_pickle_type_name(wanted));
    }
    if (count % per_item != 0) {
        return bad(m, "a key without a value");
    }
    if (into->room == 0 && count > 0) { /* mostly all there are */
        into->as.item = CKPT_NEW(m->arena, const ckpt_pickle_value *, count);
        if (into->as.item == NULL) {
            return no_memory(m);
        }
        into->room = count;
    }
    for (int i = 0; i < count; i++) {
        void *item = into->as.item;
        CKPT_TRY(grow(m, &item, per_item * into->count + i % per_item, &into->room, sizeof *into->as.item));
        into->as.item = item;
        into->as.item[per_item * into->count + i % per_item] = m->stack[first + i];
        into->count += i % per_item == per_item - 1;
    }
    m->stack_count = first;
    return CKPT_OK;
}

static ckpt_code memo_put(machine *m, uint64_t index)
{
    CKPT_TRY(need(m, 1));
    if (index >= m->length) { /* each PUT takes at least one byte, and Python numbers them from 0 */
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "found opcode %s at byte %zu with number %llu, wanted less than the file's %zu bytes",
                         m->opcode->name, m->opcode_at, (unsigned long long)index, m->length);
    }
    if (index >= m->memo_room) {
        size_t room = m->memo_room == 0 ? FIRST_ROOM : m->memo_room;
        while (room <= index) {
            room *= 2;
        }
        ckpt_pickle_value **const memo = CKPT_NEW(m->arena, ckpt_pickle_value *, room);
        if (memo == NULL) {
            return no_memory(m);
        }
        if (m->memo_room > 0) {
            memcpy(memo, m->memo, m->memo_room * sizeof *memo);
        }
        m->memo = memo;
        m->memo_room = room;
    }
    m->memo_count += m->memo[index] == NULL;
    m->memo[index] = m->stack[m->stack_count - 1];
    return CKPT_OK;
}

static ckpt_code memo_get(machine *m)
{
    uint64_t index = 0;
    CKPT_TRY(take_number(m, m->opcode->width, &index));
    if (index >= m->memo_room || m->memo[index] == NULL) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "found opcode %s at byte %zu: nothing was put under number %llu",
                         m->opcode->name, m->opcode_at, (unsigned long long)index);
    }
    return push(m, m->memo[index]);
}

static ckpt_code push_mark(machine *m)
{
    void *mark = m->mark;
    CKPT_TRY(grow(m, &mark, m->mark_count, &m->mark_room, sizeof *m->mark));
    m->mark = mark;
    m->mark[m->mark_count++] = m->stack_count;
    return CKPT_OK;
}

static ckpt_code protocol(machine *m)
{
    uint64_t version = 0;
    CKPT_TRY(take_number(m, 1, &version));
    if (version < PROTOCOL_MIN || version > PROTOCOL_MAX) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "found a pickle of protocol %d, wanted %d to %d", (int)version,
                         PROTOCOL_MIN, PROTOCOL_MAX);
    }
    return CKPT_OK;
}

/* FRAME says how many bytes follow; all bytes are in memory already. */
static ckpt_code frame(machine *m)
{
    uint64_t length = 0;
    const unsigned char *bytes = NULL;
    CKPT_TRY(take_number(m, 8, &length));
    const size_t first = m->at;
    CKPT_TRY(take(m, length, &bytes));
    m->at = first;
    return CKPT_OK;
}

/* Copies `bytes` up to a newline as printable ASCII, for a message. */
static int printable(char *to, const char *bytes, size_t length)
{
    int count = 0;
    while ((size_t)count < length && count < NAME_MAX_BYTES && bytes[count] != '\n') {
        to[count] = bytes[count] >= ' ' && bytes[count] <= '~' ? bytes[count] : '?';
        count++;
    }
    to[count] = '\0';
    return count;
}

/* Refuses an opcode that would name or run code; the message has the name if the file has one. */
static ckpt_code refuse(const machine *m)
{
    char module[NAME_MAX_BYTES + 1] = "";
    char name[NAME_MAX_BYTES + 1] = "";
    if (m->opcode->does == CKPT_DO_REFUSE_NAMED) { /* two lines follow */
        const char *const text = (const char *)m->bytes + m->at;
        printable(module, text, m->length - m->at);
        const char *const end = memchr(text, '\n', m->length - m->at);
        if (end != NULL) {
            printable(name, end + 1, m->length - m->at - (size_t)(end + 1 - text));
        }
    } else if (m->opcode->does == CKPT_DO_REFUSE_STACKED && m->stack_count >= 2 &&
               m->stack[m->stack_count - 1]->type == CKPT_PICKLE_TEXT &&
               m->stack[m->stack_count - 2]->type == CKPT_PICKLE_TEXT) {
        ckpt_pickle_value *const *const top = m->stack + m->stack_count - 2;
        printable(module, top[0]->as.bytes, (size_t)top[0]->count);
        printable(name, top[1]->as.bytes, (size_t)top[1]->count);
    }
    if (module[0] != '\0' || name[0] != '\0') {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "found opcode %s '%s %s' at byte %zu: it names code, which is never run; wanted data only",
                         m->opcode->name, module, name, m->opcode_at);
    }
    return bad(m, "it names or runs code, which is never done; wanted data only");
}

static ckpt_code tuple_of(machine *m, int count)
{
    CKPT_TRY(need(m, count));
    return push_items(m, m->stack_count - count);
}

/* As in Python, POP removes the mark if no value is above it. */
static ckpt_code pop(machine *m)
{
    if (m->mark_count > 0 && floor_of(m) == m->stack_count) {
        m->mark_count--;
        return CKPT_OK;
    }
    CKPT_TRY(need(m, 1));
    m->stack_count--;
    return CKPT_OK;
}

static ckpt_code add_marked(machine *m)
{
    int first = 0;
    CKPT_TRY(pop_mark(m, &first));
    return add_items(m, first);
}

static ckpt_code put_numbered(machine *m)
{
    uint64_t index = 0;
    CKPT_TRY(take_number(m, m->opcode->width, &index));
    return memo_put(m, index);
}

static ckpt_code run(machine *m)
{
    int first = 0;
    switch (m->opcode->does) {
    case CKPT_DO_PROTO: return protocol(m);
    case CKPT_DO_FRAME: return frame(m);
    case CKPT_DO_NONE: return push(m, &m->constant[0]);
    case CKPT_DO_FALSE: return push(m, &m->constant[1]);
    case CKPT_DO_TRUE: return push(m, &m->constant[2]);
    case CKPT_DO_INT: return push_fixed_int(m);
    case CKPT_DO_LONG: return push_long(m);
    case CKPT_DO_REAL: return push_real(m);
    case CKPT_DO_BYTES: return push_bytes(m);
    case CKPT_DO_EMPTY: return push_items(m, m->stack_count);
    case CKPT_DO_TUPLE: return tuple_of(m, m->opcode->width);
    case CKPT_DO_MARK: return push_mark(m);
    case CKPT_DO_MAKE_MARKED: CKPT_TRY(pop_mark(m, &first)); return push_items(m, first);
    case CKPT_DO_ADD: CKPT_TRY(need(m, m->opcode->width + 1)); return add_items(m, m->stack_count - m->opcode->width);
    case CKPT_DO_ADD_MARKED: return add_marked(m);
    case CKPT_DO_PUT: return put_numbered(m);
    case CKPT_DO_MEMOIZE: return memo_put(m, m->memo_count);
    case CKPT_DO_GET: return memo_get(m);
    case CKPT_DO_POP: return pop(m);
    case CKPT_DO_POP_MARK:
        CKPT_TRY(pop_mark(m, &first));
        m->stack_count = first;
        return CKPT_OK;
    case CKPT_DO_DUP: CKPT_TRY(need(m, 1)); return push(m, m->stack[m->stack_count - 1]);
    case CKPT_DO_OLD: return bad(m, "of protocol 0 or 1; wanted a pickle of protocol 2 to 5");
    case CKPT_DO_STOP:
    case CKPT_DO_UNKNOWN: break; /* handled by run_all */
    case CKPT_DO_REFUSE:
    case CKPT_DO_REFUSE_NAMED:
    case CKPT_DO_REFUSE_STACKED: return refuse(m);
    }
    return CKPT_OK;
}

static ckpt_code run_all(machine *m)
{
    for (;;) {
        if (m->at == m->length) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "the pickle ends at byte %zu without opcode STOP", m->at);
        }
        m->opcode_at = m->at;
        m->opcode = &ckpt_opcodes[m->bytes[m->at++]];
        if (m->opcode->does == CKPT_DO_UNKNOWN) {
            return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "found 0x%02x at byte %zu, wanted a pickle opcode",
                             m->bytes[m->opcode_at], m->opcode_at);
        }
        if (m->opcode->does == CKPT_DO_STOP) {
            return CKPT_OK;
        }
        CKPT_TRY(run(m));
    }
}

static ckpt_code read(machine *m, ckpt_pickle_value **root)
{
    m->constant = CKPT_NEW(m->arena, ckpt_pickle_value, 3);
    if (m->constant == NULL) {
        return no_memory(m);
    }
    m->constant[1].type = m->constant[2].type = CKPT_PICKLE_BOOL;
    m->constant[2].as.integer = 1;
    m->value_count = 3;
    if (m->length > CKPT_FILE_MAX) { /* counts of values are ints */
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "found %zu bytes, wanted at most %zu", m->length, CKPT_FILE_MAX);
    }
    if (m->length == 0 || ckpt_opcodes[m->bytes[0]].does != CKPT_DO_PROTO) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "found no opcode PROTO at byte 0, wanted a pickle of protocol %d to %d", PROTOCOL_MIN,
                         PROTOCOL_MAX);
    }
    CKPT_TRY(run_all(m));
    if (m->stack_count != 1 || m->mark_count != 0) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "found %d values and %d open marks at STOP, byte %zu, wanted one value", m->stack_count,
                         m->mark_count, m->opcode_at);
    }
    *root = m->stack[0];
    return CKPT_OK;
}

ckpt_code ckpt_pickle_read(const char *path, const char *bytes, size_t length, ckpt_arena *arena,
                           const ckpt_pickle_value **root, int64_t *value_count, ckpt_err *err)
{
    machine m = {.bytes = (const unsigned char *)bytes, .length = length, .arena = arena, .err = err};
    ckpt_pickle_value *made = NULL;
    const ckpt_code code = read(&m, &made);
    if (code != CKPT_OK) {
        ckpt_err_at(err, "%.200s", path);
        return code;
    }
    *root = made;
    *value_count = m.value_count;
    return CKPT_OK;
}

bool ckpt_pickle_is_text(const ckpt_pickle_value *value, const char *text)
{
    const size_t length = strlen(text);
    return value->type == CKPT_PICKLE_TEXT && (size_t)value->count == length &&
           memcmp(value->as.bytes, text, length) == 0;
}

const ckpt_pickle_value *ckpt_pickle_find(const ckpt_pickle_value *dict, const char *key)
{
    if (dict->type != CKPT_PICKLE_DICT) {
        return NULL;
    }
    for (int i = dict->count - 1; i >= 0 && i >= dict->count - CKPT_PICKLE_KEYS; i--) {
        if (ckpt_pickle_is_text(dict->as.item[2 * i], key)) {
            return dict->as.item[2 * i + 1];
        }
    }
    return NULL;
}

const char *ckpt_pickle_type_name(ckpt_pickle_type type)
{
    static const char *const names[] = {"None",  "a bool", "an integer", "a float", "a text",
                                        "bytes", "a list", "a tuple",    "a dict",  "a set"};
    return names[type];
}
