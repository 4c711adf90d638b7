/* Schedules of one recomputation per op, by price (price_impl.h).
 *
 * How much recomputation may hold at once is tried in steps. What the schedule really holds at each moment corrects the
 * figures for the next round: workspaces, runs in place, what two recomputations share. */
#include <string.h>

#include "planner/price/price_impl.h"

enum {
    ROUNDS = 3,           /* corrections */
    VAST_OPS = 50000,     /* of larger graphs fewer rooms are tried */
    EARLY_OPS = 20000,    /* of larger graphs one schedule is made before the search for the best, */
    HURRIED_OPS = 200000, /* of graphs of up to so many under any time limit */
    HURRIED_ROOM = 8,     /* its room and its margin, as parts of the limit */
    HURRIED_MARGIN = 8,
    IDLE_PART = 1000, /* a room that gains less than this part of the time has gained nothing */
};

typedef struct pricer {
    const ckpt_graph *graph;
    ckpt_bytes limit;
    const ckpt_plan_options *options;
    ckpt_arena *out;
    ckpt_candidates *candidates;
    ckpt_arena scratch;
    ckpt_order order;
    ckpt_price_facts facts;
    ckpt_price_drops drops;
    ckpt_bytes *kept;      /* live bytes at each moment, everything kept */
    ckpt_bytes *corrected; /* the same, as it has to be counted for the result to be right */
    ckpt_bytes *model;     /* what was thought of the schedule */
    ckpt_poll poll;
} pricer;

/* Live bytes at each moment of the order: of everything that runs in it. */
static ckpt_code profile(pricer *p, ckpt_bytes *at, ckpt_err *err)
{
    const ckpt_mark mark = ckpt_arena_mark(&p->scratch);
    const ckpt_sequence sequence = {p->order.op, p->order.count};
    ckpt_bytes *const each = CKPT_NEW(&p->scratch, ckpt_bytes, p->order.count);
    if (each == NULL || p->order.failed) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "sequence of %d runs", p->order.count);
    }
    CKPT_TRY(ckpt_sequence_profile(p->graph, &sequence, &p->scratch, each, err));
    int moment = 0;
    ckpt_bytes most = 0;
    for (int t = 0; t < p->order.count; t++) {
        most = each[t] > most ? each[t] : most;
        if (p->order.op[t] == moment) {
            at[moment++] = most;
            most = 0;
        }
    }
    ckpt_arena_rewind(&p->scratch, mark);
    return CKPT_OK;
}

static ckpt_code begin(pricer *p, ckpt_err *err)
{
    const int n = p->graph->op_count;
    p->kept = CKPT_NEW(&p->scratch, ckpt_bytes, n);
    p->corrected = CKPT_NEW(&p->scratch, ckpt_bytes, n);
    p->model = CKPT_NEW(&p->scratch, ckpt_bytes, n);
    if (p->kept == NULL || p->corrected == NULL || p->model == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "bytes of %d moments", n);
    }
    ckpt_order_range(&p->order, 0, n);
    CKPT_TRY(profile(p, p->kept, err));
    p->order.count = 0;
    CKPT_TRY(ckpt_price_facts_find(p->graph, p->kept, &p->scratch, &p->facts, err));
    return ckpt_price_drops_take(&p->drops, &p->facts, &p->scratch, err);
}

/* The model of live bytes becomes what they really are, by correcting what it starts from. */
static ckpt_code correct(pricer *p, ckpt_err *err)
{
    const int n = p->graph->op_count;
    ckpt_price_tree_read(&p->drops.live, p->model, n);
    for (int j = 0; j < n; j++) {
        p->corrected[j] -= p->model[j];
    }
    CKPT_TRY(profile(p, p->model, err));
    for (int j = 0; j < n; j++) {
        p->corrected[j] += p->model[j];
    }
    return CKPT_OK;
}

/* Schedules within `limit` bytes for one room, each but the last one measured and then corrected. `time`: of the fastest
 * within the limit, INT64_MAX when there is none. Limit 0: the lowest peak. */
static ckpt_code try_room(pricer *p, ckpt_bytes limit, ckpt_price_room room, int rounds, ckpt_ns *time, ckpt_err *err)
{
    *time = INT64_MAX;
    memcpy(p->corrected, p->kept, (size_t)p->graph->op_count * sizeof *p->corrected);
    for (int round = 0; round < rounds; round++) {
        ckpt_price_drops_choose(&p->drops, p->corrected, limit, room, &p->poll);
        if (p->poll.stopped) {
            return CKPT_OK;
        }
        ckpt_candidate measured;
        CKPT_TRY(ckpt_price_drops_write(&p->drops, &p->scratch, &p->order, err));
        CKPT_TRY(ckpt_order_measure(&p->order, p->graph, &p->scratch, &measured, err));
        *time = measured.peak <= limit && measured.time < *time ? measured.time : *time;
        const bool near = measured.peak <= limit && limit - measured.peak <= limit / 10000;
        const bool last = near || limit == 0 || round == rounds - 1;
        CKPT_TRY(last ? CKPT_OK : correct(p, err));
        CKPT_TRY(limit == 0 ? ckpt_order_end(&p->order, p->graph, p->limit, p->out, p->candidates, err)
                            : ckpt_order_offer(&p->order, p->graph, p->limit, p->out, p->candidates, err));
        if (last) {
            break;
        }
    }
    return CKPT_OK;
}

