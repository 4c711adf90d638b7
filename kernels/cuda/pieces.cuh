/* A tensor as pieces along one dimension, joined or cut up: concat and split, forward and backward. In memory the whole
 * is `outer` rows, each the rows of the pieces one after another. A block works on one piece, given by its y index in
 * the grid. Every copied byte is read once and written once: bound by memory. An access is 16 bytes if the rows of all
 * pieces are multiples of 16 bytes. */
#ifndef CKPT_KERNELS_CUDA_PIECES_CUH
#define CKPT_KERNELS_CUDA_PIECES_CUH

#include "kernels/cuda/wide.cuh"

enum { PIECES_THREADS = 256 };

/* The argument of one launch, in units of one access. */
struct pieces_launch {
    int64_t outer, whole_length;
    int64_t length[CKPT_IN_MAX], offset[CKPT_IN_MAX]; /* of a piece in one row of the whole */
    void *piece[CKPT_IN_MAX];                         /* NULL: zeros when joined */
    uint64_t adds;
};

/* Join: whole = or += pieces. Cut: pieces = or += whole. */
template <typename T, int N, bool JOIN> __global__ void pieces_move(pieces_launch pieces, T *whole)
{
    const int k = (int)blockIdx.y;
    const int64_t length = pieces.length[k], offset = pieces.offset[k], units = pieces.outer * length;
    T *const piece = (T *)pieces.piece[k];
    const bool adds = (pieces.adds >> k & 1) != 0;
    for (int64_t i = first_item(); i < units; i += item_step()) {
        const quotient row = divide(i, length);
        T *const in_whole = whole + (row.whole * pieces.whole_length + offset + row.rest) * N;
        T *const to = JOIN ? in_whole : piece + i * N;
        wide<T, N> value = {};
        if (!JOIN) {
            value = load_wide<N>(in_whole);
        } else if (piece != NULL) {
            value = load_wide<N>(piece + i * N);
        }
        if (adds) {
            const wide<T, N> before = load_wide<N>(to);
            for (int j = 0; j < N; j++) {
                value.at[j] = from_float<T>(to_float(before.at[j]) + to_float(value.at[j]));
            }
        }
        store_wide<N>(to, value);
    }
}

template <typename T, int N, bool JOIN>
static void pieces_start(const ckpt_cuda *cuda, const pieces_launch *pieces, int count, T *whole)
{
    int64_t longest = 0;
    for (int k = 0; k < count; k++) {
        longest = pieces->length[k] > longest ? pieces->length[k] : longest;
    }
    const dim3 grid((unsigned)grid_for(cuda, pieces->outer * longest, PIECES_THREADS), (unsigned)count);
    CKPT_LAUNCH(cuda, (pieces_move<T, N, JOIN>), grid, PIECES_THREADS, 0, *pieces, whole);
}

/* Launches the pieces in batches. Two gradients may be one buffer, of which the first is written and the second added:
 * a batch ends before a buffer that it has already, so that these do not run at once. A piece with nothing to do is
 * left out. */
template <typename T, int N, bool JOIN>
static void pieces_run(const ckpt_cuda *cuda, const pieces_launch *described, int count, void *whole)
{
    for (int k = 0; k < count;) {
        pieces_launch batch = {};
        batch.outer = described->outer;
        batch.whole_length = described->whole_length / N;
        int used = 0;
        for (; k < count; k++) {
            void *const piece = described->piece[k];
            const uint64_t adds = described->adds >> k & 1;
            bool repeated = false;
            for (int j = 0; j < used && !JOIN; j++) {
                repeated = repeated || batch.piece[j] == piece;
            }
            if (repeated) {
                break;
            }
            if (piece != NULL || (JOIN && adds == 0)) {
                batch.length[used] = described->length[k] / N;
                batch.offset[used] = described->offset[k] / N;
                batch.piece[used] = piece;
                batch.adds |= adds << used;
                used++;
            }
        }
        if (used > 0) {
            pieces_start<T, N, JOIN>(cuda, &batch, used, (T *)whole);
        }
    }
}

/* Pieces `tensor[0..count)` of `whole`, of shape `shape`, along the layer's axis. Piece k lies at piece[k]. JOIN: whole
 * = the pieces side by side, with zeros for a NULL piece; if all bits of `adds` are set, whole += pieces. Otherwise
 * every piece that is not NULL is cut from the whole, in increasing order; bit k of `adds`: piece k += instead. */
template <typename T, bool JOIN>
static void pieces_copy(const ckpt_kernel_args *args, const ckpt_shape *shape, const ckpt_tensor *tensor, int count,
                        const void *const *piece, uint64_t adds, void *whole)
{
    const ckpt_cuda *const cuda = cuda_of(args);
    const int64_t axis = ckpt_node_int(args->node, "axis"), d = axis < 0 ? axis + shape->rank : axis;
    int64_t stride[CKPT_RANK_MAX];
    ckpt_shape_strides(shape, stride);
    pieces_launch described = {};
    described.whole_length = shape->dim[d] * stride[d];
    described.outer = ckpt_shape_count(shape) / described.whole_length;
    described.adds = adds;
    bool packs = true;
    for (int k = 0; k < count; k++) {
        described.length[k] = tensor[k].shape.dim[d] * stride[d];
        described.offset[k] = k == 0 ? 0 : described.offset[k - 1] + described.length[k - 1];
        described.piece[k] = const_cast<void *>(piece[k]);
        packs = packs && described.length[k] % pack<T>::count == 0;
    }
    packs ? pieces_run<T, pack<T>::count, JOIN>(cuda, &described, count, whole)
          : pieces_run<T, 1, JOIN>(cuda, &described, count, whole);
}

#endif
