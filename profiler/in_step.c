/* Every way in which a distinct layer can run is a cell: forward, backward, update, forward again, and its other ways.
 * Each run of a step belongs to one cell. */
#include "profiler/in_step.h"

#include <string.h>

#include "core/base/names.h"
#include "profiler/profiler_impl.h"

enum { FORWARD, BACKWARD, UPDATE, AGAIN, OWN_CELLS };

typedef struct cell {
    bool again;      /* of runs again */
    int from;        /* the plan whose runs it has; -1: none has any */
    ckpt_ns *sample; /* per training step of that plan: mean over its runs; in the end stretched */
    int samples;
    ckpt_ns median, spread; /* likewise */
} cell;

typedef struct joining {
    const ckpt_lowered *lowered;
    const ckpt_stepped *stepped;
    int count;
    ckpt_arena *out, *scratch;
    ckpt_profile *profile;
    ckpt_profile_row *row;
    int *twin;       /* per row: the one that was measured in its place; mostly itself */
    int *row_of;     /* per node: the row that was measured for it; -1: none */
    int *first_cell; /* per row */
    cell *cell;
    int cells;
    int **of_step;   /* per plan: per step of it its cell; -1: none */
    ckpt_ns *sorted; /* for medians */
    double *slower;  /* per turn: what the first plan's steps took then, over what they took in all */
} joining;

ckpt_code ckpt_stepped_init(ckpt_stepped *stepped, const ckpt_plan *plan, int room, ckpt_arena *out, ckpt_err *err)
{
    *stepped = (ckpt_stepped){.plan = plan, .room = room};
    stepped->run_ns = CKPT_NEW(out, ckpt_ns, (size_t)room * (size_t)plan->step_count);
    stepped->whole_ns = CKPT_NEW(out, ckpt_ns, room);
    stepped->timed_turn = CKPT_NEW(out, int, room);
    stepped->whole_turn = CKPT_NEW(out, int, room);
    return stepped->run_ns != NULL && stepped->whole_ns != NULL && stepped->timed_turn != NULL &&
                   stepped->whole_turn != NULL
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the times of %d training steps", room);
}

void ckpt_stepped_add(ckpt_stepped *stepped, const ckpt_trace *trace)
{
    ckpt_ns *const run = &stepped->run_ns[(size_t)stepped->next_timed * (size_t)stepped->plan->step_count];
    for (int i = 0; i < trace->event_count; i++) {
        run[trace->event[i].step] = trace->event[i].end_ns - trace->event[i].start_ns;
    }
    stepped->timed_turn[stepped->next_timed] = stepped->turn;
    stepped->next_timed = (stepped->next_timed + 1) % stepped->room;
    stepped->timed += stepped->timed < stepped->room;
}

void ckpt_stepped_add_whole(ckpt_stepped *stepped, ckpt_ns whole_ns)
{
    stepped->whole_ns[stepped->next_whole] = whole_ns;
    stepped->whole_turn[stepped->next_whole] = stepped->turn;
    stepped->next_whole = (stepped->next_whole + 1) % stepped->room;
    stepped->whole += stepped->whole < stepped->room;
}

/* ---- which run belongs to which cell ---- */

static ckpt_code take_tables(joining *j, ckpt_err *err)
{
    const int rows = j->profile->row_count;
    j->row = CKPT_NEW(j->out, ckpt_profile_row, rows);
    j->twin = CKPT_NEW(j->scratch, int, rows);
    j->first_cell = CKPT_NEW(j->scratch, int, rows);
    j->row_of = CKPT_NEW(j->scratch, int, j->lowered->network->node_count);
    j->of_step = CKPT_NEW(j->scratch, int *, j->count);
    for (int r = 0; r < rows; r++) {
        j->cells += OWN_CELLS + j->profile->row[r].way_count;
    }
    j->cell = CKPT_NEW(j->scratch, cell, j->cells);
    if (j->row == NULL || j->twin == NULL || j->first_cell == NULL || j->row_of == NULL || j->of_step == NULL ||
        j->cell == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a profile of %d layers", rows);
    }
    memcpy(j->row, j->profile->row, (size_t)rows * sizeof *j->row);
    return CKPT_OK;
}

