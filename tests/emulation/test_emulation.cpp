/* The emulation itself: what threads of a block may rely on, and that what they may not rely on is found out; queues,
 * events and recordings, called as CUDA's runtime is. Written against CUDA's documentation, not against the kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include <cmocka.h>

#include "core/formats/tensor.h"
}

#include <vector>

#include "cuda_bf16.h"
#include "cuda_runtime.h"
#include "emulation.h"
#include "kernels/cuda/tile.cuh"
#include "kernels/cuda/wide.cuh"

#define OK(call) assert_int_equal((call), cudaSuccess)

namespace
{

cudaStream_t stream[3];
int *device; /* 1024 numbers */
int host[1024];

int open_device(void **)
{
    ckpt_emulated_schedule(0);
    for (cudaStream_t &s : stream) {
        OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    }
    OK(cudaMalloc((void **)&device, sizeof host));
    return 0;
}

int close_device(void **)
{
    ckpt_emulated_schedule(0);
    for (cudaStream_t s : stream) {
        OK(cudaStreamDestroy(s));
    }
    OK(cudaFree(device));
    (void)cudaGetLastError();
    return 0;
}

template <typename... P, typename... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... arguments)
{
    ckpt_emulated_launch(kernel, grid, block, shared, stream[0], arguments...);
    return cudaGetLastError();
}

void read_back()
{
    OK(cudaMemcpyAsync(host, device, sizeof host, cudaMemcpyDeviceToHost, stream[0]));
    OK(cudaStreamSynchronize(stream[0]));
}

/* ------------------------------------------------------------------------------------------- blocks */

__global__ void indices(int *out)
{
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    atomicAdd(&out[block * blockDim.x * blockDim.y * blockDim.z + thread], (int)(1 + block * 100 + thread));
}

void test_indices(void **)
{
    OK(cudaMemsetAsync(device, 0, sizeof host, stream[0]));
    OK(launch(indices, dim3(2, 3, 2), dim3(4, 2, 3), 0, device));
    read_back();
    for (int i = 0; i < 12 * 24; i++) {
        assert_int_equal(host[i], 1 + i / 24 * 100 + i % 24);
    }
    assert_int_equal(host[12 * 24], 0);
}

/* Turns a row of 256 around through shared memory, twice in the same place. */
template <bool FIRST, bool SECOND> __global__ void turn(int *out)
{
    __shared__ int line[256];
    const int t = (int)threadIdx.x;
    line[t] = t;
    if (FIRST) {
        __syncthreads();
    }
    const int other = line[255 - t];
    if (SECOND) {
        __syncthreads();
    }
    line[t] = 1000 + other;
    __syncthreads();
    out[blockIdx.x * 256 + threadIdx.x] = line[255 - t];
}

template <bool FIRST, bool SECOND> bool turns_right()
{
    OK(launch(turn<FIRST, SECOND>, 4, 256, 0, device));
    read_back();
    for (int i = 0; i < 1024; i++) {
        if (host[i] != 1000 + i % 256) {
            return false;
        }
    }
    return true;
}

void test_a_missing_barrier_shows(void **)
{
    for (int repeat = 0; repeat < 5; repeat++) {
        assert_true((turns_right<true, true>()));
    }
    assert_false((turns_right<false, true>()));
    assert_false((turns_right<true, false>()));
}

