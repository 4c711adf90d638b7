/* Repeated blocks, drawn once. Layers are compared by a number for what they are (name without its digits, bytes,
 * decision, ways) and by where what they read lies: as far behind, or at the same place before all blocks. Runs of a period
 * are found in that sequence, those that save most boxes are taken, and what is within their blocks and between them is
 * folded in turn. */
#include <stdlib.h>
#include <string.h>

#include "viz/graph/graph_fold_impl.h"

enum { PERIOD_MAX = 1000 };

/* Boxes that need not be drawn. */
static int64_t saved_by(const ckpt_blocks *b)
{
    return (int64_t)(b->times - 1) * b->period;
}

static int end_of(const ckpt_blocks *b)
{
    return b->first + b->times * b->period;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 1099511628211U; /* FNV-1a, a word at a time */
}

static uint64_t mix_words(uint64_t hash, const char *words)
{
    for (; words != NULL && *words != '\0'; words++) {
        hash = mix(hash, (unsigned char)*words);
    }
    return mix(hash, 256);
}

/* The name without its numbers, so that h.3.ln1 is like h.4.ln1. */
static uint64_t mix_name(uint64_t hash, const char *name)
{
    bool digits = false;
    for (; *name != '\0'; name++) {
        const bool digit = *name >= '0' && *name <= '9';
        if (!digit || !digits) {
            hash = mix(hash, digit ? '0' : (unsigned char)*name);
        }
        digits = digit;
    }
    return mix(hash, 256);
}

static void make_tokens(ckpt_folding *f)
{
    const ckpt_figure *const figure = f->figure;
    for (int i = 0; i < f->count; i++) {
        const ckpt_figure_box *const b = &figure->box[i];
        uint64_t hash = mix_name(14695981039346656037U, b->name);
        for (int k = 0; k < CKPT_DECISIONS; k++) {
            hash = mix(hash, (uint64_t)b->decided[k]);
        }
        hash = mix(hash, (uint64_t)b->recomputed);
        hash = mix_words(mix_words(hash, b->way), b->backward_way);
        f->token[i] = mix(hash, (uint64_t)(f->edge_at[i + 1] - f->edge_at[i]));
    }
    for (int b = 0; b < figure->graph->buffer_count; b++) {
        const int layer = figure->layer_of[figure->graph->writer[b]];
        if (layer >= 0) {
            f->token[layer] =
                mix(mix(f->token[layer], figure->graph->buffer[b].kind), (uint64_t)figure->graph->buffer[b].bytes);
        }
    }
}

static void index_edges(ckpt_folding *f)
{
    const ckpt_figure *const figure = f->figure;
    for (int e = 0; e < figure->edge_count; e++) {
        f->edge_at[figure->edge[e].to + 1]++;
        f->reader_at[figure->edge[e].from + 1]++;
    }
    for (int i = 0; i < f->count; i++) {
        f->edge_at[i + 1] += f->edge_at[i];
        f->reader_at[i + 1] += f->reader_at[i];
        f->seen[i] = f->reader_at[i];
    }
    for (int e = 0; e < figure->edge_count; e++) {
        f->reader[f->seen[figure->edge[e].from]++] = figure->edge[e].to;
    }
    for (int i = 0; i < f->count; i++) {
        f->cross[i] = -1;
        f->stands_for[i] = i;
    }
    for (int r = 0; r < figure->range_count; r++) { /* the inner ones come later */
        f->begins[figure->range[r].first] += mix(1, figure->range[r].kind);
        f->ends[figure->range[r].last] += mix(1, figure->range[r].kind);
        for (int i = figure->range[r].first + 1; i <= figure->range[r].last; i++) {
            f->cross[i] = r;
        }
    }
}

/* Whether layers i and i + period, whose tokens are equal, read alike when blocks begin at `first`: layers as far
 * behind them within the blocks, or one layer before the blocks. Layer i of the first block may read any layer before
 * the blocks where layer i + period reads one of the first block. If not: *next is a later layer at which blocks may
 * begin. */
static bool alike(const ckpt_folding *f, int i, int period, int first, int *next)
{
    const ckpt_figure_edge *const here = &f->figure->edge[f->edge_at[i]];
    const ckpt_figure_edge *const there = &f->figure->edge[f->edge_at[i + period]];
    for (int e = 0; e < f->edge_at[i + 1] - f->edge_at[i]; e++) {
        const int source = here[e].from, other = there[e].from;
        const bool behind = source >= first && other - source == period && here[e].bytes == there[e].bytes;
        const bool before = source < first && (other == source || (i < first + period && other >= first));
        if (!behind && !before) {
            *next = source >= first ? source + 1 : first + 1;
            return false;
        }
    }
    return true;
}