static ckpt_code find_rows(joining *j, ckpt_err *err)
{
    const ckpt_network *const network = j->lowered->network;
    ckpt_names names;
    CKPT_TRY(take_tables(j, err));
    CKPT_TRY(ckpt_names_init(&names, j->profile->row_count, j->scratch, err));
    for (int r = 0, first = 0; r < j->profile->row_count; r++) {
        (void)ckpt_names_add(&names, j->row[r].layer, r);
        for (int k = 0; k < OWN_CELLS + j->row[r].way_count; k++) {
            j->cell[first + k] = (cell){.again = k == AGAIN, .from = -1};
        }
        j->first_cell[r] = first;
        first += OWN_CELLS + j->row[r].way_count;
    }
    for (int r = 0; r < j->profile->row_count; r++) {
        const int twin = j->row[r].same_as[0] != '\0' ? ckpt_names_find(&names, j->row[r].same_as) : -1;
        j->twin[r] = twin >= 0 ? twin : r;
    }
    for (int n = 0; n < network->node_count; n++) {
        const int own = ckpt_names_find(&names, network->node[n].name);
        j->row_of[n] = own >= 0 ? j->twin[own] : -1;
    }
    return CKPT_OK;
}

static int way_cell(const joining *j, int row, ckpt_phase phase, const char *variant)
{
    const ckpt_direction direction = phase == CKPT_FORWARD ? CKPT_DIRECTION_FORWARD : CKPT_DIRECTION_BACKWARD;
    for (int k = 0; k < j->row[row].way_count; k++) {
        const ckpt_profile_way *const way = &j->row[row].way[k];
        if (way->direction == direction && strcmp(way->name, variant) == 0) {
            return j->first_cell[row] + OWN_CELLS + k;
        }
    }
    return -1;
}

static ckpt_code cell_of(const joining *j, const ckpt_step *step, int *at, ckpt_err *err)
{
    *at = -1;
    if (step->kind != CKPT_RUN) {
        return CKPT_OK;
    }
    const ckpt_op_role *const role = &j->lowered->op_role[step->target];
    if (role->task != CKPT_TASK_LAYER) {
        return CKPT_OK;
    }
    const int row = j->row_of[role->node];
    if (row < 0) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "the profile has no row for layer %s", step->name);
    }
    if (step->variant != NULL) {
        *at = way_cell(j, row, role->phase, step->variant);
        return CKPT_OK;
    }
    *at = j->first_cell[row] + (role->phase == CKPT_BACKWARD ? BACKWARD
                                : role->phase == CKPT_UPDATE ? UPDATE
                                : step->recomputed           ? AGAIN
                                                             : FORWARD);
    return CKPT_OK;
}

static ckpt_code find_cells(joining *j, ckpt_err *err)
{
    for (int p = 0; p < j->count; p++) {
        const ckpt_plan *const plan = j->stepped[p].plan;
        j->of_step[p] = CKPT_NEW(j->scratch, int, plan->step_count);
        if (j->of_step[p] == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d steps of a plan", plan->step_count);
        }
        for (int s = 0; s < plan->step_count; s++) {
            int *const at = &j->of_step[p][s];
            CKPT_TRY(cell_of(j, &plan->step[s], at, err));
            if (*at >= 0 && j->cell[*at].from < 0) {
                j->cell[*at].from = p;
            }
        }
    }
    return CKPT_OK;
}

/* ---- samples and medians ---- */

static ckpt_ns median_of(const ckpt_ns *sample, int count, ckpt_ns *sorted, ckpt_ns *spread)
{
    memcpy(sorted, sample, (size_t)count * sizeof *sorted);
    return count > 0 ? ckpt_median(sorted, count, spread) : 0;
}

static ckpt_code find_slow_turns(joining *j, ckpt_err *err)
{
    const ckpt_stepped *const first = &j->stepped[0];
    int most = 0, turns = 0;
    for (int p = 0; p < j->count; p++) {
        most = j->stepped[p].room > most ? j->stepped[p].room : most;
        turns = j->stepped[p].turn >= turns ? j->stepped[p].turn + 1 : turns;
    }
    j->sorted = CKPT_NEW(j->scratch, ckpt_ns, most);
    j->slower = CKPT_NEW(j->scratch, double, turns);
    if (j->sorted == NULL || j->slower == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d times", most);
    }
    const ckpt_ns all = median_of(first->whole_ns, first->whole, j->sorted, NULL);
    for (int t = 0; t < turns; t++) {
        int beside = 0;
        for (int k = 0; k < first->whole; k++) {
            if (first->whole_turn[k] == t || first->whole_turn[k] == t + 1) {
                j->sorted[beside++] = first->whole_ns[k];
            }
        }
        const ckpt_ns then = beside > 0 ? ckpt_median(j->sorted, beside, NULL) : 0;
        j->slower[t] = all > 0 && then > 0 ? (double)then / (double)all : 1;
    }
    return CKPT_OK;
}

static ckpt_code take_samples(joining *j, ckpt_err *err)
{
    for (int c = 0; c < j->cells; c++) {
        cell *const one = &j->cell[c];
        one->samples = one->from >= 0 ? j->stepped[one->from].timed : 0;
        one->sample = CKPT_NEW(j->out, ckpt_ns, one->samples);
        if (one->sample == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d times", one->samples);
        }
    }
    return CKPT_OK;
}

