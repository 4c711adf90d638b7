/* The stack machine of Python's pickles, without the instructions that name or call code.
 * Source: CPython, Lib/pickletools.py, which describes each opcode; PEP 307 (protocol 2), 3154 (4) and 574 (5).
 * Nothing here recurses: nested values are on the machine's own stack, which grows by at most one value per byte. */
#include "imports/pickle_impl.h"

#include <string.h>

#include "core/base/file.h"

enum { FIRST_ROOM = 256, PROTOCOL_MIN = 2, PROTOCOL_MAX = 5, NAME_MAX_BYTES = 60 };

/* Places and words, as pickle_impl.h draws them. A count is below 2^30, as a file has at most so many bytes. */
#define CONTAINER  (UINT32_C(1) << 31)
#define COUNT_MASK ((UINT32_C(1) << 30) - 1)
enum { TYPE_SHIFT = 30, HEAD_WORDS = 2, PIECE_WORDS = 2 };
static const ckpt_pickle_type container_types[] = {CKPT_PICKLE_LIST, CKPT_PICKLE_TUPLE, CKPT_PICKLE_DICT,
                                                   CKPT_PICKLE_SET};

typedef struct words {
    uint32_t *at;
    size_t count, room;
} words;

typedef struct machine {
    const unsigned char *bytes;
    size_t length, at; /* `at`: behind the current opcode, then behind its argument */
    size_t opcode_at;
    const ckpt_opcode *opcode;
    ckpt_pickle *made;
    words stack; /* places */
    words mark;  /* stack.count at each open mark */
    words memo;  /* places; 0: unused. count: numbers in use, which is the next number of MEMOIZE */
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

/* Makes room for `wanted` words in all; those beyond the old room hold anything. Large arrays are moved by their pages. */
static ckpt_code grow(const machine *m, words *array, size_t wanted)
{
    if (wanted <= array->room) {
        return CKPT_OK;
    }
    const size_t half_more = array->room + array->room / 2;
    size_t room = half_more > FIRST_ROOM ? half_more : FIRST_ROOM;
    room = room > wanted ? room : wanted;
    uint32_t *const at = ckpt_memory_resize(array->at, room * sizeof *at);
    if (at == NULL) {
        return no_memory(m);
    }
    array->at = at;
    array->room = room;
    return CKPT_OK;
}

static ckpt_code push(machine *m, uint32_t place)
{
    CKPT_TRY(grow(m, &m->stack, m->stack.count + 1));
    m->stack.at[m->stack.count++] = place;
    return CKPT_OK;
}

/* Pushes what the current opcode says by itself. */
static ckpt_code push_here(machine *m)
{
    m->made->value_count++;
    return push(m, (uint32_t)m->opcode_at);
}

/* Takes words for containers; *first: the number of the first. */
static ckpt_code take_words(machine *m, size_t count, uint32_t *first)
{
    ckpt_pickle *const made = m->made;
    words array = {made->word, made->word_count, made->word_room};
    if (count > CONTAINER - array.count) {
        return CKPT_FAIL(m->err, CKPT_OVERFLOW,
                         "found opcode %s at byte %zu: the values before it take %zu words, wanted less than %zu",
                         m->opcode->name, m->opcode_at, array.count + count, (size_t)CONTAINER);
    }
    CKPT_TRY(grow(m, &array, array.count + count));
    made->word = array.at;
    made->word_room = array.room;
    *first = (uint32_t)array.count;
    made->word_count += count;
    return CKPT_OK;
}

/* The lowest stack position that an opcode may take: that of the last open mark. */
static size_t floor_of(const machine *m)
{
    return m->mark.count > 0 ? m->mark.at[m->mark.count - 1] : 0;
}

static ckpt_code need(const machine *m, int count)
{
    return m->stack.count - floor_of(m) >= (size_t)count ? CKPT_OK : bad(m, "it takes more values than there are");
}

/* Removes the last mark; *first: where its values begin. */
static ckpt_code pop_mark(machine *m, size_t *first)
{
    if (m->mark.count == 0) {
        return bad(m, "no mark was set for it");
    }
    *first = m->mark.at[--m->mark.count];
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
static uint64_t number_at(const unsigned char *byte, int width)
{
    uint64_t number = 0;
    for (int i = 0; i < width; i++) {
        number |= (uint64_t)byte[i] << (8 * i);
    }
    return number;
}

static ckpt_code take_number(machine *m, int width, uint64_t *number)
{
    const unsigned char *byte = NULL;
    CKPT_TRY(take(m, (uint64_t)width, &byte));
    *number = number_at(byte, width);
    return CKPT_OK;
}

/* Two's complement, little-endian. */
static int64_t long_at(const unsigned char *byte, uint64_t width)
{
    uint64_t value = width > 0 && byte[width - 1] >= 0x80 ? UINT64_MAX : 0;
    for (uint64_t i = 0; i < width && i < 8; i++) {
        value = (value & ~((uint64_t)0xff << (8 * i))) | (uint64_t)byte[i] << (8 * i);
    }
    int64_t integer;
    memcpy(&integer, &value, sizeof integer);
    return integer;
}

static double real_at(const unsigned char *byte)
{
    uint64_t bits = 0;
    double real;
    for (int i = 0; i < 8; i++) { /* big-endian, unlike all other numbers */
        bits = bits << 8 | byte[i];
    }
    memcpy(&real, &bits, sizeof bits);
    return real;
}

static uint32_t head_of(ckpt_pickle_type type, size_t count)
{
    uint32_t kind = 0;
    while (container_types[kind] != type) {
        kind++;
    }
    return kind << TYPE_SHIFT | (uint32_t)count;
}

/* The value at a place, which the machine has checked. */
static ckpt_pickle_value value_at(const ckpt_pickle *p, uint32_t place)
{
    ckpt_pickle_value value = {.in = p, .place = place};
    if ((place & CONTAINER) != 0) {
        const uint32_t head = p->word[place & ~CONTAINER];
        value.type = container_types[head >> TYPE_SHIFT];
        value.count = (int)(head & COUNT_MASK);
        return value;
    }
    const ckpt_opcode *const opcode = &ckpt_opcodes[p->bytes[place]];
    const unsigned char *const argument = p->bytes + place + 1;
    switch (opcode->does) {
    case CKPT_DO_FALSE:
    case CKPT_DO_TRUE:
        value.type = CKPT_PICKLE_BOOL;
        value.as.integer = opcode->does == CKPT_DO_TRUE;
        break;
    case CKPT_DO_INT: {
        const uint64_t number = number_at(argument, opcode->width);
        value.type = CKPT_PICKLE_INT;
        value.as.integer = opcode->width == 4 ? (int64_t)(int32_t)(uint32_t)number : (int64_t)number;
        break;
    }
    case CKPT_DO_LONG:
        value.type = CKPT_PICKLE_INT;
        value.as.integer = long_at(argument + opcode->width, number_at(argument, opcode->width));
        break;
    case CKPT_DO_REAL:
        value.type = CKPT_PICKLE_REAL;
        value.as.real = real_at(argument);
        break;
    case CKPT_DO_BYTES:
        value.type = (ckpt_pickle_type)opcode->makes;
        value.count = (int)number_at(argument, opcode->width);
        value.as.bytes = (const char *)argument + opcode->width;
        break;
    default: value.type = CKPT_PICKLE_NONE; break;
    }
    return value;
}

/* LONG1 and LONG4. Bytes beyond the eighth may only repeat the sign. */
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
    for (uint64_t i = 8; i < width; i++) {
        if (byte[i] != sign) {
            return bad(m, "an integer beyond 63 bits");
        }
    }
    if (width > 8 && (long_at(byte, width) < 0) != (sign != 0)) {
        return bad(m, "an integer beyond 63 bits");
    }
    return push_here(m);
}

/* A number of so many bytes. */
static ckpt_code push_number(machine *m, int width)
{
    const unsigned char *byte = NULL;
    CKPT_TRY(take(m, (uint64_t)width, &byte));
    return push_here(m);
}

static ckpt_code push_bytes(machine *m)
{
    uint64_t length = 0;
    const unsigned char *bytes = NULL;
    CKPT_TRY(take_number(m, m->opcode->width, &length));
    CKPT_TRY(take(m, length, &bytes)); /* a file has less than 2^31 */
    return push_here(m);
}

/* Lists and dicts are made empty, then grow; so do sets that are no frozensets. */
static ckpt_code push_empty(machine *m)
{
    uint32_t first = 0;
    CKPT_TRY(take_words(m, HEAD_WORDS, &first));
    m->made->word[first] = head_of((ckpt_pickle_type)m->opcode->makes, 0);
    m->made->word[first + 1] = 0;
    m->made->value_count++;
    return push(m, CONTAINER | first);
}

/* Tuples are made at once, of the values from `first` on. */
static ckpt_code push_tuple(machine *m, size_t first)
{
    const size_t count = m->stack.count - first;
    uint32_t head = 0;
    CKPT_TRY(take_words(m, 1 + count, &head));
    m->made->word[head] = head_of(CKPT_PICKLE_TUPLE, count);
    if (count > 0) {
        memcpy(m->made->word + head + 1, m->stack.at + first, count * sizeof *m->stack.at);
    }
    m->stack.count = first;
    m->made->value_count++;
    return push(m, CONTAINER | head);
}

/* The last piece of a container that grows, and how many of its `count` items are in the pieces before; 0: it has none. */
static uint32_t last_piece(const ckpt_pickle *p, uint32_t head, size_t *before)
{
    uint32_t piece = p->word[head + 1];
    *before = 0;
    while (piece != 0 && p->word[piece] != 0) {
        *before += p->word[piece + 1];
        piece = p->word[piece];
    }
    return piece;
}

/* Moves the values from `first` on into the container at `head`, which has `items`. What does not fit its last piece gets one
 * more: of that size at first, which mostly is all, then of as many items as there are, so that pieces stay few. */
static ckpt_code move_items(machine *m, uint32_t head, size_t items, size_t first)
{
    ckpt_pickle *const p = m->made;
    const size_t count = m->stack.count - first;
    size_t before = 0;
    uint32_t piece = last_piece(p, head, &before);
    const size_t room = piece != 0 ? before + p->word[piece + 1] - items : 0;
    const size_t fit = count < room ? count : room;
    if (fit > 0) {
        memcpy(p->word + piece + PIECE_WORDS + (items - before), m->stack.at + first, fit * sizeof *p->word);
    }
    if (fit < count) {
        uint32_t next = 0;
        const size_t rest = count - fit;
        const size_t next_room = rest > items + fit ? rest : items + fit;
        CKPT_TRY(take_words(m, PIECE_WORDS + next_room, &next));
        p->word[next] = 0;
        p->word[next + 1] = (uint32_t)next_room;
        memcpy(p->word + next + PIECE_WORDS, m->stack.at + first + fit, rest * sizeof *p->word);
        p->word[piece != 0 ? piece : head + 1] = next;
    }
    m->stack.count = first;
    return CKPT_OK;
}

/* Adds the values from `first` on to the container below them. */
static ckpt_code add_items(machine *m, size_t first)
{
    const ckpt_pickle_type wanted = (ckpt_pickle_type)m->opcode->makes;
    const size_t per_item = wanted == CKPT_PICKLE_DICT ? 2 : 1;
    const size_t count = m->stack.count - first;
    if (first <= floor_of(m)) {
        return bad(m, "there is nothing to put its values into");
    }
    const uint32_t into = m->stack.at[first - 1];
    const ckpt_pickle_type type = value_at(m->made, into).type;
    if (type != wanted) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "found opcode %s at byte %zu: it puts values into %s, wanted %s",
                         m->opcode->name, m->opcode_at, ckpt_pickle_type_name(type), ckpt_pickle_type_name(wanted));
    }
    if (count % per_item != 0) {
        return bad(m, "a key without a value");
    }
    const uint32_t head = into & ~CONTAINER;
    const size_t items = m->made->word[head] & COUNT_MASK;
    CKPT_TRY(move_items(m, head, per_item * items, first));
    m->made->word[head] = head_of(type, items + count / per_item);
    return CKPT_OK;
}

