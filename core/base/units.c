/* Sizes are parsed in integers only, so that "0.1GB" is exactly 100000000 bytes; a fraction of a byte is cut off. */
#include "core/base/units.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"

bool ckpt_sum(int64_t a, int64_t b, int64_t *sum)
{
    if (a < 0 || b < 0 || a > INT64_MAX - b) {
        return false;
    }
    *sum = a + b;
    return true;
}

bool ckpt_product(int64_t a, int64_t b, int64_t *product)
{
    if (a < 0 || b < 0 || (b > 0 && a > INT64_MAX / b)) {
        return false;
    }
    *product = a * b;
    return true;
}

int64_t ckpt_round_up(int64_t n, int64_t step)
{
    assert(n >= 0 && step > 0 && n <= INT64_MAX - step);
    return (n + step - 1) / step * step;
}

bool ckpt_int64_parse(const char *text, int64_t low, int64_t high, int64_t *number)
{
    char *end = NULL;
    errno = 0;
    const long long found = strtoll(text, &end, 10);
    const bool good = errno == 0 && end != text && *end == '\0' && found >= low && found <= high;
    *number = good ? found : *number;
    return good;
}

bool ckpt_int_parse(const char *text, int low, int high, int *number)
{
    int64_t found = *number;
    const bool good = ckpt_int64_parse(text, low, high, &found);
    *number = (int)found;
    return good;
}

typedef struct unit {
    const char *name;
    int64_t size; /* in bytes, or in nanoseconds */
} unit;

static const unit units[] = {
    {"B", 1},
    {"kB", 1000},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
    {"PB", 1000000000000000},
    {"KiB", (int64_t)1 << 10},
    {"MiB", (int64_t)1 << 20},
    {"GiB", (int64_t)1 << 30},
    {"TiB", (int64_t)1 << 40},
    {"PiB", (int64_t)1 << 50},
};

static const unit *find_unit(const char *name)
{
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(units[i].name, name) == 0) {
            return &units[i];
        }
    }
    return NULL;
}

/* "12", "12.5", ".5": how many digits stand before and after the point. */
typedef struct decimal {
    const char *whole, *fraction;
    size_t whole_digits, fraction_digits;
} decimal;

static const char *scan_decimal(const char *text, decimal *number)
{
    static const char digits[] = "0123456789";
    number->whole = text;
    number->whole_digits = strspn(text, digits);
    const char *rest = text + number->whole_digits;
    number->fraction = rest;
    number->fraction_digits = 0;
    if (*rest == '.') {
        number->fraction = rest + 1;
        number->fraction_digits = strspn(rest + 1, digits);
        rest += 1 + number->fraction_digits;
    }
    return number->whole_digits + number->fraction_digits > 0 ? rest : NULL;
}

/* floor(number * scale), exactly. The fraction is taken from its last digit: floor((floor(x) + d scale) / 10)
 * equals floor((x + d scale) / 10). */
static bool scale_decimal(const decimal *number, int64_t scale, int64_t *value)
{
    int64_t whole = 0;
    for (size_t i = 0; i < number->whole_digits; i++) {
        if (!ckpt_product(whole, 10, &whole) || !ckpt_sum(whole, number->whole[i] - '0', &whole)) {
            return false;
        }
    }
    int64_t part = 0;
    for (size_t i = number->fraction_digits; i > 0; i--) {
        part = (part + (number->fraction[i - 1] - '0') * scale) / 10;
    }
    return ckpt_product(whole, scale, &whole) && ckpt_sum(whole, part, value);
}

static ckpt_code too_large(const char *text, ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_OVERFLOW, "size \"%.60s\" does not fit 63 bits", text);
}

