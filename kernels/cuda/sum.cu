/* The device's own sums: staged gradients (to += from), bfloat16 copies of parameters, and sums down the columns of a
 * matrix, such as bias gradients. `add` moves 3 tensors for one FLOP an element, `narrow` 6 bytes an element; the
 * column sums read the matrix once for one FLOP an element and move less than 1 MiB of partial sums. All are bound by
 * memory.
 *
 * Column sums: a block sums 256 columns of one part of the rows (ckpt_gpu_part_rows). Its threads stride over the rows
 * and are then added in order. A second kernel adds the parts (parts.cuh). No bit depends on the device. */
#include "kernels/cuda/parts.cuh"
#include "kernels/cuda/wide.cuh"

enum { THREADS = 256, STRIP = 256 };

template <typename T> __device__ inline pack<T> sum_of(const pack<T> &a, const pack<T> &b)
{
    pack<T> sum;
    for (int j = 0; j < pack<T>::count; j++) {
        sum.at[j] = from_float<T>(to_float(a.at[j]) + to_float(b.at[j]));
    }
    return sum;
}

/* Two packs in flight of each tensor. Nothing behind `count` is touched, so the caller's pieces need no padding. */
template <typename T> __global__ void sum_add(int64_t count, T *to, const T *from)
{
    const int64_t stride = item_step(), packs = count / pack<T>::count, first = first_item();
    for (int64_t i = first; i < packs; i += 2 * stride) {
        const bool both = i + stride < packs;
        T *const a = to + i * pack<T>::count, *const b = both ? a + stride * pack<T>::count : a;
        const T *const c = from + i * pack<T>::count, *const d = both ? c + stride * pack<T>::count : c;
        const pack<T> a_now = load16(a), b_now = load16(b), a_more = load16(c), b_more = load16(d);
        store16(a, sum_of(a_now, a_more));
        if (both) {
            store16(b, sum_of(b_now, b_more));
        }
    }
    const int64_t rest = packs * pack<T>::count + first;
    if (rest < count) {
        to[rest] = from_float<T>(to_float(to[rest]) + to_float(from[rest]));
    }
}

/* The same for pieces of tensors, which start anywhere. */
template <typename T> __global__ void sum_add_piece(int64_t count, T *to, const T *from)
{
    for (int64_t i = first_item(); i < count; i += item_step()) {
        to[i] = from_float<T>(to_float(to[i]) + to_float(from[i]));
    }
}

static __global__ void sum_narrow_piece(int64_t count, bf16 *to, const float *from)
{
    for (int64_t i = first_item(); i < count; i += item_step()) {
        to[i] = from_float<bf16>(from[i]);
    }
}

static __global__ void sum_narrow(int64_t count, bf16 *to, const float *from)
{
    const int64_t packs = count / pack<bf16>::count, first = first_item();
    for (int64_t i = first; i < packs; i += item_step()) {
        const pack<float> low = load16(from + i * 8), high = load16(from + i * 8 + 4);
        pack<bf16> narrow;
        for (int j = 0; j < 4; j++) {
            narrow.at[j] = from_float<bf16>(low.at[j]);
            narrow.at[j + 4] = from_float<bf16>(high.at[j]);
        }
        store16(to + i * 8, narrow);
    }
    const int64_t rest = packs * 8 + first;
    if (rest < count) {
        to[rest] = from_float<bf16>(from[rest]);
    }
}