__global__ void some_leave(int *out)
{
    if (threadIdx.x < 3) {
        return;
    }
    __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void some_shuffle(int *out)
{
    if (threadIdx.x % 32 != 5) {
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
    }
}

__global__ void two_sizes(int *out)
{
    out[threadIdx.x] = threadIdx.x % 2 != 0 ? __shfl_sync(0xffffffffu, 1, 0) : (int)__shfl_sync(0xffffffffu, 1.0, 0);
}

__global__ void half_mask(int *out)
{
    out[threadIdx.x] = __shfl_sync(0xffffu, 1, 0);
}

__global__ void reads(const int *from, int *out)
{
    out[0] = from != nullptr;
}

__global__ void loads_16(int *out, int shift)
{
    store16((float *)(void *)out, load16((const float *)(void *)(out + 4 + shift)));
}

__global__ void loads_wide(int *out, int shift)
{
    store_wide<2>((float *)(void *)out, load_wide<2>((const float *)(void *)(out + 4 + shift)));
    store_wide<8>((float *)(void *)(out + 16), load_wide<8>((const float *)(void *)(out + 32 + shift)));
}

void expect_fault(cudaError_t code, const char *text)
{
    assert_int_equal(code, cudaErrorLaunchFailure);
    if (strstr(cudaGetErrorString(code), text) == nullptr) {
        fail_msg("found \"%s\", wanted \"%s\"", cudaGetErrorString(code), text);
    }
    assert_int_equal(cudaStreamSynchronize(stream[0]), cudaErrorLaunchFailure); /* it stays so, as on a device */
    ckpt_emulated_schedule(0);
    assert_true((turns_right<true, true>()));
}

void test_faults(void **)
{
    expect_fault(launch(some_leave, 1, 64, 0, device), "61 wait at __syncthreads, 0 at something their whole warp must "
                                                       "reach, 3 have left");
    expect_fault(launch(some_shuffle, 2, 64, 0, device), "62 at something their whole warp");
    expect_fault(launch(two_sizes, 1, 32, 0, device), "different calls");
    expect_fault(launch(half_mask, 1, 32, 0, device), "some lanes only");
    expect_fault(launch(half_mask, 1, 16, 0, device), "fewer than 32");
    expect_fault(launch(reads, 1, 1, 0, host, device), "not the device's");
    OK(launch(loads_16, 1, 1, 0, device, 0));
    OK(launch(loads_16, 1, 1, 0, device, 4));
    expect_fault(launch(loads_16, 1, 1, 0, device, 1), "not aligned");
    OK(launch(loads_wide, 1, 1, 0, device, 4));
    expect_fault(launch(loads_wide, 1, 1, 0, device, 1), "not aligned"); /* for two numbers */
    expect_fault(launch(loads_wide, 1, 1, 0, device, 2), "not aligned"); /* for eight */
}

/* ------------------------------------------------------------------------------------------- tiles */

uint32_t two(float low, float high)
{
    return (uint32_t)ckpt_bfloat16_of(low) | (uint32_t)ckpt_bfloat16_of(high) << 16;
}

/* Some matrix of small whole numbers: every product and sum is exact. */
float entry(int which, int row, int column)
{
    return (float)((which * 29 + row * 7 + column * 3 + row * column) % 13 - 6);
}

/* d = a b + c, filled and read by the formulas that the PTX ISA, "Matrix Fragments for mma.m16n8k16", gives for the
 * number i of an element a lane holds. */
__global__ void multiplies(int *out)
{
    const int group = (int)threadIdx.x / 4, in_group = (int)threadIdx.x % 4;
    uint32_t a[4], b[2];
    float c[4];
    for (int i = 0; i < 8; i += 2) {
        const int row = i < 2 || (4 <= i && i < 6) ? group : group + 8, column = in_group * 2 + (i < 4 ? 0 : 8);
        a[i / 2] = two(entry(0, row, column), entry(0, row, column + 1));
    }
    for (int i = 0; i < 4; i += 2) {
        const int row = in_group * 2 + (i < 2 ? 0 : 8);
        b[i / 2] = two(entry(1, row, group), entry(1, row + 1, group));
    }
    for (int i = 0; i < 4; i++) {
        c[i] = entry(2, i < 2 ? group : group + 8, in_group * 2 + (i & 1));
    }
    mma_bf16(c, a, b[0], b[1]);
    for (int i = 0; i < 4; i++) {
        out[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)] = (int)c[i];
    }
}

