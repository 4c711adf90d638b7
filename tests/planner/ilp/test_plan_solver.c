/* labels: unit */
/* The solver of linear and integer programs: relaxations against their own certificate (a feasible dual of the same
 * value proves the optimum, whoever found it), integer programs against enumeration. */
#include "planner/ilp/solver.h"

#include <math.h>

#include "tests/support/support_graphs.h"
#include "tests/support/support_test.h"

enum { COLUMNS_MAX = 12, ROWS_MAX = 12, ENTRIES_MAX = COLUMNS_MAX * ROWS_MAX };

static const ckpt_solver *const solver = &ckpt_solver_glpk;
static const ckpt_plan_options no_options;

typedef struct random_program {
    ckpt_program program;
    double cost[COLUMNS_MAX], low[COLUMNS_MAX], high[COLUMNS_MAX], row_low[ROWS_MAX], row_high[ROWS_MAX];
    bool integer[COLUMNS_MAX];
    int start[ROWS_MAX + 1], column[ENTRIES_MAX];
    double value[ENTRIES_MAX];
} random_program;

/* Covering and packing rows of small integers over 0..1 or 0..3; about half have a point. */
static void make_program(random_program *r, uint64_t seed, int columns, int rows, int high)
{
    ckpt_dice dice = {seed};
    *r = (random_program){0};
    for (int c = 0; c < columns; c++) {
        r->cost[c] = 1 + ckpt_dice_roll(&dice, 20);
        r->high[c] = high;
        r->integer[c] = true;
    }
    int at = 0;
    for (int k = 0; k < rows; k++) {
        const double scale = exp2(ckpt_dice_roll(&dice, 30)); /* rows of bytes stand beside rows of ones */
        int sum = 0;
        for (int c = 0; c < columns; c++) {
            if (ckpt_dice_roll(&dice, 2) == 0) {
                const int v = 1 + ckpt_dice_roll(&dice, 9);
                r->column[at] = c;
                r->value[at++] = v * scale;
                sum += v * high;
            }
        }
        r->start[k + 1] = at;
        const double part = scale * (sum * (2 + ckpt_dice_roll(&dice, 6)) / 10);
        r->row_low[k] = k % 3 != 2 ? part : -HUGE_VAL;
        r->row_high[k] = k % 3 != 0 ? (k % 3 == 1 ? part + scale * 5 : part) : HUGE_VAL;
    }
    r->program = (ckpt_program){columns,    rows,        r->cost,  r->low,    r->high, r->integer,
                                r->row_low, r->row_high, r->start, r->column, r->value};
}

static double row_sum(const ckpt_program *p, int r, const double *x)
{
    double sum = 0;
    for (int i = p->start[r]; i < p->start[r + 1]; i++) {
        sum += p->value[i] * x[p->column[i]];
    }
    return sum;
}

static double row_size(const ckpt_program *p, int r)
{
    double size = 1;
    for (int i = p->start[r]; i < p->start[r + 1]; i++) {
        size = fmax(size, fabs(p->value[i]));
    }
    return size;
}

static bool is_point(const ckpt_program *p, const double *x)
{
    bool is = true;
    for (int c = 0; c < p->columns; c++) {
        is = is && x[c] >= p->low[c] - 1e-6 && x[c] <= p->high[c] + 1e-6;
    }
    for (int r = 0; r < p->rows; r++) {
        const double sum = row_sum(p, r, x), slack = 1e-6 * row_size(p, r);
        is = is && sum >= p->row_low[r] - slack && sum <= p->row_high[r] + slack;
    }
    return is;
}