/* Means over the runs of training step k. */
static void add_step(joining *j, int p, int k, int *runs)
{
    const ckpt_stepped *const s = &j->stepped[p];
    const ckpt_ns *const time = &s->run_ns[(size_t)k * (size_t)s->plan->step_count];
    memset(runs, 0, (size_t)j->cells * sizeof *runs);
    for (int i = 0; i < s->plan->step_count; i++) {
        const int c = j->of_step[p][i];
        if (c >= 0 && j->cell[c].from == p) {
            j->cell[c].sample[k] += time[i];
            runs[c]++;
        }
    }
    const double slower = p > 0 ? j->slower[s->timed_turn[k]] : 1;
    for (int c = 0; c < j->cells; c++) {
        if (runs[c] > 0) {
            j->cell[c].sample[k] = (ckpt_ns)((double)j->cell[c].sample[k] / (runs[c] * slower));
        }
    }
}

static ckpt_code fill_cells(joining *j, ckpt_err *err)
{
    int *const runs = CKPT_NEW(j->scratch, int, j->cells);
    if (runs == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a profile of %d layers", j->profile->row_count);
    }
    CKPT_TRY(find_slow_turns(j, err));
    CKPT_TRY(take_samples(j, err));
    for (int p = 0; p < j->count; p++) {
        for (int k = 0; k < j->stepped[p].timed; k++) {
            add_step(j, p, k, runs);
        }
    }
    for (int c = 0; c < j->cells; c++) {
        j->cell[c].median = median_of(j->cell[c].sample, j->cell[c].samples, j->sorted, &j->cell[c].spread);
    }
    return CKPT_OK;
}

/* ---- sums that are right ---- */

/* What plan p takes by the cells: of those that have its own runs again, and of all others. */
static void sum_cells(const joining *j, int p, double *again, double *others)
{
    *again = *others = 0;
    for (int s = 0; s < j->stepped[p].plan->step_count; s++) {
        const int c = j->of_step[p][s];
        if (c >= 0) {
            *(p > 0 && j->cell[c].from == p && j->cell[c].again ? again : others) += (double)j->cell[c].median;
        }
    }
}

/* Downwards, so that no sum is more than it was meant to be. */
static void stretch(cell *one, double by)
{
    for (int k = 0; k < one->samples; k++) {
        one->sample[k] = (ckpt_ns)((double)one->sample[k] * by);
    }
    one->median = (ckpt_ns)((double)one->median * by);
    one->spread = (ckpt_ns)((double)one->spread * by);
}

/* The median of a plan's whole steps, at the speed that the machine had in all. */
static ckpt_ns whole_step(const joining *j, int p, ckpt_ns *spread)
{
    const ckpt_stepped *const s = &j->stepped[p];
    for (int k = 0; k < s->whole; k++) {
        j->sorted[k] = p > 0 ? (ckpt_ns)((double)s->whole_ns[k] / j->slower[s->whole_turn[k]]) : s->whole_ns[k];
    }
    return s->whole > 0 ? ckpt_median(j->sorted, s->whole, spread) : 0;
}

/* The median of all runs of a timed step together. */
static ckpt_ns all_runs(const joining *j)
{
    const ckpt_stepped *const s = &j->stepped[0];
    for (int k = 0; k < s->timed; k++) {
        j->sorted[k] = 0;
        for (int i = 0; i < s->plan->step_count; i++) {
            j->sorted[k] += j->of_step[0][i] >= 0 ? s->run_ns[(size_t)k * (size_t)s->plan->step_count + (size_t)i] : 0;
        }
    }
    return s->timed > 0 ? ckpt_median(j->sorted, s->timed, NULL) : 0;
}

static void stretch_all(joining *j, ckpt_profile_step *step)
{
    double again = 0, runs = 0;
    step->time = (ckpt_timing){.repeats = j->stepped[0].whole, .sample_ns = j->stepped[0].whole_ns};
    step->time.median_ns = whole_step(j, 0, &step->time.spread_ns);
    step->plan = j->stepped[0].plan->solver;
    const ckpt_ns together = all_runs(j);
    const ckpt_ns wanted = together < step->time.median_ns ? together : step->time.median_ns;
    sum_cells(j, 0, &again, &runs);
    const double by = runs > 0 ? (double)wanted / runs : 1;
    for (int c = 0; c < j->cells; c++) {
        stretch(&j->cell[c], by);
    }
    sum_cells(j, 0, &again, &runs);
    step->overhead_ns = step->time.median_ns - (ckpt_ns)runs;
}