/* Four matrices, row r of matrix m in line 4 r + m of shared memory, each line 48 bytes; an entry is its own number. */
__global__ void loads_matrices(int *out, int shift)
{
    CKPT_SHARED(shared);
    uint16_t *const line = (uint16_t *)(void *)shared;
    const int lane = (int)threadIdx.x;
    for (int column = 0; column < 8; column++) {
        line[24 * lane + column] = (uint16_t)(lane % 4 * 64 + lane / 4 * 8 + column);
    }
    __syncthreads();
    uint32_t r[4], turned[4];
    load_matrices(r, line + 24 * (lane % 8 * 4 + lane / 8) + shift);
    load_matrices_turned(turned, line + 24 * (lane % 8 * 4 + lane / 8));
    for (int m = 0; m < 4; m++) {
        out[32 * m + lane] = (int)r[m];
        out[128 + 32 * m + lane] = (int)turned[m];
    }
}

/* Every second thread's copy is not wanted, and comes from nowhere. */
__global__ void copies(int *out, int shift)
{
    CKPT_SHARED(shared);
    const int lane = (int)threadIdx.x;
    int *const to = (int *)(void *)shared + 4 * lane, *const from = out + 128 + 4 * lane;
    async_copy<16>(to, lane % 2 == 0 ? from + shift : nullptr, lane % 2 == 0);
    out[256 + lane] = to[3];
    async_wait();
    __syncthreads();
    const int other = lane ^ 2;
    for (int i = 0; i < 4; i++) {
        out[4 * lane + i] = to[4 * (other - lane) + i];
    }
}

void test_tiles(void **)
{
    OK(launch(multiplies, 1, 32, 0, device));
    read_back();
    for (int i = 0; i < 128; i++) {
        float sum = entry(2, i / 8, i % 8);
        for (int k = 0; k < 16; k++) {
            sum += entry(0, i / 8, k) * entry(1, k, i % 8);
        }
        assert_int_equal(host[i], (int)sum);
    }
    OK(launch(loads_matrices, 1, 32, 32 * 48, device, 0));
    read_back();
    for (int i = 0; i < 128; i++) {
        const int m = i / 32 * 64, row = i % 32 / 4, column = 2 * (i % 4);
        assert_int_equal(host[i], (m + 8 * row + column) | (m + 8 * row + column + 1) << 16);
        assert_int_equal(host[128 + i], (m + 8 * column + row) | (m + 8 * (column + 1) + row) << 16);
    }
    for (int i = 0; i < 1024; i++) {
        host[i] = 3 * i;
    }
    OK(cudaMemcpyAsync(device, host, sizeof host, cudaMemcpyHostToDevice, stream[0]));
    OK(launch(copies, 1, 32, 512, device, 0));
    read_back();
    for (int i = 0; i < 128; i++) {
        assert_int_equal(host[i], i / 4 % 2 == 0 ? 3 * (128 + (i ^ 8)) : 0);
        assert_int_equal(host[256 + i / 4], -1); /* not there before the wait */
    }
    assert_int_equal(pack_bf16(-1.5F, 3.0F), two(-1.5F, 3.0F));
    assert_int_equal(pack_bf16(-1.5F, 3.0F), 0x4040bfc0);
    expect_fault(launch(loads_matrices, 1, 32, 32 * 48, device, 1), "not aligned");
    expect_fault(launch(copies, 1, 32, 512, device, 1), "not aligned");
}

__global__ void shuffles(int *out)
{
    const int t = (int)threadIdx.x, lane = t % 32;
    const unsigned all = 0xffffffffu;
    int sum = lane;
    for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(all, sum, step);
    }
    const double wide = __shfl_down_sync(all, (double)t, 1);
    out[t] = sum;
    out[128 + t] = (int)wide;
    out[256 + t] = __shfl_up_sync(all, t, 3);
    out[384 + t] = __shfl_sync(all, t, lane + 1, 8);
    out[512 + t] = (int)__ballot_sync(all, lane % 3 == 0);
    __syncwarp();
    const struct {
        int a, b, c;
    } mine = {t, 2 * t, 3 * t};
    const auto *const row = ckpt_emulated_gather(mine);
    out[640 + t] = row[31].a + row[0].b + row[1].c;
}

