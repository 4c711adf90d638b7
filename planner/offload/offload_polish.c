/* Where copies start and memory is freed, by trial: entries of a sequence are moved one at a time, as far as
 * what they belong to allows, and the whole is measured again. */
#include <string.h>

#include "planner/offload/offload_impl.h"

enum { POLL = 64 }; /* tries between two looks at the clock */

typedef struct polisher {
    const ckpt_graph *graph;
    ckpt_bytes limit;
    int *entry;
    int count;
    ckpt_arena *scratch;
    uint64_t random;
} polisher;

static int draw(polisher *p, int sides)
{
    p->random ^= p->random >> 12;
    p->random ^= p->random << 25;
    p->random ^= p->random >> 27;
    return (int)((p->random * UINT64_C(2685821657736338717) >> 33) % (uint64_t)sides);
}

/* Whether a copy of `buffer` may stand on the other side of `entry`. */
static bool may_cross(const polisher *p, ckpt_step_kind kind, int buffer, int entry)
{
    int target = 0;
    if (ckpt_sequence_kind(entry, &target) != CKPT_RUN) {
        return target != buffer;
    }
    const ckpt_graph_op *const op = &p->graph->op[target];
    return !ckpt_list_has(&op->writes, buffer) && !ckpt_list_has(&op->adds, buffer) &&
           (kind == CKPT_OFFLOAD || !ckpt_list_has(&op->reads, buffer));
}

static void shift(polisher *p, int from, int to)
{
    const int moved = p->entry[from];
    const int step = to > from ? 1 : -1;
    for (int i = from; i != to; i += step) {
        p->entry[i] = p->entry[i + step];
    }
    p->entry[to] = moved;
}

/* A random copy, and where it goes; false when it cannot go anywhere. */
static bool draw_shift(polisher *p, int *from, int *to)
{
    int copies = 0;
    *from = -1;
    for (int i = 0; i < p->count; i++) {
        if (p->entry[i] < 0 && draw(p, ++copies) == 0) {
            *from = i;
        }
    }
    if (*from < 0) {
        return false;
    }
    int buffer = 0;
    const ckpt_step_kind kind = ckpt_sequence_kind(p->entry[*from], &buffer);
    const int step = draw(p, 2) == 0 ? 1 : -1;
    int most = 0;
    for (int at = *from + step; at >= 0 && at < p->count && may_cross(p, kind, buffer, p->entry[at]); at += step) {
        most++;
    }
    if (most == 0) {
        return false;
    }
    const int near = most < 4 ? most : 4;
    *to = *from + step * (1 + (draw(p, 4) == 0 ? draw(p, most) : draw(p, near)));
    return true;
}

ckpt_code ckpt_offload_polish(const ckpt_offload *o, int *entry, int count, int64_t tries,
                              const ckpt_plan_options *options, ckpt_arena *scratch, ckpt_ns *time, ckpt_err *err)
{
    polisher p = {.graph = o->graph,
                  .limit = o->limit,
                  .entry = entry,
                  .count = count,
                  .scratch = scratch,
                  .random = UINT64_C(0x9E3779B97F4A7C15)};
    const ckpt_sequence sequence = {entry, count};
    const ckpt_mark mark = ckpt_arena_mark(scratch);
    int *const best = CKPT_NEW(scratch, int, count);
    ckpt_bytes peak = 0;
    ckpt_ns now = 0;
    if (best == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d runs", count);
    }
    CKPT_TRY(ckpt_sequence_measure(o->graph, &sequence, scratch, &peak, &now, err));
    ckpt_ns best_ns = now;
    memcpy(best, entry, (size_t)count * sizeof *best);
    const ckpt_ns hot = now / (count > 0 ? count : 1); /* what may be lost at the start */
    for (int64_t i = 0; i < tries && (i % POLL != 0 || !ckpt_plan_stopped(options)); i++) {
        int from = 0, to = 0;
        ckpt_ns found = 0;
        if (!draw_shift(&p, &from, &to)) {
            continue;
        }
        shift(&p, from, to);
        CKPT_TRY(ckpt_sequence_measure(o->graph, &sequence, scratch, &peak, &found, err));
        const double left = (double)(tries - i) / (double)tries;
        const ckpt_ns slack = (ckpt_ns)((double)hot * left * draw(&p, 1024) / 1024.0 + 0.5);
        if (peak > o->limit || found - slack > now) {
            shift(&p, to, from);
            continue;
        }
        now = found;
        if (now < best_ns) {
            best_ns = now;
            memcpy(best, entry, (size_t)count * sizeof *best);
        }
    }
    memcpy(entry, best, (size_t)count * sizeof *best);
    ckpt_arena_rewind(scratch, mark);
    *time = best_ns;
    return CKPT_OK;
}