/* What the duals prove: sum over rows of dual * the side it leans on, and over columns of reduced cost * the side. */
static double dual_value(const ckpt_program *p, const double *dual)
{
    double reduced[COLUMNS_MAX];
    double value = 0;
    for (int c = 0; c < p->columns; c++) {
        reduced[c] = p->cost[c];
    }
    for (int r = 0; r < p->rows; r++) {
        if (dual[r] != 0) {
            value += dual[r] * (dual[r] > 0 ? p->row_low[r] : p->row_high[r]);
        }
        for (int i = p->start[r]; i < p->start[r + 1]; i++) {
            reduced[p->column[i]] -= dual[r] * p->value[i];
        }
    }
    for (int c = 0; c < p->columns; c++) {
        value += reduced[c] * (reduced[c] > 0 ? p->low[c] : p->high[c]);
    }
    return value;
}

/* Best integer point by trying all; HUGE_VAL: none. */
static double enumerate(const ckpt_program *p, int at, double *x, double *best_x)
{
    if (at == p->columns) {
        double value = 0;
        for (int c = 0; c < p->columns; c++) {
            value += p->cost[c] * x[c];
        }
        return is_point(p, x) ? value : HUGE_VAL;
    }
    double best = HUGE_VAL;
    for (x[at] = p->low[at]; x[at] <= p->high[at]; x[at]++) {
        double below[COLUMNS_MAX];
        const double found = enumerate(p, at + 1, x, below);
        if (found < best) {
            best = found;
            for (int c = 0; c < p->columns; c++) {
                best_x[c] = at + 1 == p->columns ? x[c] : below[c];
            }
        }
    }
    return best;
}

static void relaxations_carry_their_proof(void **state)
{
    int solved = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        random_program r;
        make_program(&r, seed, 2 + (int)(seed % 11), 1 + (int)(seed % 12), 3);
        double x[COLUMNS_MAX], dual[ROWS_MAX];
        ckpt_solution s = {.x = x, .dual = dual};
        ckpt_err err = {0};
        CHECK_OK(solver->relax(&r.program, 0, &no_options, &s, NULL, &err), err);
        if (s.outcome == CKPT_OPTIMAL) {
            solved++;
            CHECK(s.has_point && is_point(&r.program, x), "seed %d: breaks a row", (int)seed);
            CHECK(fabs(dual_value(&r.program, dual) - s.value) < 1e-6 * (1 + fabs(s.value)),
                  "seed %d: value %.9g, the duals prove %.9g", (int)seed, s.value, dual_value(&r.program, dual));
            CHECK(fabs(s.bound - s.value) < 1e-9 * (1 + fabs(s.value)), "seed %d: bound %g", (int)seed, s.bound);
        } else {
            assert_int_equal(s.outcome, CKPT_NO_POINT);
        }
    }
    CHECK(solved > 100 && solved < 390, "%d of 400 have a point", solved);
}

static void no_point_means_none(void **state)
{
    int none = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        random_program r;
        make_program(&r, seed, 7, 1 + (int)(seed % 8), 1);
        double x[COLUMNS_MAX], best_x[COLUMNS_MAX];
        const double best = enumerate(&r.program, 0, x, best_x);
        ckpt_err err = {0};
        ckpt_solution s = {.x = x};
        CHECK_OK(solver->relax(&r.program, 0, &no_options, &s, NULL, &err), err);
        none += s.outcome == CKPT_NO_POINT;
        CHECK(s.outcome != CKPT_NO_POINT || best == HUGE_VAL, "seed %d: there is a point", (int)seed);
        CHECK(s.outcome != CKPT_OPTIMAL || s.value <= best + 1e-6, "seed %d: above the best", (int)seed);
    }
    CHECK(none > 10, "%d without a point", none);
}