/* A frozenset of the values from `first` on. */
static ckpt_code push_set(machine *m, size_t first)
{
    uint32_t head = 0;
    const size_t count = m->stack.count - first;
    CKPT_TRY(take_words(m, HEAD_WORDS, &head));
    m->made->word[head + 1] = 0;
    CKPT_TRY(move_items(m, head, 0, first));
    m->made->word[head] = head_of(CKPT_PICKLE_SET, count);
    m->made->value_count++;
    return push(m, CONTAINER | head);
}

static ckpt_code memo_put(machine *m, uint64_t index)
{
    CKPT_TRY(need(m, 1));
    if (index >= m->length) { /* each PUT takes at least one byte, and Python numbers them from 0 */
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "found opcode %s at byte %zu with number %llu, wanted less than the file's %zu bytes",
                         m->opcode->name, m->opcode_at, (unsigned long long)index, m->length);
    }
    const size_t room = m->memo.room;
    CKPT_TRY(grow(m, &m->memo, (size_t)index + 1));
    if (m->memo.room > room) {
        memset(m->memo.at + room, 0, (m->memo.room - room) * sizeof *m->memo.at);
    }
    m->memo.count += m->memo.at[index] == 0;
    m->memo.at[index] = m->stack.at[m->stack.count - 1];
    return CKPT_OK;
}

