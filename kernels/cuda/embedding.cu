/* Rows of a table by number. An id outside the table is an error in the data, which the CPU refuses. Here it reads
 * nothing and gives a row of NaN, so that the loss shows it; its gradient goes nowhere.
 *
 * Forward moves every token's row once in and once out. Backward moves dy once, writes the table's gradient once when
 * it does not add, and reads and writes the rows that tokens name. It needs no atomics: the tokens are sorted by id
 * (sort.cuh), then one warp adds up every SEGMENT neighbours in that order, for its part of the features. A run of one
 * id inside a segment goes straight to the table. A run that crosses segments leaves a partial row in each, and these
 * are then added in order. So a token that is half of the text costs no more than others, and the order of the sums
 * depends on the ids alone. Both directions are bound by memory. */
#include "kernels/cuda/sort.cuh"
#include "kernels/cuda/wide.cuh"

enum {
    SUM_THREADS = 128, /* many registers each */
    SEGMENT = 32,      /* in ops/defs/embedding.c too */
    AHEAD = 8          /* rows of dy under way at a time */
};

template <typename T, int N>
__global__ void embedding_forward(int64_t items, int64_t rows, int64_t packs, const int32_t *ids, const T *table, T *y)
{
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient token = divide(item, packs);
        const int64_t id = ids[token.whole];
        wide<T, N> value;
        if (id >= 0 && id < rows) {
            value = load_wide<N>(table + (id * packs + token.rest) * N);
        } else {
            for (int j = 0; j < N; j++) {
                value.at[j] = from_float<T>(NAN);
            }
        }
        store_wide<N>(y + item * N, value);
    }
}

/* Where sums go. A segment that begins inside a run leaves that run's part at part[2 segment]. A segment that ends
 * inside a run that began in it leaves that part at part[2 segment + 1]. */
struct embedding_sums {
    sort_tokens tokens;
    int64_t features, segments;
    float *part, *grad;
    bool adds;
};

template <int N>
__device__ static void put_row(const embedding_sums &sums, int32_t key, int64_t f, const wide<float, N> &sum)
{
    if (key < sums.tokens.rows) {
        put_wide<N>(sums.grad + key * sums.features + f, sum, sums.adds);
    }
}

/* One thread for every segment and N features. */
template <typename T, int N> __global__ void embedding_segments(int64_t items, embedding_sums sums, const T *dy)
{
    const int64_t F = sums.features;
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient segment = divide(item, F / N);
        const int64_t f = segment.rest * N, begin = segment.whole * SEGMENT;
        const int64_t end = begin + SEGMENT < sums.tokens.count ? begin + SEGMENT : sums.tokens.count;
        int32_t key = sort_key_at(sums.tokens, begin);
        bool inside = begin > 0 && sort_key_at(sums.tokens, begin - 1) == key; /* the run began before the segment */
        wide<float, N> sum = {};
        for (int64_t at = begin; at < end; at += AHEAD) {
            wide<T, N> row[AHEAD];
            int32_t row_key[AHEAD];
            for (int a = 0; a < AHEAD; a++) {
                const int32_t token = sort_token_at(sums.tokens, at + a < end ? at + a : end - 1);
                row_key[a] = sort_key_of(sums.tokens, token);
                row[a] = load_wide<N>(dy + (int64_t)token * F + f);
            }
            for (int a = 0; a < AHEAD; a++) {
                if (at + a < end) {
                    if (row_key[a] != key) {
                        if (inside) {
                            store_wide<N>(sums.part + 2 * segment.whole * F + f, sum);
                        } else {
                            put_row<N>(sums, key, f, sum);
                        }
                        key = row_key[a];
                        inside = false;
                        sum = {};
                    }
                    for (int j = 0; j < N; j++) {
                        sum.at[j] += to_float(row[a].at[j]);
                    }
                }
            }
        }
        const bool goes_on = end < sums.tokens.count && sort_key_at(sums.tokens, end) == key;
        if (inside || goes_on) {
            store_wide<N>(sums.part + (2 * segment.whole + (inside ? 0 : 1)) * F + f, sum);
        } else {
            put_row<N>(sums, key, f, sum);
        }
    }
}

