/* Linear and integer programs by GLPK: the only file that knows it.
 *
 * GLPK aborts the process when it runs out of memory or is handed nonsense. So everything it is handed is checked
 * first, and its error hook jumps out of it (GLPK 5.0 reference manual, glp_error_hook). Each call has an environment of
 * its own, which owns all that GLPK allocates and is freed as a whole. */
#include <glpk.h>
#include <math.h>
#include <setjmp.h>

#include "planner/ilp/solver.h"

enum { ITERATIONS_AT_ONCE = 1000 }; /* between two looks at the clock */

typedef struct linear {
    glp_prob *problem;
    double *scale; /* per row: what it was multiplied by */
    int rows;
} linear;

/* ---- the one way into GLPK ---- */

static void escape(void *door)
{
    longjmp(*(jmp_buf *)door, 1);
}

static int swallow(void *context, const char *text)
{
    (void)context;
    (void)text;
    return 1; /* said: an error turns printing on again, so turning it off is not enough */
}

/* Run `body` so that an error inside GLPK comes back as false. */
static bool guarded(void (*body)(void *context), void *context)
{
    if (glp_init_env() == 2) { /* 0: new, 1: there is one, 2: no memory */
        return false;
    }
    jmp_buf door;
    glp_term_hook(swallow, NULL);
    glp_error_hook(escape, &door);
    if (setjmp(door) != 0) {
        glp_error_hook(NULL, NULL);
        (void)glp_free_env();
        return false;
    }
    body(context);
    glp_error_hook(NULL, NULL);
    return true;
}

static ckpt_code out_of_memory(ckpt_err *err)
{
    return CKPT_FAIL(err, CKPT_NO_MEMORY, "GLPK ran out of memory or gave up");
}

/* ---- what goes in ---- */

static ckpt_code check_range(double low, double high, const char *what, int at, ckpt_err *err)
{
    if (isnan(low) || isnan(high) || low > high || low >= HUGE_VAL || high <= -HUGE_VAL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s %d of the program is from %g to %g", what, at, low, high);
    }
    return CKPT_OK;
}

static ckpt_code check_rows(const ckpt_program *p, ckpt_err *err)
{
    const int columns = p->columns;
    int *const seen = ckpt_memory_get(((size_t)columns + 1) * sizeof *seen);
    if (seen == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "check of %d columns", columns);
    }
    ckpt_code code = CKPT_OK;
    for (int r = 0; r < p->rows && code == CKPT_OK; r++) {
        code = check_range(p->row_low[r], p->row_high[r], "row", r, err);
        for (int i = p->start[r]; i < p->start[r + 1] && code == CKPT_OK; i++) {
            const int c = p->column[i];
            if (c < 0 || c >= columns || seen[c] == r + 1 || !isfinite(p->value[i])) {
                code = CKPT_FAIL(err, CKPT_BAD_INPUT, "row %d of the program: entry of column %d", r, c);
            } else {
                seen[c] = r + 1;
            }
        }
    }
    ckpt_memory_put(seen);
    return code;
}

static ckpt_code check_program(const ckpt_program *p, ckpt_err *err)
{
    for (int c = 0; c < p->columns; c++) {
        CKPT_TRY(check_range(p->low[c], p->high[c], "column", c, err));
        if (!isfinite(p->cost[c])) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "column %d of the program costs %g", c, p->cost[c]);
        }
    }
    return check_rows(p, err);
}

static int range_kind(double low, double high)
{
    if (low <= -HUGE_VAL) {
        return high >= HUGE_VAL ? GLP_FR : GLP_UP;
    }
    if (high >= HUGE_VAL) {
        return GLP_LO;
    }
    return low < high ? GLP_DB : GLP_FX;
}

/* The power of two that brings the largest entry of a row near 1. Rows are multiplied by it: what GLPK does to integer
 * programs before and between relaxations has absolute tolerances, and with bytes in the rows it loses optima (7 x + y
 * + 6 z >= 8, all in units of 2^28: GLPK 5.0 calls a point optimal that is not). Exact, where log2 of one C library may
 * differ from that of another. */
