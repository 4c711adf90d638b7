/* Expressions over named values. */
#ifndef CKPT_CORE_FORMATS_EXPRESSION_IMPL_H
#define CKPT_CORE_FORMATS_EXPRESSION_IMPL_H

#include "core/formats/model.h"

/* A 64-bit integer or, where a real number took part, a double, which is finite. */
typedef struct ckpt_number {
    bool is_real;
    int64_t integer;
    double real;
} ckpt_number;

/* `copy`: what # stands for; -1: nothing. Errors: CKPT_BAD_INPUT (syntax, unknown name, division by zero; names the
 * column in `text`), CKPT_OVERFLOW. */
CKPT_MUST_USE ckpt_code ckpt_expression_eval(const char *text, const ckpt_var *var, int var_count, int64_t copy,
                                             ckpt_number *value, ckpt_err *err);

/* A name that an expression can use: a letter or _, then letters, digits, _. */
bool ckpt_expression_name(const char *name);

#endif