/* A block is one (strip, part). Its threads are `across` columns of V times THREADS / across rows. The block's rows are
 * added four at a time, so four loads are in flight. It writes to[part][column], or the sum itself if there is one
 * part. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS)
    sum_columns(int64_t rows, int64_t columns, int64_t part_rows, int across, const T *x, float *to, bool adds)
{
    __shared__ float sums[THREADS * V];
    const int x_at = (int)threadIdx.x % across, y_at = (int)threadIdx.x / across, high = THREADS / across;
    const int64_t strip = (int64_t)blockIdx.x * STRIP, column = strip + x_at * V;
    const int64_t start = (int64_t)blockIdx.y * part_rows;
    const int64_t end = start + part_rows < rows ? start + part_rows : rows;
    float sum[V] = {0};
    if (column < columns) {
        const T *const at = x + column;
        int64_t r = start + y_at;
        for (; r + 3 * high < end; r += 4 * high) {
            const wide<float, V> a = load_floats<V>(at + r * columns), b = load_floats<V>(at + (r + high) * columns);
            const wide<float, V> c = load_floats<V>(at + (r + 2 * high) * columns),
                                 d = load_floats<V>(at + (r + 3 * high) * columns);
            for (int j = 0; j < V; j++) {
                sum[j] += (a.at[j] + b.at[j]) + (c.at[j] + d.at[j]);
            }
        }
        for (; r < end; r += high) {
            const wide<float, V> a = load_floats<V>(at + r * columns);
            for (int j = 0; j < V; j++) {
                sum[j] += a.at[j];
            }
        }
    }
    for (int j = 0; j < V; j++) {
        sums[(y_at * across + x_at) * V + j] = sum[j];
    }
    __syncthreads();
    const int mine = (int)threadIdx.x;
    if (mine < across * V && strip + mine < columns) {
        float total = 0;
        for (int y = 0; y < high; y++) {
            total += sums[y * across * V + mine];
        }
        float *const place = to + (int64_t)blockIdx.y * columns + strip + mine;
        *place = adds ? *place + total : total;
    }
}

template <typename T> static void start_add(const ckpt_cuda *cuda, void *to, const void *from, int64_t count)
{
    const bool packed = starts_pack(to, 16) && starts_pack(from, 16);
    const int grid = packed ? grid_for(cuda, packs_of<T>(count), 2 * THREADS) : grid_for(cuda, count, 4 * THREADS);
    CKPT_LAUNCH(cuda, (packed ? sum_add<T> : sum_add_piece<T>), grid, THREADS, 0, count, (T *)to, (const T *)from);
}

extern "C" ckpt_code ckpt_cuda_add(ckpt_cuda *cuda, ckpt_dtype dtype, void *to, const void *from, int64_t count,
                                   ckpt_err *err)
{
    CKPT_BY_DTYPE(dtype, start_add, cuda, to, from, count);
    return ckpt_cuda_launched("adding a gradient", err);
}

extern "C" ckpt_code ckpt_cuda_narrow(ckpt_cuda *cuda, void *to, const float *from, int64_t count, ckpt_err *err)
{
    const bool packed = starts_pack(to, 16) && starts_pack(from, 16);
    const int grid = packed ? grid_for(cuda, packs_of<bf16>(count), THREADS) : grid_for(cuda, count, 4 * THREADS);
    CKPT_LAUNCH(cuda, (packed ? sum_narrow : sum_narrow_piece), grid, THREADS, 0, count, (bf16 *)to, from);
    return ckpt_cuda_launched("rounding to bfloat16", err);
}

template <typename T, int V>
static void start_columns(const ckpt_cuda *cuda, int64_t rows, int64_t columns, const void *x, float *sum, bool adds,
                          float *workspace)
{
    const int64_t part_rows = ckpt_gpu_part_rows(1, rows, columns), parts = (rows + part_rows - 1) / part_rows;
    const dim3 grid((unsigned)((columns + STRIP - 1) / STRIP), (unsigned)parts);
    float *const to = parts > 1 ? workspace : sum;
    CKPT_LAUNCH(cuda, (sum_columns<T, V>), grid, THREADS, 0, rows, columns, part_rows, strip_threads(columns, STRIP, V),
                (const T *)x, to, adds && parts == 1);
    if (parts > 1) {
        start_parts<float>(cuda, parts, columns, workspace, {sum, adds}, {});
    }
}

extern "C" ckpt_code ckpt_cuda_column_sums(ckpt_cuda *cuda, ckpt_dtype dtype, int64_t rows, int64_t columns,
                                           const void *x, float *sum, bool adds, void *workspace, ckpt_err *err)
{
    CKPT_BY_WIDTH(dtype, columns, start_columns, cuda, rows, columns, x, sum, adds, (float *)workspace);
    return ckpt_cuda_launched("column sums", err);
}