static ckpt_code memo_get(machine *m)
{
    uint64_t index = 0;
    CKPT_TRY(take_number(m, m->opcode->width, &index));
    if (index >= m->memo.room || m->memo.at[index] == 0) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "found opcode %s at byte %zu: nothing was put under number %llu",
                         m->opcode->name, m->opcode_at, (unsigned long long)index);
    }
    return push(m, m->memo.at[index]);
}

static ckpt_code push_mark(machine *m)
{
    CKPT_TRY(grow(m, &m->mark, m->mark.count + 1));
    m->mark.at[m->mark.count++] = (uint32_t)m->stack.count;
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
    } else if (m->opcode->does == CKPT_DO_REFUSE_STACKED && m->stack.count >= 2) {
        const uint32_t *const top = m->stack.at + m->stack.count - 2;
        const ckpt_pickle_value texts[2] = {value_at(m->made, top[0]), value_at(m->made, top[1])};
        if (texts[0].type == CKPT_PICKLE_TEXT && texts[1].type == CKPT_PICKLE_TEXT) {
            printable(module, texts[0].as.bytes, (size_t)texts[0].count);
            printable(name, texts[1].as.bytes, (size_t)texts[1].count);
        }
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
    return push_tuple(m, m->stack.count - (size_t)count);
}

