/* Incremental evaluation: a pair (k, v) more or less costs a few range additions. The axis of time holds only the runs
 * there are: a segment tree over the stages, and in each stage its runs as plain arrays. */
#include <string.h>

#include "planner/search/search_impl.h"

enum { EXCESS_GROUPS = 256 };

static const ckpt_bytes BYTES_MAX = (ckpt_bytes)1 << 56; /* that a graph may hold */
static const ckpt_bytes ADDED_MAX = (ckpt_bytes)1 << 56; /* to a node of the tree, before it is pushed down */

/* ---- lists of instants ---- */

int ckpt_instants_find(const ckpt_instants *list, ckpt_instant at)
{
    int low = 0;
    int high = list->count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (list->at[middle] < at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool instants_reserve(ckpt_instants *list, ckpt_arena *arena)
{
    if (list->count < list->room) {
        return true;
    }
    const int room = list->room > 0 ? 2 * list->room : 4;
    ckpt_instant *const at = CKPT_NEW(arena, ckpt_instant, room);
    if (at == NULL) {
        return false;
    }
    if (list->count > 0) {
        memcpy(at, list->at, (size_t)list->count * sizeof *at);
    }
    list->at = at;
    list->room = room;
    return true;
}

static void instants_add(ckpt_instants *list, ckpt_instant at)
{
    int i = list->count++;
    for (; i > 0 && list->at[i - 1] > at; i--) {
        list->at[i] = list->at[i - 1];
    }
    list->at[i] = at;
}

static void instants_remove(ckpt_instants *list, ckpt_instant at)
{
    int i = ckpt_instants_find(list, at);
    for (list->count--; i < list->count; i++) {
        list->at[i] = list->at[i + 1];
    }
}

static ckpt_instant instant_after(const ckpt_instants *list, ckpt_instant at)
{
    const int i = ckpt_instants_find(list, at + 1);
    return i < list->count ? list->at[i] : CKPT_INSTANT_NEVER;
}

static ckpt_instant instant_before(const ckpt_instants *list, ckpt_instant at)
{
    const int i = ckpt_instants_find(list, at);
    return i > 0 ? list->at[i - 1] : -1;
}

/* The runs that write b. */
static const ckpt_instants *writes_of(const ckpt_search *search, int b)
{
    return search->has_variants ? &search->writes[b] : &search->runs[search->graph->writer[b]];
}

ckpt_instant ckpt_search_next_use(const ckpt_search *search, int b, ckpt_instant at)
{
    const ckpt_instant use = instant_after(&search->uses[b], at);
    return use < instant_after(writes_of(search, b), at) ? use : -1;
}

ckpt_instant ckpt_search_last_event(const ckpt_search *search, int b, ckpt_instant at)
{
    const ckpt_instant use = instant_before(&search->uses[b], at);
    const ckpt_instant write = instant_before(writes_of(search, b), at);
    return use > write ? use : write;
}

ckpt_instant ckpt_search_last_write(const ckpt_search *search, int b, ckpt_instant at)
{
    return instant_before(writes_of(search, b), at);
}

/* Used before anything writes it. */
static bool is_missing(const ckpt_search *s, int b)
{
    const ckpt_instants *const uses = &s->uses[b];
    const ckpt_instants *const writes = &s->writes[b];
    return uses->count > 0 && (writes->count == 0 || uses->at[0] < writes->at[0]);
}

/* ---- bytes over time ---- */

static void rise(ckpt_search *s, int node)
{
    for (node /= 2; node > 0; node /= 2) {
        s->work++;
        const ckpt_bytes left = s->most[2 * node];
        const ckpt_bytes right = s->most[2 * node + 1];
        const ckpt_bytes most = (left > right ? left : right) + s->added[node];
        if (most == s->most[node]) {
            return;
        }
        s->most[node] = most;
    }
}

/* The most of a stage, after its own bytes have changed. */
static void settle(ckpt_search *s, int k)
{
    const ckpt_stage *const stage = &s->stage[k];
    s->work += 4 + stage->count / 4;
    ckpt_bytes most = stage->bytes[0];
    for (int i = 1; i < stage->count; i++) {
        most = stage->bytes[i] > most ? stage->bytes[i] : most;
    }
    const int leaf = s->leaves + k;
    most += s->added[leaf];
    if (s->most[leaf] != most) {
        s->most[leaf] = most;
        rise(s, leaf);
    }
}

/* Make what was added to every node part of what is below it. Ranges that were added whole and taken off in parts stay
 * in the tree as sums that cancel; over many moves these grow without end. */
static void push_down(ckpt_search *s)
{
    for (int node = 1; node < s->leaves; node++) {
        for (int child = 2 * node; child <= 2 * node + 1; child++) {
            s->most[child] += s->added[node];
            s->added[child] += s->added[node];
        }
        s->added[node] = 0;
    }
    for (int k = 0; k < s->stages; k++) {
        for (int i = 0; i < s->stage[k].count; i++) {
            s->stage[k].bytes[i] += s->added[s->leaves + k];
        }
        s->added[s->leaves + k] = 0;
    }
}

/* Stages from .. to, both included. */
static void add_stages(ckpt_search *s, int from, int to, ckpt_bytes bytes)
{
    if (from > to) {
        return;
    }
    int left = s->leaves + from;
    int right = s->leaves + to + 1;
    bool far = false; /* from 0 */
    for (; left < right; left /= 2, right /= 2) {
        s->work += 3;
        if (left % 2 == 1) {
            s->most[left] += bytes;
            s->added[left] += bytes;
            far = far || s->added[left] > ADDED_MAX || s->added[left] < -ADDED_MAX;
            left++;
        }
        if (right % 2 == 1) {
            s->most[--right] += bytes;
            s->added[right] += bytes;
            far = far || s->added[right] > ADDED_MAX || s->added[right] < -ADDED_MAX;
        }
    }
    /* nodes above both ends may keep their most while one further up does not: no early end here */
    for (int node = (s->leaves + from) / 2; node > 0; node /= 2) {
        const ckpt_bytes a = s->most[2 * node];
        const ckpt_bytes b = s->most[2 * node + 1];
        s->most[node] = (a > b ? a : b) + s->added[node];
    }
    for (int node = (s->leaves + to) / 2; node > 0; node /= 2) {
        const ckpt_bytes a = s->most[2 * node];
        const ckpt_bytes b = s->most[2 * node + 1];
        s->most[node] = (a > b ? a : b) + s->added[node];
    }
    if (far && !s->vast) {
        push_down(s);
    }
}

static int slot_of(const ckpt_stage *stage, int op)
{
    int i = 0;
    while (i < stage->count && stage->op[i] < op) {
        i++;
    }
    return i;
}

/* The runs of stage k that lie strictly between two instants. */
static void add_runs(ckpt_search *s, int k, ckpt_instant after, ckpt_instant before, ckpt_bytes bytes)
{
    ckpt_stage *const stage = &s->stage[k];
    int i = 0;
    int end = stage->count;
    if (CKPT_INSTANT_STAGE(after) == k) {
        i = slot_of(stage, CKPT_INSTANT_OP(after) + 1);
    }
    if (CKPT_INSTANT_STAGE(before) == k) {
        end = slot_of(stage, CKPT_INSTANT_OP(before));
    }
    if (i < end) {
        for (; i < end; i++) {
            stage->bytes[i] += bytes;
        }
        settle(s, k);
    }
}

/* Every run strictly between two instants. */
static void add_between(ckpt_search *s, ckpt_instant after, ckpt_instant before, ckpt_bytes bytes)
{
    if (bytes == 0) {
        return;
    }
    const int from = after < 0 ? -1 : CKPT_INSTANT_STAGE(after); /* -1: before the first stage */
    const int to = CKPT_INSTANT_STAGE(before);
    if (from >= 0) {
        add_runs(s, from, after, before, bytes);
    }
    if (to > from) {
        add_stages(s, from + 1, to - 1, bytes);
        if (to < s->stages) {
            add_runs(s, to, after, before, bytes);
        }
    }
}

/* ---- in place ---- */

/* Set whether the run is done in place. The instant must be a run, or before all runs. */
static void refresh_inplace(ckpt_search *s, ckpt_instant at)
{
    const int o = CKPT_INSTANT_OP(at);
    const int k = CKPT_INSTANT_STAGE(at);
    if (!s->has_inplace || at < 0 || o >= s->count || (!s->has_variants && s->saved[o] == 0)) {
        return;
    }
    ckpt_stage *const stage = &s->stage[k];
    const int slot = slot_of(stage, o);
    const int way = stage->way[slot];
    if (way < 0 || s->saved[way] == 0) {
        return;
    }
    const ckpt_graph_op *const op = &s->graph->op[way];
    bool inplace = true;
    for (int i = 0; i < op->inplace_count && inplace; i++) {
        inplace = ckpt_search_next_use(s, op->inplace[i].in, at) < 0;
    }
    if (stage->inplace[slot] != inplace) {
        stage->inplace[slot] = inplace;
        stage->bytes[slot] += inplace ? -s->saved[way] : s->saved[way];
        settle(s, k);
    }
}

/* ---- pairs ---- */

static bool stage_reserve(ckpt_stage *stage, ckpt_arena *arena)
{
    if (stage->count < stage->room) {
        return true;
    }
    const int room = stage->room > 0 ? 2 * stage->room : 4;
    ckpt_stage grown = {
        .op = CKPT_NEW(arena, int, room),
        .way = CKPT_NEW(arena, int, room),
        .bytes = CKPT_NEW(arena, ckpt_bytes, room),
        .index = CKPT_NEW(arena, int, room),
        .inplace = CKPT_NEW(arena, bool, room),
        .count = stage->count,
        .room = room,
    };
    if (grown.op == NULL || grown.way == NULL || grown.bytes == NULL || grown.index == NULL || grown.inplace == NULL) {
        return false;
    }
    if (stage->count > 0) {
        const size_t count = (size_t)stage->count;
        memcpy(grown.op, stage->op, count * sizeof *grown.op);
        memcpy(grown.way, stage->way, count * sizeof *grown.way);
        memcpy(grown.bytes, stage->bytes, count * sizeof *grown.bytes);
        memcpy(grown.index, stage->index, count * sizeof *grown.index);
        memcpy(grown.inplace, stage->inplace, count * sizeof *grown.inplace);
    }
    *stage = grown;
    return true;
}

static bool recomputed_reserve(ckpt_search *s)
{
    if (s->recomputed_count < s->recomputed_room) {
        return true;
    }
    const int room = s->recomputed_room > 0 ? 2 * s->recomputed_room : 64;
    ckpt_instant *const recomputed = CKPT_NEW(s->arena, ckpt_instant, room);
    if (recomputed == NULL) {
        return false;
    }
    if (s->recomputed_count > 0) {
        memcpy(recomputed, s->recomputed, (size_t)s->recomputed_count * sizeof *recomputed);
    }
    s->recomputed = recomputed;
    s->recomputed_room = room;
    return true;
}

/* All memory that a run in this way takes, before anything changes. */
static bool way_reserve(ckpt_search *s, int way)
{
    const ckpt_graph_op *const op = &s->graph->op[way];
    bool enough = true;
    for (int i = 0; i < op->reads.count && enough; i++) {
        enough = instants_reserve(&s->uses[op->reads.at[i]], s->arena);
    }
    for (int i = 0; i < op->adds.count && enough; i++) {
        enough = instants_reserve(&s->uses[op->adds.at[i]], s->arena);
    }
    for (int i = 0; s->has_variants && i < op->writes.count && enough; i++) {
        enough = instants_reserve(&s->writes[op->writes.at[i]], s->arena);
    }
    s->failed = s->failed || !enough;
    return enough;
}

static bool pair_reserve(ckpt_search *s, int k, int v)
{
    const bool enough =
        recomputed_reserve(s) && stage_reserve(&s->stage[k], s->arena) && instants_reserve(&s->runs[v], s->arena);
    s->failed = s->failed || !enough;
    return enough;
}

static void stage_insert(ckpt_stage *stage, int slot, int op, int way, ckpt_bytes bytes, int index)
{
    for (int i = stage->count++; i > slot; i--) {
        stage->op[i] = stage->op[i - 1];
        stage->way[i] = stage->way[i - 1];
        stage->bytes[i] = stage->bytes[i - 1];
        stage->index[i] = stage->index[i - 1];
        stage->inplace[i] = stage->inplace[i - 1];
    }
    stage->op[slot] = op;
    stage->way[slot] = way;
    stage->bytes[slot] = bytes;
    stage->index[slot] = index;
    stage->inplace[slot] = false;
}

static void stage_remove(ckpt_stage *stage, int slot)
{
    stage->count--;
    for (int i = slot; i < stage->count; i++) {
        stage->op[i] = stage->op[i + 1];
        stage->way[i] = stage->way[i + 1];
        stage->bytes[i] = stage->bytes[i + 1];
        stage->index[i] = stage->index[i + 1];
        stage->inplace[i] = stage->inplace[i + 1];
    }
}

/* The i-th buffer that a run reads or adds to, each once; -1: it is among those before. */
static int used_at(const ckpt_graph_op *op, int i)
{
    if (i < op->reads.count) {
        return op->reads.at[i];
    }
    const int b = op->adds.at[i - op->reads.count];
    for (int r = 0; r < op->reads.count; r++) {
        if (op->reads.at[r] == b) {
            return -1;
        }
    }
    return b;
}

/* A run more, in the place of nothing: what it reads lives up to it, what it writes lives from it. Returns the bytes
 * that are live during the run and not through it. */
static ckpt_bytes attach(ckpt_search *s, ckpt_instant at, int way)
{
    const ckpt_graph *const graph = s->graph;
    const ckpt_graph_op *const op = &graph->op[way];
    const int used = op->reads.count + op->adds.count;
    ckpt_bytes bytes = op->workspace_bytes;
    for (int i = 0; i < used; i++) {
        const int b = used_at(op, i);
        if (b >= 0 && ckpt_search_next_use(s, b, at) < 0) {
            add_between(s, ckpt_search_last_event(s, b, at), at, graph->buffer[b].bytes);
            bytes += graph->buffer[b].bytes;
        }
    }
    for (int i = 0; i < op->writes.count; i++) {
        const int b = op->writes.at[i];
        if (ckpt_search_next_use(s, b, at) < 0) {
            bytes += graph->buffer[b].bytes;
        } else {
            add_between(s, ckpt_search_last_event(s, b, at), at, -graph->buffer[b].bytes);
        }
    }
    s->time += op->time_ns;
    return bytes;
}

/* The run's uses and writes enter the lists. */
static void enter(ckpt_search *s, ckpt_instant at, int way)
{
    const ckpt_graph_op *const op = &s->graph->op[way];
    const int used = op->reads.count + op->adds.count;
    for (int i = 0; i < used; i++) {
        const int b = used_at(op, i);
        if (b >= 0) {
            s->missing -= s->has_variants && is_missing(s, b);
            instants_add(&s->uses[b], at);
            s->missing += s->has_variants && is_missing(s, b);
        }
    }
    for (int i = 0; s->has_variants && i < op->writes.count; i++) {
        const int b = op->writes.at[i];
        s->missing -= is_missing(s, b);
        instants_add(&s->writes[b], at);
        s->missing += is_missing(s, b);
    }
}

/* attach and enter undone. Returns what attach returned. The run's instant is in s->runs no more, unless writes have
 * lists of their own. */
static ckpt_bytes detach(ckpt_search *s, ckpt_instant at, int way)
{
    const ckpt_graph *const graph = s->graph;
    const ckpt_graph_op *const op = &graph->op[way];
    const int used = op->reads.count + op->adds.count;
    ckpt_bytes bytes = op->workspace_bytes;
    for (int i = 0; i < used; i++) {
        const int b = used_at(op, i);
        if (b < 0) {
            continue;
        }
        s->missing -= s->has_variants && is_missing(s, b);
        instants_remove(&s->uses[b], at);
        s->missing += s->has_variants && is_missing(s, b);
        if (ckpt_search_next_use(s, b, at) < 0) {
            add_between(s, ckpt_search_last_event(s, b, at), at, -graph->buffer[b].bytes);
            bytes += graph->buffer[b].bytes;
        }
    }
    for (int i = 0; i < op->writes.count; i++) {
        const int b = op->writes.at[i];
        if (s->has_variants) {
            s->missing -= is_missing(s, b);
            instants_remove(&s->writes[b], at);
            s->missing += is_missing(s, b);
        }
        if (ckpt_search_next_use(s, b, at) >= 0) {
            add_between(s, ckpt_search_last_event(s, b, at), at, graph->buffer[b].bytes);
        } else {
            bytes += graph->buffer[b].bytes;
        }
    }
    s->time -= op->time_ns;
    return bytes;
}

/* What lives on through the new run is what lives through the run behind it, less what that one writes itself. */
static void pair_add(ckpt_search *s, int k, int v, int way)
{
    const ckpt_graph_op *const op = &s->graph->op[way];
    const ckpt_instant at = CKPT_INSTANT(k, v);
    ckpt_stage *const stage = &s->stage[k];
    s->work += 10 + 10 * (op->reads.count + op->writes.count);
    const int slot = slot_of(stage, v);
    const int behind = stage->way[slot];
    ckpt_bytes bytes = stage->bytes[slot];
    if (behind >= 0) {
        bytes += (stage->inplace[slot] ? s->saved[behind] : 0) - s->own[behind];
    }
    bytes += attach(s, at, way);
    stage_insert(stage, slot, v, way, bytes, s->recomputed_count);
    settle(s, k);
    s->recomputed[s->recomputed_count++] = at;
    instants_add(&s->runs[v], at);
    enter(s, at, way);
}

static void pair_remove(ckpt_search *s, int k, int v)
{
    const ckpt_instant at = CKPT_INSTANT(k, v);
    ckpt_stage *const stage = &s->stage[k];
    const int slot = slot_of(stage, v);
    const int way = stage->way[slot];
    const ckpt_graph_op *const op = &s->graph->op[way];
    s->work += 10 + 10 * (op->reads.count + op->writes.count);
    const ckpt_instant moved = s->recomputed[--s->recomputed_count];
    const int index = stage->index[slot];
    s->recomputed[index] = moved;
    ckpt_stage *const other = &s->stage[CKPT_INSTANT_STAGE(moved)];
    other->index[slot_of(other, CKPT_INSTANT_OP(moved))] = index;
    stage_remove(stage, slot);
    settle(s, k);
    instants_remove(&s->runs[v], at);
    (void)detach(s, at, way);
}

/* Another way for a run that stays; -1: none, of an optional op. */
static void rerun(ckpt_search *s, int k, int v, int way)
{
    const ckpt_instant at = CKPT_INSTANT(k, v);
    ckpt_stage *const stage = &s->stage[k];
    const int slot = slot_of(stage, v);
    const int was = stage->way[slot];
    s->work += 20;
    if (stage->inplace[slot]) {
        stage->bytes[slot] += s->saved[was];
        stage->inplace[slot] = false;
    }
    stage->way[slot] = -1;
    if (was >= 0) {
        s->work += 10 * (s->graph->op[was].reads.count + s->graph->op[was].writes.count);
        stage->bytes[slot] -= detach(s, at, was);
    }
    if (way >= 0) {
        s->work += 10 * (s->graph->op[way].reads.count + s->graph->op[way].writes.count);
        stage->bytes[slot] += attach(s, at, way);
        enter(s, at, way);
    }
    stage->way[slot] = way;
    settle(s, k);
    refresh_inplace(s, at);
}

bool ckpt_search_has(const ckpt_search *search, int k, int v)
{
    const ckpt_instants *const runs = &search->runs[v];
    const int i = ckpt_instants_find(runs, CKPT_INSTANT(k, v));
    return k != v && i < runs->count && runs->at[i] == CKPT_INSTANT(k, v);
}

int ckpt_search_way(const ckpt_search *search, int k, int v)
{
    const ckpt_stage *const stage = &search->stage[k];
    const int slot = slot_of(stage, v);
    return slot < stage->count && stage->op[slot] == v ? stage->way[slot] : -1;
}

/* The runs where a live range has come to end, or no longer ends, because of a run in this way. */
static void refresh_around(ckpt_search *s, ckpt_instant at, int way)
{
    const ckpt_graph_op *const op = &s->graph->op[way];
    const ckpt_list *const list[] = {&op->reads, &op->writes, &op->adds};
    const int lists = s->has_variants ? 3 : 2; /* what adds is not recomputed */
    for (int l = 0; l < lists; l++) {
        for (int i = 0; i < list[l]->count; i++) {
            refresh_inplace(s, ckpt_search_last_event(s, list[l]->at[i], at));
        }
    }
}

bool ckpt_search_set(ckpt_search *search, int k, int v, int way)
{
    const ckpt_graph_op *const op = &search->graph->op[v];
    const bool first = k == v;
    if (search->vast || v > k || k >= search->stages || v >= search->count ||
        (first ? way < 0 && (!op->optional || search->runs[v].count > 1) : !op->recompute || op->adds.count > 0)) {
        return false;
    }
    if (!first && way >= 0 && op->optional && ckpt_search_way(search, v, v) < 0) {
        return false; /* it would be the first run, behind its place */
    }
    const ckpt_instant at = CKPT_INSTANT(k, v);
    const int was = ckpt_search_way(search, k, v);
    if (was == way ||
        (way >= 0 && (search->graph->op[way].time_ns > INT64_MAX - 1 - search->time || !way_reserve(search, way)))) {
        return false;
    }
    if (first || (was >= 0 && way >= 0)) {
        rerun(search, k, v, way);
    } else if (was >= 0) {
        pair_remove(search, k, v);
    } else if (pair_reserve(search, k, v)) {
        pair_add(search, k, v, way);
        refresh_inplace(search, at);
    } else {
        return false;
    }
    if (search->has_inplace) {
        if (was >= 0) {
            refresh_around(search, at, was);
        }
        if (way >= 0) {
            refresh_around(search, at, way);
        }
    }
    return true;
}

bool ckpt_search_toggle(ckpt_search *search, int k, int v)
{
    if (v >= k) {
        return false;
    }
    const int first = search->has_variants ? ckpt_search_way(search, v, v) : v;
    return ckpt_search_set(search, k, v, ckpt_search_has(search, k, v) ? -1 : first >= 0 ? first : v);
}

/* ---- making, loading, writing ---- */

static ckpt_code take_arrays(ckpt_search *s, ckpt_err *err)
{
    s->leaves = 1;
    while (s->leaves < s->stages) {
        s->leaves *= 2;
    }
    s->stage = CKPT_NEW(s->arena, ckpt_stage, s->stages);
    s->runs = CKPT_NEW(s->arena, ckpt_instants, s->count);
    s->uses = CKPT_NEW(s->arena, ckpt_instants, s->graph->buffer_count);
    const size_t ways = (size_t)s->count + (size_t)s->graph->variant_count;
    s->own = CKPT_NEW(s->arena, ckpt_bytes, ways);
    s->saved = CKPT_NEW(s->arena, ckpt_bytes, ways);
    s->writes = CKPT_NEW(s->arena, ckpt_instants, s->has_variants ? s->graph->buffer_count : 0);
    s->most = CKPT_NEW(s->arena, ckpt_bytes, 2 * s->leaves);
    s->added = CKPT_NEW(s->arena, ckpt_bytes, 2 * s->leaves);
    if (s->stage == NULL || s->runs == NULL || s->uses == NULL || s->own == NULL || s->saved == NULL ||
        s->writes == NULL || s->most == NULL || s->added == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "search over %d ops", s->count);
    }
    return CKPT_OK;
}

/* Whether sums over a path of the tree could come near 63 bits: up to 31 nodes hold ADDED_MAX and one more range. */
static bool is_vast(const ckpt_graph *graph)
{
    ckpt_bytes bytes = 0; /* all sums fit, says ckpt_graph_check */
    ckpt_bytes workspace = 0;
    for (int b = 0; b < graph->buffer_count; b++) {
        bytes += graph->buffer[b].bytes;
    }
    for (int o = 0; o < graph->op_count; o++) {
        workspace = graph->op[o].workspace_bytes > workspace ? graph->op[o].workspace_bytes : workspace;
    }
    return bytes > BYTES_MAX || workspace > BYTES_MAX - bytes;
}

static bool use_add(ckpt_search *s, int b, ckpt_instant at)
{
    if (!instants_reserve(&s->uses[b], s->arena)) {
        return false;
    }
    if (s->uses[b].count == 0 || s->uses[b].at[s->uses[b].count - 1] < at) { /* read and added to: one use */
        instants_add(&s->uses[b], at);
    }
    return true;
}

/* What is added to is a result and stays where it is. */
static ckpt_bytes saved_bytes(const ckpt_graph *graph, const ckpt_graph_op *op)
{
    ckpt_bytes bytes = 0;
    for (int i = 0; i < op->inplace_count; i++) {
        bytes += graph->buffer[op->inplace[i].in].bytes;
        for (int a = 0; a < op->adds.count; a++) {
            if (op->adds.at[a] == op->inplace[i].in) {
                return 0;
            }
        }
    }
    return bytes;
}

static void way_init(ckpt_search *s, int way)
{
    const ckpt_graph_op *const op = &s->graph->op[way];
    s->own[way] = op->workspace_bytes;
    for (int i = 0; i < op->writes.count; i++) {
        s->own[way] += s->graph->buffer[op->writes.at[i]].bytes;
    }
    s->saved[way] = saved_bytes(s->graph, op);
    s->has_inplace = s->has_inplace || s->saved[way] > 0;
}

static bool op_init(ckpt_search *s, int o)
{
    const ckpt_graph_op *const op = &s->graph->op[o];
    if (!instants_reserve(&s->runs[o], s->arena) || !stage_reserve(&s->stage[o], s->arena)) {
        return false;
    }
    instants_add(&s->runs[o], CKPT_INSTANT(o, o));
    if (op->optional) {
        stage_insert(&s->stage[o], 0, o, -1, 0, -1);
        return true;
    }
    bool enough = true;
    for (int i = 0; i < op->reads.count && enough; i++) {
        enough = use_add(s, op->reads.at[i], CKPT_INSTANT(o, o));
    }
    for (int i = 0; i < op->adds.count && enough; i++) {
        enough = use_add(s, op->adds.at[i], CKPT_INSTANT(o, o));
    }
    for (int i = 0; s->has_variants && i < op->writes.count && enough; i++) {
        enough = instants_reserve(&s->writes[op->writes.at[i]], s->arena);
        if (enough) {
            instants_add(&s->writes[op->writes.at[i]], CKPT_INSTANT(o, o));
        }
    }
    s->time += op->time_ns;
    stage_insert(&s->stage[o], 0, o, o, s->own[o], -1);
    return enough;
}

ckpt_code ckpt_search_init(const ckpt_graph *graph, ckpt_arena *arena, ckpt_search *search, ckpt_err *err)
{
    *search = (ckpt_search){
        .graph = graph, .arena = arena, .count = graph->op_count, .has_variants = ckpt_graph_has_variants(graph)};
    search->stages = search->count + (graph->outputs.count > 0);
    search->vast = is_vast(graph);
    CKPT_TRY(take_arrays(search, err));
    for (int way = 0; way < graph->op_count + graph->variant_count; way++) {
        way_init(search, way);
    }
    bool enough = true;
    for (int o = 0; o < search->count && enough; o++) {
        enough = op_init(search, o);
    }
    if (search->stages > search->count && enough) {
        enough = stage_reserve(&search->stage[search->count], arena);
        if (enough) {
            stage_insert(&search->stage[search->count], 0, search->count, -1, 0, -1);
        }
    }
    for (int i = 0; i < graph->outputs.count && enough; i++) {
        enough = use_add(search, graph->outputs.at[i], CKPT_INSTANT(search->count, search->count));
    }
    if (!enough) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "search over %d ops", search->count);
    }
    for (int i = 0; i < search->leaves; i++) { /* leaves behind the last stage never hold the most */
        search->most[search->leaves + i] = i < search->stages ? search->stage[i].bytes[0] : INT64_MIN / 2;
    }
    for (int node = search->leaves - 1; node > 0; node--) {
        const ckpt_bytes left = search->most[2 * node];
        const ckpt_bytes right = search->most[2 * node + 1];
        search->most[node] = left > right ? left : right;
    }
    for (int b = 0; b < graph->buffer_count; b++) {
        const ckpt_instants *const uses = &search->uses[b];
        const ckpt_instant written = CKPT_INSTANT(graph->writer[b], graph->writer[b]);
        if (uses->count > 0) {
            add_between(search, written, uses->at[uses->count - 1] + 1, graph->buffer[b].bytes);
        }
    }
    for (int o = 0; o < search->count; o++) {
        refresh_inplace(search, CKPT_INSTANT(o, o));
    }
    return CKPT_OK;
}

