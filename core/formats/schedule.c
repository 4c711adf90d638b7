/* Schedules of learning rates: one table of what each kind takes serves files, command lines and what is shown. */
#include "core/formats/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/json/json_member.h"

enum { COUNT_MAX = INT32_MAX, KEY_COUNT = 5, KIND_COUNT = 4, WORD = 32, FIELD_TEXT = 64 };

static const double half_turn = 3.14159265358979323846;

static const char *const kind_name[KIND_COUNT] = {"constant", "linear", "cosine", "step"};

static const char *const key_name[KEY_COUNT] = {"warmup", "steps", "min", "every", "factor"};

static bool takes(ckpt_schedule_kind kind, int key)
{
    static const bool taken[KIND_COUNT][KEY_COUNT] = {
        {true}, {true, true, true}, {true, true, true}, {true, false, false, true, true}};
    return taken[kind][key];
}

/* Where a whole number goes; NULL: the key is one of a real number. */
static int64_t *count_at(ckpt_schedule *schedule, int key)
{
    int64_t *const at[KEY_COUNT] = {&schedule->warmup, &schedule->steps, NULL, &schedule->every, NULL};
    return at[key];
}

static double *real_at(ckpt_schedule *schedule, int key)
{
    return key == 2 ? &schedule->min : &schedule->factor;
}

double ckpt_schedule_at(const ckpt_schedule *schedule, uint64_t step)
{
    const uint64_t warmup = (uint64_t)schedule->warmup;
    if (step <= warmup) {
        return (double)step / (double)warmup;
    }
    const double done = (double)(step - 1 - warmup), last = (double)(schedule->steps - schedule->warmup);
    const double part = done < last ? done / last : 1.0;
    switch (schedule->kind) {
    case CKPT_SCHEDULE_CONSTANT: break;
    case CKPT_SCHEDULE_LINEAR: return 1.0 + (schedule->min - 1.0) * part;
    case CKPT_SCHEDULE_COSINE: return schedule->min + (1.0 - schedule->min) * (1.0 + cos(half_turn * part)) / 2.0;
    case CKPT_SCHEDULE_STEP: return pow(schedule->factor, floor(done / (double)schedule->every));
    }
    return 1.0;
}

static ckpt_code find_kind(const char *name, ckpt_schedule_kind *kind, ckpt_err *err)
{
    for (int k = 0; k < KIND_COUNT; k++) {
        if (strcmp(kind_name[k], name) == 0) {
            *kind = (ckpt_schedule_kind)k;
            return CKPT_OK;
        }
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "found schedule \"%.40s\", wanted constant, linear, cosine or step", name);
}

static ckpt_code find_key(ckpt_schedule_kind kind, const char *name, int *key, ckpt_err *err)
{
    for (*key = 0; *key < KEY_COUNT; ++*key) {
        if (strcmp(key_name[*key], name) == 0 && takes(kind, *key)) {
            return CKPT_OK;
        }
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "found \"%.40s\" of a %s schedule, wanted warmup%s", name, kind_name[kind],
                     kind == CKPT_SCHEDULE_CONSTANT ? ""
                     : kind == CKPT_SCHEDULE_STEP   ? ", every or factor"
                                                    : ", steps or min");
}

static ckpt_code check(const ckpt_schedule *s, ckpt_err *err)
{
    if (s->warmup < 0 || s->warmup > COUNT_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found a warmup of %" PRId64 " steps, wanted 0 to %d", s->warmup,
                         COUNT_MAX);
    }
    const bool falls = takes(s->kind, 1);
    if (falls && (s->steps <= s->warmup || s->steps > COUNT_MAX)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "a %s schedule has %" PRId64 " steps, wanted more than its warmup of %" PRId64
                         " and at most %d",
                         kind_name[s->kind], s->steps, s->warmup, COUNT_MAX);
    }
    if (falls && !(s->min >= 0 && s->min <= 1)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found min %g of a schedule, wanted a share from 0 to 1", s->min);
    }
    if (s->kind == CKPT_SCHEDULE_STEP && (s->every < 1 || s->every > COUNT_MAX)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "a step schedule has every %" PRId64 ", wanted 1 to %d steps", s->every,
                         COUNT_MAX);
    }
    if (s->kind == CKPT_SCHEDULE_STEP && !(s->factor > 0 && isfinite(s->factor))) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found factor %g of a schedule, wanted more than 0", s->factor);
    }
    return CKPT_OK;
}