/* Rooms, as parts of the limit: the first that fits is near the best on large graphs. */
static const struct rooms {
    int part;
    bool forced;
} rooms[] = {{32, false}, {8, false}, {8, true}, {2, false}, {2, true}, {128, false}, {1, true}, {32, true}};

/* The fastest schedules within the limit. Of a vast graph not all rooms are tried once one has fitted. */
static ckpt_code find_fastest(pricer *p, ckpt_ns *best, ckpt_err *err)
{
    int idle = 0; /* rooms since the best was found */
    *best = INT64_MAX;
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms && !p->poll.stopped; i++) {
        if (idle > 0 && p->graph->op_count > VAST_OPS) {
            break;
        }
        const ckpt_bytes part = p->limit / rooms[i].part;
        ckpt_ns time = 0;
        CKPT_TRY(try_room(p, p->limit, (ckpt_price_room){part, part / 2, rooms[i].forced}, ROUNDS, &time, err));
        idle = time < *best - *best / IDLE_PART ? 0 : idle + (*best < INT64_MAX);
        *best = time < *best ? time : *best;
    }
    return CKPT_OK;
}

/* The lowest peak: everything is dropped that may be, in stretches that get smaller until the peak rises. */
static ckpt_code find_min_peak(pricer *p, ckpt_err *err)
{
    ckpt_bytes bytes = 0;
    for (int j = 0; j < p->graph->op_count; j++) {
        bytes = p->kept[j] > bytes ? p->kept[j] : bytes;
    }
    ckpt_bytes least = CKPT_BYTES_MAX;
    for (bytes /= 4; bytes > 0 && !p->poll.stopped; bytes /= 2) {
        ckpt_ns time = 0;
        CKPT_TRY(try_room(p, 0, (ckpt_price_room){2 * bytes, bytes, true}, ROUNDS, &time, err));
        if (p->candidates->min_peak.peak >= least) {
            break;
        }
        least = p->candidates->min_peak.peak;
    }
    return CKPT_OK;
}

/* A schedule that is there when time is over: of a room that fits most graphs, with a margin for what the model does not
 * see and for what is lost to fragmentation when there is no time to place well. */
static ckpt_code find_any(pricer *p, ckpt_ns *time, ckpt_err *err)
{
    const ckpt_bytes part = p->limit / HURRIED_ROOM;
    const ckpt_poll poll = p->poll;
    p->poll = p->graph->op_count <= HURRIED_OPS ? (ckpt_poll){0} : poll;
    CKPT_TRY(try_room(p, p->limit - p->limit / HURRIED_MARGIN, (ckpt_price_room){part, part / 2, false}, 1, time, err));
    p->poll = p->graph->op_count <= HURRIED_OPS ? poll : p->poll;
    return CKPT_OK;
}

static ckpt_code find(pricer *p, ckpt_err *err)
{
    ckpt_ns best = INT64_MAX;
    CKPT_TRY(begin(p, err));
    const bool early = p->graph->op_count > EARLY_OPS;
    ckpt_ns any = INT64_MAX;
    CKPT_TRY(early ? find_any(p, &any, err) : CKPT_OK);
    CKPT_TRY(find_fastest(p, &best, err));
    if (best == INT64_MAX && p->poll.stopped) {
        return early ? CKPT_OK : find_any(p, &any, err);
    }
    return best == INT64_MAX ? find_min_peak(p, err) : CKPT_OK;
}

static ckpt_code plan(const ckpt_graph *graph, ckpt_bytes limit, const ckpt_plan_options *options, ckpt_arena *out,
                      ckpt_candidates *candidates, ckpt_err *err)
{
    CKPT_TRY(ckpt_order_keep_all(graph, limit, out, candidates, err));
    if (candidates->count > 0) {
        return CKPT_OK;
    }
    pricer p = {.graph = graph,
                .limit = limit,
                .options = options,
                .out = out,
                .candidates = candidates,
                .poll.options = options};
    ckpt_arena_init(&p.scratch);
    ckpt_order_init(&p.order);
    const ckpt_code code = find(&p, err);
    ckpt_order_fini(&p.order);
    ckpt_arena_fini(&p.scratch);
    return code;
}

const ckpt_strategy ckpt_strategy_price = {
    .name = "price",
    .help = "drop what is cheapest per byte, counting what recomputation takes and holds; near-linear, for any size",
    .source = "this project; the fractional knapsack of Dantzig: Discrete-variable extremum problems, Operations "
              "Research 5(2), 1957",
    .budgeted = true,
    .plan = plan,
};
