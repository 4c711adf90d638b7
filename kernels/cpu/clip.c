/* The norm of a gradient and the factor that clips it. */
#include "kernels/cpu/clip.h"

#include <math.h>

#include "kernels/cpu/vector.h"

enum { PARTS = 64, LANES = 8 };

/* A square of a float is exact in double. */
static double part_squares(int64_t n, const float *x)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int j = 0; j < LANES; j++) {
            lane[j] += (double)x[i + j] * (double)x[i + j];
        }
    }
    for (int j = 0; i + j < n; j++) {
        lane[j] += (double)x[i + j] * (double)x[i + j];
    }
    double sum = 0.0;
    for (int j = 0; j < LANES; j++) {
        sum += lane[j];
    }
    return sum;
}

double ckpt_clip_squares(int64_t count, const float *from, int threads)
{
    double sum[PARTS] = {0};
    const int64_t each = count / PARTS;
#pragma omp parallel for schedule(static) num_threads(threads) if (count > CKPT_PARALLEL)
    for (int64_t part = 0; part < PARTS; part++) {
        const int64_t first = each * part, end = part + 1 < PARTS ? first + each : count;
        sum[part] = part_squares(end - first, from + first);
    }
    double total = 0.0;
    for (int part = 0; part < PARTS; part++) {
        total += sum[part];
    }
    return total;
}

float ckpt_clip_scale(const double *sum, int64_t count, double base, double most)
{
    double total = 0.0;
    for (int64_t i = 0; i < count; i++) {
        total += sum[i];
    }
    const double ratio = most / (base * sqrt(total) + 1e-6);
    return (float)(base * (ratio >= 1.0 ? 1.0 : ratio)); /* NaN passes */
}