static void integers_equal_enumeration(void **state)
{
    int solved = 0, cut = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        random_program r;
        make_program(&r, seed, 4 + (int)(seed % 6), 1 + (int)(seed % 9), seed % 4 == 0 ? 2 : 1);
        double x[COLUMNS_MAX], best_x[COLUMNS_MAX];
        const double best = enumerate(&r.program, 0, x, best_x);
        for (int way = 0; way < 3; way++) { /* plain, cut off above the best point and at it */
            const double cutoff = way < 1 ? HUGE_VAL : way == 1 ? best + 0.5 : best - 0.5;
            if (way > 0 && best == HUGE_VAL) {
                continue;
            }
            ckpt_err err = {0};
            ckpt_solution s = {.x = x};
            CHECK_OK(solver->solve(&r.program, cutoff, 0, &no_options, &s, &err), err);
            if (best == HUGE_VAL || way == 2) {
                CHECK(s.outcome == CKPT_NO_POINT && !s.has_point, "seed %d, way %d: found one", (int)seed, way);
                cut++;
                continue;
            }
            CHECK(s.outcome == CKPT_OPTIMAL && s.has_point, "seed %d, way %d: outcome %d", (int)seed, way,
                  (int)s.outcome);
            CHECK(fabs(s.value - best) < 1e-6 && fabs(s.bound - best) < 1e-6, "seed %d, way %d: %g, wanted %g",
                  (int)seed, way, s.value, best);
            CHECK(is_point(&r.program, x), "seed %d, way %d: breaks a row", (int)seed, way);
            for (int c = 0; c < r.program.columns; c++) {
                CHECK(fabs(x[c] - round(x[c])) < 1e-6, "seed %d: x[%d] = %g", (int)seed, c, x[c]);
            }
            solved++;
        }
    }
    CHECK(solved > 100 && cut > 30, "%d solved, %d cut off", solved, cut);
}

static void a_limit_of_work_leaves_a_bound(void **state)
{
    int stopped = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        random_program r;
        make_program(&r, seed, 12, 9, 1);
        double x[COLUMNS_MAX], best_x[COLUMNS_MAX];
        const double best = enumerate(&r.program, 0, x, best_x);
        for (long work = 1; work <= 4; work++) {
            ckpt_err err = {0};
            ckpt_solution s = {.x = x};
            CHECK_OK(solver->solve(&r.program, HUGE_VAL, work, &no_options, &s, &err), err);
            stopped += s.outcome == CKPT_STOPPED;
            CHECK(s.bound <= best + 1e-6 || s.outcome == CKPT_NO_POINT, "seed %d: bound %g, best %g", (int)seed,
                  s.bound, best);
            CHECK(!s.has_point || s.value >= best - 1e-6, "seed %d: %g is below the best", (int)seed, s.value);
            CHECK_OK(solver->relax(&r.program, work, &no_options, &s, NULL, &err), err);
            stopped += s.outcome == CKPT_STOPPED;
            CHECK(s.bound <= best + 1e-6 || s.outcome == CKPT_NO_POINT, "seed %d: relaxed bound %g, best %g", (int)seed,
                  s.bound, best);
        }
        const ckpt_plan_options stop = {.cancelled = ckpt_test_cancelled};
        ckpt_err err = {0};
        ckpt_solution s = {.x = x};
        CHECK_OK(solver->relax(&r.program, 0, &stop, &s, NULL, &err), err);
        assert_int_equal(s.outcome, CKPT_STOPPED);
        CHECK_OK(solver->solve(&r.program, HUGE_VAL, 0, &stop, &s, &err), err);
        assert_int_equal(s.outcome, CKPT_STOPPED);
    }
    CHECK(stopped > 30, "%d stopped", stopped);
}