static double scale_of(const double *value, int count)
{
    double most = 0;
    for (int i = 0; i < count; i++) {
        most = fmax(most, fabs(value[i]));
    }
    int exponent = 0;
    const double part = frexp(most, &exponent); /* 0.5 .. 1 */
    return most > 0 ? ldexp(1, part < 0.70710678118654752 ? 1 - exponent : -exponent) : 1;
}

/* Append rows; GLPK counts from 1. `index` and `value` have room for a whole row; `scale`: of each row, set. */
static void append_rows(glp_prob *problem, const ckpt_program *p, int *index, double *value, double *scale)
{
    if (p->rows == 0) {
        return;
    }
    const int first = glp_add_rows(problem, p->rows);
    for (int r = 0; r < p->rows; r++) {
        int count = 0;
        scale[r] = scale_of(&p->value[p->start[r]], p->start[r + 1] - p->start[r]);
        for (int i = p->start[r]; i < p->start[r + 1]; i++) {
            if (p->value[i] != 0) {
                index[++count] = p->column[i] + 1;
                value[count] = p->value[i] * scale[r];
            }
        }
        const double low = p->row_low[r] * scale[r], high = p->row_high[r] * scale[r];
        glp_set_row_bnds(problem, first + r, range_kind(low, high), low, high);
        glp_set_mat_row(problem, first + r, count, index, value);
    }
}

typedef struct opening {
    const ckpt_program *program;
    glp_prob *problem;
    int *index;
    double *value, *scale;
} opening;

static void open_body(void *context)
{
    opening *const o = context;
    const ckpt_program *const p = o->program;
    o->problem = glp_create_prob();
    glp_set_obj_dir(o->problem, GLP_MIN);
    if (p->columns > 0) {
        glp_add_cols(o->problem, p->columns);
    }
    for (int c = 0; c < p->columns; c++) {
        glp_set_col_bnds(o->problem, c + 1, range_kind(p->low[c], p->high[c]), p->low[c], p->high[c]);
        glp_set_obj_coef(o->problem, c + 1, p->cost[c]);
    }
    append_rows(o->problem, p, o->index, o->value, o->scale);
}

static ckpt_code open_program(const ckpt_program *program, linear *made, ckpt_err *err)
{
    CKPT_TRY(check_program(program, err));
    opening o = {.program = program,
                 .index = ckpt_memory_get(((size_t)program->columns + 1) * sizeof *o.index),
                 .value = ckpt_memory_get(((size_t)program->columns + 1) * sizeof *o.value),
                 .scale = ckpt_memory_get(((size_t)program->rows + 1) * sizeof *o.scale)};
    ckpt_code code = CKPT_OK;
    if (o.index == NULL || o.value == NULL || o.scale == NULL) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "program of %d columns and %d rows", program->columns, program->rows);
    } else if (!guarded(open_body, &o)) {
        code = out_of_memory(err);
    }
    *made = (linear){o.problem, o.scale, program->rows};
    ckpt_memory_put(o.index);
    ckpt_memory_put(o.value);
    return code;
}

static void close_program(linear *opened)
{
    (void)glp_free_env();
    ckpt_memory_put(opened->scale);
}

/* ---- the simplex method ---- */

typedef struct simplex {
    glp_prob *problem;
    const ckpt_plan_options *options;
    long work, done;
    int code; /* what glp_simplex said last */
} simplex;

/* The dual simplex: costs are not negative here, so the first basis is dual feasible. A basis that has become singular is
 * given up once. */
static void simplex_body(void *context)
{
    simplex *const s = context;
    glp_smcp parameters;
    glp_init_smcp(&parameters);
    parameters.msg_lev = GLP_MSG_OFF;
    parameters.meth = GLP_DUALP;
    bool restarted = false;
    for (;;) {
        const long left = s->work > 0 ? s->work - s->done : ITERATIONS_AT_ONCE;
        if (left <= 0 || ckpt_plan_stopped(s->options)) {
            s->code = GLP_EITLIM;
            return;
        }
        const int before = glp_get_it_cnt(s->problem);
        parameters.it_lim = left < ITERATIONS_AT_ONCE ? (int)left : ITERATIONS_AT_ONCE;
        s->code = glp_simplex(s->problem, &parameters);
        s->done += glp_get_it_cnt(s->problem) - before;
        if (s->code == GLP_EITLIM) {
            continue;
        }
        if (s->code == 0 || restarted) {
            return;
        }
        restarted = true;
        glp_std_basis(s->problem);
    }
}