static const ckpt_schedule usual = {.factor = 0.1};

ckpt_code ckpt_schedule_item(const ckpt_item *item, ckpt_arena *scratch, ckpt_schedule *schedule, ckpt_err *err)
{
    ckpt_schedule found = usual;
    const char *kind = "";
    CKPT_TRY(ckpt_item_object(item, err));
    CKPT_TRY(ckpt_need_text(item, "kind", scratch, &kind, err));
    ckpt_code code = find_kind(kind, &found.kind, err);
    ckpt_item member;
    for (int i = 0; code == CKPT_OK && ckpt_item_next(item, &i, &member);) {
        int key = 0;
        if (strcmp(member.key, "kind") == 0) {
            continue;
        }
        code = find_key(found.kind, member.key, &key, err);
        if (code != CKPT_OK) {
            return ckpt_item_blame(&member, code, err);
        }
        CKPT_TRY(count_at(&found, key) != NULL ? ckpt_item_int(&member, 0, COUNT_MAX, count_at(&found, key), err)
                                               : ckpt_item_real(&member, real_at(&found, key), err));
    }
    code = code == CKPT_OK ? check(&found, err) : code;
    if (code != CKPT_OK) {
        return ckpt_item_blame(item, code, err);
    }
    *schedule = found;
    return CKPT_OK;
}

/* "key=value", `length` characters. */
static ckpt_code parse_field(const char *text, size_t length, ckpt_schedule *schedule, ckpt_err *err)
{
    char field[FIELD_TEXT];
    const size_t kept = length < sizeof field ? length : sizeof field - 1;
    memcpy(field, text, kept);
    field[kept] = '\0';
    char *const equals = strchr(field, '=');
    if (equals == NULL || kept < length) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found \"%s\" of a schedule, wanted key=value", field);
    }
    *equals = '\0';
    int key = 0;
    CKPT_TRY(find_key(schedule->kind, field, &key, err));
    const char *end = NULL;
    const double value = ckpt_real_parse(equals + 1, &end);
    int64_t *const count = count_at(schedule, key);
    if (end == equals + 1 || *end != '\0' || !isfinite(value) ||
        (count != NULL && (value < 0 || value > COUNT_MAX || value != floor(value)))) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found %s=%s of a schedule, wanted a %snumber", field, equals + 1,
                         count != NULL ? "whole " : "");
    }
    if (count != NULL) {
        *count = (int64_t)value;
    } else {
        *real_at(schedule, key) = value;
    }
    return CKPT_OK;
}

ckpt_code ckpt_schedule_parse(const char *text, ckpt_schedule *schedule, ckpt_err *err)
{
    char kind[WORD];
    ckpt_schedule found = usual;
    size_t length = strcspn(text, ":");
    const size_t kept = length < sizeof kind ? length : sizeof kind - 1;
    memcpy(kind, text, kept);
    kind[kept] = '\0';
    CKPT_TRY(find_kind(kind, &found.kind, err));
    for (const char *at = text + length; *at != '\0'; at += length) {
        at++;
        length = strcspn(at, ",");
        CKPT_TRY(parse_field(at, length, &found, err));
    }
    CKPT_TRY(check(&found, err));
    *schedule = found;
    return CKPT_OK;
}

void ckpt_schedule_show(const ckpt_schedule *schedule, ckpt_text *text)
{
    ckpt_schedule shown = *schedule;
    ckpt_text_add(text, "%s", kind_name[shown.kind]);
    char separator = ':';
    for (int key = 0; key < KEY_COUNT; key++) {
        if (!takes(shown.kind, key)) {
            continue;
        }
        ckpt_text_add(text, "%c%s=", separator, key_name[key]);
        separator = ',';
        if (count_at(&shown, key) != NULL) {
            ckpt_text_add(text, "%" PRId64, *count_at(&shown, key));
        } else {
            ckpt_text_real(text, *real_at(&shown, key));
        }
    }
}