/* The first layer from `first` on that is not like the one a period behind it. */
static int reach(const ckpt_folding *f, int first, int end, int period, int *next)
{
    int i = first;
    while (i < end && alike(f, i, period, first, next)) {
        i++;
    }
    return i;
}

/* Where the first block reads another layer than the second does, the second must read a layer of the first block, and
 * that layer must replace the same layer everywhere. */
static bool same_sources(const ckpt_folding *f, int first, int period)
{
    for (int i = first; i < first + period; i++) {
        f->seen[i] = -1;
    }
    for (int i = first; i < first + period; i++) {
        const ckpt_figure_edge *const here = &f->figure->edge[f->edge_at[i]];
        const ckpt_figure_edge *const there = &f->figure->edge[f->edge_at[i + period]];
        for (int e = 0; e < f->edge_at[i + 1] - f->edge_at[i]; e++) {
            const int source = there[e].from;
            if (here[e].from >= first || source == here[e].from) {
                continue;
            }
            if (source < first || source >= first + period ||
                (f->seen[source] >= 0 && f->seen[source] != here[e].from)) {
                return false;
            }
            f->seen[source] = here[e].from;
        }
    }
    return true;
}

static bool reads(const ckpt_folding *f, int reader, int layer)
{
    for (int e = f->edge_at[reader]; e < f->edge_at[reader + 1]; e++) {
        if (f->figure->edge[e].from == layer) {
            return true;
        }
    }
    return false;
}

/* Whether ranges begin and end alike in layers i and i + period of blocks first..end - 1. One around all blocks may
 * begin with the first and end with the last. */
static bool same_ranges(const ckpt_folding *f, int first, int end, int period, int i)
{
    uint64_t begins = f->begins[i] - f->begins[i + period], ends = f->ends[i + period] - f->ends[i];
    if ((begins == 0 && ends == 0) || (i != first && i + period != end - 1)) {
        return begins == 0 && ends == 0;
    }
    for (int r = 0; r < f->figure->range_count; r++) {
        const ckpt_figure_range *const range = &f->figure->range[r];
        if (range->first <= first && range->last >= end - 1) {
            begins -= range->first == i ? mix(1, range->kind) : 0;
            ends -= range->last == i + period ? mix(1, range->kind) : 0;
        }
    }
    return begins == 0 && ends == 0;
}

/* An upper limit on how many of `times` blocks can be drawn as one: ranges must be the same in each and cross no end of
 * the blocks, and layers behind them must read only the last block, or all blocks alike. */
static int blocks_left(const ckpt_folding *f, int first, int period, int times)
{
    const int end = first + times * period;
    for (int i = first; i < end - period; i++) {
        bool same = same_ranges(f, first, end, period, i);
        for (int r = f->reader_at[i]; same && r < f->reader_at[i + 1]; r++) {
            same = f->reader[r] < end || reads(f, f->reader[r], i + period);
        }
        if (!same) {
            const int left = (i - first) / period + 1; /* or one more, when a range that ends there is around all */
            return left + 1 < times && same_ranges(f, first, end - (times - left - 1) * period, period, i) ? left + 1
                                                                                                           : left;
        }
    }
    for (int b = 0; b <= times; b++) {
        const int at = first + b * period;
        const int range = at < f->count ? f->cross[at] : -1;
        if (range >= 0 && (f->figure->range[range].first > first || f->figure->range[range].last < end - 1)) {
            return b == times ? times - 1 : 0;
        }
    }
    return times;
}

static int blocks_at(const ckpt_folding *f, int first, int period, int times)
{
    int left = blocks_left(f, first, period, times);
    while (left >= 2 && left < times) {
        times = left;
        left = blocks_left(f, first, period, times);
    }
    return left;
}

/* Whether a number in the name changes here: blocks are called by their numbers. */
static bool block_begins(const ckpt_folding *f, int layer)
{
    if (layer == 0) {
        return true;
    }
    const char *const before = f->figure->box[layer - 1].name, *const name = f->figure->box[layer].name;
    size_t length = strcspn(name, "0123456789");
    length += strspn(name + length, "0123456789");
    return strncmp(before, name, length) != 0;
}

/* The blocks of `period` layers that save most boxes in a run start..end - 1. In a run layers i and i + period are
 * alike; those of the first block may read anything that lies before it. times 0: none. */
