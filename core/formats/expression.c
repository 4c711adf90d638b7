/* Recursive descent with C's operators and precedences, from ?: down to factors. Depth is limited, so that a hostile file
 * cannot exhaust the stack. What C would not evaluate is parsed, and may divide by zero. Division of integers truncates
 * toward zero; one real operand makes the result real. */
#include "core/formats/expression_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/text.h"

enum { DEPTH_MAX = 64 };

typedef struct parser {
    const char *text, *at;
    const ckpt_var *var;
    int var_count;
    int64_t copy;
    int depth;
    int idle; /* > 0: the value does not matter, and so no arithmetic error either */
    ckpt_err *err;
} parser;

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
static const char letters_digits[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

bool ckpt_expression_name(const char *name)
{
    return name[0] != '\0' && strchr(letters, name[0]) != NULL && name[strspn(name, letters_digits)] == '\0';
}

static ckpt_code wrong(const parser *p, const char *what)
{
    return CKPT_FAIL(p->err, CKPT_BAD_INPUT, "expression \"%.60s\", character %d: %s", p->text,
                     (int)(p->at - p->text) + 1, what);
}

static ckpt_code too_large(const parser *p)
{
    return p->idle > 0 ? CKPT_OK
                       : CKPT_FAIL(p->err, CKPT_OVERFLOW, "expression \"%.60s\" goes beyond 63 bits", p->text);
}

static ckpt_number whole(int64_t n)
{
    return (ckpt_number){.integer = n, .real = (double)n};
}

static ckpt_code set_real(const parser *p, double x, ckpt_number *value)
{
    if (!isfinite(x)) {
        *value = (ckpt_number){.is_real = true};
        return p->idle > 0 ? CKPT_OK
                           : CKPT_FAIL(p->err, CKPT_OVERFLOW, "expression \"%.60s\" goes beyond a double", p->text);
    }
    *value = (ckpt_number){.is_real = true, .real = x};
    return CKPT_OK;
}

static bool is_true(const ckpt_number *value)
{
    return value->is_real ? value->real != 0 : value->integer != 0;
}

static char peek(parser *p)
{
    p->at += strspn(p->at, " ");
    return *p->at;
}

/* Steps over `sign` if it is next. */
static bool next_is(parser *p, const char *sign)
{
    peek(p);
    if (strncmp(p->at, sign, strlen(sign)) != 0) {
        return false;
    }
    p->at += strlen(sign);
    return true;
}

static bool add(int64_t a, int64_t b, int64_t *sum)
{
    if ((b > 0 && a > INT64_MAX - b) || (b < 0 && a < INT64_MIN - b)) {
        return false;
    }
    *sum = a + b;
    return true;
}

static bool multiply(int64_t a, int64_t b, int64_t *product)
{
    if (a > 0 ? (b > INT64_MAX / a || b < INT64_MIN / a)
              : (a < 0 && (b > 0 ? a < INT64_MIN / b : (b != 0 && b < INT64_MAX / a)))) {
        return false;
    }
    *product = a * b;
    return true;
}

static ckpt_code choice(parser *p, ckpt_number *value);

/* Digits are an integer; with a point or an exponent behind them a real number. */
static ckpt_code number(parser *p, ckpt_number *value)
{
    const char *const digits = p->at + strspn(p->at, "0123456789");
    if (*digits == '.' || *digits == 'e' || *digits == 'E') {
        return set_real(p, ckpt_real_parse(p->at, &p->at), value);
    }
    int64_t n = 0;
    for (; p->at < digits; p->at++) {
        if (!multiply(n, 10, &n) || !add(n, *p->at - '0', &n)) {
            p->at = digits;
            return too_large(p);
        }
    }
    *value = whole(n);
    return CKPT_OK;
}

static ckpt_code closed(parser *p, ckpt_number *value)
{
    CKPT_TRY(choice(p, value));
    return next_is(p, ")") ? CKPT_OK : wrong(p, "wanted )");
}

static ckpt_code square_root(parser *p, ckpt_number *value)
{
    CKPT_TRY(closed(p, value));
    if (value->real < 0 && p->idle == 0) {
        return wrong(p, "square root of a negative number");
    }
    return set_real(p, sqrt(fabs(value->real)), value);
}

static ckpt_code name(parser *p, ckpt_number *value)
{
    const size_t length = strspn(p->at, letters_digits);
    for (int i = 0; i < p->var_count; i++) {
        if (strncmp(p->var[i].name, p->at, length) == 0 && p->var[i].name[length] == '\0') {
            *value =
                p->var[i].is_real ? (ckpt_number){.is_real = true, .real = p->var[i].real} : whole(p->var[i].value);
            p->at += length;
            return CKPT_OK;
        }
    }
    if (next_is(p, "sqrt(")) {
        return square_root(p, value);
    }
    char what[100];
    snprintf(what, sizeof what, "found \"%.*s\", which is no var here", length < 48 ? (int)length : 48, p->at);
    return wrong(p, what);
}

static ckpt_code negate(const parser *p, ckpt_number *value)
{
    if (value->is_real) {
        value->real = -value->real;
        return CKPT_OK;
    }
    if (value->integer == INT64_MIN) {
        return too_large(p);
    }
    *value = whole(-value->integer);
    return CKPT_OK;
}

static ckpt_code factor(parser *p, ckpt_number *value)
{
    const char c = peek(p);
    if (++p->depth > DEPTH_MAX) {
        return wrong(p, "nested too deeply");
    }
    if (c == '-' || c == '!') {
        p->at++;
        CKPT_TRY(factor(p, value));
        CKPT_TRY(c == '-' ? negate(p, value) : CKPT_OK);
        *value = c == '!' ? whole(!is_true(value)) : *value;
    } else if (c == '(') {
        p->at++;
        CKPT_TRY(closed(p, value));
    } else if (c >= '0' && c <= '9') {
        CKPT_TRY(number(p, value));
    } else if (c != '\0' && strchr(letters, c) != NULL) {
        CKPT_TRY(name(p, value));
    } else if (c == '#' && p->copy >= 0) {
        p->at++;
        *value = whole(p->copy);
    } else {
        return wrong(p, c == '#' ? "found #, which has a meaning only in a repeated block"
                                 : "wanted a number, a var, - or (");
    }
    p->depth--;
    return CKPT_OK;
}

static ckpt_code divide(const parser *p, char sign, const ckpt_number *right, ckpt_number *value)
{
    if (!is_true(right)) {
        return p->idle > 0 ? CKPT_OK : wrong(p, "division by zero");
    }
    if (value->is_real || right->is_real) {
        return sign == '/' ? set_real(p, value->real / right->real, value) : wrong(p, "wanted integers around %");
    }
    const int64_t a = value->integer, b = right->integer;
    if (b == -1) { /* INT64_MIN / -1 does not fit, and INT64_MIN % -1 is undefined in C */
        *value = sign == '/' ? *value : whole(0);
        return negate(p, value);
    }
    *value = whole(sign == '/' ? a / b : a % b);
    return CKPT_OK;
}

static ckpt_code product(parser *p, ckpt_number *value)
{
    CKPT_TRY(factor(p, value));
    for (char c = peek(p); c == '*' || c == '/' || c == '%'; c = peek(p)) {
        ckpt_number right = {0};
        int64_t n = 0;
        p->at++;
        CKPT_TRY(factor(p, &right));
        if (c != '*') {
            CKPT_TRY(divide(p, c, &right, value));
        } else if (value->is_real || right.is_real) {
            CKPT_TRY(set_real(p, value->real * right.real, value));
        } else if (multiply(value->integer, right.integer, &n)) {
            *value = whole(n);
        } else {
            CKPT_TRY(too_large(p));
        }
    }
    return CKPT_OK;
}

static ckpt_code sum(parser *p, ckpt_number *value)
{
    CKPT_TRY(product(p, value));
    for (char c = peek(p); c == '+' || c == '-'; c = peek(p)) {
        ckpt_number right = {0};
        int64_t n = 0;
        p->at++;
        CKPT_TRY(product(p, &right));
        CKPT_TRY(c == '-' ? negate(p, &right) : CKPT_OK);
        if (value->is_real || right.is_real) {
            CKPT_TRY(set_real(p, value->real + right.real, value));
        } else if (add(value->integer, right.integer, &n)) {
            *value = whole(n);
        } else {
            CKPT_TRY(too_large(p));
        }
    }
    return CKPT_OK;
}

static ckpt_code relation(parser *p, ckpt_number *value)
{
    static const char *const sign[] = {"==", "!=", "<=", ">=", "<", ">"};
    CKPT_TRY(sum(p, value));
    for (size_t i = 0; i < sizeof sign / sizeof sign[0]; i++) {
        if (next_is(p, sign[i])) {
            ckpt_number right = {0};
            CKPT_TRY(sum(p, &right));
            const bool real = value->is_real || right.is_real;
            const bool less = real ? value->real < right.real : value->integer < right.integer;
            const bool more = real ? value->real > right.real : value->integer > right.integer;
            const bool holds[] = {!less && !more, less || more, !more, !less, less, more};
            *value = whole(holds[i]);
            break;
        }
    }
    return CKPT_OK;
}

static ckpt_code both(parser *p, ckpt_number *value)
{
    CKPT_TRY(relation(p, value));
    while (next_is(p, "&&")) {
        ckpt_number right = {0};
        const bool left = is_true(value);
        p->idle += left ? 0 : 1;
        CKPT_TRY(relation(p, &right));
        p->idle -= left ? 0 : 1;
        *value = whole(left && is_true(&right));
    }
    return CKPT_OK;
}

static ckpt_code either(parser *p, ckpt_number *value)
{
    CKPT_TRY(both(p, value));
    while (next_is(p, "||")) {
        ckpt_number right = {0};
        const bool left = is_true(value);
        p->idle += left ? 1 : 0;
        CKPT_TRY(both(p, &right));
        p->idle -= left ? 1 : 0;
        *value = whole(left || is_true(&right));
    }
    return CKPT_OK;
}

static ckpt_code choice(parser *p, ckpt_number *value)
{
    CKPT_TRY(either(p, value));
    if (!next_is(p, "?")) {
        return CKPT_OK;
    }
    const bool first = is_true(value);
    ckpt_number yes = {0}, no = {0};
    if (++p->depth > DEPTH_MAX) {
        return wrong(p, "nested too deeply");
    }
    p->idle += first ? 0 : 1;
    CKPT_TRY(choice(p, &yes));
    p->idle += first ? 1 : -1;
    if (!next_is(p, ":")) {
        return wrong(p, "wanted :");
    }
    CKPT_TRY(choice(p, &no));
    p->idle -= first ? 1 : 0;
    p->depth--;
    *value = first ? yes : no;
    return CKPT_OK;
}

ckpt_code ckpt_expression_eval(const char *text, const ckpt_var *var, int var_count, int64_t copy, ckpt_number *value,
                               ckpt_err *err)
{
    parser p = {.text = text, .at = text, .var = var, .var_count = var_count, .copy = copy, .err = err};
    ckpt_number result = {0};
    CKPT_TRY(choice(&p, &result));
    if (peek(&p) != '\0') {
        return wrong(&p, "wanted an operator or the end");
    }
    *value = result;
    return CKPT_OK;
}

ckpt_code ckpt_model_eval(const ckpt_model *model, const char *expression, int64_t *value, ckpt_err *err)
{
    ckpt_number found = {0};
    CKPT_TRY(ckpt_expression_eval(expression, model->var, model->var_count, -1, &found, err));
    if (found.is_real) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "expression \"%.60s\" is the real number %g, wanted an integer",
                         expression, found.real);
    }
    *value = found.integer;
    return CKPT_OK;
}

ckpt_code ckpt_model_eval_real(const ckpt_model *model, const char *expression, double *value, ckpt_err *err)
{
    ckpt_number found = {0};
    CKPT_TRY(ckpt_expression_eval(expression, model->var, model->var_count, -1, &found, err));
    *value = found.real;
    return CKPT_OK;
}
