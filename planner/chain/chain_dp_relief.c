/* Bytes that have to leave memory, times the cheapest ns per byte: docs/explanation/chain-program.md. Prices are
 * compared in floating point; a result is lowered by more than a wrong order of nearly equal prices could add. */
#include <stdlib.h>

#include "planner/chain/chain_dp_impl.h"

#define SUM_MAX ((int64_t)1 << 61)

/* A way to do with a block: what it holds and its excess. */
typedef struct choice {
    ckpt_bytes bytes;
    ckpt_ns time;
} choice;

static double price(const ckpt_dp_offer *offer)
{
    return (double)offer->time / (double)offer->bytes;
}

static int compare_offers(const void *a, const void *b)
{
    const ckpt_dp_offer *const x = a;
    const ckpt_dp_offer *const y = b;
    const double p = price(x);
    const double q = price(y);
    if (p != q) {
        return p < q ? -1 : 1;
    }
    if (x->block != y->block) {
        return x->block < y->block ? -1 : 1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static choice choice_of(const ckpt_dp_figures *f, int pass, int k, int o)
{
    const ckpt_dp_block *const block = &f->chain->block[k];
    if (o == block->keep_count) {
        return (choice){0, f->drop[pass][k] - f->drop[pass][k - 1]};
    }
    return (choice){block->keep[o].bytes, block->keep[o].time[pass] - f->base[pass][k]};
}

/* From the cheapest choice of a block down its convex hull. */
static void add_offers(ckpt_dp_relief *relief, const ckpt_dp_figures *f, int pass, int k)
{
    const int count = f->chain->block[k].keep_count + 1;
    choice now = choice_of(f, pass, k, 0);
    for (int o = 1; o < count; o++) {
        const choice c = choice_of(f, pass, k, o);
        now = c.time < now.time || (c.time == now.time && c.bytes < now.bytes) ? c : now;
    }
    relief->held_of[k] = now.bytes;
    relief->floor_of[k] = now.time;
    for (;;) {
        choice next = now;
        double least = 0;
        for (int o = 0; o < count; o++) {
            const choice c = choice_of(f, pass, k, o);
            if (c.bytes < now.bytes && c.time < CKPT_DP_FOREVER) {
                const double mine = (double)(c.time - now.time) / (double)(now.bytes - c.bytes);
                if (next.bytes == now.bytes || mine < least || (mine <= least && c.bytes < next.bytes)) {
                    least = mine;
                    next = c;
                }
            }
        }
        if (next.bytes == now.bytes) {
            return;
        }
        relief->offer[++relief->count] = (ckpt_dp_offer){k, now.bytes - next.bytes, next.time - now.time};
        now = next;
    }
}

/* No sum may come near 2^63. */
static bool check_sums(const ckpt_dp_relief *relief, int n)
{
    ckpt_bytes bytes = 0;
    ckpt_ns time = 0;
    for (int k = 1; k <= n; k++) {
        bytes = ckpt_dp_add(bytes, relief->held_of[k]);
        time = ckpt_dp_add(time, relief->floor_of[k]);
    }
    for (int i = 1; i <= relief->count; i++) {
        time = ckpt_dp_add(time, relief->offer[i].time);
    }
    return bytes < SUM_MAX && time < SUM_MAX;
}

ckpt_code ckpt_dp_relief_init(ckpt_dp_relief *relief, const ckpt_dp_figures *f, int pass, ckpt_arena *scratch,
                              ckpt_err *err)
{
    const size_t blocks = (size_t)f->n + 2;
    size_t offers = 1;
    for (int k = 1; k <= f->n; k++) {
        offers += (size_t)f->chain->block[k].keep_count + 1;
    }
    *relief = (ckpt_dp_relief){
        .offer = CKPT_NEW(scratch, ckpt_dp_offer, offers),
        .from = CKPT_NEW(scratch, int, blocks),
        .position = CKPT_NEW(scratch, int, offers),
        .held_of = CKPT_NEW(scratch, ckpt_bytes, blocks),
        .floor_of = CKPT_NEW(scratch, ckpt_ns, blocks),
        .bytes_sum = CKPT_NEW(scratch, ckpt_bytes, offers),
        .time_sum = CKPT_NEW(scratch, ckpt_ns, offers),
    };
    if (relief->offer == NULL || relief->from == NULL || relief->position == NULL || relief->held_of == NULL ||
        relief->floor_of == NULL || relief->bytes_sum == NULL || relief->time_sum == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "offers of %d blocks", f->n);
    }
    for (int k = 1; k <= f->n; k++) {
        add_offers(relief, f, pass, k);
    }
    relief->usable = check_sums(relief, f->n);
    qsort(&relief->offer[1], (size_t)relief->count, sizeof *relief->offer, compare_offers);
    for (int i = 1; i <= relief->count; i++) {
        relief->from[relief->offer[i].block + 1]++;
    }
    for (int k = 1; k <= f->n + 1; k++) {
        relief->from[k] += relief->from[k - 1];
    }
    for (int i = relief->count; i >= 1; i--) { /* from[k + 1] goes down to where k starts */
        relief->position[--relief->from[relief->offer[i].block + 1]] = i;
    }
    for (int k = 0; k <= f->n; k++) {
        relief->from[k] = relief->from[k + 1];
    }
    relief->from[f->n + 1] = relief->count;
    relief->top = 1;
    while (2 * relief->top <= relief->count) {
        relief->top *= 2;
    }
    return CKPT_OK;
}

void ckpt_dp_relief_put(ckpt_dp_relief *relief, int block, int sign)
{
    if (!relief->usable) {
        return;
    }
    relief->held += sign * relief->held_of[block];
    relief->floor += sign * relief->floor_of[block];
    for (int o = relief->from[block]; o < relief->from[block + 1]; o++) {
        const ckpt_dp_offer *const offer = &relief->offer[relief->position[o]];
        for (int i = relief->position[o]; i <= relief->count; i += i & -i) {
            relief->bytes_sum[i] += sign * offer->bytes;
            relief->time_sum[i] += sign * offer->time;
        }
    }
}

ckpt_ns ckpt_dp_relief_time(const ckpt_dp_relief *relief, ckpt_bytes bytes)
{
    if (!relief->usable) {
        return 0;
    }
    ckpt_bytes need = relief->held - bytes;
    ckpt_ns time = relief->floor;
    if (need <= 0) {
        return time;
    }
    int at = 0;
    for (int step = relief->top; step > 0; step /= 2) {
        if (at + step <= relief->count && relief->bytes_sum[at + step] < need) {
            at += step;
            need -= relief->bytes_sum[at];
            time += relief->time_sum[at];
        }
    }
    if (at == relief->count) {
        return INT64_MAX / 4;
    }
    const ckpt_dp_offer *const part = &relief->offer[at + 1];
    const double rest = (double)part->time * ((double)need / (double)part->bytes);
    const ckpt_ns sum = time + (ckpt_ns)rest;
    const ckpt_ns safe = sum - 1 - (sum >> 36);
    return safe > relief->floor ? safe : relief->floor;
}

ckpt_bytes ckpt_dp_relief_bytes(const ckpt_dp_relief *relief, ckpt_ns excess)
{
    if (!relief->usable) {
        return 0;
    }
    ckpt_ns left = excess - relief->floor;
    if (left < 0) {
        return CKPT_BYTES_MAX;
    }
    left += 1 + (left >> 36);
    ckpt_bytes gone = 0;
    int at = 0;
    for (int step = relief->top; step > 0; step /= 2) {
        if (at + step <= relief->count && relief->time_sum[at + step] <= left) {
            at += step;
            left -= relief->time_sum[at];
            gone += relief->bytes_sum[at];
        }
    }
    if (at < relief->count) {
        const ckpt_dp_offer *const part = &relief->offer[at + 1];
        gone += (ckpt_bytes)((double)part->bytes * ((double)left / (double)part->time)) + 1;
    }
    gone += 1 + (gone >> 36);
    return gone < relief->held ? relief->held - gone : 0;
}
