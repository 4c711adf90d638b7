/* Attributes as a file gives them become what an op declared: every one present, of the right kind, evaluated. */
#include <stdio.h>
#include <string.h>

#include "ops/lowering/network_impl.h"

static const char *const kind_wanted[] = {
    [CKPT_INT] = "an integer or an expression",       [CKPT_FLOAT] = "a number or an expression",
    [CKPT_BOOL] = "true, false or an expression",     [CKPT_STRING] = "a word",
    [CKPT_INTS] = "an integer or a list of integers",
};

static const char *const kind_found[] = {
    [CKPT_INT] = "an integer",     [CKPT_FLOAT] = "a number with a fraction",
    [CKPT_BOOL] = "true or false", [CKPT_STRING] = "a text",
    [CKPT_INTS] = "a list",
};

/* `word` is one of "a|b|c". */
static bool is_word(const char *words, const char *word)
{
    for (const char *at = words;; at++) {
        const size_t length = strcspn(at, "|");
        if (strlen(word) == length && strncmp(at, word, length) == 0) {
            return true;
        }
        at += length;
        if (*at == '\0') {
            return false;
        }
    }
}

static ckpt_code convert(const ckpt_model *model, const ckpt_attr_spec *spec, const ckpt_attr *given, ckpt_arena *out,
                         ckpt_attr *attr, ckpt_err *err)
{
    int64_t value = given->integer;
    double real = given->kind == CKPT_INT ? (double)given->integer : given->real;
    const bool whole = given->kind == CKPT_INT || given->kind == CKPT_STRING;
    if (given->kind == CKPT_STRING && spec->kind != CKPT_STRING) {
        const ckpt_code code = spec->kind == CKPT_FLOAT ? ckpt_model_eval_real(model, given->string, &real, err)
                                                        : ckpt_model_eval(model, given->string, &value, err);
        if (code != CKPT_OK) {
            ckpt_err_at(err, "\"%s\"", spec->name);
            return code;
        }
    }
    if (spec->kind == CKPT_INT && whole) {
        attr->integer = value;
        attr->real = (double)value;
    } else if (spec->kind == CKPT_INTS && whole) {
        int64_t *const one = CKPT_NEW(out, int64_t, 1);
        if (one == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "\"%s\"", spec->name);
        }
        *one = value;
        attr->ints = one;
        attr->int_count = 1;
    } else if (spec->kind == CKPT_INTS && given->kind == CKPT_INTS) {
        attr->ints = given->ints;
        attr->int_count = given->int_count;
    } else if (spec->kind == CKPT_FLOAT && (given->kind == CKPT_FLOAT || whole)) {
        attr->real = real;
    } else if (spec->kind == CKPT_BOOL && (given->kind == CKPT_BOOL || given->kind == CKPT_STRING)) {
        attr->integer = value != 0;
    } else if (spec->kind == CKPT_STRING && given->kind == CKPT_STRING) {
        if (spec->words != NULL && !is_word(spec->words, given->string)) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%s\" is \"%s\", wanted one of %s", spec->name, given->string,
                             spec->words);
        }
        attr->string = given->string;
    } else {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%s\" is %s, wanted %s", spec->name, kind_found[given->kind],
                         kind_wanted[spec->kind]);
    }
    return CKPT_OK;
}

static ckpt_code check_names(const ckpt_attr_spec *specs, const ckpt_attr *given, int given_count, ckpt_err *err)
{
    for (int g = 0; g < given_count; g++) {
        char known[CKPT_NAMES_TEXT] = "";
        bool found = false;
        for (int i = 0; specs != NULL && specs[i].name != NULL; i++) {
            found = found || strcmp(specs[i].name, given[g].name) == 0;
            const size_t used = strlen(known);
            snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", specs[i].name);
        }
        if (!found) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "no attribute \"%s\"; known: %s", given[g].name,
                             known[0] != '\0' ? known : "none");
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_attrs_resolve(const ckpt_model *model, const ckpt_attr_spec *specs, const ckpt_attr *given,
                             int given_count, ckpt_arena *out, const ckpt_attr **attr, ckpt_err *err)
{
    CKPT_TRY(check_names(specs, given, given_count, err));
    int count = 0;
    while (specs != NULL && specs[count].name != NULL) {
        count++;
    }
    ckpt_attr *const all = CKPT_NEW(out, ckpt_attr, count);
    if (all == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%d attributes", count);
    }
    for (int i = 0; i < count; i++) {
        const ckpt_attr_spec *const spec = &specs[i];
        all[i] = (ckpt_attr){.name = spec->name,
                             .kind = spec->kind,
                             .integer = spec->integer,
                             .real = spec->kind == CKPT_INT ? (double)spec->integer : spec->real,
                             .string = spec->string};
        bool found = false;
        for (int g = 0; g < given_count; g++) {
            if (strcmp(given[g].name, spec->name) == 0) {
                CKPT_TRY(convert(model, spec, &given[g], out, &all[i], err));
                found = true;
            }
        }
        if (spec->required && !found) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "\"%s\" is missing (%s)", spec->name, spec->help);
        }
    }
    *attr = all;
    return CKPT_OK;
}

enum { LONGEST_NAME = 40 };

/* Levenshtein's distance: insertions, deletions and replacements that turn one name into the other. */
static size_t distance(const char *a, const char *b)
{
    const size_t columns = strlen(b);
    size_t row[LONGEST_NAME + 1];
    if (strlen(a) > LONGEST_NAME || columns > LONGEST_NAME) {
        return LONGEST_NAME;
    }
    for (size_t j = 0; j <= columns; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            const size_t replaced = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
            diagonal = row[j];
            const size_t inserted = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = replaced < inserted ? replaced : inserted;
        }
    }
    return row[columns];
}

static bool is_near(const char *wanted, const char *name)
{
    return distance(wanted, name) <= 1 + strlen(wanted) / 4 || (strlen(wanted) >= 3 && strstr(name, wanted) != NULL) ||
           (strlen(name) >= 3 && strstr(wanted, name) != NULL);
}

const char *ckpt_names_near(const char *wanted, const char *(*name)(int index), char *text)
{
    for (int all = 0; all < 2; all++) {
        snprintf(text, CKPT_NAMES_TEXT, "%s", all == 0 ? "; near: " : "; known: ");
        int listed = 0;
        for (int i = 0; name(i) != NULL; i++) {
            if (all == 1 || is_near(wanted, name(i))) {
                const size_t used = strlen(text);
                snprintf(text + used, CKPT_NAMES_TEXT - used, "%s%s", listed > 0 ? ", " : "", name(i));
                listed++;
            }
        }
        if (listed > 0) {
            break;
        }
    }
    return text;
}