/* What runs again of the second plan take is what it takes more. */
static void stretch_again(joining *j, ckpt_ns overhead)
{
    const int p = 1;
    double again = 0, others = 0;
    sum_cells(j, p, &again, &others);
    if (again <= 0 || j->stepped[p].whole == 0) {
        return;
    }
    const double more = (double)(whole_step(j, p, NULL) - overhead) - others;
    const double by = more / again < 0.5 ? 0.5 : more / again > 2 ? 2 : more / again;
    for (int c = 0; c < j->cells; c++) {
        if (j->cell[c].from == p && j->cell[c].again) {
            stretch(&j->cell[c], by);
        }
    }
}

/* ---- into the rows ---- */

static void take_cell(const cell *from, ckpt_timing *timing)
{
    if (from->samples == 0) {
        return;
    }
    if (timing->kernel_ns == 0 && from->median > 0) {
        timing->roofline *= (double)timing->median_ns / (double)from->median;
    }
    timing->alone_ns = timing->alone_ns > 0 ? timing->alone_ns : timing->median_ns;
    timing->median_ns = from->median;
    timing->spread_ns = from->spread;
    timing->repeats = from->samples;
    timing->sample_ns = from->sample;
}

/* In proportion to the layer's own way, of which there are a time before and now. */
static void scale_way(const ckpt_timing *before, const ckpt_timing *now, ckpt_timing *way)
{
    if (before->median_ns > 0) {
        const double ns = (double)way->median_ns * (double)now->median_ns / (double)before->median_ns;
        *way = (ckpt_timing){.median_ns = (ckpt_ns)ns,
                             .alone_ns = way->alone_ns > 0 ? way->alone_ns : way->median_ns,
                             .flop = way->flop,
                             .moved_bytes = way->moved_bytes};
    }
}

static ckpt_code take_ways(const joining *j, int r, ckpt_err *err)
{
    const ckpt_profile_row *const before = &j->profile->row[r];
    ckpt_profile_row *const row = &j->row[r];
    ckpt_profile_way *const way = CKPT_NEW(j->out, ckpt_profile_way, row->way_count);
    int kept = 0;
    if (way == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d variants", row->way_count);
    }
    for (int k = 0; k < before->way_count; k++) {
        const cell *const from = &j->cell[j->first_cell[r] + OWN_CELLS + k];
        const bool forward = before->way[k].direction == CKPT_DIRECTION_FORWARD;
        way[kept] = before->way[k];
        if (from->samples > 0) {
            take_cell(from, &way[kept].timing);
        } else {
            scale_way(forward ? &before->forward : &before->backward, forward ? &row->forward : &row->backward,
                      &way[kept].timing);
        }
        kept += way[kept].timing.repeats > 0 || way[kept].timing.median_ns > 0;
    }
    row->way = way;
    row->way_count = kept;
    return CKPT_OK;
}

static ckpt_code take_row(const joining *j, int r, ckpt_err *err)
{
    ckpt_profile_row *const row = &j->row[r];
    const cell *const own = &j->cell[j->first_cell[r]];
    take_cell(&own[FORWARD], &row->forward);
    take_cell(&own[BACKWARD], &row->backward);
    take_cell(&own[UPDATE], &row->update);
    take_cell(&own[AGAIN], &row->recompute);
    row->recompute.alone_ns = 0; /* which is forward's */
    return take_ways(j, r, err);
}

static ckpt_code take_rows(const joining *j, ckpt_err *err)
{
    for (int r = 0; r < j->profile->row_count; r++) {
        CKPT_TRY(j->twin[r] == r ? take_row(j, r, err) : CKPT_OK);
    }
    for (int r = 0; r < j->profile->row_count; r++) {
        if (j->twin[r] != r) {
            ckpt_profile_repeat(&j->row[j->twin[r]], &j->row[r]);
        }
    }
    return CKPT_OK;
}

static ckpt_code join(joining *j, ckpt_err *err)
{
    CKPT_TRY(find_rows(j, err));
    CKPT_TRY(find_cells(j, err));
    CKPT_TRY(fill_cells(j, err));
    ckpt_profile_step step = {0};
    stretch_all(j, &step);
    if (j->count > 1) {
        stretch_again(j, step.overhead_ns);
    }
    CKPT_TRY(take_rows(j, err));
    j->profile->row = j->row;
    j->profile->step = step;
    return CKPT_OK;
}

ckpt_code ckpt_profile_in_step(const ckpt_lowered *lowered, const ckpt_stepped *stepped, int count, ckpt_arena *out,
                               ckpt_profile *profile, ckpt_err *err)
{
    ckpt_arena scratch;
    ckpt_arena_init(&scratch);
    joining j = {
        .lowered = lowered, .stepped = stepped, .count = count, .out = out, .scratch = &scratch, .profile = profile};
    const ckpt_code code = join(&j, err);
    ckpt_arena_fini(&scratch);
    return code;
}
