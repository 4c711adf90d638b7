/* What part of each step function a schedule of at most a given excess can use: docs/explanation/chain-program.md. */
#include "planner/chain/chain_dp_impl.h"

enum {
    ROUNDS = 2,
    POLL = 1 << 20, /* work between two looks at the clock */
};

typedef struct finder {
    const ckpt_dp_figures *f;
    ckpt_dp_windows *windows;
    bool priced;            /* windows->price is known */
    ckpt_dp_relief outside; /* blocks not in s..t; first pass */
    ckpt_dp_relief before;  /* blocks before s; first pass */
    ckpt_dp_relief behind;  /* blocks behind t; first pass */
    ckpt_dp_relief inside;  /* blocks s..t-1, recomputed */
    ckpt_ns *most_at;       /* [t]: the most that any interval to t has, so far */
} finder;

static ckpt_ns dropped(const ckpt_dp_figures *f, int pass, int s, int t)
{
    return f->drop[pass][t] - f->drop[pass][s - 1];
}

static ckpt_bytes lowest_leaf(const ckpt_dp_figures *f, int t)
{
    const ckpt_dp_block *const block = &f->chain->block[t];
    ckpt_bytes least = CKPT_BYTES_MAX;
    for (int o = 0; o < block->leaf_count; o++) {
        const ckpt_bytes peak = block->leaf[o].peak[ckpt_dp_pass(f, t)];
        least = peak < least ? peak : least;
    }
    return least;
}

static const ckpt_dp_window useless = {-1, CKPT_BYTES_MAX, -1, INT64_MAX};

static void widen(ckpt_dp_window *window, ckpt_ns time, ckpt_bytes least, ckpt_bytes most)
{
    if (time >= 0 && most >= 0) {
        window->time = time > window->time ? time : window->time;
        window->low = least < window->low ? least : window->low;
        window->high = most > window->high ? most : window->high;
    }
}

/* What a longer interval leaves that takes `time` and holds `bytes` beside this one. */
static void widen_by(ckpt_dp_window *window, const ckpt_dp_window *longer, ckpt_ns time, ckpt_bytes bytes)
{
    widen(window, longer->time - time, longer->low > bytes ? longer->low - bytes : 0,
          longer->high >= bytes ? longer->high - bytes : -1);
}

/* Dropped from the main line: `outside`, `before` and `behind` hold the right blocks. */
static ckpt_dp_window from_main(const finder *w, int s, int t)
{
    const ckpt_dp_figures *const f = w->f;
    const ckpt_bytes limit = w->windows->limit;
    ckpt_dp_window window = useless;
    const ckpt_ns left = w->windows->excess - dropped(f, CKPT_DP_FIRST, s, t);
    const ckpt_bytes held = ckpt_dp_add(ckpt_dp_crossing(f, s, t + 1), lowest_leaf(f, f->n));
    if (left < 0 || held > limit) {
        return window;
    }
    const ckpt_ns time = w->priced ? w->windows->excess - ckpt_dp_price_around(w->windows, f, s, t)
                                   : left - ckpt_dp_relief_time(&w->outside, limit - held);
    if (time >= 0) {
        const ckpt_bytes stored = ckpt_dp_relief_bytes(&w->before, left);
        const ckpt_bytes wanted = ckpt_dp_relief_bytes(&w->behind, left);
        if (stored <= limit && wanted <= limit) {
            widen(&window, time, wanted + held, limit - stored);
        }
    }
    return window;
}

/* What longer intervals that start before s and end at t leave. */
static void from_before(const finder *w, int s, int t, ckpt_ns most, ckpt_dp_window *window)
{
    const ckpt_dp_figures *const f = w->f;
    if (s > 1 && t - s + 1 < w->windows->row_count[s - 1]) {
        const ckpt_dp_block *const block = &f->chain->block[s - 1];
        for (int o = 0; o < block->keep_count; o++) {
            widen_by(window, &w->windows->window[s - 1][t - s + 1],
                     block->keep[o].time[CKPT_DP_RECOMPUTED] - f->base[CKPT_DP_RECOMPUTED][s - 1],
                     block->keep[o].bytes);
        }
    }
    for (int r = s - 1; r >= 1 && dropped(f, CKPT_DP_RECOMPUTED, r, s - 1) <= most && t - r < w->windows->row_count[r];
         r--) {
        widen_by(window, &w->windows->window[r][t - r], dropped(f, CKPT_DP_RECOMPUTED, r, s - 1),
                 ckpt_dp_crossing(f, r, s));
    }
}

/* Blocks that come into s..t, sign 1, or leave it, when t is the new end or was. */
static void move_end(finder *w, int s, int t, int sign)
{
    if (t + 1 < w->f->n) {
        ckpt_dp_relief_put(&w->behind, t + 1, -sign);
    }
    if (!w->priced && t + 1 < w->f->n) {
        ckpt_dp_relief_put(&w->outside, t + 1, -sign);
    }
    if (!w->priced && t > s) {
        ckpt_dp_relief_put(&w->inside, t - 1, sign);
    }
}

