/* Workspaces: of matrix products, and on a GPU of sums over rows and of losses. */
#include "ops/ops_impl.h"

/* Bytes of a float matrix with its sides rounded up to what the library's blocks want. */
static ckpt_bytes padded_bytes(int64_t rows, int64_t columns)
{
    const int64_t padded_rows = ckpt_plus(rows, 15) / 16 * 16, padded_columns = ckpt_plus(columns, 63) / 64 * 64;
    return ckpt_times(ckpt_times(padded_rows, padded_columns), 4);
}

ckpt_bytes ckpt_product_workspace(const ckpt_node *node, int64_t rows, int64_t in, int64_t out, bool adds)
{
    const bool narrow = node->dtype == CKPT_BFLOAT16;
    const ckpt_bytes panels = adds ? 1696 * 1024 : narrow ? 1024 * 1024 : 704 * 1024;
    const int64_t padded_in = ckpt_plus(in, 63) / 64 * 64;
    ckpt_bytes whole = ckpt_plus(padded_bytes(rows, in), padded_bytes(rows, out));
    whole = ckpt_plus(ckpt_plus(whole, padded_bytes(padded_in, out)), 1024);
    return ckpt_times(whole < panels ? whole : panels, node->threads);
}

ckpt_bytes ckpt_gpu_product_workspace(int64_t rows, int64_t in, int64_t out)
{
    /* cuBLASLt's recommendation for Hopper is 32 MiB; a product splits its inner dimension in so many parts, each with
     * a float32 copy of the result. Small results get memory for four parts. */
    const ckpt_bytes most = (ckpt_bytes)32 << 20;
    const int64_t y = ckpt_times(rows, out), x = ckpt_times(rows, in), w = ckpt_times(in, out);
    const int64_t largest = y > x ? (y > w ? y : w) : (x > w ? x : w);
    const ckpt_bytes parts = ckpt_times(16, largest);
    return parts < most ? ckpt_aligned(parts) : most;
}

int64_t ckpt_gpu_part_rows(int64_t groups, int64_t rows, int64_t columns)
{
    /* A block of threads sums 256 columns of one part, at least 32 rows; 512 blocks keep today's largest GPUs busy. */
    const int64_t strips = ckpt_times(groups, ckpt_plus(columns, 255) / 256), parts = strips < 512 ? 512 / strips : 1;
    const int64_t even = rows / parts + (rows % parts != 0);
    return ckpt_plus(even, 31) / 32 * 32;
}

int64_t ckpt_gpu_group_rows(int64_t rows)
{
    const int64_t even = rows / 512 + (rows % 512 != 0);
    return ckpt_plus(even, 3) / 4 * 4;
}

ckpt_bytes ckpt_gpu_column_sums_workspace(int64_t rows, int64_t columns)
{
    /* One row of partial sums for every part, when there is more than one. */
    const int64_t part = ckpt_gpu_part_rows(1, rows, columns), parts = rows / part + (rows % part != 0);
    return parts > 1 ? ckpt_aligned(ckpt_times(4 * parts, columns)) : 0;
}

ckpt_bytes ckpt_gpu_loss_workspace(int64_t terms)
{
    const int64_t parts = terms / CKPT_GPU_LOSS_TERMS + (terms % CKPT_GPU_LOSS_TERMS != 0);
    return ckpt_aligned(ckpt_times(16, parts));
}

ckpt_bytes ckpt_gpu_smoothing_workspace(const ckpt_node *node, int64_t rows)
{
    return ckpt_node_float(node, "label_smoothing") > 0 ? ckpt_aligned(ckpt_times(4, rows)) : 0;
}

void ckpt_pair_loss_workspace(const ckpt_node *node, ckpt_bytes *forward, ckpt_bytes *backward)
{
    (void)backward;
    *forward = ckpt_gpu_loss_workspace(ckpt_plus(ckpt_node_in_count(node, 0), 15) / 16); /* a term is 16 elements */
}

int64_t ckpt_gpu_square_part(int64_t count)
{
    const int64_t even = count / 1024 + (count % 1024 != 0);
    return even > 0 ? ckpt_plus(even, 4095) / 4096 * 4096 : 4096;
}

ckpt_bytes ckpt_gpu_square_workspace(int64_t count)
{
    const int64_t part = ckpt_gpu_square_part(count), parts = count / part + (count % part != 0);
    return ckpt_aligned(8 * parts);
}