/* Adds up the runs that begin in a segment and cross its end. */
template <int N> __global__ void embedding_crossing(int64_t items, embedding_sums sums)
{
    const int64_t F = sums.features;
    for (int64_t item = first_item(); item < items; item += item_step()) {
        const quotient segment = divide(item, F / N);
        const int64_t f = segment.rest * N, begin = segment.whole * SEGMENT, end = begin + SEGMENT;
        if (end >= sums.tokens.count) {
            continue; /* the last segment */
        }
        const int32_t key = sort_key_at(sums.tokens, end - 1);
        const bool began_here = begin == 0 || sort_key_at(sums.tokens, begin - 1) != key;
        if (!began_here || sort_key_at(sums.tokens, end) != key) {
            continue;
        }
        /* Segments up to `low` begin inside the run, those from `high` on do not. */
        int64_t low = segment.whole + 1, high = sums.segments;
        while (high - low > 1) {
            const int64_t middle = low + (high - low) / 2;
            const bool in_run = sort_key_at(sums.tokens, middle * SEGMENT) == key;
            low = in_run ? middle : low;
            high = in_run ? high : middle;
        }
        wide<float, N> sum = load_wide<N>(sums.part + (2 * segment.whole + 1) * F + f);
        for (int64_t s = segment.whole + 1; s <= low; s++) {
            const wide<float, N> part = load_wide<N>(sums.part + 2 * s * F + f);
            for (int j = 0; j < N; j++) {
                sum.at[j] += part.at[j];
            }
        }
        put_row<N>(sums, key, f, sum);
    }
}

template <typename T, int N> static void start_forward(const ckpt_kernel_args *args)
{
    const ckpt_node *const node = args->node;
    const int64_t *const table = node->param[0].tensor.shape.dim;
    const void *const weight = sizeof(T) == 2 ? args->param16[0] : (const void *)args->param[0];
    CKPT_LAUNCH_ITEMS(cuda_of(args), (embedding_forward<T, N>), ckpt_shape_count(&node->out[0].shape) / N, table[0],
                      table[1] / N, (const int32_t *)args->in[0], (const T *)weight, (T *)args->out[0]);
}

template <typename T, int N> static void start_sums(const ckpt_cuda *cuda, const embedding_sums *sums, const void *dy)
{
    const int64_t items = sums->segments * (sums->features / N);
    CKPT_LAUNCH(cuda, (embedding_segments<T, N>), grid_for(cuda, items, SUM_THREADS), SUM_THREADS, 0, items, *sums,
                (const T *)dy);
    if (sums->segments > 1) {
        CKPT_LAUNCH(cuda, embedding_crossing<N>, grid_for(cuda, items, SUM_THREADS), SUM_THREADS, 0, items, *sums);
    }
}

static ckpt_code forward(const ckpt_kernel_args *args, ckpt_err *err)
{
    CKPT_BY_WIDTH(args->node->out[0].dtype, args->node->param[0].tensor.shape.dim[1], start_forward, args);
    return ckpt_cuda_launched("embedding", err);
}

static ckpt_code backward(const ckpt_kernel_args *args, ckpt_err *err)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const ckpt_tensor *const table = &args->node->param[0].tensor;
    embedding_sums sums = {};
    sums.tokens.ids = (const int32_t *)args->in[0];
    sums.tokens.count = ckpt_shape_count(&args->node->in[0].shape);
    sums.tokens.rows = table->shape.dim[0];
    sums.features = table->shape.dim[1];
    sums.segments = (sums.tokens.count + SEGMENT - 1) / SEGMENT;
    sums.grad = args->grad_param[0];
    sums.adds = (args->grad_param_adds & 1) != 0;
    if (sums.tokens.count > INT32_MAX) {
        return CKPT_FAIL(err, CKPT_DEVICE, "found %lld tokens, wanted at most %d", (long long)sums.tokens.count,
                         INT32_MAX);
    }
    sums.part = (float *)sort_by_id(cuda, &sums.tokens, args->workspace);
    if (!sums.adds) {
        const cudaError_t cleared =
            cudaMemsetAsync(sums.grad, 0, (size_t)ckpt_tensor_bytes(table), cuda->stream[CKPT_STREAM_COMPUTE]);
        cuda->launched->copies++;
        CKPT_TRY(ckpt_cuda_check(cleared, "clearing the gradient of the table", err));
    }
    CKPT_BY_WIDTH(args->node->out[0].dtype, sums.features, start_sums, cuda, &sums, args->grad_out[0]);
    return ckpt_cuda_launched("embedding backward", err);
}

extern "C" const ckpt_kernel ckpt_cuda_embedding = {
    .op = "embedding",
    .workspace = op_workspace,
    .forward = forward,
    .backward = backward,
};
