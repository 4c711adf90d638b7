/* GRU over sequences: recurrent.c, with gates in the order r, z, n. Kept is what the state contributes to n before r. */
#include <string.h>

#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/vector.h"

static void forward_row(const ckpt_recurrent_row *row)
{
    const int64_t H = row->H;
    float *const r = row->gates, *const z = r + H, *const n = r + 2 * H;
    if (row->hidden != NULL) {
        ckpt_vector_add(2 * H, row->hidden, r);
        memcpy(row->kept, row->hidden + 2 * H, (size_t)H * sizeof(float));
    } else {
        memset(row->kept, 0, (size_t)H * sizeof(float));
    }
    ckpt_vector_sigmoid(2 * H, r, r);
#pragma omp simd
    for (int64_t k = 0; k < H; k++) {
        n[k] += r[k] * row->kept[k];
    }
    ckpt_vector_tanh(H, n, n);
    const float *const before = row->h_before;
#pragma omp simd
    for (int64_t k = 0; k < H; k++) {
        row->h[k] = n[k] + z[k] * ((before != NULL ? before[k] : 0.0f) - n[k]);
    }
}

static void backward_row(const ckpt_recurrent_back *row)
{
    const int64_t H = row->H;
    const float *const gates = row->gates, *const inner = row->kept, *const before = row->h_before, *const dy = row->dy;
    float *const dx = row->dgates, *const ds = row->dhidden, *const dh = row->dh;
    for (int64_t k = 0; k < H; k++) {
        const float r = gates[k], z = gates[H + k], n = gates[2 * H + k];
        const float from_h = dh[k] + (dy != NULL ? dy[k] : 0.0f);
        const float dn = from_h * (1.0f - z) * (1.0f - n * n);
        const float dr = dn * inner[k] * (r * (1.0f - r));
        const float dz = from_h * ((before != NULL ? before[k] : 0.0f) - n) * (z * (1.0f - z));
        dx[k] = ds[k] = dr;
        dx[H + k] = ds[H + k] = dz;
        dx[2 * H + k] = dn;
        ds[2 * H + k] = dn * r;
        dh[k] = from_h * z;
    }
}

static const ckpt_recurrent_cell cell = {.apart = true, .forward = forward_row, .backward = backward_row};

CKPT_RECURRENT_KERNEL(cell)

const ckpt_kernel ckpt_cpu_gru = {
    .op = "gru",
    .state_bytes = sizeof(ckpt_recurrent_state),
    .prepare = prepare,
    .release = ckpt_recurrent_release,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
