/* What a matrix product may take besides its operands. */
#include "ops/ops_impl.h"

/* Bytes of a float matrix with its sides rounded up to what the library's blocks want. */
static ckpt_bytes padded_bytes(int64_t rows, int64_t columns)
{
    const int64_t padded_rows = ckpt_plus(rows, 15) / 16 * 16, padded_columns = ckpt_plus(columns, 63) / 64 * 64;
    return ckpt_times(ckpt_times(padded_rows, padded_columns), 4);
}

ckpt_bytes ckpt_product_workspace(int64_t rows, int64_t in, int64_t out, bool adds, int threads)
{
    const ckpt_bytes panels = adds ? 1696 * 1024 : 704 * 1024;
    const int64_t padded_in = ckpt_plus(in, 63) / 64 * 64;
    ckpt_bytes whole = ckpt_plus(padded_bytes(rows, in), padded_bytes(rows, out));
    whole = ckpt_plus(ckpt_plus(whole, padded_bytes(padded_in, out)), 1024);
    return ckpt_times(whole < panels ? whole : panels, threads);
}