static void nonsense_is_refused(void **state)
{
    for (int kind = 0; kind < 9; kind++) {
        random_program r;
        make_program(&r, 3, 6, 4, 1);
        switch (kind) {
        case 0: r.cost[1] = NAN; break;
        case 1: r.low[2] = 2; break;
        case 2: r.high[0] = NAN; break;
        case 3: r.row_low[1] = HUGE_VAL; break;
        case 4: r.column[1] = r.column[0]; break;
        case 5: r.column[0] = 6; break;
        case 6: r.column[0] = -1; break;
        case 7: r.value[0] = HUGE_VAL; break;
        default:
            r.program.rows = 0; /* nothing holds column 0 */
            r.cost[0] = -1;
            r.high[0] = HUGE_VAL;
            break;
        }
        double x[COLUMNS_MAX];
        ckpt_solution s = {.x = x};
        ckpt_err err = {0};
        CHECK(solver->relax(&r.program, 0, &no_options, &s, NULL, &err) == CKPT_BAD_INPUT, "kind %d", kind);
        CHECK(err.msg[0] != '\0', "kind %d: no message", kind);
    }
    random_program r;
    make_program(&r, 3, 6, 4, 1);
    r.high[3] = 0.5;
    double x[COLUMNS_MAX];
    ckpt_solution s = {.x = x};
    assert_int_equal(solver->solve(&r.program, HUGE_VAL, 0, &no_options, &s, NULL), CKPT_BAD_INPUT);
}

static void empty_programs(void **state)
{
    random_program r;
    make_program(&r, 1, 3, 0, 1);
    double x[COLUMNS_MAX];
    ckpt_solution s = {.x = x};
    ckpt_err err = {0};
    CHECK_OK(solver->relax(&r.program, 0, &no_options, &s, NULL, &err), err);
    CHECK(s.outcome == CKPT_OPTIMAL && s.value == 0, "%g", s.value);
    r.program.columns = 0;
    CHECK_OK(solver->relax(&r.program, 0, &no_options, &s, NULL, &err), err);
    CHECK_OK(solver->solve(&r.program, HUGE_VAL, 0, &no_options, &s, &err), err);
}

static ckpt_code use_all(void *context, ckpt_err *err)
{
    const random_program *const r = context;
    double x[COLUMNS_MAX];
    ckpt_solution s = {.x = x};
    CKPT_TRY(solver->relax(&r->program, 0, &no_options, &s, NULL, err));
    CKPT_TRY(solver->solve(&r->program, HUGE_VAL, 0, &no_options, &s, err));
    return CKPT_OK;
}

static void out_of_memory(void **state)
{
    random_program r;
    make_program(&r, 5, 8, 5, 1);
    assert_true(ckpt_test_starve(use_all, &r) > 3);
}

/* From glpk.h, which only the solver sees: MiB that the environment of this thread may take. */
void glp_mem_limit(int limit);

static void out_of_memory_inside(void **state)
{
    enum { MANY = 50000 };
    random_program r;
    make_program(&r, 5, 8, 5, 1);
    const int64_t live = ckpt_memory_live();
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    int *const start = CKPT_NEW(&arena, int, MANY + 1), *const column = CKPT_NEW(&arena, int, MANY);
    double *const value = CKPT_NEW(&arena, double, MANY), *const bound = CKPT_NEW(&arena, double, MANY);
    assert_true(start != NULL && column != NULL && value != NULL && bound != NULL);
    for (int row = 0; row < MANY; row++) {
        start[row + 1] = row + 1;
        column[row] = row % 8;
        value[row] = bound[row] = 1;
    }
    ckpt_program large = r.program;
    large.rows = MANY;
    large.start = start;
    large.column = column;
    large.value = value;
    large.row_low = large.row_high = bound;
    double x[COLUMNS_MAX];
    ckpt_solution s = {.x = x};
    ckpt_err err = {0};
    glp_mem_limit(1);
    assert_int_equal(solver->relax(&large, 0, &no_options, &s, NULL, &err), CKPT_NO_MEMORY);
    CHECK_OK(solver->relax(&r.program, 0, &no_options, &s, NULL, &err), err); /* and the next one works */
    ckpt_arena_fini(&arena);
    assert_int_equal(ckpt_memory_live(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relaxations_carry_their_proof),
        cmocka_unit_test(no_point_means_none),
        cmocka_unit_test(integers_equal_enumeration),
        cmocka_unit_test(a_limit_of_work_leaves_a_bound),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(empty_programs),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(out_of_memory_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