static void read_point(const linear *opened, ckpt_solution *solution, double *reduced)
{
    glp_prob *const p = opened->problem;
    const int columns = glp_get_num_cols(p);
    for (int c = 0; c < columns; c++) {
        solution->x[c] = glp_get_col_prim(p, c + 1);
        if (reduced != NULL) {
            reduced[c] = glp_get_col_dual(p, c + 1);
        }
    }
    for (int r = 0; solution->dual != NULL && r < opened->rows; r++) {
        solution->dual[r] = glp_get_row_dual(p, r + 1) * opened->scale[r];
    }
    solution->value = glp_get_obj_val(p);
}

static ckpt_code relax_open(const linear *opened, long work, const ckpt_plan_options *options, ckpt_solution *solution,
                            double *reduced, ckpt_err *err)
{
    simplex s = {opened->problem, options, work, 0, 0};
    if (!guarded(simplex_body, &s)) {
        return out_of_memory(err);
    }
    const int primal = glp_get_prim_stat(s.problem), dual = glp_get_dual_stat(s.problem);
    solution->has_point = primal == GLP_FEAS;
    solution->work = s.done;
    read_point(opened, solution, reduced);
    solution->bound = dual == GLP_FEAS ? solution->value : -HUGE_VAL;
    solution->outcome = CKPT_STOPPED;
    if (s.code == 0 && primal == GLP_NOFEAS) {
        solution->outcome = CKPT_NO_POINT;
        solution->bound = HUGE_VAL;
    } else if (s.code == 0 && primal == GLP_FEAS && dual == GLP_FEAS) {
        solution->outcome = CKPT_OPTIMAL;
    } else if (s.code == 0 && dual == GLP_NOFEAS) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "the program has no lowest value");
    }
    return CKPT_OK;
}

static ckpt_code relax(const ckpt_program *program, long work, const ckpt_plan_options *options,
                       ckpt_solution *solution, double *reduced, ckpt_err *err)
{
    linear opened = {NULL, NULL, 0};
    ckpt_code code = open_program(program, &opened, err);
    if (code == CKPT_OK) {
        code = relax_open(&opened, work, options, solution, reduced, err);
    }
    close_program(&opened);
    return code;
}

/* ---- branch and bound ---- */

typedef struct branching {
    glp_prob *problem;
    const ckpt_program *program;
    const ckpt_plan_options *options;
    double cutoff;
    long work, nodes;
    bool ended;
    double bound; /* when ended */
    int code;
} branching;

static void called_back(glp_tree *tree, void *context)
{
    branching *const b = context;
    if (glp_ios_reason(tree) != GLP_ISELECT) {
        return;
    }
    b->nodes++;
    if (b->nodes > 1 && ((b->work > 0 && b->nodes > b->work) || ckpt_plan_stopped(b->options))) {
        const int best = glp_ios_best_node(tree);
        b->ended = true;
        b->bound = best != 0 ? glp_ios_node_bound(tree, best) : HUGE_VAL;
        glp_ios_terminate(tree);
    }
}

/* The cutoff is a row on the objective: GLPK has no other way to say it. */
static void add_cutoff(const branching *b)
{
    const int row = glp_add_rows(b->problem, 1);
    const int columns = b->program->columns;
    int *const index = glp_alloc(columns + 1, sizeof *index);
    double *const value = glp_alloc(columns + 1, sizeof *value);
    const double scale = scale_of(b->program->cost, columns);
    int count = 0;
    for (int c = 0; c < columns; c++) {
        if (b->program->cost[c] != 0) {
            index[++count] = c + 1;
            value[count] = b->program->cost[c] * scale;
        }
    }
    glp_set_mat_row(b->problem, row, count, index, value);
    glp_set_row_bnds(b->problem, row, GLP_UP, 0, b->cutoff * scale);
    glp_free(index);
    glp_free(value);
}

