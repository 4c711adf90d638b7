/* Trials of a library's algorithms (trial.h). The device sums all bits of a result as integers, in any order; the host
 * compares some thousand of its values. */
#include "kernels/cuda/device.cuh"

extern "C" {
#include "kernels/cuda/trial.h"
}

namespace
{

enum {
    THREADS = 256,
    DIGEST_BLOCKS = 64,
    DIGESTS = DIGEST_BLOCKS * THREADS, /* threads, each of which adds a part */
    SAMPLES = 8 * 1024,                /* values that are compared */
    RUNS_LEAST = 3,
    RUNS_MOST = 7,
};
const ckpt_ns spend_ns = 20 * 1000 * 1000; /* for the timed runs of a candidate, after the first RUNS_LEAST */

/* The digest and samples of a result. */
struct trial_look {
    uint64_t digest[DIGESTS];
    float sample[SAMPLES];
};

/* The host's side of a trial. */
struct trial_work {
    trial_look *on_device;
    trial_look first, second; /* of the current candidate */
    trial_look reference;     /* of the first candidate that gave the same bits twice */
    bool referred;
    cudaEvent_t event[2];
};

__device__ uint64_t trial_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u; /* splitmix64, Steele et al. 2014 */
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

__device__ uint32_t trial_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Adds every element, mixed with its position, to digest[], which has one element per thread. A bfloat16 counts as its
 * float32 value. */
template <typename T>
__global__ void trial_digest(int64_t rows, int64_t columns, int64_t stride, const T *from, uint64_t *digest)
{
    const int64_t count = rows * columns, step = (int64_t)gridDim.x * blockDim.x;
    const int64_t mine = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t sum = digest[mine];
    for (int64_t k = mine; k < count; k += step) {
        const float value = to_float(from[k / columns * stride + k % columns]);
        sum += trial_mix((uint64_t)k << 32 ^ trial_bits(value));
    }
    digest[mine] = sum;
}

/* sample[i] = an element of each of `wanted` equal parts; wanted <= rows * columns. */
template <typename T>
__global__ void trial_sample(int64_t rows, int64_t columns, int64_t stride, const T *from, int64_t wanted,
                             float *sample)
{
    const int64_t count = rows * columns, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < wanted; i += step) {
        const int64_t part = count / wanted, k = i * part + i % part;
        sample[i] = to_float(from[k / columns * stride + k % columns]);
    }
}

template <typename T>
void start_look(const ckpt_cuda *cuda, const ckpt_trial_result &r, trial_look *look, int64_t offset, int64_t wanted)
{
    const T *const from = (const T *)r.at;
    const int64_t count = r.rows * r.columns, samples = count < wanted ? count : wanted;
    const int64_t blocks = (count + THREADS - 1) / THREADS;
    const int digests = (int)(blocks < DIGEST_BLOCKS ? blocks : (int64_t)DIGEST_BLOCKS);
    CKPT_LAUNCH(cuda, trial_digest<T>, digests, THREADS, 0, r.rows, r.columns, r.stride, from, look->digest);
    CKPT_LAUNCH(cuda, trial_sample<T>, (int)((samples + THREADS - 1) / THREADS), THREADS, 0, r.rows, r.columns,
                r.stride, from, samples, look->sample + offset);
}

/* Two results share the samples. */
int64_t samples_of(const ckpt_trial *trial)
{
    return trial->result[1].at == NULL ? SAMPLES : SAMPLES / 2;
}

/* One run on zeroed results, so that a run that adds gives the same result each time. */
ckpt_code run_and_look(const ckpt_trial *trial, trial_work *work, int candidate, trial_look *found, ckpt_err *err)
{
    ckpt_cuda *const cuda = trial->cuda;
    const ckpt_device_api *const api = cuda->device.api;
    for (const ckpt_trial_result &r : trial->result) {
        if (r.at != NULL) {
            CKPT_TRY(api->fill(&cuda->device, r.at, 0,
                               ((r.rows - 1) * r.stride + r.columns) * ckpt_dtype_bytes(r.dtype), err));
        }
    }
    CKPT_TRY(api->fill(&cuda->device, work->on_device, 0, sizeof *work->on_device, err));
    CKPT_TRY(trial->run(trial->self, candidate, err));
    for (int k = 0; k < CKPT_TRIAL_RESULTS; k++) {
        const ckpt_trial_result &r = trial->result[k];
        if (r.at != NULL) {
            CKPT_BY_DTYPE(r.dtype, start_look, cuda, r, work->on_device, k * samples_of(trial), samples_of(trial));
        }
    }
    CKPT_TRY(ckpt_cuda_launched("looking at a candidate's result", err));
    return api->download(&cuda->device, found, work->on_device, sizeof *found, err);
}

