/* A bound on the main line of a schedule by Lagrangian relaxation: docs/explanation/chain-program.md. In floating
 * point; bounds are lowered by far more than its error. */
#include <math.h>

#include "planner/chain/chain_dp_impl.h"

static ckpt_bytes room_at_end(const ckpt_dp_windows *windows, const ckpt_dp_figures *f)
{
    const ckpt_dp_block *const last = &f->chain->block[f->n];
    ckpt_bytes leaf = CKPT_BYTES_MAX;
    for (int o = 0; o < last->leaf_count; o++) {
        leaf = last->leaf[o].peak[CKPT_DP_FIRST] < leaf ? last->leaf[o].peak[CKPT_DP_FIRST] : leaf;
    }
    return leaf < windows->limit ? windows->limit - leaf : 0;
}

static ckpt_ns dropped(const ckpt_dp_figures *f, int s, int t)
{
    return f->drop[CKPT_DP_FIRST][t] - f->drop[CKPT_DP_FIRST][s - 1];
}

/* behind[] at `price`; gives the bytes that the cheapest line holds at its end. */
static double price_behind(const ckpt_dp_windows *windows, const ckpt_dp_figures *f, double price, double *behind,
                           double *held)
{
    const int n = f->n;
    const ckpt_dp_block *const last = &f->chain->block[n];
    behind[n] = HUGE_VAL;
    held[n] = 0;
    for (int o = 0; o < last->leaf_count; o++) {
        const double time = (double)(last->leaf[o].time[CKPT_DP_FIRST] - f->base[CKPT_DP_FIRST][n]);
        behind[n] = time < behind[n] ? time : behind[n];
    }
    for (int s = n - 1; s >= 1; s--) {
        const ckpt_dp_block *const block = &f->chain->block[s];
        behind[s] = HUGE_VAL;
        for (int o = 0; o < block->keep_count; o++) {
            const double bytes = (double)block->keep[o].bytes;
            const double cost = (double)(block->keep[o].time[CKPT_DP_FIRST] - f->base[CKPT_DP_FIRST][s]) +
                                price * bytes + behind[s + 1];
            if (cost < behind[s]) {
                behind[s] = cost;
                held[s] = bytes + held[s + 1];
            }
        }
        const ckpt_dp_window *const row = windows->window[s];
        for (int t = s; t < s + windows->row_count[s]; t++) {
            if (row[t - s].time >= 0) {
                const double bytes = (double)ckpt_dp_crossing(f, s, t + 1);
                const double cost = (double)(dropped(f, s, t) + row[t - s].floor) + price * bytes + behind[t + 1];
                if (cost < behind[s]) {
                    behind[s] = cost;
                    held[s] = bytes + held[t + 1];
                }
            }
        }
    }
    return held[1];
}

static void price_before(const ckpt_dp_windows *windows, const ckpt_dp_figures *f, double price, double *before)
{
    for (int s = 1; s <= f->n; s++) {
        before[s] = s == 1 ? 0 : HUGE_VAL;
    }
    for (int s = 1; s < f->n; s++) {
        const ckpt_dp_block *const block = &f->chain->block[s];
        for (int o = 0; o < block->keep_count; o++) {
            const double cost = before[s] + price * (double)block->keep[o].bytes +
                                (double)(block->keep[o].time[CKPT_DP_FIRST] - f->base[CKPT_DP_FIRST][s]);
            before[s + 1] = cost < before[s + 1] ? cost : before[s + 1];
        }
        const ckpt_dp_window *const row = windows->window[s];
        for (int t = s; t < s + windows->row_count[s]; t++) {
            if (row[t - s].time >= 0) {
                const double cost = before[s] + price * (double)ckpt_dp_crossing(f, s, t + 1) +
                                    (double)(dropped(f, s, t) + row[t - s].floor);
                before[t + 1] = cost < before[t + 1] ? cost : before[t + 1];
            }
        }
    }
}

/* A whole number that is safely no more. */
static ckpt_ns safe(double time)
{
    const double lowered = time - 1 - time * 1e-9;
    if (lowered <= 0) {
        return 0;
    }
    return lowered < (double)CKPT_DP_FOREVER ? (ckpt_ns)lowered : 2 * CKPT_DP_FOREVER;
}

ckpt_code ckpt_dp_price_find(ckpt_dp_windows *windows, const ckpt_dp_figures *f, ckpt_arena *scratch, ckpt_err *err)
{
    ckpt_dp_price *const price = &windows->price;
    const size_t room = (size_t)f->n + 1;
    if (price->before == NULL) {
        price->before = CKPT_NEW(scratch, double, room);
        price->behind = CKPT_NEW(scratch, double, room);
    }
    double *const held = CKPT_NEW(scratch, double, room);
    if (price->before == NULL || price->behind == NULL || held == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "prices of %d blocks", f->n);
    }
    const double bytes = (double)room_at_end(windows, f);
    double low = 0;
    double high = price->per_byte > 0 ? price->per_byte : 1; /* the last one found is near */
    double factor = price->per_byte > 0 ? 1.05 : 16;
    while (high < 1e12 && price_behind(windows, f, high, price->behind, held) > bytes) {
        low = high;
        high *= factor;
        factor = factor < 16 ? factor * factor : factor;
    }
    while (low <= 0 && high > 1e-9) {
        if (price_behind(windows, f, high / factor, price->behind, held) > bytes) {
            low = high / factor;
        } else {
            high /= factor;
            factor = factor < 16 ? factor * factor : factor;
        }
    }
    while (low > 0 && high - low > 1e-3 * high) {
        const double middle = (low + high) / 2;
        if (price_behind(windows, f, middle, price->behind, held) > bytes) {
            low = middle;
        } else {
            high = middle;
        }
    }
    price->per_byte = high;
    price->rebate = high * bytes;
    price_behind(windows, f, high, price->behind, held);
    price_before(windows, f, high, price->before);
    const ckpt_ns bound = safe(price->behind[1] - price->rebate);
    /* what has more than `excess` was left out */
    const ckpt_ns mine = bound <= windows->excess ? bound : windows->excess + 1;
    windows->bound = mine > windows->bound ? mine : windows->bound;
    return CKPT_OK;
}

ckpt_ns ckpt_dp_price_before(const ckpt_dp_windows *windows, int s, ckpt_bytes m)
{
    const ckpt_dp_price *const price = &windows->price;
    return safe(price->before[s] - price->per_byte * (double)(windows->limit - m));
}

ckpt_ns ckpt_dp_price_around(const ckpt_dp_windows *windows, const ckpt_dp_figures *f, int s, int t)
{
    const ckpt_dp_price *const price = &windows->price;
    return safe(price->before[s] + price->behind[t + 1] + price->per_byte * (double)ckpt_dp_crossing(f, s, t + 1) +
                (double)dropped(f, s, t) - price->rebate);
}