static double excess_below(const ckpt_search *s, int node, ckpt_bytes limit)
{
    if (s->most[node] <= limit) {
        return 0;
    }
    if (node >= EXCESS_GROUPS || node >= s->leaves) {
        return (double)(s->most[node] - limit);
    }
    const ckpt_bytes rest = limit - s->added[node];
    return excess_below(s, 2 * node, rest) + excess_below(s, 2 * node + 1, rest);
}

double ckpt_search_excess(const ckpt_search *search, ckpt_bytes limit)
{
    return excess_below(search, 1, limit);
}

ckpt_instant ckpt_search_over(const ckpt_search *search, ckpt_bytes above, uint64_t dice)
{
    int node = 1;
    ckpt_bytes rest = above < search->most[1] ? above : search->most[1]; /* less what was added on the way */
    while (node < search->leaves) {
        rest -= search->added[node];
        const ckpt_bytes left = search->most[2 * node];
        const ckpt_bytes right = search->most[2 * node + 1];
        const bool either = left > rest && right > rest;
        node = 2 * node + (either ? (int)(dice & 1) : right > left);
        dice = either ? dice >> 1 : dice;
    }
    const int k = node - search->leaves;
    const ckpt_stage *const stage = &search->stage[k];
    int best = 0;
    for (int i = 1; i < stage->count; i++) {
        best = stage->bytes[i] > stage->bytes[best] ? i : best;
    }
    return CKPT_INSTANT(k, stage->op[best]);
}