/* whole * percent / 100, percent in millionths so that the split product stays exact. */
static ckpt_code parse_percent(const char *text, const decimal *number, ckpt_bytes whole, ckpt_bytes *bytes,
                               ckpt_err *err)
{
    const int64_t hundred = 100000000;
    int64_t percent = 0;
    if (whole <= 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "size \"%.60s\" is a percentage, but there is nothing here to take it of; "
                         "wanted bytes, such as 6GB or 6GiB",
                         text);
    }
    if (!scale_decimal(number, 1000000, &percent)) {
        return too_large(text, err);
    }
    int64_t high = 0;
    int64_t low = 0;
    int64_t sum = 0;
    if (!ckpt_product(whole / hundred, percent, &high) || !ckpt_product(whole % hundred, percent, &low) ||
        !ckpt_sum(high, low / hundred, &sum)) {
        return too_large(text, err);
    }
    *bytes = sum;
    return CKPT_OK;
}

static ckpt_code parse_size(const char *text, const char *suffix, ckpt_bytes whole, ckpt_bytes *bytes, ckpt_err *err)
{
    decimal number;
    const char *const after = scan_decimal(text, &number);
    if (after == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found \"%.60s\", wanted a size such as 6GB%s, 6GiB%s or 6000000000",
                         text, suffix, suffix);
    }
    const char *const rest = after + strspn(after, " ");
    if (strcmp(rest, "%") == 0 && suffix[0] == '\0') {
        return parse_percent(text, &number, whole, bytes, err);
    }
    if (strlen(rest) == 1 && strchr("kKMGTP", rest[0]) != NULL) {
        const int digits = after - text < 40 ? (int)(after - text) : 40;
        const char big = rest[0] == 'k' ? 'K' : rest[0];
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "size \"%.60s%s\" could mean two things; write %.*s%cB%s (powers of 1000) or %.*s%ciB%s "
                         "(powers of 1024)",
                         text, suffix, digits, text, rest[0], suffix, digits, text, big, suffix);
    }
    const unit *const found = find_unit(rest[0] == '\0' ? "B" : rest);
    if (found == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "size \"%.60s%s\" has the unknown unit \"%.20s\"; wanted B, kB, MB, GB, TB, KiB, MiB, GiB "
                         "or TiB%s",
                         text, suffix, rest, suffix[0] == '\0' ? ", or a percentage" : "");
    }
    int64_t value = 0;
    if (!scale_decimal(&number, found->size, &value)) {
        return too_large(text, err);
    }
    *bytes = value;
    return CKPT_OK;
}

ckpt_code ckpt_bytes_parse(const char *text, ckpt_bytes whole, ckpt_bytes *bytes, ckpt_err *err)
{
    ckpt_bytes value = 0;
    CKPT_TRY(parse_size(text, "", whole, &value, err));
    if (value == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "size \"%.60s\" is no byte at all; wanted at least 1", text);
    }
    *bytes = value;
    return CKPT_OK;
}

ckpt_code ckpt_ns_parse(const char *text, ckpt_ns *ns, ckpt_err *err)
{
    static const unit times[] = {{"ns", 1}, {"us", 1000}, {"\302\265s", 1000}, {"ms", 1000000}, {"s", 1000000000}};
    decimal number;
    const char *const after = scan_decimal(text, &number);
    if (after == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found \"%.60s\", wanted a time such as 500ms or 1.5s", text);
    }
    const char *const rest = after + strspn(after, " ");
    int64_t scale = 0;
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        scale = strcmp(rest, times[i].name) == 0 ? times[i].size : scale;
    }
    if (scale == 0 && strcmp(text, "0") != 0) {
        return rest[0] == '\0'
                   ? CKPT_FAIL(err, CKPT_BAD_INPUT, "time \"%.60s\" has no unit; wanted ns, us, ms or s", text)
                   : CKPT_FAIL(err, CKPT_BAD_INPUT,
                               "time \"%.60s\" has the unknown unit \"%.20s\"; wanted ns, us, ms or s", text, rest);
    }
    ckpt_ns value = 0;
    if (!scale_decimal(&number, scale, &value)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "time \"%.60s\" does not fit 63 bits", text);
    }
    *ns = value;
    return CKPT_OK;
}

ckpt_code ckpt_percent_parse(const char *text, int64_t *millionths, ckpt_err *err)
{
    decimal number;
    const char *const after = scan_decimal(text, &number);
    if (after == NULL || strcmp(after + strspn(after, " "), "%") != 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found \"%.60s\", wanted a percentage such as 3%%", text);
    }
    int64_t value = 0;
    if (!scale_decimal(&number, 10000, &value)) {
        return CKPT_FAIL(err, CKPT_OVERFLOW, "percentage \"%.60s\" does not fit 63 bits", text);
    }
    *millionths = value;
    return CKPT_OK;
}