static void branch_body(void *context)
{
    branching *const b = context;
    for (int c = 0; c < b->program->columns && b->program->integer != NULL; c++) {
        if (b->program->integer[c]) {
            glp_set_col_kind(b->problem, c + 1, GLP_IV);
        }
    }
    glp_iocp parameters;
    glp_init_iocp(&parameters);
    parameters.msg_lev = GLP_MSG_OFF;
    parameters.br_tech = GLP_BR_PCH;
    parameters.bt_tech = GLP_BT_BLB;
    parameters.cov_cuts = GLP_ON; /* MIR and Gomory cuts cost more than they save here */
    parameters.cb_func = called_back;
    parameters.cb_info = b;
    b->code = glp_intopt(b->problem, &parameters);
}

static void cutoff_body(void *context)
{
    add_cutoff(context);
}

static ckpt_code check_integers(const ckpt_program *p, ckpt_err *err)
{
    for (int c = 0; c < p->columns && p->integer != NULL; c++) {
        if (p->integer[c] && (floor(p->low[c]) != p->low[c] || floor(p->high[c]) != p->high[c])) {
            return CKPT_FAIL(err, CKPT_BAD_INPUT, "integer column %d of the program is from %g to %g", c, p->low[c],
                             p->high[c]);
        }
    }
    return CKPT_OK;
}

static void read_integers(branching *b, ckpt_solution *solution)
{
    const int status = glp_mip_status(b->problem);
    solution->has_point = status == GLP_OPT || status == GLP_FEAS;
    for (int c = 0; solution->has_point && c < b->program->columns; c++) {
        solution->x[c] = glp_mip_col_val(b->problem, c + 1);
    }
    solution->value = solution->has_point ? glp_mip_obj_val(b->problem) : HUGE_VAL;
    solution->work = b->nodes;
    if (b->code == 0 && !b->ended) {
        solution->outcome = solution->has_point ? CKPT_OPTIMAL : CKPT_NO_POINT;
        solution->bound = solution->has_point ? solution->value : b->cutoff;
    } else {
        solution->outcome = CKPT_STOPPED;
        solution->bound = b->ended ? fmin(b->bound, solution->value) : solution->bound;
    }
}

/* The relaxation first, for GLPK wants its basis; then the tree. */
static ckpt_code solve_open(const linear *opened, branching *b, ckpt_solution *solution, ckpt_err *err)
{
    if (b->cutoff < HUGE_VAL && !guarded(cutoff_body, b)) {
        return out_of_memory(err);
    }
    double *const dual = solution->dual;
    solution->dual = NULL;
    const ckpt_code code = relax_open(opened, 0, b->options, solution, NULL, err);
    solution->dual = dual;
    if (code != CKPT_OK || solution->outcome != CKPT_OPTIMAL || b->program->columns == 0) {
        solution->has_point = solution->outcome == CKPT_OPTIMAL;
        return code;
    }
    if (!guarded(branch_body, b)) {
        return out_of_memory(err);
    }
    read_integers(b, solution);
    return CKPT_OK;
}

static ckpt_code solve(const ckpt_program *program, double cutoff, long work, const ckpt_plan_options *options,
                       ckpt_solution *solution, ckpt_err *err)
{
    CKPT_TRY(check_integers(program, err));
    linear opened = {NULL, NULL, 0};
    ckpt_code code = open_program(program, &opened, err);
    if (code == CKPT_OK) {
        branching b = {
            .problem = opened.problem, .program = program, .options = options, .cutoff = cutoff, .work = work};
        code = solve_open(&opened, &b, solution, err);
    }
    close_program(&opened);
    return code;
}

const ckpt_solver ckpt_solver_glpk = {.name = "GLPK", .relax = relax, .solve = solve};
