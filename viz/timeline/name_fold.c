/* Names of repeated blocks as one: what differs between "h.0.att" and "h.5.att" is a number that stands alone between
 * dots or slashes. Numbers inside of words are mostly part of the word, "conv1" and "conv2" two layers of one block,
 * but where names have no others, "down0_conv1", they are what repeats. */
#include <string.h>

#include "core/base/text.h"
#include "viz/timeline/live_ranges_impl.h"

static bool separates(char c)
{
    return c == '.' || c == '/' || c == '\0';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits of the number that starts here; 0: none does. "a:1" is the second output of a: that is no number. */
static size_t number_at(const char *name, const char *at, bool deep)
{
    const char before = at != name ? at[-1] : '\0';
    if (before == ':' || is_digit(before) || (!deep && !separates(before))) {
        return 0;
    }
    const size_t digits = strspn(at, "0123456789");
    return deep || separates(at[digits]) ? digits : 0;
}

const char *ckpt_name_pattern(const char *name, bool deep, ckpt_arena *out)
{
    char *const pattern = CKPT_NEW(out, char, strlen(name) + 1);
    char *to = pattern;
    for (const char *at = name; pattern != NULL && *at != '\0';) {
        const size_t digits = number_at(name, at, deep);
        *to++ = digits > 0 ? '#' : *at;
        at += digits > 0 ? digits : 1;
    }
    return pattern;
}

typedef struct number {
    const char *at;
    size_t digits; /* without leading zeros, so that more of them are more */
} number;

static number number_of(const char *at, size_t digits)
{
    while (digits > 1 && *at == '0') {
        at++;
        digits--;
    }
    return (number){at, digits};
}

static bool less(number a, number b)
{
    return a.digits != b.digits ? a.digits < b.digits : memcmp(a.at, b.at, a.digits) < 0;
}

static number number_here(const char *name, const char *at, bool deep)
{
    return number_of(at, number_at(name, at, deep));
}

/* The numbers that stand where `at` points, "0,3" when they are two, else "0…5"; `at` then points behind them. */
static void put_numbers(const char *const *name, const char **at, int count, bool deep, ckpt_text *text)
{
    number minimum = number_here(name[0], at[0], deep), most = minimum;
    for (int i = 1; i < count; i++) {
        const number own = number_here(name[i], at[i], deep);
        minimum = less(own, minimum) ? own : minimum;
        most = less(most, own) ? own : most;
    }
    bool two = true;
    for (int i = 0; i < count; i++) {
        const number own = number_here(name[i], at[i], deep);
        two = two && (!less(minimum, own) || !less(own, most));
        at[i] += number_at(name[i], at[i], deep);
    }
    ckpt_text_put(text, minimum.at, minimum.digits);
    if (less(minimum, most)) {
        ckpt_text_add(text, "%s", two ? "," : "…");
        ckpt_text_put(text, most.at, most.digits);
    }
}

const char *ckpt_name_fold(const char *const *name, int count, bool deep, ckpt_arena *out)
{
    const char **const at = CKPT_NEW(out, const char *, count);
    if (at == NULL) {
        return NULL;
    }
    memcpy(at, name, (size_t)count * sizeof *at);
    ckpt_text text;
    ckpt_text_init(&text);
    while (*at[0] != '\0') {
        if (number_at(name[0], at[0], deep) > 0) {
            put_numbers(name, at, count, deep, &text);
            continue;
        }
        ckpt_text_put(&text, at[0], 1);
        for (int i = 0; i < count; i++) {
            at[i]++;
        }
    }
    const char *const folded = text.failed ? NULL : ckpt_arena_text(out, text.bytes != NULL ? text.bytes : "");
    ckpt_text_fini(&text);
    return folded;
}