/* As in Python, POP removes the mark if no value is above it. */
static ckpt_code pop(machine *m)
{
    if (m->mark.count > 0 && floor_of(m) == m->stack.count) {
        m->mark.count--;
        return CKPT_OK;
    }
    CKPT_TRY(need(m, 1));
    m->stack.count--;
    return CKPT_OK;
}

static ckpt_code add_marked(machine *m)
{
    size_t first = 0;
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
    size_t first = 0;
    switch (m->opcode->does) {
    case CKPT_DO_PROTO: return protocol(m);
    case CKPT_DO_FRAME: return frame(m);
    case CKPT_DO_NONE:
    case CKPT_DO_FALSE:
    case CKPT_DO_TRUE: return push(m, (uint32_t)m->opcode_at);
    case CKPT_DO_INT: return push_number(m, m->opcode->width);
    case CKPT_DO_LONG: return push_long(m);
    case CKPT_DO_REAL: return push_number(m, 8);
    case CKPT_DO_BYTES: return push_bytes(m);
    case CKPT_DO_EMPTY: return m->opcode->makes == CKPT_PICKLE_TUPLE ? push_tuple(m, m->stack.count) : push_empty(m);
    case CKPT_DO_TUPLE: return tuple_of(m, m->opcode->width);
    case CKPT_DO_MARK: return push_mark(m);
    case CKPT_DO_MAKE_MARKED:
        CKPT_TRY(pop_mark(m, &first));
        return m->opcode->makes == CKPT_PICKLE_TUPLE ? push_tuple(m, first) : push_set(m, first);
    case CKPT_DO_ADD:
        CKPT_TRY(need(m, m->opcode->width + 1));
        return add_items(m, m->stack.count - (size_t)m->opcode->width);
    case CKPT_DO_ADD_MARKED: return add_marked(m);
    case CKPT_DO_PUT: return put_numbered(m);
    case CKPT_DO_MEMOIZE: return memo_put(m, m->memo.count);
    case CKPT_DO_GET: return memo_get(m);
    case CKPT_DO_POP: return pop(m);
    case CKPT_DO_POP_MARK:
        CKPT_TRY(pop_mark(m, &first));
        m->stack.count = first;
        return CKPT_OK;
    case CKPT_DO_DUP: CKPT_TRY(need(m, 1)); return push(m, m->stack.at[m->stack.count - 1]);
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

static ckpt_code read(machine *m)
{
    uint32_t unused = 0;
    CKPT_TRY(take_words(m, 1, &unused));
    if (m->length > CKPT_FILE_MAX) { /* places and counts have 30 bits */
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT, "found %zu bytes, wanted at most %zu", m->length, CKPT_FILE_MAX);
    }
    if (m->length == 0 || ckpt_opcodes[m->bytes[0]].does != CKPT_DO_PROTO) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "found no opcode PROTO at byte 0, wanted a pickle of protocol %d to %d", PROTOCOL_MIN,
                         PROTOCOL_MAX);
    }
    CKPT_TRY(run_all(m));
    if (m->stack.count != 1 || m->mark.count != 0) {
        return CKPT_FAIL(m->err, CKPT_BAD_INPUT,
                         "found %zu values and %zu open marks at STOP, byte %zu, wanted one value", m->stack.count,
                         m->mark.count, m->opcode_at);
    }
    m->made->root = m->stack.at[0];
    return CKPT_OK;
}