void test_warps(void **)
{
    OK(launch(shuffles, 1, 128, 0, device));
    read_back();
    for (int t = 0; t < 128; t++) {
        const int lane = t % 32, first = t - lane;
        assert_int_equal(host[t], 496);
        assert_int_equal(host[128 + t], lane < 31 ? t + 1 : t);
        assert_int_equal(host[256 + t], lane >= 3 ? t - 3 : t);
        assert_int_equal(host[384 + t], t / 8 * 8 + (lane + 1) % 8);
        assert_int_equal(host[512 + t], 0x49249249);
        assert_int_equal(host[640 + t], first + 31 + 2 * first + 3 * (first + 1));
    }
}

__global__ void shared_start(int *out)
{
    float *const room = (float *)ckpt_emulated_shared();
    const int t = (int)threadIdx.x;
    out[blockIdx.x * 32 + threadIdx.x] = isnan(room[t]) && (uintptr_t)room % 128 == 0;
    __syncthreads();
    room[t] = 1;
}

void test_shared_memory(void **)
{
    OK(launch(shared_start, 8, 32, 128, device));
    read_back();
    for (int i = 0; i < 256; i++) {
        assert_int_equal(host[i], 1);
    }
    const size_t most = 227 * 1024;
    OK(launch(shared_start, 1, 32, 48 * 1024, device));
    assert_int_equal(launch(shared_start, 1, 32, 48 * 1024 + 1, device), cudaErrorInvalidValue);
    assert_int_equal(ckpt_emulated_allow_shared((const void *)shared_start, most + 1), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    OK(ckpt_emulated_allow_shared((const void *)shared_start, most));
    OK(launch(shared_start, 1, 32, most, device));
}

void test_refused_launches(void **)
{
    const struct {
        dim3 grid, block;
        cudaError_t code;
    } cases[] = {
        {1, 1025, cudaErrorInvalidConfiguration},
        {1, dim3(32, 33), cudaErrorInvalidConfiguration},
        {1, dim3(1, 1, 65), cudaErrorInvalidConfiguration},
        {1, 0, cudaErrorInvalidConfiguration},
        {0, 32, cudaErrorInvalidConfiguration},
        {dim3(1, 65536), 32, cudaErrorInvalidConfiguration},
        {dim3(1, 1, 65536), 32, cudaErrorInvalidConfiguration},
        {dim3(65536, 1, 1), 1, cudaSuccess},
        {1, dim3(1, 1, 64), cudaSuccess},
    };
    for (const auto &c : cases) {
        assert_int_equal(launch(reads, c.grid, c.block, 0, device, device), c.code);
    }
    ckpt_emulated_launch(reads, 1, 1, 0, (cudaStream_t) nullptr, device, device);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}

void test_bfloat16(void **)
{
    uint64_t random = 7;
    for (int i = 0; i < 200000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const float x = __uint_as_float((unsigned)(random >> 32));
        const uint16_t want = ckpt_bfloat16_of(x), got = __bfloat16_as_ushort(__float2bfloat16_rn(x));
        if (isnan(x)) {
            assert_true(isnan(__bfloat162float(__ushort_as_bfloat16(got))));
        } else {
            assert_int_equal(got, want);
            assert_true(__bfloat162float(__ushort_as_bfloat16(got)) == ckpt_bfloat16_value(want));
        }
    }
}

/* ------------------------------------------------------------------------------------------- memory */

void test_memory(void **)
{
    int64_t before = ckpt_emulated_device_bytes(), calls = ckpt_emulated_reservations();
    void *a = nullptr, *b = nullptr;
    OK(cudaMalloc(&a, 1000));
    OK(cudaHostAlloc(&b, 777, cudaHostAllocDefault));
    assert_int_equal(ckpt_emulated_device_bytes(), before + 1000);
    assert_int_equal(ckpt_emulated_host_bytes(), 777);
    assert_int_equal(ckpt_emulated_reservations(), calls + 2);
    assert_int_equal(((unsigned char *)b)[776], 0xff);
    unsigned char back[1000];
    OK(cudaMemcpyAsync(back, a, 1000, cudaMemcpyDeviceToHost, stream[0]));
    assert_int_equal(back[999], 0xff); /* full of NaN */
    assert_int_equal(cudaMemcpyAsync(back, a, 1001, cudaMemcpyDeviceToHost, stream[0]), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(back, back, 10, cudaMemcpyDeviceToHost, stream[0]), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(a, back, 10, cudaMemcpyDeviceToHost, stream[0]), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpyAsync(back, a, 10, cudaMemcpyDeviceToHost, nullptr), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaFree(back), cudaErrorInvalidValue);
    OK(cudaFree(a));
    assert_int_equal(cudaFree(a), cudaErrorInvalidValue);
    OK(cudaFreeHost(b));
    OK(cudaFree(nullptr));
    size_t free_bytes = 0, total = 0;
    OK(cudaMemGetInfo(&free_bytes, &total));
    assert_int_equal(cudaMalloc(&a, free_bytes + 1), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaGetLastError());
    assert_int_equal(ckpt_emulated_device_bytes(), before);
}

/* ------------------------------------------------------------------------------------------- queues */

__global__ void put(int *to, int value)
{
    *to = value;
}

__global__ void take(int *to, const int *from)
{
    *to = *from;
}

void start_put(int s, int place, int value)
{
    ckpt_emulated_launch(put, 1, 1, 0, stream[s], device + place, value);
}

void start_take(int s, int to, int from)
{
    ckpt_emulated_launch(take, 1, 1, 0, stream[s], device + to, device + from);
}

/* One stream writes, another copies the number away, a third reads the copy: in order only by two events. `lost`: the
 * wait of that number does nothing. True when the right number came out. */
bool relay(uint64_t seed, int lost, bool recorded)
{
    cudaEvent_t event[3];
    ckpt_emulated_schedule(0);
    for (cudaEvent_t &e : event) {
        OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    }
    int *pinned = nullptr;
    OK(cudaHostAlloc((void **)&pinned, 4, 0));
    *pinned = -1;
    OK(cudaMemsetAsync(device, 0, sizeof host, stream[0]));
    ckpt_emulated_schedule(seed);
    ckpt_emulated_lose_wait(lost);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    if (recorded) {
        OK(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal));
    }
    start_put(0, 1, 17);
    OK(cudaEventRecord(event[0], stream[0]));
    OK(cudaStreamWaitEvent(stream[1], event[0], 0));
    OK(cudaMemcpyAsync(pinned, device + 1, 4, cudaMemcpyDeviceToHost, stream[1]));
    OK(cudaEventRecord(event[1], stream[1]));
    OK(cudaStreamWaitEvent(stream[2], event[1], 0));
    OK(cudaMemcpyAsync(device + 2, pinned, 4, cudaMemcpyHostToDevice, stream[2]));
    OK(cudaEventRecord(event[2], stream[2]));
    OK(cudaStreamWaitEvent(stream[0], event[2], 0));
    start_take(0, 3, 2);
    assert_int_equal(ckpt_emulated_waits(), 3);
    if (recorded) {
        OK(cudaStreamEndCapture(stream[0], &graph));
        OK(cudaGraphInstantiate(&exec, graph, 0));
        OK(cudaGraphDestroy(graph));
        OK(cudaGraphLaunch(exec, stream[0]));
    }
    OK(cudaMemcpyAsync(host, device, sizeof host, cudaMemcpyDeviceToHost, stream[0]));
    OK(cudaStreamSynchronize(stream[0]));
    const bool right = host[3] == 17;
    ckpt_emulated_schedule(0);
    if (exec != nullptr) {
        OK(cudaGraphExecDestroy(exec));
    }
    for (cudaEvent_t e : event) {
        OK(cudaEventDestroy(e));
    }
    OK(cudaFreeHost(pinned));
    return right;
}

