/* Sums and minima of step functions. Most sums that the chain DP asks for are nowhere less than what it has already:
 * that is found out before anything is merged. */
#include "planner/chain/step_function_impl.h"

#include <string.h>

int ckpt_stepfn_find(const ckpt_stepfn *fn, ckpt_bytes bytes)
{
    int low = -1;
    int high = fn->count;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (fn->at[middle].bytes <= bytes) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

void ckpt_stepfn_begin(ckpt_stepfn_maker *maker, ckpt_bytes bytes_min, ckpt_bytes bytes_max, ckpt_ns time_max)
{
    maker->bytes_min = bytes_min;
    maker->count = 0;
    maker->bytes_max = bytes_max;
    maker->time_max = time_max;
}

void ckpt_stepfn_end(ckpt_stepfn_maker *maker)
{
    ckpt_memory_put(maker->at);
    ckpt_memory_put(maker->found);
    ckpt_memory_put(maker->merged);
    *maker = (ckpt_stepfn_maker){0};
}

static bool grow(ckpt_stepfn_maker *maker, int wanted)
{
    if (wanted <= maker->room) {
        return true;
    }
    const size_t room = 2 * (size_t)wanted + 64;
    ckpt_stepfn_point **const all[] = {&maker->at, &maker->found, &maker->merged};
    for (int i = 0; i < 3; i++) {
        ckpt_stepfn_point *const grown = ckpt_memory_resize(*all[i], room * sizeof **all[i]);
        if (grown == NULL) {
            maker->failed = true;
            return false;
        }
        *all[i] = grown;
    }
    maker->room = (int)room;
    return true;
}

/* The last of at[from] .. at[count - 1] that is not beyond `bytes`; from -1 is before the first. Doubling steps: it is
 * near. */
static int advance(const ckpt_stepfn_point *at, int count, int from, ckpt_bytes bytes)
{
    int step = 1;
    int low = from;
    while (low + step < count && at[low + step].bytes <= bytes) {
        low += step;
        step *= 2;
    }
    for (; step > 0; step /= 2) {
        if (low + step < count && at[low + step].bytes <= bytes) {
            low += step;
        }
    }
    return low;
}

/* Put `found` steps in, all of which are less than what was there. */
static void merge(ckpt_stepfn_maker *maker, int found)
{
    const ckpt_stepfn_point *const a = maker->at;
    const ckpt_stepfn_point *const b = maker->found;
    ckpt_stepfn_point *const out = maker->merged;
    const int a_count = maker->count;
    int i = advance(a, a_count, -1, b[0].bytes - 1) + 1;
    int j = 0;
    int count = i;
    memcpy(out, a, (size_t)i * sizeof *out);
    ckpt_ns least = INT64_MAX;
    while (j < found) {
        const bool second = i == a_count || b[j].bytes <= a[i].bytes;
        const ckpt_stepfn_point next = second ? b[j] : a[i];
        j += second;
        i += !second;
        out[count] = next;
        count += next.time < least;
        least = next.time < least ? next.time : least;
    }
    while (i < a_count && a[i].time >= least) {
        i++;
    }
    memcpy(&out[count], &a[i], (size_t)(a_count - i) * sizeof *out);
    maker->merged = maker->at;
    maker->at = out;
    maker->count = count + a_count - i;
    maker->work += found + maker->count / 8; /* copying is cheap */
}

void ckpt_stepfn_add_point(ckpt_stepfn_maker *maker, ckpt_bytes bytes, ckpt_ns time)
{
    bytes = bytes > maker->bytes_min ? bytes : maker->bytes_min;
    if (bytes > maker->bytes_max || time > maker->time_max || !grow(maker, maker->count + 1)) {
        return;
    }
    const ckpt_stepfn have = {maker->at, maker->count};
    const int k = ckpt_stepfn_find(&have, bytes);
    if (k < 0 || have.at[k].time > time) {
        maker->found[0] = (ckpt_stepfn_point){bytes, time};
        merge(maker, 1);
    }
}

void ckpt_stepfn_add_sum(ckpt_stepfn_maker *maker, const ckpt_stepfn *a, ckpt_bytes shift, const ckpt_stepfn *b,
                         ckpt_ns plus, ckpt_bytes from)
{
    static const ckpt_stepfn_point nothing = {0, 0};
    const ckpt_stepfn zero = {&nothing, 1};
    b = b != NULL ? b : &zero;
    if (a->count == 0 || b->count == 0 || shift > maker->bytes_max || plus > maker->time_max) {
        return;
    }
    const ckpt_ns least = plus + a->at[a->count - 1].time + b->at[b->count - 1].time;
    ckpt_bytes m = a->at[0].bytes + shift;
    m = m > from ? m : from;
    m = m > maker->bytes_min ? m : maker->bytes_min;
    m = m > b->at[0].bytes ? m : b->at[0].bytes;
    if (least > maker->time_max || m > maker->bytes_max || !grow(maker, maker->count + a->count + b->count)) {
        return;
    }
    const ckpt_stepfn have = {maker->at, maker->count};
    int e = ckpt_stepfn_find(&have, m);
    if (e >= 0 && have.at[e].time <= least) {
        return;
    }
    int i = ckpt_stepfn_find(a, m - shift);
    int j = ckpt_stepfn_find(b, m);
    int found = 0;
    ckpt_ns last = maker->time_max + 1;
    for (;;) {
        maker->work++;
        const ckpt_ns time = plus + a->at[i].time + b->at[j].time;
        const ckpt_ns before = e < 0 ? CKPT_BYTES_MAX : have.at[e].time;
        if (time < last && time < before) {
            maker->found[found++] = (ckpt_stepfn_point){m, time};
            last = time;
        } else if (time >= before) { /* as long as the sum stays above what there was, nothing can be found */
            for (int step = 4; i + step < a->count; step *= 2) {
                const ckpt_bytes there = a->at[i + step].bytes + shift;
                const int k = there <= maker->bytes_max ? advance(b->at, b->count, j, there) : j;
                if (there > maker->bytes_max || plus + a->at[i + step].time + b->at[k].time < have.at[e].time) {
                    break;
                }
                i += step;
                j = k;
                e = advance(have.at, have.count, e, there);
                maker->work++;
            }
        }
        const ckpt_bytes next_a = i + 1 < a->count ? a->at[i + 1].bytes + shift : CKPT_BYTES_MAX;
        const ckpt_bytes next_b = j + 1 < b->count ? b->at[j + 1].bytes : CKPT_BYTES_MAX;
        m = next_a < next_b ? next_a : next_b;
        if (m > maker->bytes_max) {
            break;
        }
        i += next_a == m;
        j += next_b == m;
        while (e + 1 < have.count && have.at[e + 1].bytes <= m) {
            e++;
        }
        if (e >= 0 && have.at[e].time <= least) {
            break;
        }
    }
    if (found > 0) {
        merge(maker, found);
    }
}

ckpt_code ckpt_stepfn_take(ckpt_stepfn_maker *maker, int most, ckpt_thinning thinning, ckpt_arena *out, ckpt_stepfn *fn,
                           bool *thinned, ckpt_err *err)
{
    const int count = maker->count < most ? maker->count : most;
    ckpt_stepfn_point *const at = CKPT_NEW(out, ckpt_stepfn_point, count);
    if (maker->failed || at == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "a step function of %d steps", maker->count);
    }
    *fn = (ckpt_stepfn){at, count};
    if (count == maker->count) {
        if (count > 0) {
            memcpy(at, maker->at, (size_t)count * sizeof *at);
        }
        return CKPT_OK;
    }
    *thinned = true;
    for (int k = 0; k < count; k++) { /* up keeps the first and the last step */
        const int first = (int)((int64_t)k * maker->count / count);
        const int last = (int)((int64_t)(k + 1) * maker->count / count) - 1;
        const int whole = (int)((int64_t)k * (maker->count - 1) / (count - 1));
        at[k] = thinning == CKPT_THIN_UP ? maker->at[whole]
                                         : (ckpt_stepfn_point){maker->at[first].bytes, maker->at[last].time};
    }
    return CKPT_OK;
}
