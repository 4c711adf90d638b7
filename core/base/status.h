/* Result codes and the error record.
 *
 * Every call that can fail returns a ckpt_code and takes a `ckpt_err *err` last (NULL allowed). Outputs are set
 * on CKPT_OK only. The first failure writes the record; callers may put "while doing this: " before its message.
 * An answer is not an error: "no plan fits" is a verdict inside a plan, not a code. */
#ifndef CKPT_CORE_BASE_STATUS_H
#define CKPT_CORE_BASE_STATUS_H

#if defined(__GNUC__)
#define CKPT_MUST_USE            __attribute__((warn_unused_result))
#define CKPT_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define CKPT_MUST_USE
#define CKPT_PRINTF(text, first)
#endif

typedef enum ckpt_code {
    CKPT_OK = 0,
    CKPT_BAD_INPUT,   /* a file, an argument or a model is wrong; the message says where */
    CKPT_OVERFLOW,    /* a size or a sum does not fit 63 bits */
    CKPT_NO_MEMORY,   /* the host refused memory; the message says how much was wanted */
    CKPT_IO,          /* a file could not be read or written */
    CKPT_DEVICE,      /* a device is missing, failed, or cannot hold what was asked */
    CKPT_INTERRUPTED, /* the caller asked to stop */
} ckpt_code;

typedef struct ckpt_err {
    ckpt_code code;
    const char *file; /* source file where the first failure was raised; static string */
    int line;
    int text_line, text_column; /* from 1: where in the JSON text that was read; 0: nowhere there */
    char msg[512];              /* always terminated, and one line of UTF-8 (ckpt_text_flatten) */
} ckpt_err;

/* Fill `err` (NULL allowed) and give back `code`, so that a function can `return CKPT_FAIL(...)`. */
#define CKPT_FAIL(err, code, ...) ckpt_err_set((err), (code), __FILE__, __LINE__, __VA_ARGS__)

/* Return from the enclosing function when `call` fails, handing its code on. */
#define CKPT_TRY(call)                                                                                                 \
    do {                                                                                                               \
        const ckpt_code ckpt_try_code = (call);                                                                        \
        if (ckpt_try_code != CKPT_OK) {                                                                                \
            return ckpt_try_code;                                                                                      \
        }                                                                                                              \
    } while (0)

/* The same, with "while <what>: " put before the message. */
#define CKPT_TRY_WHILE(err, call, ...)                                                                                 \
    do {                                                                                                               \
        const ckpt_code ckpt_try_code = (call);                                                                        \
        if (ckpt_try_code != CKPT_OK) {                                                                                \
            ckpt_err_while((err), __VA_ARGS__);                                                                        \
            return ckpt_try_code;                                                                                      \
        }                                                                                                              \
    } while (0)

ckpt_code ckpt_err_set(ckpt_err *err, ckpt_code code, const char *file, int line, const char *format, ...)
    CKPT_PRINTF(5, 6);

/* Put "while <formatted>: " before the message. */
void ckpt_err_while(ckpt_err *err, const char *format, ...) CKPT_PRINTF(2, 3);

/* Put "<formatted>: " before the message: for "file:line:column". */
void ckpt_err_at(ckpt_err *err, const char *format, ...) CKPT_PRINTF(2, 3);

/* The exit code a program gives for `code`: 0 ok, 2 bad usage or input, 3 device or memory refused, 130 interrupted. 1
 * means "the answer is no" and is never an error. */
int ckpt_exit_code(ckpt_code code);

#endif