void test_events_order_queues(void **)
{
    for (int recorded = 0; recorded < 2; recorded++) {
        for (uint64_t seed = 0; seed < 200; seed++) {
            assert_true(relay(seed, -1, recorded != 0));
        }
        for (int lost = 0; lost < 3; lost++) {
            int wrong = 0;
            for (uint64_t seed = 1; seed <= 40; seed++) {
                wrong += !relay(seed, lost, recorded != 0);
            }
            assert_in_range(wrong, 1, 40);
        }
    }
}

/* Nothing is done before somebody waits for it (with a schedule that never runs ahead), and then only what
 * is needed. */
void test_copies_are_late(void **)
{
    int *pinned = nullptr, late = 0, other_late = 0;
    OK(cudaHostAlloc((void **)&pinned, 8, 0));
    for (uint64_t seed = 1; seed <= 40; seed++) {
        ckpt_emulated_schedule(seed);
        start_put(0, 0, 1);
        OK(cudaStreamSynchronize(stream[0]));
        pinned[0] = 5;
        OK(cudaMemcpyAsync(device, pinned, 4, cudaMemcpyHostToDevice, stream[1]));
        pinned[0] = 6; /* wrong on a device: the copy may still be reading */
        start_put(2, 7, 1);
        OK(cudaStreamSynchronize(stream[1]));
        other_late += cudaStreamQuery(stream[2]) == cudaErrorNotReady;
        read_back();
        late += host[0] == 6;
        assert_true(host[0] == 5 || host[0] == 6);
    }
    assert_in_range(late, 10, 40);
    assert_in_range(other_late, 10, 40);
    ckpt_emulated_schedule(0);
    OK(cudaFreeHost(pinned));
}