ckpt_code ckpt_pickle_read(const char *path, const char *bytes, size_t length, ckpt_pickle *pickle, ckpt_err *err)
{
    ckpt_pickle made = {.bytes = (const unsigned char *)bytes};
    machine m = {.bytes = made.bytes, .length = length, .made = &made, .err = err};
    const ckpt_code code = read(&m);
    ckpt_memory_put(m.stack.at);
    ckpt_memory_put(m.mark.at);
    ckpt_memory_put(m.memo.at);
    if (code != CKPT_OK) {
        ckpt_pickle_fini(&made);
        ckpt_err_at(err, "%.200s", path);
        return code;
    }
    *pickle = made;
    return CKPT_OK;
}

void ckpt_pickle_fini(ckpt_pickle *pickle)
{
    ckpt_memory_put(pickle->word);
    *pickle = (ckpt_pickle){0};
}

ckpt_pickle_value ckpt_pickle_root(const ckpt_pickle *pickle)
{
    return value_at(pickle, pickle->root);
}

ckpt_pickle_value ckpt_pickle_item(const ckpt_pickle_value *of, int index)
{
    const uint32_t *const word = of->in->word;
    const uint32_t head = of->place & ~CONTAINER;
    size_t left = (size_t)index;
    if (of->type == CKPT_PICKLE_TUPLE) {
        return value_at(of->in, word[head + 1 + left]);
    }
    uint32_t piece = word[head + 1];
    while (left >= word[piece + 1]) {
        left -= word[piece + 1];
        piece = word[piece];
    }
    return value_at(of->in, word[piece + PIECE_WORDS + left]);
}

bool ckpt_pickle_is_text(const ckpt_pickle_value *value, const char *text)
{
    const size_t length = strlen(text);
    return value->type == CKPT_PICKLE_TEXT && (size_t)value->count == length &&
           memcmp(value->as.bytes, text, length) == 0;
}

ckpt_pickle_value ckpt_pickle_find(const ckpt_pickle_value *dict, const char *key)
{
    if (dict->type == CKPT_PICKLE_DICT) {
        for (int i = dict->count - 1; i >= 0 && i >= dict->count - CKPT_PICKLE_KEYS; i--) {
            const ckpt_pickle_value found = ckpt_pickle_item(dict, 2 * i);
            if (ckpt_pickle_is_text(&found, key)) {
                return ckpt_pickle_item(dict, 2 * i + 1);
            }
        }
    }
    return (ckpt_pickle_value){.type = CKPT_PICKLE_ABSENT};
}

const char *ckpt_pickle_type_name(ckpt_pickle_type type)
{
    static const char *const names[] = {"nothing", "None",   "a bool",  "an integer", "a float", "a text",
                                        "bytes",   "a list", "a tuple", "a dict",     "a set"};
    return names[type];
}