static ckpt_blocks best_of_run(ckpt_folding *f, int start, int end, int period)
{
    ckpt_blocks best = {0};
    int64_t most = 0;
    for (int first = start, from = start; end - first >= 2 * period; first++) {
        if (first == from + period) { /* farther on are the same blocks, if there were any */
            if (most > 0) {
                break;
            }
            from = first;
        }
        if (!same_sources(f, first, period)) {
            continue;
        }
        int ignored = 0;
        const int last = reach(f, first, end - period, period, &ignored);
        const ckpt_blocks here = {period, first, blocks_at(f, first, period, (last - first) / period + 1)};
        const int64_t saved = here.times >= 2 ? 2 * saved_by(&here) + block_begins(f, first) : 0;
        if (saved > most) {
            most = saved;
            best = here;
        }
        if (most > 2 * ((int64_t)(end - start) / period - 1) * period) {
            break; /* there is no better one */
        }
    }
    return best;
}

/* Blocks of `period` layers in low..high - 1 replace those found from number `base` on if they save more, and join them
 * if they save as much and have the same period. */
static void find_blocks(ckpt_folding *f, int low, int high, int period, int base)
{
    for (int i = low, end = low; i + period < high; i = end + 1) {
        for (end = i; end + period < high && f->token[end] == f->token[end + period];) {
            end++;
        }
        for (int first = i, next = 0; end - first >= period; first = next) {
            const int last = reach(f, first, end, period, &next);
            if (last - first < period) {
                continue;
            }
            next = last - period + 1; /* from there on it is in the first block */
            const ckpt_blocks all = {period, first, (last - first) / period + 1};
            const ckpt_blocks before = f->found_count > base ? f->found[f->found_count - 1] : (ckpt_blocks){0};
            const int64_t most = saved_by(&before) + (before.period != period);
            const ckpt_blocks here =
                saved_by(&all) >= most ? best_of_run(f, first, last + period, period) : (ckpt_blocks){0};
            if (here.times == 0 || saved_by(&here) < most) {
                continue;
            }
            if (saved_by(&here) > saved_by(&before)) {
                f->found_count = base;
            } else if (here.first < end_of(&before)) {
                continue;
            }
            f->found[f->found_count++] = here;
        }
    }
}

/* Fold layers low..high - 1: the blocks that save most, then what is within the first of them and between them. */
static void fold_range(ckpt_folding *f, int low, int high)
{
    const int base = f->found_count, size = high - low;
    int64_t most = 0;
    for (int period = 1; period <= PERIOD_MAX && 2 * period <= size && size - period > most; period++) {
        find_blocks(f, low, high, period, base);
        most = f->found_count > base ? saved_by(&f->found[base]) : 0;
    }
    int from = low;
    for (int k = base, count = f->found_count; k < count; k++) {
        const ckpt_blocks *const b = &f->found[k];
        const int second = b->first + b->period;
        fold_range(f, from, b->first);
        fold_range(f, b->first, second);
        from = end_of(b);
        for (int i = second; i < from; i++) {
            f->stands_for[i] = f->stands_for[i - b->period];
        }
        f->repeat[f->repeat_count++] = (ckpt_figure_range){
            .kind = CKPT_RANGE_REPEAT, .first = b->first, .last = second - 1, .layers = b->period, .times = b->times};
    }
    if (from > low) {
        fold_range(f, from, high);
    }
    f->found_count = base;
}

ckpt_code ckpt_figure_fold(ckpt_figure *figure, ckpt_err *err)
{
    const size_t count = (size_t)figure->box_count;
    ckpt_arena *const scratch = figure->scratch;
    ckpt_folding f = {.figure = figure,
                      .count = figure->box_count,
                      .token = CKPT_NEW(scratch, uint64_t, count),
                      .edge_at = CKPT_NEW(scratch, int, count + 1),
                      .reader_at = CKPT_NEW(scratch, int, count + 1),
                      .reader = CKPT_NEW(scratch, int, figure->edge_count),
                      .begins = CKPT_NEW(scratch, uint64_t, count),
                      .ends = CKPT_NEW(scratch, uint64_t, count),
                      .cross = CKPT_NEW(scratch, int, count),
                      .stands_for = CKPT_NEW(scratch, int, count),
                      .seen = CKPT_NEW(scratch, int, count),
                      .repeat = CKPT_NEW(scratch, ckpt_figure_range, count),
                      .found = CKPT_NEW(scratch, ckpt_blocks, count)};
    if (f.token == NULL || f.edge_at == NULL || f.reader_at == NULL || f.reader == NULL || f.begins == NULL ||
        f.ends == NULL || f.cross == NULL || f.stands_for == NULL || f.seen == NULL || f.repeat == NULL ||
        f.found == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to fold %d layers", f.count);
    }
    index_edges(&f);
    make_tokens(&f);
    fold_range(&f, 0, f.count);
    return ckpt_folding_apply(&f, err);
}