ckpt_code ckpt_rate_parse(const char *text, int64_t *bytes_per_s, ckpt_err *err)
{
    char size[64];
    const size_t length = strlen(text);
    const bool slash = length >= 2 && strcmp(text + length - 2, "/s") == 0;
    const size_t keep = slash ? length - 2 : length;
    if (keep >= sizeof size || (!slash && strspn(text, "0123456789") != length)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "found \"%.60s\", wanted a rate such as 50GB/s or 12.5GiB/s", text);
    }
    memcpy(size, text, keep);
    size[keep] = '\0';
    int64_t value = 0;
    CKPT_TRY(parse_size(size, "/s", 0, &value, err));
    if (value == 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "rate \"%.60s\" is nothing at all; wanted at least 1 byte per second",
                         text);
    }
    *bytes_per_s = value;
    return CKPT_OK;
}

ckpt_code ckpt_link_parse(const char *text, int64_t *d2h_bytes_per_s, int64_t *h2d_bytes_per_s, ckpt_err *err)
{
    const char *const comma = strchr(text, ',');
    const size_t length = comma != NULL ? (size_t)(comma - text) : strlen(text);
    char first[64];
    if (length >= sizeof first || (comma != NULL && strchr(comma + 1, ',') != NULL)) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT,
                         "found \"%.60s\", wanted a link: one rate such as 50GB/s, or two, to the host and back, such "
                         "as 50GB/s,25GB/s",
                         text);
    }
    memcpy(first, text, length);
    first[length] = '\0';
    int64_t down = 0;
    CKPT_TRY_WHILE(err, ckpt_rate_parse(first, &down, err), "reading the link \"%.60s\"", text);
    int64_t up = down;
    if (comma != NULL) {
        const char *const second = comma + 1 + strspn(comma + 1, " ");
        CKPT_TRY_WHILE(err, ckpt_rate_parse(second, &up, err), "reading the link \"%.60s\"", text);
    }
    *d2h_bytes_per_s = down;
    *h2d_bytes_per_s = up;
    return CKPT_OK;
}

/* Three significant digits, stepping to the next name when rounding would give four. */
static const char *show(int64_t quantity, const char *const *names, int name_count, char *text)
{
    if (quantity > -1000 && quantity < 1000) {
        snprintf(text, CKPT_UNITS_TEXT, "%" PRId64 " %s", quantity, names[0]);
        return text;
    }
    double value = (double)quantity;
    int k = 0;
    while (k + 1 < name_count && (value >= 999.5 || value <= -999.5)) {
        value /= 1000.0;
        k++;
    }
    const double size = value < 0.0 ? -value : value;
    const int decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
    char number[CKPT_REAL_TEXT];
    snprintf(text, CKPT_UNITS_TEXT, "%.16s %s", ckpt_real_fixed(value, decimals, number), names[k]);
    return text;
}

const char *ckpt_bytes_show(ckpt_bytes bytes, char *text)
{
    static const char *const names[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    return show(bytes, names, (int)(sizeof names / sizeof names[0]), text);
}

const char *ckpt_ns_show(ckpt_ns ns, char *text)
{
    static const char *const names[] = {"ns", "us", "ms", "s"};
    return show(ns, names, (int)(sizeof names / sizeof names[0]), text);
}

static int compare_numbers(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t ckpt_median(int64_t *sample, int count, int64_t *spread)
{
    qsort(sample, (size_t)count, sizeof sample[0], compare_numbers);
    if (spread != NULL) {
        *spread = sample[3 * count / 4] - sample[count / 4];
    }
    const int64_t low = sample[(count - 1) / 2], high = sample[count / 2];
    return low + (high - low) / 2;
}

double ckpt_excess(ckpt_ns a, ckpt_ns b)
{
    return b > 0 ? (double)a / (double)b - 1 : 0;
}