/* Intervals that start at s, the longest first. */
static void find_row(finder *w, int s)
{
    const ckpt_dp_figures *const f = w->f;
    const int count = w->windows->row_count[s];
    ckpt_dp_window *const row = w->windows->window[s];
    for (int t = s; t < s + count; t++) { /* `outside` and `behind` without s..t */
        const ckpt_ns floor = row[t - s].floor;
        row[t - s] = from_main(w, s, t);
        row[t - s].floor = floor;
        move_end(w, s, t, 1);
    }
    ckpt_dp_window longest = useless;
    for (int t = s + count - 1; t >= s; t--) {
        ckpt_dp_window *const window = &row[t - s];
        widen_by(window, &longest, dropped(f, CKPT_DP_RECOMPUTED, s, t), 0);
        from_before(w, s, t, w->most_at[t], window);
        if (!w->priced) { /* what is found for a larger window holds for a smaller one */
            const ckpt_bytes leaf = lowest_leaf(f, t);
            window->floor = leaf <= window->high ? ckpt_dp_relief_time(&w->inside, window->high - leaf) : INT64_MAX;
        }
        if (window->floor > window->time) {
            *window = useless;
        }
        widen(&longest, window->time, window->low, window->high);
        w->most_at[t] = window->time > w->most_at[t] ? window->time : w->most_at[t];
        move_end(w, s, t, -1);
    }
}

/* False: ended early. */
static bool find_rows(finder *w, const ckpt_plan_options *options)
{
    const int n = w->f->n;
    for (int k = 0; k <= n; k++) {
        w->most_at[k] = -1;
    }
    ckpt_dp_relief_put(&w->outside, 1, -1);
    ckpt_dp_relief_put(&w->behind, 1, -1);
    int64_t polled = -POLL - 1; /* at once: it may be over before it begins */
    for (int s = 1; s < n; s++) {
        if (w->windows->work - polled > POLL) {
            polled = w->windows->work;
            if (ckpt_plan_stopped(options)) {
                return false;
            }
        }
        find_row(w, s);
        w->windows->work += 12 * (int64_t)w->windows->row_count[s]; /* about as long as so many breakpoints take */
        ckpt_dp_relief_put(&w->before, s, 1);
        ckpt_dp_relief_put(&w->outside, s, 1);
        if (s + 1 < n) {
            ckpt_dp_relief_put(&w->outside, s + 1, -1);
            ckpt_dp_relief_put(&w->behind, s + 1, -1);
        }
    }
    for (int k = 1; k < n; k++) { /* as they were */
        ckpt_dp_relief_put(&w->before, k, -1);
        ckpt_dp_relief_put(&w->behind, k, 1);
    }
    return true;
}

/* Rooms for the intervals whose forward alone is not too long. */
static ckpt_code take_rows(ckpt_dp_windows *windows, const ckpt_dp_figures *f, ckpt_arena *scratch, ckpt_err *err)
{
    windows->row_count = CKPT_NEW(scratch, int, f->n + 1);
    windows->window = CKPT_NEW(scratch, ckpt_dp_window *, f->n + 1);
    for (int s = 1; s < f->n && windows->row_count != NULL && windows->window != NULL; s++) {
        int count = 0;
        while (s + count < f->n && dropped(f, CKPT_DP_FIRST, s, s + count) <= windows->excess) {
            count++;
        }
        windows->row_count[s] = count;
        windows->window[s] = CKPT_NEW(scratch, ckpt_dp_window, count);
        if (windows->window[s] == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "windows of %d blocks", f->n);
        }
    }
    return windows->row_count != NULL && windows->window != NULL
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_NO_MEMORY, "windows of %d blocks", f->n);
}

ckpt_code ckpt_dp_windows_find(ckpt_dp_windows *windows, const ckpt_dp_figures *f, ckpt_bytes limit, ckpt_ns excess,
                               const ckpt_plan_options *options, ckpt_arena *scratch, ckpt_err *err)
{
    const double near = windows->price.per_byte;
    *windows = (ckpt_dp_windows){.limit = limit, .excess = excess, .price.per_byte = near};
    finder w = {.f = f, .windows = windows, .most_at = CKPT_NEW(scratch, ckpt_ns, f->n + 1)};
    CKPT_TRY(take_rows(windows, f, scratch, err));
    CKPT_TRY(ckpt_dp_relief_init(&w.outside, f, CKPT_DP_FIRST, scratch, err));
    CKPT_TRY(ckpt_dp_relief_init(&w.before, f, CKPT_DP_FIRST, scratch, err));
    CKPT_TRY(ckpt_dp_relief_init(&w.behind, f, CKPT_DP_FIRST, scratch, err));
    CKPT_TRY(ckpt_dp_relief_init(&w.inside, f, CKPT_DP_RECOMPUTED, scratch, err));
    if (w.most_at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "windows of %d blocks", f->n);
    }
    for (int k = 1; k < f->n; k++) {
        ckpt_dp_relief_put(&w.outside, k, 1);
        ckpt_dp_relief_put(&w.behind, k, 1);
    }
    for (int round = 0; round < ROUNDS; round++) { /* windows make prices better, and prices windows */
        if (!find_rows(&w, options)) {
            return CKPT_OK;
        }
        CKPT_TRY(ckpt_dp_price_find(windows, f, scratch, err));
        w.priced = true;
    }
    return CKPT_OK;
}
