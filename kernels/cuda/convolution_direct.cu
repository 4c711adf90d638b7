/* Convolutions straight from the formula. They are meant for depthwise convolutions: two FLOP for each tap of each
 * value, every tensor read from memory once and its neighbours from the caches, so bound by memory; a thread takes 16
 * bytes of neighbouring channels. Other convolutions come here when cuDNN has nothing deterministic that fits the
 * workspace: correct, and many times slower than tensor cores.
 *
 * The weight gradient sums over all pixels: a block takes 256 filters, one of their taps and one part of the pixels
 * (ckpt_gpu_part_rows), and a second kernel adds the parts in order. */
#include "kernels/cuda/convolution_direct.cuh"
#include "kernels/cuda/wide.cuh"

namespace
{

enum { THREADS = 256, STRIP = 256 };

struct direct_pixel {
    int64_t n, h, i, j;
};

__device__ inline int64_t direct_product(const int64_t size[3])
{
    return size[0] * size[1] * size[2];
}

/* DEEP: of volumes; else the depth is 1. */
template <bool DEEP> __device__ inline direct_pixel direct_pixel_of(int64_t row, const int64_t size[3])
{
    const quotient line = divide(row, size[2]), plane = divide(line.whole, size[1]);
    if constexpr (DEEP) {
        const quotient image = divide(plane.whole, size[0]);
        return {image.whole, image.rest, plane.rest, line.rest};
    } else {
        return {plane.whole, 0, plane.rest, line.rest};
    }
}

/* The number of a line of a volume or image. */
template <bool DEEP> __device__ inline int64_t direct_line(int64_t n, int64_t h, int64_t i, const int64_t size[3])
{
    return DEEP ? (n * size[0] + h) * size[1] + i : n * size[1] + i;
}

/* N > 1: depthwise only. */
template <typename T, int N, bool DEEP>
__global__ void direct_forward(ckpt_convolution s, const T *x, const T *w, const float *bias, T *y)
{
    const int64_t C = s.in_channels, O = s.out_channels, Cg = C / s.groups, depth = DEEP ? s.kernel[0] : 1;
    const int64_t taps = direct_product(s.kernel), count = s.batch * direct_product(s.out) * (O / N);
    for (int64_t k = first_item(); k < count; k += item_step()) {
        const quotient at = divide(k, O / N);
        const int64_t o = at.rest * N, first = divide(o, O / s.groups).whole * Cg;
        const direct_pixel p = direct_pixel_of<DEEP>(at.whole, s.out);
        wide<float, N> sum = {};
        for (int j = 0; j < N && bias != NULL; j++) {
            sum.at[j] = bias[o + j];
        }
        for (int64_t t = 0; t < depth; t++) {
            const int64_t h = DEEP ? p.h * s.stride[0] + t * s.dilation[0] - s.padding[0] : 0;
            if (DEEP && (h < 0 || h >= s.in[0])) {
                continue;
            }
            for (int64_t u = 0; u < s.kernel[1]; u++) {
                const int64_t a = p.i * s.stride[1] + u * s.dilation[1] - s.padding[1];
                if (a < 0 || a >= s.in[1]) {
                    continue;
                }
                for (int64_t v = 0; v < s.kernel[2]; v++) {
                    const int64_t b = p.j * s.stride[2] + v * s.dilation[2] - s.padding[2];
                    if (b < 0 || b >= s.in[2]) {
                        continue;
                    }
                    const T *const from = x + (direct_line<DEEP>(p.n, h, a, s.in) * s.in[2] + b) * C + first;
                    const T *const filter = w + o * Cg * taps + (t * s.kernel[1] + u) * s.kernel[2] + v;
                    if constexpr (N > 1) {
                        const wide<float, N> value = load_floats<N>(from);
                        for (int j = 0; j < N; j++) {
                            sum.at[j] += value.at[j] * to_float(filter[j * taps]);
                        }
                    } else {
                        for (int64_t c = 0; c < Cg; c++) {
                            sum.at[0] += to_float(from[c]) * to_float(filter[c * taps]);
                        }
                    }
                }
            }
        }
        put_wide<N>(y + at.whole * O + o, sum, false);
    }
}

/* The output position along dim `d` that reads input position `a` through tap u, or -1. */
__device__ inline int64_t direct_seen_by(const ckpt_convolution &s, int d, int64_t a, int64_t u)
{
    const int64_t t = a + s.padding[d] - u * s.dilation[d];
    if (t < 0) {
        return -1;
    }
    const quotient line = divide(t, s.stride[d]);
    return line.rest == 0 && line.whole < s.out[d] ? line.whole : -1;
}

/* N > 1: depthwise only. */
template <typename T, int N, bool DEEP> __global__ void direct_input(ckpt_convolution s, const T *dy, const T *w, T *dx)
{
    const int64_t C = s.in_channels, O = s.out_channels, Cg = C / s.groups, Og = O / s.groups;
    const int64_t taps = direct_product(s.kernel), count = s.batch * direct_product(s.in) * (C / N);
    const int64_t depth = DEEP ? s.kernel[0] : 1;
    for (int64_t k = first_item(); k < count; k += item_step()) {
        const quotient at = divide(k, C / N);
        const int64_t c = at.rest * N;
        const quotient group = divide(c, Cg);
        const direct_pixel p = direct_pixel_of<DEEP>(at.whole, s.in);
        wide<float, N> sum = {};
        for (int64_t t = 0; t < depth; t++) {
            const int64_t h = DEEP ? direct_seen_by(s, 0, p.h, t) : 0;
            if (h < 0) {
                continue;
            }
            for (int64_t u = 0; u < s.kernel[1]; u++) {
                const int64_t i = direct_seen_by(s, 1, p.i, u);
                if (i < 0) {
                    continue;
                }
                for (int64_t v = 0; v < s.kernel[2]; v++) {
                    const int64_t j = direct_seen_by(s, 2, p.j, v);
                    if (j < 0) {
                        continue;
                    }
                    const int64_t o = group.whole * Og, tap = (t * s.kernel[1] + u) * s.kernel[2] + v;
                    const T *const from = dy + (direct_line<DEEP>(p.n, h, i, s.out) * s.out[2] + j) * O + o;
                    const T *const filter = w + (o * Cg + group.rest) * taps + tap;
                    if constexpr (N > 1) {
                        const wide<float, N> value = load_floats<N>(from);
                        for (int l = 0; l < N; l++) {
                            sum.at[l] += value.at[l] * to_float(filter[l * taps]);
                        }
                    } else {
                        for (int64_t l = 0; l < Og; l++) {
                            sum.at[0] += to_float(from[l]) * to_float(filter[l * Cg * taps]);
                        }
                    }
                }
            }
        }
        put_wide<N>(dx + at.whole * C + c, sum, false);
    }
}

struct direct_parts {
    int64_t rows, each, count; /* pixels of y, pixels of one part, parts */
    int64_t strips, weights;   /* strips of 256 filters, weights of one filter */
};

/* part[p][k][o] = sum over the pixels of part p of dy[o] times the value that weight k of filter o is multiplied with.
 * N > 1: depthwise only. */
template <typename T, int N, bool DEEP>
__global__ void __launch_bounds__(THREADS)
    direct_weight(ckpt_convolution s, direct_parts parts, int across, const T *x, const T *dy, float *part)
{
    __shared__ float sums[THREADS * N];
    const int x_at = (int)threadIdx.x % across, y_at = (int)threadIdx.x / across, high = THREADS / across;
    const quotient block = divide((int64_t)blockIdx.x, parts.strips);
    const int64_t k = block.whole, strip = block.rest * STRIP, o = strip + x_at * N;
    const int64_t C = s.in_channels, O = s.out_channels, Cg = C / s.groups;
    const quotient tap = divide(k, direct_product(s.kernel));
    const direct_pixel of = direct_pixel_of<DEEP>(tap.rest, s.kernel);
    const int64_t start = (int64_t)blockIdx.y * parts.each;
    const int64_t end = start + parts.each < parts.rows ? start + parts.each : parts.rows;
    wide<float, N> sum = {};
    if (o < O) {
        const int64_t c = divide(o, O / s.groups).whole * Cg + tap.whole;
        for (int64_t r = start + y_at; r < end; r += high) {
            const direct_pixel p = direct_pixel_of<DEEP>(r, s.out);
            const int64_t h = DEEP ? p.h * s.stride[0] + of.h * s.dilation[0] - s.padding[0] : 0;
            const int64_t a = p.i * s.stride[1] + of.i * s.dilation[1] - s.padding[1];
            const int64_t b = p.j * s.stride[2] + of.j * s.dilation[2] - s.padding[2];
            if (h >= 0 && h < s.in[0] && a >= 0 && a < s.in[1] && b >= 0 && b < s.in[2]) {
                const int64_t line = direct_line<DEEP>(p.n, h, a, s.in);
                const wide<float, N> seen = load_floats<N>(x + (line * s.in[2] + b) * C + c);
                const wide<float, N> slope = load_floats<N>(dy + r * O + o);
                for (int j = 0; j < N; j++) {
                    sum.at[j] += slope.at[j] * seen.at[j];
                }
            }
        }
    }
    for (int j = 0; j < N; j++) {
        sums[threadIdx.x * N + j] = sum.at[j];
    }
    __syncthreads();
    const int mine = (int)threadIdx.x;
    if (mine < across * N && strip + mine < O) {
        float total = 0;
        for (int y = 0; y < high; y++) {
            total += sums[y * across * N + mine];
        }
        part[((int64_t)blockIdx.y * parts.weights + k) * O + strip + mine] = total;
    }
}

/* dw[o][k] = parts added in order. */
__global__ void direct_weight_sum(int64_t parts, int64_t weights, int64_t filters, const float *part, float *dw)
{
    const int64_t count = weights * filters;
    for (int64_t e = first_item(); e < count; e += item_step()) {
        const quotient at = divide(e, filters);
        float total = 0;
#pragma unroll 8
        for (int64_t p = 0; p < parts; p++) {
            total += part[p * count + e];
        }
        dw[at.rest * weights + at.whole] = total;
    }
}

direct_parts direct_parts_of(const ckpt_convolution &s)
{
    const int64_t rows = ckpt_convolution_out_rows(&s);
    const int64_t weights = s.in_channels / s.groups * ckpt_convolution_taps(&s);
    const int64_t each = ckpt_gpu_part_rows(weights, rows, s.out_channels);
    return {rows, each, (rows + each - 1) / each, (s.out_channels + STRIP - 1) / STRIP, weights};
}

/* The number of channels that a thread may take at a time. */
int64_t direct_neighbours(const ckpt_convolution &s)
{
    return convolution_is_depthwise(s) ? s.in_channels : 1;
}

template <typename T, int N>
void start_forward(const ckpt_cuda *cuda, const ckpt_convolution &s, const void *x, const void *w, const float *bias,
                   void *y)
{
    const int64_t items = ckpt_convolution_out_rows(&s) * (s.out_channels / N);
    const auto kernel = s.volume ? direct_forward<T, N, true> : direct_forward<T, N, false>;
    CKPT_LAUNCH(cuda, kernel, grid_for(cuda, items, THREADS), THREADS, 0, s, (const T *)x, (const T *)w, bias, (T *)y);
}

template <typename T, int N>
void start_input(const ckpt_cuda *cuda, const ckpt_convolution &s, const void *dy, const void *w, void *dx)
{
    const int64_t items = ckpt_convolution_in_rows(&s) * (s.in_channels / N);
    const auto kernel = s.volume ? direct_input<T, N, true> : direct_input<T, N, false>;
    CKPT_LAUNCH(cuda, kernel, grid_for(cuda, items, THREADS), THREADS, 0, s, (const T *)dy, (const T *)w, (T *)dx);
}

template <typename T, int N>
void start_weight(const ckpt_cuda *cuda, const ckpt_convolution &s, const void *x, const void *dy, float *dw,
                  void *workspace)
{
    const direct_parts parts = direct_parts_of(s);
    const dim3 grid((unsigned)(parts.strips * parts.weights), (unsigned)parts.count);
    const auto kernel = s.volume ? direct_weight<T, N, true> : direct_weight<T, N, false>;
    CKPT_LAUNCH(cuda, kernel, grid, THREADS, 0, s, parts, strip_threads(s.out_channels, STRIP, N), (const T *)x,
                (const T *)dy, (float *)workspace);
    CKPT_LAUNCH(cuda, direct_weight_sum, grid_for(cuda, parts.weights * s.out_channels, THREADS), THREADS, 0,
                parts.count, parts.weights, s.out_channels, (const float *)workspace, dw);
}

} // namespace

ckpt_bytes ckpt_convolution_direct_workspace(const ckpt_convolution &s)
{
    const direct_parts parts = direct_parts_of(s);
    return ckpt_round_up(4 * parts.count * parts.weights * s.out_channels, CKPT_ALIGN);
}

void ckpt_convolution_direct_forward(const ckpt_cuda *cuda, const ckpt_convolution &s, const void *x, const void *w,
                                     const float *bias, void *y)
{
    CKPT_BY_WIDTH(s.dtype, direct_neighbours(s), start_forward, cuda, s, x, w, bias, y);
}

void ckpt_convolution_direct_input(const ckpt_cuda *cuda, const ckpt_convolution &s, const void *dy, const void *w,
                                   void *dx)
{
    CKPT_BY_WIDTH(s.dtype, direct_neighbours(s), start_input, cuda, s, dy, w, dx);
}

void ckpt_convolution_direct_weight(const ckpt_cuda *cuda, const ckpt_convolution &s, const void *x, const void *dy,
                                    float *dw, void *workspace)
{
    CKPT_BY_WIDTH(s.dtype, direct_neighbours(s), start_weight, cuda, s, x, dy, dw, workspace);
}
