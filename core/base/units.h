/* Quantities: their types, checked arithmetic, and how people write and read them. */
#ifndef CKPT_CORE_BASE_UNITS_H
#define CKPT_CORE_BASE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

typedef int64_t ckpt_bytes;
typedef int64_t ckpt_ns;
typedef int64_t ckpt_flop;

#define CKPT_BYTES_MAX INT64_MAX

/* *sum = a + b or *product = a * b for a, b >= 0; false, and the output untouched, when 63 bits do not hold it. */
bool ckpt_sum(int64_t a, int64_t b, int64_t *sum);
bool ckpt_product(int64_t a, int64_t b, int64_t *product);

/* a / b - 1; 0 when b is 0. */
double ckpt_excess(ckpt_ns a, ckpt_ns b);

/* n up to the next multiple of step; n, step > 0, n + step within 63 bits. */
int64_t ckpt_round_up(int64_t n, int64_t step);

/* A whole number from `low` to `high`, and nothing behind it. False: something else, and *number is untouched. */
bool ckpt_int64_parse(const char *text, int64_t low, int64_t high, int64_t *number);
bool ckpt_int_parse(const char *text, int low, int high, int *number);

/* A budget as a person writes it: "6GB" (10^9), "6GiB" (2^30), "512MB", "6000000000", "6000000000B", "1.5GiB",
 * or "80%" of `whole`. `whole` 0 refuses percentages. A bare "6G" is refused with a hint at both spellings.
 * Errors: CKPT_BAD_INPUT, CKPT_OVERFLOW; the message quotes `text`. */
CKPT_MUST_USE ckpt_code ckpt_bytes_parse(const char *text, ckpt_bytes whole, ckpt_bytes *bytes, ckpt_err *err);

/* A time as a person writes it: "500ms", "1.5 s", "20us", "7ns"; "0" needs no unit. Errors as above. */
CKPT_MUST_USE ckpt_code ckpt_ns_parse(const char *text, ckpt_ns *ns, ckpt_err *err);

/* A share: "3%", "0.5 %", in millionths; what is finer than that is cut off. Errors as above. */
CKPT_MUST_USE ckpt_code ckpt_percent_parse(const char *text, int64_t *millionths, ckpt_err *err);

/* A rate: "50GB/s", "12.5GiB/s", in bytes per second. */
CKPT_MUST_USE ckpt_code ckpt_rate_parse(const char *text, int64_t *bytes_per_s, ckpt_err *err);

/* A link to the host: one rate for both directions, "50GB/s", or first to the host and then back, "50GB/s,25GB/s". */
CKPT_MUST_USE ckpt_code ckpt_link_parse(const char *text, int64_t *d2h_bytes_per_s, int64_t *h2d_bytes_per_s,
                                        ckpt_err *err);

/* Sort, and give the median (of an even count the mean of the middle two, rounded down) and, where `spread` is not
 * NULL, the distance from the first to the third quartile. count > 0, values >= 0. */
int64_t ckpt_median(int64_t *sample, int count, int64_t *spread);

enum { CKPT_UNITS_TEXT = 48 };

/* "6.00 GB" with three digits, or "512 B"; "12.3 ms". Written to `text` (CKPT_UNITS_TEXT bytes) and given back. */
const char *ckpt_bytes_show(ckpt_bytes bytes, char *text);
const char *ckpt_ns_show(ckpt_ns ns, char *text);

#endif
