/* Recursive descent over sums of products of factors; a factor is -factor, a number, a name or ( sum ). Depth is
 * limited, so that a hostile file cannot exhaust the stack. Division truncates toward zero. */
#include "core/formats/expression_impl.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 64 };

typedef struct parser {
    const char *text, *at;
    const ckpt_var *var;
    int var_count;
    int depth;
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
    return CKPT_FAIL(p->err, CKPT_OVERFLOW, "expression \"%.60s\" goes beyond 63 bits", p->text);
}

static char peek(parser *p)
{
    p->at += strspn(p->at, " ");
    return *p->at;
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

static ckpt_code sum(parser *p, int64_t *value);

static ckpt_code number(parser *p, int64_t *value)
{
    int64_t n = 0;
    for (; *p->at >= '0' && *p->at <= '9'; p->at++) {
        if (!multiply(n, 10, &n) || !add(n, *p->at - '0', &n)) {
            return too_large(p);
        }
    }
    *value = n;
    return CKPT_OK;
}

static ckpt_code name(parser *p, int64_t *value)
{
    const size_t length = strspn(p->at, letters_digits);
    for (int i = 0; i < p->var_count; i++) {
        if (strncmp(p->var[i].name, p->at, length) == 0 && p->var[i].name[length] == '\0') {
            *value = p->var[i].value;
            p->at += length;
            return CKPT_OK;
        }
    }
    char what[100];
    snprintf(what, sizeof what, "found \"%.*s\", which is no var here", length < 48 ? (int)length : 48, p->at);
    return wrong(p, what);
}

static ckpt_code factor(parser *p, int64_t *value)
{
    ckpt_code code = CKPT_OK;
    const char c = peek(p);
    if (++p->depth > DEPTH_MAX) {
        return wrong(p, "nested too deeply");
    }
    if (c == '-') {
        int64_t positive = 0;
        p->at++;
        CKPT_TRY(factor(p, &positive));
        if (positive == INT64_MIN) {
            return too_large(p);
        }
        *value = -positive;
    } else if (c == '(') {
        p->at++;
        CKPT_TRY(sum(p, value));
        if (peek(p) != ')') {
            return wrong(p, "wanted )");
        }
        p->at++;
    } else if (c >= '0' && c <= '9') {
        code = number(p, value);
    } else if (c != '\0' && strchr(letters, c) != NULL) {
        code = name(p, value);
    } else {
        return wrong(p, "wanted a number, a var, - or (");
    }
    p->depth--;
    return code;
}

static ckpt_code product(parser *p, int64_t *value)
{
    CKPT_TRY(factor(p, value));
    for (char c = peek(p); c == '*' || c == '/' || c == '%'; c = peek(p)) {
        int64_t right = 0;
        p->at++;
        CKPT_TRY(factor(p, &right));
        if (c == '*') {
            if (!multiply(*value, right, value)) {
                return too_large(p);
            }
        } else if (right == 0) {
            return wrong(p, "division by zero");
        } else if (right == -1) { /* INT64_MIN / -1 does not fit, and INT64_MIN % -1 is undefined in C */
            if (*value == INT64_MIN) {
                return too_large(p);
            }
            *value = c == '/' ? -*value : 0;
        } else {
            *value = c == '/' ? *value / right : *value % right;
        }
    }
    return CKPT_OK;
}

static ckpt_code sum(parser *p, int64_t *value)
{
    CKPT_TRY(product(p, value));
    for (char c = peek(p); c == '+' || c == '-'; c = peek(p)) {
        int64_t right = 0;
        p->at++;
        CKPT_TRY(product(p, &right));
        if (c == '-') {
            if (right == INT64_MIN) {
                return too_large(p);
            }
            right = -right;
        }
        if (!add(*value, right, value)) {
            return too_large(p);
        }
    }
    return CKPT_OK;
}

ckpt_code ckpt_expression_eval(const char *text, const ckpt_var *var, int var_count, int64_t *value, ckpt_err *err)
{
    parser p = {text, text, var, var_count, 0, err};
    int64_t result = 0;
    CKPT_TRY(sum(&p, &result));
    if (peek(&p) != '\0') {
        return wrong(&p, "wanted an operator or the end");
    }
    *value = result;
    return CKPT_OK;
}

ckpt_code ckpt_model_eval(const ckpt_model *model, const char *expression, int64_t *value, ckpt_err *err)
{
    return ckpt_expression_eval(expression, model->var, model->var_count, value, err);
}
