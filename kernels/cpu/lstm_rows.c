#include "kernels/cpu/lstm_rows.h"

#include <stddef.h>

#include "kernels/cpu/vector.h"

void ckpt_lstm_forward_row(int64_t H, const float *late, const float *c, float *gates, float *tanh_c, float *new_h,
                           float *new_c)
{
    if (late != NULL) {
        ckpt_vector_add(4 * H, late, gates);
    }
    float *const i = gates, *const f = gates + H, *const g = gates + 2 * H, *const o = gates + 3 * H;
    ckpt_vector_sigmoid(2 * H, i, i);
    ckpt_vector_tanh(H, g, g);
    ckpt_vector_sigmoid(H, o, o);
#pragma omp simd
    for (int64_t k = 0; k < H; k++) {
        new_c[k] = i[k] * g[k] + (c != NULL ? f[k] * c[k] : 0.0f);
    }
    ckpt_vector_tanh(H, new_c, tanh_c);
#pragma omp simd
    for (int64_t k = 0; k < H; k++) {
        new_h[k] = o[k] * tanh_c[k];
    }
}

void ckpt_lstm_backward_row(int64_t H, const ckpt_lstm_back *row)
{
    const float *const gates = row->gates, *const tanh_c = row->tanh_c, *const c = row->c;
    const float *const dy = row->dy, *const dh = row->dh, *const dc = row->dc;
    float *const dgates = row->dgates, *const dc_before = row->dc_before;
    for (int64_t k = 0; k < H; k++) {
        const float i = gates[k], f = gates[H + k], g = gates[2 * H + k], o = gates[3 * H + k];
        const float carried = dh != NULL ? dh[k] : 0.0f, from_h = dy != NULL ? carried + dy[k] : carried;
        const float from_c = dc != NULL ? dc[k] : 0.0f;
        const float dcell = from_c + from_h * o * (1.0f - tanh_c[k] * tanh_c[k]);
        const float before = c != NULL ? c[k] : 0.0f;
        dgates[k] = dcell * g * (i * (1.0f - i));
        dgates[H + k] = dcell * before * (f * (1.0f - f));
        dgates[2 * H + k] = dcell * i * (1.0f - g * g);
        dgates[3 * H + k] = from_h * tanh_c[k] * (o * (1.0f - o));
        if (dc_before != NULL) {
            dc_before[k] = dcell * f;
        }
    }
}
