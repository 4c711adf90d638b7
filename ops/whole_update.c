/* Layouts of state and workspace of optimizers that update a parameter as a whole. */
#include "ops/whole_update.h"

#include "ops/ops_impl.h"

/* `count` of `size` bytes. */
static ckpt_bytes take(ckpt_bytes *end, int64_t count, int64_t size)
{
    const ckpt_bytes at = *end;
    *end = ckpt_plus(at, ckpt_aligned(ckpt_times(count, size)));
    return at;
}

ckpt_adafactor_space ckpt_adafactor_space_of(const ckpt_matrix *matrix)
{
    const int64_t stack = matrix->stack, rows = matrix->rows, columns = matrix->columns;
    ckpt_adafactor_space s = {.part_rows = ckpt_gpu_part_rows(stack, rows, columns)};
    s.tasks = stack * rows * ((columns + CKPT_ADAFACTOR_TASK - 1) / CKPT_ADAFACTOR_TASK);
    s.parts = (rows + s.part_rows - 1) / s.part_rows;
    s.head = take(&s.bytes, 1, 16);
    s.task = take(&s.bytes, s.tasks, 8);
    s.mean = take(&s.bytes, stack, 4);
    s.column = take(&s.bytes, stack * s.parts * columns, 4);
    s.square = take(&s.bytes, ckpt_gpu_square_workspace(stack * rows * columns), 1);
    return s;
}

bool ckpt_muon_takes(const ckpt_matrix *matrix)
{
    return matrix->hidden && matrix->rows > 1 && matrix->columns > 1;
}

ckpt_muon_space ckpt_muon_space_of(const ckpt_matrix *matrix, bool gpu)
{
    ckpt_muon_space s = {.turned = matrix->rows < matrix->columns};
    s.large = s.turned ? matrix->columns : matrix->rows;
    s.small = s.turned ? matrix->rows : matrix->columns;
    s.one = take(&s.bytes, s.large * s.small, 4);
    s.other = take(&s.bytes, s.large * s.small, 4);
    s.gram = take(&s.bytes, s.small * s.small, 4);
    s.product = take(&s.bytes, s.small * s.small, 4);
    s.sum = take(&s.bytes, gpu ? 1 : 0, 8);
    s.square = take(&s.bytes, gpu ? ckpt_gpu_square_workspace(s.large * s.small) : 0, 1);
    return s;
}

bool ckpt_eight_bit_takes(int64_t count)
{
    return count >= CKPT_EIGHT_BIT_LEAST;
}

int64_t ckpt_eight_bit_blocks(int64_t count)
{
    return (count + CKPT_EIGHT_BIT_BLOCK - 1) / CKPT_EIGHT_BIT_BLOCK;
}

ckpt_bytes ckpt_eight_bit_scale(int64_t count)
{
    return ckpt_aligned(count);
}

float ckpt_eight_bit_value(int byte, bool is_signed)
{
    static const float decade[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1e0f};
    const int top = is_signed ? 128 : 255;
    if (byte == 0 || byte == top) {
        return byte == 0 ? 0.0f : 1.0f;
    }
    int cells = is_signed ? 1 : 2, k = (byte < top ? byte : byte - top) - 1, e = 0;
    for (; k >= cells; cells *= 2, e++) {
        k -= cells;
    }
    const float middle = 0.9f * (((float)k + 0.5f) / (float)cells);
    const float value = decade[e] * (0.1f + middle);
    return byte < top ? value : -value;
}
