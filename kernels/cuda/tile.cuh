/* The PTX of this project: products of small tiles on tensor cores, loads of their operands from shared memory,
 * asynchronous copies from global to shared memory, and two conversions. Every function has a host version with the
 * layouts of the PTX ISA, which test_emulation compares with its formulas; kernels can therefore be tested without a
 * GPU. All 32 lanes of a warp must call functions marked "Warp".
 *
 * Source: PTX ISA, "mma", "ldmatrix", "cp.async" and the matrix fragments of mma.m16n8k16. With g = lane / 4 and t =
 * lane % 4 a lane holds, two bfloat16 in a register, the lower column in the lower half:
 *   A [16 x 16]: (row g, columns 2t, 2t+1), (g+8, 2t..), (g, 2t+8..), (g+8, 2t+8..)
 *   B [16 x 8]:  (rows 2t, 2t+1, column g), (2t+8.., g)
 *   C [16 x 8]:  float (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1) */
#ifndef CKPT_KERNELS_CUDA_TILE_CUH
#define CKPT_KERNELS_CUDA_TILE_CUH

#include "kernels/cuda/device.cuh"

/* Before a loop over an array in registers, which must be unrolled; and before a loop that must not be. */
#ifdef CKPT_EMULATION
#define CKPT_UNROLL
#define CKPT_ROLLED
#else
#define CKPT_UNROLL _Pragma("unroll")
#define CKPT_ROLLED _Pragma("unroll 1")
#endif

#ifdef CKPT_EMULATION

#include <vector>

static inline float tile_low(uint32_t two)
{
    return ckpt_bfloat16_value((uint16_t)two);
}

static inline float tile_high(uint32_t two)
{
    return ckpt_bfloat16_value((uint16_t)(two >> 16));
}

static inline uint32_t pack_bf16(float low, float high)
{
    return (uint32_t)ckpt_bfloat16_of(low) | (uint32_t)ckpt_bfloat16_of(high) << 16;
}

static inline float exp2_approx(float x)
{
    return exp2f(x);
}

struct tile_lane {
    uint32_t a[4], b[2];
};

static inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const tile_lane mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    const tile_lane *const all = ckpt_emulated_gather(mine);
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) {
        const int half = i / 2, column = 2 * t + i % 2; /* row g + 8 half of A, that column of B */
        float sum = c[i];
        for (int k = 0; k < 16; k += 2) {
            const uint32_t left = all[4 * g + k % 8 / 2].a[half + 2 * (k / 8)];
            const uint32_t right = all[4 * column + k % 8 / 2].b[k / 8];
            sum += tile_low(left) * tile_low(right);
            sum += tile_high(left) * tile_high(right);
        }
        c[i] = sum;
    }
}

static inline void load_matrices(uint32_t (&to)[4], const void *row)
{
    need_aligned(row, 16);
    const void *const *const rows = ckpt_emulated_gather(row);
    const int lane = (int)threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        memcpy(&to[i], (const unsigned char *)rows[8 * i + lane / 4] + 4 * (lane % 4), 4);
    }
}

static inline void load_matrices_turned(uint32_t (&to)[4], const void *row)
{
    need_aligned(row, 16);
    const void *const *const rows = ckpt_emulated_gather(row);
    const int lane = (int)threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        uint16_t two[2];
        for (int k = 0; k < 2; k++) {
            memcpy(&two[k], (const unsigned char *)rows[8 * i + 2 * (lane % 4) + k] + 2 * (lane / 4), 2);
        }
        to[i] = (uint32_t)two[0] | (uint32_t)two[1] << 16;
    }
}

/* Copies happen as late as on a GPU, at the thread's wait, and their destination is NaN until then. A kernel that reads
 * too early, or overwrites data too early, therefore gives wrong results here too. */
struct tile_copy {
    void *to;
    const void *from;
    size_t bytes;
    bool wanted;
};

inline std::vector<tile_copy> &ckpt_emulated_copies(void)
{
    static thread_local std::vector<tile_copy> copies[1024];
    return copies[threadIdx.x];
}

template <int BYTES> static inline void async_copy(void *to, const void *from, bool wanted)
{
    need_aligned(to, BYTES);
    need_aligned(from, BYTES);
    memset(to, 0xff, BYTES);
    ckpt_emulated_copies().push_back({to, from, BYTES, wanted});
}

static inline void async_wait(void)
{
    for (const tile_copy &copy : ckpt_emulated_copies()) {
        if (copy.wanted) {
            memcpy(copy.to, copy.from, copy.bytes);
        } else {
            memset(copy.to, 0, copy.bytes);
        }
    }
    ckpt_emulated_copies().clear();
}

#else

__device__ inline uint32_t tile_shared(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* Two floats rounded to nearest even, `low` in the lower half. */
__device__ inline uint32_t pack_bf16(float low, float high)
{
    uint32_t two;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}

/* 2^x with a relative error of 2^-22; subnormal results become zero. */
__device__ inline float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Warp: c += a b, bfloat16 operands, float32 sums. */
__device__ inline void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Warp: four matrices of 8 x 8 bfloat16 from shared memory; `row` of lanes 8 i .. 8 i + 7 are the addresses of the 8
 * rows of matrix i, 16-byte aligned. Of each matrix a lane gets row lane / 4, columns 2 (lane % 4) and the next. */
__device__ inline void load_matrices(uint32_t (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(tile_shared(row))
                 : "memory");
}

/* Warp: the same with the matrices transposed: rows 2 (lane % 4) and the next of column lane / 4. */
__device__ inline void load_matrices_turned(uint32_t (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(tile_shared(row))
                 : "memory");
}

/* Starts a copy of BYTES (4 or 16, both addresses aligned to it) from global to shared memory. `wanted` false: writes
 * zeros and does not read `from`. */
template <int BYTES> __device__ inline void async_copy(void *to, const void *from, bool wanted)
{
    static_assert(BYTES == 4 || BYTES == 16);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(tile_shared(to)),
                     "l"(__cvta_generic_to_global(from)), "r"(wanted ? 16 : 0)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(tile_shared(to)),
                     "l"(__cvta_generic_to_global(from)), "r"(wanted ? 4 : 0)
                     : "memory");
    }
}

/* Waits for the copies of this thread; after __syncthreads other threads see them. */
__device__ inline void async_wait(void)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

#endif

#endif
