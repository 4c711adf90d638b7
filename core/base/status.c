/* The error record: fixed size, so that reporting "no memory" needs none. */
#include "core/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/memory.h"
#include "core/base/text.h"

/* Messages of refused memory say what it was for. That it was refused, and how much, is added here. */
static void add_refusal(ckpt_err *err)
{
    char text[sizeof err->msg], amount[48] = "";
    const size_t bytes = ckpt_memory_refused();
    memcpy(text, err->msg, sizeof text);
    if (bytes > 0) {
        snprintf(amount, sizeof amount, " (%zu bytes were refused)", bytes);
    }
    snprintf(err->msg, sizeof err->msg, "%s%.440s%s", strstr(text, "memory") != NULL ? "" : "no memory: ", text,
             amount);
}

ckpt_code ckpt_err_set(ckpt_err *err, ckpt_code code, const char *file, int line, const char *format, ...)
{
    if (err != NULL) {
        err->code = code;
        err->file = file;
        err->line = line;
        err->text_line = err->text_column = 0;
        va_list args;
        va_start(args, format);
        vsnprintf(err->msg, sizeof err->msg, format, args);
        va_end(args);
        if (code == CKPT_NO_MEMORY) {
            add_refusal(err);
        }
        ckpt_text_flatten(err->msg); /* what a file or an argument holds must not break it */
    }
    return code;
}

/* A message that grows too long keeps its beginning: where it happened matters more than its tail. */
static void prepend(ckpt_err *err, const char *before, const char *format, va_list args)
{
    char old[sizeof err->msg];
    memcpy(old, err->msg, sizeof old);
    char text[256];
    vsnprintf(text, sizeof text, format, args);
    char joined[sizeof text + sizeof old + 16];
    snprintf(joined, sizeof joined, "%s%s: %s", before, text, old);
    memcpy(err->msg, joined, sizeof err->msg - 1);
    err->msg[sizeof err->msg - 1] = '\0';
    ckpt_text_flatten(err->msg);
}

void ckpt_err_while(ckpt_err *err, const char *format, ...)
{
    if (err == NULL) {
        return;
    }
    va_list args;
    va_start(args, format);
    prepend(err, "while ", format, args);
    va_end(args);
}

void ckpt_err_at(ckpt_err *err, const char *format, ...)
{
    if (err == NULL) {
        return;
    }
    va_list args;
    va_start(args, format);
    prepend(err, "", format, args);
    va_end(args);
}

int ckpt_exit_code(ckpt_code code)
{
    switch (code) {
    case CKPT_OK: return 0;
    case CKPT_BAD_INPUT:
    case CKPT_OVERFLOW:
    case CKPT_IO: return 2;
    case CKPT_NO_MEMORY:
    case CKPT_DEVICE: return 3;
    case CKPT_INTERRUPTED: return 130;
    }
    return 2;
}