/* A wait is for the record that was the latest when it was made; an event that was never recorded is no wait. */
void test_event_versions(void **)
{
    cudaEvent_t event;
    OK(cudaEventCreateWithFlags(&event, cudaEventDefault));
    for (uint64_t seed = 1; seed <= 40; seed++) {
        ckpt_emulated_schedule(seed);
        OK(cudaMemsetAsync(device, 0, sizeof host, stream[0]));
        OK(cudaStreamSynchronize(stream[0]));
        start_put(0, 0, 1);
        OK(cudaEventRecord(event, stream[0]));
        OK(cudaStreamWaitEvent(stream[1], event, 0));
        start_put(2, 1, 1);
        OK(cudaEventRecord(event, stream[2])); /* changes nothing for stream 1 */
        start_take(1, 2, 0);
        OK(cudaStreamSynchronize(stream[1]));
        OK(cudaEventSynchronize(event));
        OK(cudaMemcpyAsync(host, device, sizeof host, cudaMemcpyDeviceToHost, stream[1]));
        assert_int_equal(host[2], 1);
        assert_int_equal(host[1], 1);
    }
    cudaEvent_t never, later;
    OK(cudaEventCreate(&never));
    OK(cudaEventCreate(&later));
    OK(cudaStreamWaitEvent(stream[0], never, 0));
    OK(cudaEventQuery(never));
    OK(cudaEventRecord(later, stream[2]));
    OK(cudaEventSynchronize(later));
    float ms = -1;
    OK(cudaEventElapsedTime(&ms, event, later));
    assert_true(ms >= 0);
    assert_int_equal(cudaEventElapsedTime(&ms, never, later), cudaErrorInvalidResourceHandle);
    OK(cudaEventDestroy(event));
    OK(cudaEventDestroy(never));
    OK(cudaEventDestroy(later));
}

/* ------------------------------------------------------------------------------------------- recordings */