/* Compares relative to the largest value: two orders of adding `terms` products differ by about the square root of
 * `terms` times float32's rounding. Both bfloat16 results are rounded once more, but hardly ever to different numbers:
 * this may hide a missing term in one element, but not in all. NaN differs from everything. */
bool same_result(const ckpt_trial *trial, const ckpt_trial_result &r, int64_t count, const float *a, const float *b)
{
    float most = 0;
    for (int64_t i = 0; i < count; i++) {
        most = fmaxf(most, fabsf(b[i]));
    }
    const double order = (double)most * ((16 + sqrt((double)trial->terms)) / (1 << 20) + trial->inside);
    const double rounding = r.dtype == CKPT_BFLOAT16 ? 1.0 / 128 : 0;
    int64_t apart = 0;
    for (int64_t i = 0; i < count; i++) {
        const double distance = fabs((double)a[i] - (double)b[i]);
        if (!(distance <= order + rounding * fabs((double)b[i]))) {
            return false;
        }
        apart += distance > order;
    }
    return apart <= count / 16;
}

bool same_values(const ckpt_trial *trial, const trial_look &a, const trial_look &b)
{
    const int64_t each = samples_of(trial);
    for (int k = 0; k < CKPT_TRIAL_RESULTS && trial->result[k].at != NULL; k++) {
        const ckpt_trial_result &r = trial->result[k];
        const int64_t all = r.rows * r.columns;
        if (!same_result(trial, r, all < each ? all : each, a.sample + k * each, b.sample + k * each)) {
            return false;
        }
    }
    return true;
}

void refuse(const ckpt_trial *trial, ckpt_tuning *tuning, int candidate, const char *why)
{
    tuning->refused++;
    (void)snprintf(tuning->refusal, sizeof tuning->refusal, "candidate %d of %d of a %s: %.180s", candidate,
                   trial->count, trial->what, why);
}

ckpt_code check(const ckpt_trial *trial, trial_work *work, ckpt_tuning *tuning, int candidate, bool *right,
                ckpt_err *err)
{
    ckpt_err why = {};
    ckpt_code code = run_and_look(trial, work, candidate, &work->first, &why);
    code = code == CKPT_OK ? run_and_look(trial, work, candidate, &work->second, &why) : code;
    *right = false;
    if (code == CKPT_NO_MEMORY) {
        return CKPT_FAIL(err, code, "%s", why.msg);
    }
    if (code != CKPT_OK) {
        refuse(trial, tuning, candidate, why.msg);
        return CKPT_OK;
    }
    if (memcmp(work->first.digest, work->second.digest, sizeof work->first.digest) != 0) {
        refuse(trial, tuning, candidate, "another run gave other bits");
        return CKPT_OK;
    }
    if (!work->referred) {
        work->reference = work->first;
        work->referred = true;
    }
    *right = same_values(trial, work->first, work->reference);
    if (!*right) {
        refuse(trial, tuning, candidate, "another result than the candidates before it");
    }
    return CKPT_OK;
}

ckpt_code time_once(const ckpt_trial *trial, const ckpt_tuning *tuning, const cudaEvent_t event[2], int candidate,
                    ckpt_ns *time, ckpt_err *err)
{
    ckpt_cuda *const cuda = trial->cuda;
    const cudaStream_t compute = cuda->stream[CKPT_STREAM_COMPUTE];
    float milliseconds = 0;
    if (tuning->flush != NULL) {
        CKPT_TRY(cuda->device.api->fill(&cuda->device, tuning->flush, 0, tuning->flush_bytes, err));
    }
    CKPT_TRY(ckpt_cuda_check(cudaEventRecord(event[0], compute), "cudaEventRecord", err));
    CKPT_TRY(trial->run(trial->self, candidate, err));
    CKPT_TRY(ckpt_cuda_check(cudaEventRecord(event[1], compute), "cudaEventRecord", err));
    CKPT_TRY(ckpt_cuda_check(cudaEventSynchronize(event[1]), "cudaEventSynchronize", err));
    CKPT_TRY(ckpt_cuda_check(cudaEventElapsedTime(&milliseconds, event[0], event[1]), "cudaEventElapsedTime", err));
    *time = (ckpt_ns)((double)milliseconds * 1e6);
    return CKPT_OK;
}