void ckpt_search_load(ckpt_search *search, const ckpt_sequence *sequence, const ckpt_plan_options *options)
{
    ckpt_poll poll = {.options = options, .left = CKPT_POLL_WORK};
    int64_t work = search->work;
    ckpt_search_assign(search, NULL, NULL, 0);
    int k = 0; /* the op whose first run is due */
    for (int t = 0; t < sequence->count && !ckpt_poll_stopped(&poll, search->work - work); t++) {
        const int run = sequence->op[t];
        work = search->work;
        if (run < 0 || run >= search->count + search->graph->variant_count) {
            continue;
        }
        const int v = ckpt_run_base(search->graph, run);
        if (v >= k) {
            (void)ckpt_search_set(search, v, v, run);
            k = v + 1;
        } else if (k < search->stages && !ckpt_search_has(search, k, v)) {
            (void)ckpt_search_set(search, k, v, run);
        }
    }
}

void ckpt_search_assign(ckpt_search *search, const ckpt_instant *pair, const int *way, int count)
{
    while (search->recomputed_count > 0) {
        const ckpt_instant last = search->recomputed[search->recomputed_count - 1];
        (void)ckpt_search_set(search, CKPT_INSTANT_STAGE(last), CKPT_INSTANT_OP(last), -1);
    }
    for (int o = 0; search->has_variants && o < search->count; o++) {
        (void)ckpt_search_set(search, o, o, way != NULL ? way[count + o] : search->graph->op[o].optional ? -1 : o);
    }
    for (int i = 0; i < count; i++) {
        const int v = CKPT_INSTANT_OP(pair[i]);
        (void)ckpt_search_set(search, CKPT_INSTANT_STAGE(pair[i]), v, way != NULL ? way[i] : v);
    }
}

void ckpt_search_write(const ckpt_search *search, ckpt_order *order)
{
    for (int k = 0; k < search->stages; k++) {
        for (int i = 0; i < search->stage[k].count; i++) {
            if (search->stage[k].way[i] >= 0) {
                ckpt_order_add(order, search->stage[k].way[i]);
            }
        }
    }
}
