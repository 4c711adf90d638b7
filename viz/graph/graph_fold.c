/* Repeated blocks, drawn once. Layers are compared by a number for what they are (name without its digits, bytes,
 * decision) and by where what they read lies: as far behind, or at the same place before all blocks. Runs of a period
 * are found in that sequence, the one that saves most boxes is taken first, and its block is folded in turn. */
#include <stdlib.h>
#include <string.h>

#include "viz/graph/graph_fold_impl.h"

enum { PERIOD_MAX = 1000, PASSES = 8 };

/* Layers i and i + period are alike for all i in start..end - period - 1; those of the first block may read anything
 * that lies before it. */
typedef struct run {
    int start, end, period;
    int first, times; /* the best blocks in it: first, first + period, ... */
} run;

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 1099511628211U; /* FNV-1a, a word at a time */
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

/* Whether layers i and i + period, which are the same else, read alike when blocks begin at `first`: as far behind
 * within the blocks, or the same layer before them. Layer i of the first block may read any layer before it instead of
 * one of the first block. If not: *next is a later layer at which blocks may begin. */
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

/* Where the first block reads something else than the second one, the second reads the first: what it reads there is
 * what stands for the other, and for nothing else. */
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

/* Of `times` blocks, no more than so many can be one: ranges are the same in each and none crosses its ends, and
 * whatever is read behind them is read of the last, or of all alike. */
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

/* The blocks of this run that save most boxes within low..high - 1. */
static bool best_blocks(ckpt_folding *f, run *r, int low, int high)
{
    const int start = low > r->start ? low : r->start, end = high < r->end ? high : r->end;
    int best = 0, from = start;
    for (int first = start; end - first >= 2 * r->period; first++) {
        if (first == from + r->period) { /* farther on are the same blocks, if there were any */
            if (best > 0) {
                break;
            }
            from = first;
        }
        if (!same_sources(f, first, r->period)) {
            continue;
        }
        int ignored = 0;
        const int last = reach(f, first, end - r->period, r->period, &ignored);
        const int times = blocks_at(f, first, r->period, (last - first) / r->period + 1);
        const int saved = times >= 2 ? 2 * (times - 1) * r->period + block_begins(f, first) : 0;
        if (saved > best) {
            best = saved;
            r->first = first;
            r->times = times;
        }
        if (best > 2 * ((end - start) / r->period - 1) * r->period) {
            break; /* there is no better one */
        }
    }
    return best > 0;
}

typedef struct runs {
    run *at;
    int count, room;
    ckpt_arena *scratch;
    bool failed;
} runs;

static void add_run(runs *list, const run *r)
{
    if (list->count == list->room) {
        const int room = list->room == 0 ? 64 : 2 * list->room;
        run *const larger = CKPT_NEW(list->scratch, run, room);
        if (larger == NULL) {
            list->failed = true;
            return;
        }
        if (list->count > 0) {
            memcpy(larger, list->at, (size_t)list->count * sizeof *larger);
        }
        list->at = larger;
        list->room = room;
    }
    list->at[list->count++] = *r;
}

/* Whether a shorter period has all of this run already: then it is that block several times. */
static bool known(const runs *list, const run *r)
{
    for (int i = 0; i < list->count; i++) {
        const run *const other = &list->at[i];
        if (r->period % other->period == 0 && other->start <= r->start && other->end >= r->end &&
            (other->times + 1) * other->period > r->end - r->start) {
            return true;
        }
    }
    return false;
}

/* All runs of one period in low..high - 1. */
static void find_runs(ckpt_folding *f, int low, int high, int period, runs *list)
{
    for (int i = low; i + period < high; i++) {
        int end = i;
        while (end + period < high && f->token[end] == f->token[end + period]) {
            end++;
        }
        for (int first = i, next = 0; end - first >= period; first = next) {
            const int last = reach(f, first, end, period, &next);
            if (last - first >= period) {
                run r = {.start = first, .end = last + period, .period = period};
                if (!known(list, &r) && best_blocks(f, &r, low, high)) {
                    add_run(list, &r);
                }
                next = last - period + 1; /* from there on it is in the first block */
            }
        }
        i = end;
    }
}

static int by_saving(const void *a, const void *b)
{
    const run *const x = a, *const y = b;
    const int64_t left = (int64_t)(x->times - 1) * x->period, right = (int64_t)(y->times - 1) * y->period;
    if (left != right) {
        return left > right ? -1 : 1;
    }
    return x->period != y->period ? x->period - y->period : x->first - y->first;
}

static ckpt_code fold_range(ckpt_folding *f, int low, int high, bool *taken, ckpt_err *err);

static ckpt_code take_run(ckpt_folding *f, const run *r, bool *taken, ckpt_err *err)
{
    CKPT_TRY(fold_range(f, r->first, r->first + r->period, taken, err));
    for (int i = r->first; i < r->first + r->times * r->period; i++) {
        taken[i] = true;
        f->stands_for[i] = i < r->first + r->period ? f->stands_for[i] : f->stands_for[i - r->period];
    }
    f->repeat[f->repeat_count++] = (ckpt_figure_range){.kind = CKPT_RANGE_REPEAT,
                                                       .first = r->first,
                                                       .last = r->first + r->period - 1,
                                                       .layers = r->period,
                                                       .times = r->times};
    return CKPT_OK;
}

/* What other blocks left of a run: in each gap the best blocks again. */
static void add_rest(ckpt_folding *f, const run *r, const bool *taken, runs *rest)
{
    for (int i = r->start; i < r->end; i++) {
        int end = i;
        while (end < r->end && !taken[end]) {
            end++;
        }
        run piece = *r;
        if (end - i >= 2 * r->period && best_blocks(f, &piece, i, end)) {
            piece.start = i > r->start ? i : r->start;
            piece.end = end;
            add_run(rest, &piece);
        }
        i = end;
    }
}

/* Layers low..high - 1, none of them taken. `taken` is true in all of them that stand in a block afterwards. */
static ckpt_code fold_range(ckpt_folding *f, int low, int high, bool *taken, ckpt_err *err)
{
    runs list = {.scratch = f->figure->scratch};
    for (int period = 1; period <= PERIOD_MAX && 2 * period <= high - low; period++) {
        find_runs(f, low, high, period, &list);
    }
    for (int pass = 0; pass < PASSES && list.count > 0 && !list.failed; pass++) {
        runs rest = {.scratch = f->figure->scratch};
        qsort(list.at, (size_t)list.count, sizeof *list.at, by_saving);
        for (int i = 0; i < list.count; i++) {
            const run *const r = &list.at[i];
            bool is_free = true;
            for (int k = r->first; is_free && k < r->first + r->times * r->period; k++) {
                is_free = !taken[k];
            }
            if (is_free) {
                CKPT_TRY(take_run(f, r, taken, err));
            }
            add_rest(f, r, taken, &rest);
        }
        list = rest;
    }
    return list.failed ? CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the blocks of %d layers", f->count) : CKPT_OK;
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
                      .repeat = CKPT_NEW(scratch, ckpt_figure_range, count)};
    bool *const taken = CKPT_NEW(scratch, bool, count);
    if (f.token == NULL || f.edge_at == NULL || f.reader_at == NULL || f.reader == NULL || f.begins == NULL ||
        f.ends == NULL || f.cross == NULL || f.stands_for == NULL || f.seen == NULL || f.repeat == NULL ||
        taken == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory to fold %d layers", f.count);
    }
    index_edges(&f);
    make_tokens(&f);
    CKPT_TRY(fold_range(&f, 0, f.count, taken, err));
    return ckpt_folding_apply(&f, err);
}