void test_refused_recordings(void **)
{
    cudaEvent_t before, inside, joined;
    cudaGraph_t graph = nullptr;
    void *memory = nullptr;
    for (cudaEvent_t *e : {&before, &inside, &joined}) {
        OK(cudaEventCreateWithFlags(e, cudaEventDisableTiming));
    }
    OK(cudaEventRecord(before, stream[1]));

    /* an allocation or a wait of the host ends it */
    for (int which = 0; which < 3; which++) {
        OK(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal));
        assert_int_equal(which == 0   ? cudaMalloc(&memory, 64)
                         : which == 1 ? cudaStreamSynchronize(stream[0])
                                      : cudaMemcpyAsync(host, device, 4, cudaMemcpyDeviceToHost, stream[0]),
                         cudaErrorStreamCaptureUnsupported);
        assert_int_equal(cudaStreamEndCapture(stream[0], &graph), cudaErrorStreamCaptureInvalidated);
        assert_null(graph);
    }
    /* a wait for something outside */
    OK(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal));
    assert_int_equal(cudaStreamWaitEvent(stream[0], before, 0), cudaErrorStreamCaptureIsolation);
    assert_int_equal(cudaStreamEndCapture(stream[0], &graph), cudaErrorStreamCaptureInvalidated);
    /* a stream that does not come back */
    OK(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal));
    start_put(0, 0, 1);
    OK(cudaEventRecord(inside, stream[0]));
    OK(cudaStreamWaitEvent(stream[1], inside, 0));
    OK(cudaEventRecord(joined, stream[1]));
    OK(cudaStreamWaitEvent(stream[0], joined, 0));
    start_put(1, 1, 1);
    assert_int_equal(cudaStreamEndCapture(stream[0], &graph), cudaErrorStreamCaptureUnjoined);
    /* ended by another stream; an event of a recording is none outside */
    OK(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal));
    OK(cudaEventRecord(inside, stream[0]));
    OK(cudaStreamWaitEvent(stream[1], inside, 0));
    assert_int_equal(cudaStreamEndCapture(stream[1], &graph), cudaErrorStreamCaptureUnmatched);
    OK(cudaStreamEndCapture(stream[0], &graph));
    OK(cudaGraphDestroy(graph));
    assert_int_equal(cudaEventSynchronize(inside), cudaErrorCapturedEvent);
    assert_int_equal(cudaStreamWaitEvent(stream[2], inside, 0), cudaErrorCapturedEvent);
    assert_int_equal(cudaStreamEndCapture(stream[0], &graph), cudaErrorInvalidValue);
    for (cudaEvent_t e : {before, inside, joined}) {
        OK(cudaEventDestroy(e));
    }
    (void)cudaGetLastError();
    start_put(0, 0, 3); /* and all works as before */
    read_back();
    assert_int_equal(host[0], 3);
}

__global__ void add_one(int *to)
{
    (*to)++;
}

/* Recorded work is not done, and done once by every replay, with the arguments it was recorded with. */
void test_replays(void **)
{
    OK(cudaMemsetAsync(device, 0, sizeof host, stream[0]));
    OK(cudaStreamBeginCapture(stream[0], cudaStreamCaptureModeThreadLocal));
    ckpt_emulated_launch(add_one, 1, 1, 0, stream[0], device);
    start_take(0, 1, 0);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    OK(cudaStreamEndCapture(stream[0], &graph));
    read_back();
    assert_int_equal(host[0], 0);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    for (int seed = 0; seed < 9; seed++) {
        ckpt_emulated_schedule((uint64_t)seed);
        OK(cudaGraphLaunch(exec, stream[0]));
        OK(cudaGraphLaunch(exec, stream[0]));
        read_back();
        assert_int_equal(host[0], 2 * seed + 2);
        assert_int_equal(host[1], 2 * seed + 2);
    }
    OK(cudaGraphExecDestroy(exec));
}

/* Numbers beside multiples, of every size that it takes: in 32 bits, and in double. */
void test_quotients(void **)
{
    uint64_t random = 1;
    for (int i = 0; i < 300000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const int64_t divisor = (int64_t)(random >> (14 + i % 50)) + 1;
        random = random * 6364136223846793005u + 1442695040888963407u;
        const int64_t any = (int64_t)(random >> (14 + i / 50 % 50)), multiple = any - any % divisor;
        for (const int64_t number : {any, multiple, multiple - 1, multiple + divisor - 1}) {
            if (number >= 0 && number < (int64_t)1 << 50) {
                const quotient q = divide(number, divisor);
                assert_int_equal(q.whole, number / divisor);
                assert_int_equal(q.rest, number % divisor);
            }
        }
    }
}

} // namespace

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_device, close_device)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_indices),
        TEST(test_a_missing_barrier_shows),
        TEST(test_faults),
        TEST(test_tiles),
        TEST(test_warps),
        TEST(test_quotients),
        TEST(test_shared_memory),
        TEST(test_refused_launches),
        TEST(test_bfloat16),
        TEST(test_memory),
        TEST(test_events_order_queues),
        TEST(test_copies_are_late),
        TEST(test_event_versions),
        TEST(test_refused_recordings),
        TEST(test_replays),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