/* `best`: the best time so far, < 0: none. A candidate that takes twice as long is dropped after one run. */
ckpt_code time_runs(const ckpt_trial *trial, const ckpt_tuning *tuning, const cudaEvent_t event[2], int candidate,
                    ckpt_ns best, ckpt_ns *took, ckpt_err *err)
{
    int64_t time[RUNS_MOST] = {};
    ckpt_ns spent = 0;
    int runs = 0;
    while (runs < RUNS_MOST && (runs < RUNS_LEAST || spent < spend_ns) &&
           (runs != 1 || best < 0 || time[0] / 2 <= best)) {
        CKPT_TRY(time_once(trial, tuning, event, candidate, &time[runs], err));
        spent += time[runs++];
    }
    *took = ckpt_median(time, runs, NULL);
    return CKPT_OK;
}

ckpt_code make_events(cudaEvent_t event[2], ckpt_err *err)
{
    for (int k = 0; k < 2; k++) {
        CKPT_TRY(ckpt_cuda_check(cudaEventCreate(&event[k]), "cudaEventCreate", err));
    }
    return CKPT_OK;
}

void destroy_events(const cudaEvent_t event[2])
{
    for (int k = 0; k < 2; k++) {
        if (event[k] != NULL) {
            (void)cudaEventDestroy(event[k]);
        }
    }
}

/* Another than the first must be more than one percent faster: bits should not change without a gain. */
ckpt_code try_all(const ckpt_trial *trial, trial_work *work, ckpt_tuning *tuning, int *fastest, ckpt_ns *took,
                  ckpt_err *err)
{
    ckpt_ns first = 0, best = -1;
    *fastest = 0;
    for (int k = 0; k < trial->count; k++) {
        bool right = false;
        ckpt_ns time = 0;
        CKPT_TRY(check(trial, work, tuning, k, &right, err));
        if (!right) {
            continue;
        }
        CKPT_TRY(time_runs(trial, tuning, work->event, k, best, &time, err));
        first = k == 0 ? time : first;
        if (best < 0 || time < best - best / 100) {
            best = time;
            *fastest = k;
        }
    }
    *took = best;
    tuning->tuned++;
    tuning->changed += *fastest != 0;
    tuning->candidates += trial->count;
    best = best < 0 ? 0 : best;
    tuning->first_ns += first > 0 ? first : best;
    tuning->fastest_ns += best;
    return CKPT_OK;
}

ckpt_code with_device_memory(const ckpt_trial *trial, trial_work *work, ckpt_tuning *tuning, int *fastest,
                             ckpt_ns *took, ckpt_err *err)
{
    ckpt_device *const device = &trial->cuda->device;
    void *base = NULL;
    CKPT_TRY(device->api->reserve(device, sizeof *work->on_device, &base, err));
    work->on_device = (trial_look *)base;
    ckpt_code code = make_events(work->event, err);
    code = code == CKPT_OK ? try_all(trial, work, tuning, fastest, took, err) : code;
    destroy_events(work->event);
    device->api->release(device, base, sizeof *work->on_device);
    return code;
}

} // namespace

extern "C" ckpt_code ckpt_trial_run(const ckpt_trial *trial, ckpt_tuning *tuning, int *fastest, ckpt_ns *took,
                                    ckpt_err *err)
{
    trial_work *const work = (trial_work *)ckpt_memory_get(sizeof *work);
    if (work == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "%zu bytes to time algorithms", sizeof *work);
    }
    const ckpt_code code = with_device_memory(trial, work, tuning, fastest, took, err);
    ckpt_memory_put(work);
    return code;
}

extern "C" ckpt_code ckpt_trial_time(const ckpt_trial *trial, const ckpt_tuning *tuning, int candidate, ckpt_ns *took,
                                     ckpt_err *err)
{
    cudaEvent_t event[2] = {};
    ckpt_code code = make_events(event, err);
    code = code == CKPT_OK ? time_runs(trial, tuning, event, candidate, -1, took, err) : code;
    destroy_events(event);
    return code;
}
