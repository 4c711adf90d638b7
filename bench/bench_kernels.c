/* How near the CPU's kernels come to what the machine allows, op by op, in steps of networks that users train.
 *
 *     bench_kernels [-t THREADS] [-b BEFORE] [MODEL[,NAME=VALUE...]...] > TABLE
 *     bench_kernels [-t THREADS] -l > DEVICE      the peaks alone, as a file for ckpt-plan --device
 *
 * Every distinct layer of each network is measured by the profiler, and peaks by loops of this file: a multiply-add
 * that stays in registers, and a[i] = b[i] + s c[i] over as many bytes as a layer moves, because layers as small as a
 * cache find their inputs there. The limit of a layer is what the slower of the two needs for its operations and bytes,
 * as the op counts them (Williams, Waterman, Patterson, CACM 52(4), 2009); its share is limit / time. Above 1, the op
 * counts more than it does on this data: an embedding's gradient is counted whole.
 *
 *   lost   time above the limit, as a share of a step, mean over the networks: what raising this op to the limit would
 *          gain. The table is sorted by it.
 *   -b     an earlier output; its times and shares stand beside the new ones
 *
 * On a machine where others work too: -t 1, with bench/cpu_clock.c preloaded. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* syscall */
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __x86_64__
#include <immintrin.h>
#include <sys/syscall.h>
#endif

#include "core/base/clock.h"
#include "ops/device_model.h"
#include "ops/lowering/network.h"
#include "profiler/profiler.h"
#include "programs/cli/settle.h"

static const char *const usual[] = {"gpt2-124m,batch=2",
                                    "resnet50",
                                    "densenet-bc-100-12,batch=8",
                                    "mobilenetv2,batch=4",
                                    "unet",
                                    "lstm",
                                    "llama-3.2-1b,blocks=1,tokens=128,vocabulary=32000",
                                    "vit-b-16,batch=2",
                                    "byte-gpt,batch=4"};

/* ---- peaks ---- */

enum { SIZES = 14, FIRST_SIZE = 17, TRIALS = 5 }; /* triads of 2^17 = 128 KiB, 256 KiB, ... 1 GiB */

typedef struct peaks {
    double flop_per_s[2]; /* of one thread, of all */
    double flop_per_s16;  /* of products of bfloat16 summed in float32, all threads; 0: no instruction for them */
    double bytes_per_s[2][SIZES];
} peaks;

#ifdef __AVX512F__
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
enum { CHAINS = 12 }; /* enough to hide the latency of two units, few enough for 16 registers */

/* Multiply-adds of one thread; what comes back depends on all of them. */
static float multiply_add(int64_t rounds)
{
    lanes a[CHAINS], sum = {0};
    const lanes b = sum + 0.999F, c = sum + 1e-3F;
    for (int k = 0; k < CHAINS; k++) {
        a[k] = sum + (float)k;
    }
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int k = 0; k < CHAINS; k++) {
            a[k] = a[k] * b + c;
        }
    }
    for (int k = 0; k < CHAINS; k++) {
        sum += a[k];
    }
    return sum[0];
}

/* Products of pairs in registers, or of tiles; returns the operations. */
#ifdef __x86_64__
__attribute__((target("avx512f,avx512bf16"))) static double pair_products(int64_t rounds, float *out)
{
    __m512 a[CHAINS];
    const __m512bh b = (__m512bh)_mm512_set1_epi32(0x3F7F3F7F);
    for (int k = 0; k < CHAINS; k++) {
        a[k] = _mm512_set1_ps((float)k);
    }
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int k = 0; k < CHAINS; k++) {
            a[k] = _mm512_dpbf16_ps(a[k], b, b);
        }
    }
    for (int k = 1; k < CHAINS; k++) {
        a[0] = _mm512_add_ps(a[0], a[k]);
    }
    *out = _mm512_reduce_add_ps(a[0]);
    return 2.0 * 32 * CHAINS * (double)rounds;
}

/* Tiles of 16 rows of 64 bytes: two of each operand, and four sums. */
__attribute__((target("amx-tile,amx-bf16"))) static double tile_products(int64_t rounds, float *out)
{
    enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    static const uint16_t ones[ROWS * ROW_BYTES / 2] = {0x3F80};
    static _Thread_local float sum[ROWS * ROW_BYTES / 4];
    for (int i = 0; i < TILES; i++) {
        shape.row_bytes[i] = ROW_BYTES;
        shape.rows[i] = ROWS;
    }
    _tile_loadconfig(&shape);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, ones, ROW_BYTES);
    _tile_loadd(5, ones, ROW_BYTES);
    _tile_loadd(6, ones, ROW_BYTES);
    _tile_loadd(7, ones, ROW_BYTES);
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sum, ROW_BYTES);
    _tile_release();
    *out = 1 + sum[0];
    return 4.0 * 2 * ROWS * ROWS * (ROW_BYTES / 2) * (double)rounds;
}

/* Linux keeps the tiles of a process that asks. */
static bool has_tiles(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return __builtin_cpu_supports("amx-bf16") && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

static bool has_pairs(void)
{
    return __builtin_cpu_supports("avx512bf16");
}
#else
static double pair_products(int64_t rounds, float *out)
{
    return *out = (float)rounds;
}
static double tile_products(int64_t rounds, float *out)
{
    return *out = (float)rounds;
}
static bool has_tiles(void)
{
    return false;
}
static bool has_pairs(void)
{
    return false;
}
#endif

static double lane_products(int64_t rounds, float *out)
{
    *out = multiply_add(rounds);
    return 2.0 * LANES * CHAINS * (double)rounds;
}

/* The best of some trials, of all threads together. */
static double peak_flop(int threads, int64_t rounds, double (*work)(int64_t rounds, float *out))
{
    double best = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        double done = 0, sum = 0;
        const ckpt_ns start = ckpt_clock_ns();
#pragma omp parallel for num_threads(threads) reduction(+ : done, sum)
        for (int t = 0; t < threads; t++) {
            float out = 0;
            done += work(rounds, &out);
            sum += (double)out;
        }
        const double rate = done / (double)(ckpt_clock_ns() - start) * 1e9;
        best = rate > best && sum > 0 ? rate : best;
    }
    return best;
}

/* Each thread goes over its part without waiting for the others. */
static void triad(int64_t count, int64_t repeats, const float *b, const float *c, float *a, int threads)
{
#pragma omp parallel num_threads(threads)
    for (int64_t r = 0; r < repeats; r++) {
#pragma omp for simd schedule(static) nowait
        for (int64_t i = 0; i < count; i++) {
            a[i] = b[i] + 3.0F * c[i];
        }
    }
}

/* The best of some trials of about 20 ms. */
static double peak_bytes(int64_t bytes, float *memory, int threads)
{
    const int64_t count = bytes / (3 * (int64_t)sizeof(float)), repeats = 1 + (int64_t)400e6 / bytes;
    double best = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        const ckpt_ns start = ckpt_clock_ns();
        triad(count, repeats, memory, memory + count, memory + 2 * count, threads);
        const double rate = (double)(repeats * 3 * count * 4) / (double)(ckpt_clock_ns() - start) * 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

static ckpt_code measure_peaks(ckpt_device *device, peaks *p, ckpt_err *err)
{
    enum { ROUNDS = 20 * 1000 * 1000 };
    const int64_t most = INT64_C(1) << (FIRST_SIZE + SIZES - 1);
    void *memory = NULL;
    CKPT_TRY(device->api->reserve(device, most, &memory, err));
    triad(most / 12, 1, memory, (float *)memory + most / 12, (float *)memory + most / 6, device->threads);
    for (int all = device->threads > 1 ? 0 : 1; all < 2; all++) {
        const int threads = all ? device->threads : 1;
        p->flop_per_s[all] = peak_flop(threads, ROUNDS, lane_products);
        for (int k = 0; k < SIZES; k++) {
            p->bytes_per_s[all][k] = peak_bytes(INT64_C(1) << (FIRST_SIZE + k), memory, threads);
        }
    }
    device->api->release(device, memory, most);
    p->flop_per_s16 = has_tiles()   ? peak_flop(device->threads, ROUNDS / 4, tile_products)
                      : has_pairs() ? peak_flop(device->threads, ROUNDS, pair_products)
                                    : 0;
    return CKPT_OK;
}

/* Of all threads, between the sizes on each side. */
static double rate_at(const peaks *p, int64_t bytes)
{
    const double *const rate = p->bytes_per_s[1];
    int k = 0;
    while (k < SIZES - 2 && bytes > INT64_C(1) << (FIRST_SIZE + k + 1)) {
        k++;
    }
    double part = (double)bytes / (double)(INT64_C(1) << (FIRST_SIZE + k)) - 1;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return rate[k] + part * (rate[k + 1] - rate[k]);
}

/* ---- ops ---- */

enum { ENTRIES_MAX = 400, NAME_MAX_BYTES = 48, NETWORKS_MAX = 40 };

typedef struct entry {
    char op[NAME_MAX_BYTES];
    const char *direction;
    double ns, limit_ns, flop, bytes,
        by_flop_ns;                  /* sums over layers and networks; limit_ns where flop/s is the limit */
    double lost;                     /* mean over networks */
    double network_ns, most_of_step; /* of the network being measured; the largest share of a step */
    const char *most;                /* the network with that */
    double before_ns, before_share;  /* 0: unknown */
} entry;

typedef struct network_total {
    const char *name;
    double ns, limit_ns;
} network_total;

typedef struct bench {
    ckpt_device *device;
    peaks peaks;
    entry entry[ENTRIES_MAX];
    int count;
    network_total network[NETWORKS_MAX];
    int network_count;
} bench;

static const char *const direction_name[] = {"forward", "backward", "update"};

static entry *find(bench *b, const char *op, const char *direction)
{
    for (int i = 0; i < b->count; i++) {
        if (strcmp(b->entry[i].op, op) == 0 && strcmp(b->entry[i].direction, direction) == 0) {
            return &b->entry[i];
        }
    }
    if (b->count == ENTRIES_MAX) {
        return NULL;
    }
    entry *const e = &b->entry[b->count++];
    snprintf(e->op, sizeof e->op, "%s", op);
    e->direction = direction;
    e->most = "";
    return e;
}

/* Convolutions with groups are another matter than those without. */
static void name_op(const ckpt_network *network, const char *layer, const char *op, char name[NAME_MAX_BYTES])
{
    bool grouped = false;
    for (int n = 0; n < network->node_count; n++) {
        const ckpt_node *const node = &network->node[n];
        const ckpt_param *const filter = node->param_count > 0 ? node->param : NULL;
        grouped = grouped || (strcmp(node->name, layer) == 0 && strncmp(op, "conv2d", 6) == 0 && filter != NULL &&
                              filter->tensor.shape.dim[1] < node->in[0].shape.dim[1]);
    }
    snprintf(name, NAME_MAX_BYTES, "%s%s", op, grouped ? ", groups" : "");
}

/* Peaks are the best of their trials, so a layer's time is that of its fastest run: other work disturbs neither. */
static double fastest(const ckpt_timing *t)
{
    double least = (double)t->median_ns;
    for (int i = 0; t->sample_ns != NULL && i < t->repeats; i++) {
        least = (double)t->sample_ns[i] < least ? (double)t->sample_ns[i] : least;
    }
    return least;
}

static ckpt_code count_layer(bench *b, network_total *total, const char *op, int direction, const ckpt_timing *t,
                             ckpt_err *err)
{
    if (t->repeats == 0) {
        return CKPT_OK;
    }
    entry *const e = find(b, direction == CKPT_DIRECTION_UPDATE ? "update" : op, direction_name[direction]);
    if (e == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "more than %d kinds of layers", ENTRIES_MAX);
    }
    const double took = fastest(t);
    const double by_flop = (double)t->flop / b->peaks.flop_per_s[1] * 1e9;
    const double by_bytes = (double)t->moved_bytes / rate_at(&b->peaks, t->moved_bytes) * 1e9;
    const double limit = by_flop > by_bytes ? by_flop : by_bytes;
    e->ns += took;
    e->network_ns += took;
    e->limit_ns += limit;
    e->by_flop_ns += by_flop > by_bytes ? limit : 0;
    e->flop += (double)t->flop;
    e->bytes += (double)t->moved_bytes;
    e->lost += took - limit; /* ns of this network until it ends */
    total->ns += took;
    total->limit_ns += limit;
    return CKPT_OK;
}

static ckpt_code measure_network(bench *b, const char *path, const char *const *set, int set_count, ckpt_arena *arena,
                                 network_total *total, ckpt_err *err)
{
    const ckpt_model *model = NULL;
    const ckpt_network *network = NULL;
    const ckpt_device_model *roofline = NULL;
    const ckpt_lowered *lowered = NULL;
    ckpt_profile *profile = NULL;
    CKPT_TRY(ckpt_model_read(path, set, set_count, arena, &model, err));
    CKPT_TRY(ckpt_network_infer(model, b->device->threads, arena, &network, err));
    CKPT_TRY(ckpt_device_model_find("cpu", arena, &roofline, err)); /* its times are not looked at */
    CKPT_TRY(ckpt_network_lower(network, NULL, roofline, arena, &lowered, err));
    const ckpt_profiler_options options = {.spend_ns = 60 * 1000 * 1000};
    CKPT_TRY(ckpt_profile_run(b->device, lowered, &options, arena, &profile, err));
    double lost_before[ENTRIES_MAX] = {0};
    for (int i = 0; i < b->count; i++) {
        lost_before[i] = b->entry[i].lost;
        b->entry[i].network_ns = 0;
    }
    for (int i = 0; i < profile->row_count; i++) {
        const ckpt_profile_row *const row = &profile->row[i];
        const ckpt_timing *const timing[] = {&row->forward, &row->backward, &row->update};
        char op[NAME_MAX_BYTES];
        name_op(network, row->layer, row->op, op);
        for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
            CKPT_TRY(count_layer(b, total, op, d, timing[d], err));
        }
    }
    for (int i = 0; i < b->count; i++) {
        entry *const e = &b->entry[i];
        e->lost = lost_before[i] + (e->lost - lost_before[i]) / total->ns;
        if (e->network_ns / total->ns > e->most_of_step) {
            e->most_of_step = e->network_ns / total->ns;
            e->most = total->name;
        }
    }
    return CKPT_OK;
}

/* `what`: a name in models/ or a path, then settings, split by commas. */
static ckpt_code add_network(bench *b, char *what, ckpt_arena *arena, ckpt_err *err)
{
    enum { SETS_MAX = 16 };
    const char *set[SETS_MAX];
    int sets = 0;
    network_total *const total = &b->network[b->network_count];
    if (b->network_count == NETWORKS_MAX) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "more than %d networks", NETWORKS_MAX);
    }
    total->name = ckpt_arena_text(arena, what);
    char *rest = NULL;
    const char *const name = strtok_r(what, ",", &rest);
    for (const char *s = strtok_r(NULL, ",", &rest); s != NULL && sets < SETS_MAX; s = strtok_r(NULL, ",", &rest)) {
        set[sets++] = s;
    }
    const char *const path = strstr(name, ".json") != NULL ? name : ckpt_arena_format(arena, "models/%s.json", name);
    if (total->name == NULL || path == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a network's name");
    }
    fprintf(stderr, "%s\n", total->name);
    CKPT_TRY(measure_network(b, path, set, sets, arena, total, err));
    b->network_count++;
    return CKPT_OK;
}

/* ---- the page ---- */

/* Columns op, direction, time and share of an earlier page. */
static ckpt_code read_before(bench *b, const char *path, ckpt_err *err)
{
    FILE *const file = fopen(path, "r");
    if (file == NULL) {
        return CKPT_FAIL(err, CKPT_BAD_INPUT, "%s cannot be read", path);
    }
    char line[1024], op[NAME_MAX_BYTES], direction[NAME_MAX_BYTES];
    double ms = 0, share = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "| %47[^|] | %47[a-z] | %lf | %lf |", op, direction, &ms, &share) == 4) {
            op[strcspn(op, "|")] = '\0';
            op[strlen(op) - 1] = '\0'; /* the blank before the bar */
            for (int i = 0; i < b->count; i++) {
                entry *const e = &b->entry[i];
                if (strcmp(e->op, op) == 0 && strcmp(e->direction, direction) == 0) {
                    e->before_ns = ms * 1e6;
                    e->before_share = share;
                }
            }
        }
    }
    fclose(file);
    return CKPT_OK;
}

static int by_lost(const void *a, const void *b)
{
    const double x = ((const entry *)a)->lost, y = ((const entry *)b)->lost;
    return (x < y) - (x > y);
}

static void print_peaks(const bench *b)
{
    const int first = b->device->threads > 1 ? 0 : 1;
    printf("| |%s %d thread%s |\n|---|%s---|\n", first == 0 ? " 1 thread |" : "", b->device->threads,
           first == 0 ? "s" : "", first == 0 ? "---|" : "");
    if (b->peaks.flop_per_s16 > 0) {
        printf("| bfloat16 products in registers, Gflop/s |%s %.0f |\n", first == 0 ? " |" : "",
               b->peaks.flop_per_s16 / 1e9);
    }
    printf("| float32 multiply-adds in registers, Gflop/s |");
    for (int all = first; all < 2; all++) {
        printf(" %.0f |", b->peaks.flop_per_s[all] / 1e9);
    }
    for (int k = 0; k < SIZES; k++) {
        char size[CKPT_UNITS_TEXT];
        printf("\n| a = b + s c over %s, GB/s |", ckpt_bytes_show(INT64_C(1) << (FIRST_SIZE + k), size));
        for (int all = first; all < 2; all++) {
            printf(" %.1f |", b->peaks.bytes_per_s[all][k] / 1e9);
        }
    }
    printf("\n");
}

/* The last cache is taken to end where the rate has come halfway down to that of memory. */
static void print_limits(const bench *b, const char *device)
{
    const double *const rate = b->peaks.bytes_per_s[1];
    int k = 0;
    while (k < SIZES - 1 && rate[k + 1] > (rate[0] + rate[SIZES - 1]) / 2) {
        k++;
    }
    printf("{\n  \"name\": \"limits\", \"about\": \"peaks of %s, by bench_kernels -l\",\n", device);
    printf("  \"flop_per_s\": %.4g, \"flop_per_s16\": %.4g,\n", b->peaks.flop_per_s[1],
           b->peaks.flop_per_s16 > 0 ? b->peaks.flop_per_s16 : b->peaks.flop_per_s[1]);
    printf("  \"bytes_per_s\": %.4g, \"cache_bytes\": %lld, \"cache_bytes_per_s\": %.4g, \"launch_ns\": 0\n}\n",
           rate[SIZES - 1], 1LL << (FIRST_SIZE + k), rate[k]);
}

static void print_page(bench *b, const ckpt_machine *machine, bool before)
{
    printf("# The CPU's kernels against the machine's limit\n\n`%s` wrote this. %s, %s, commit %.12s, %.10s.\n\n",
           machine->command, machine->device, machine->libraries, machine->commit, machine->date);
    print_peaks(b);
    printf("\n| network | sum of its layers, ms | limit, ms | share |\n|---|---|---|---|\n");
    for (int i = 0; i < b->network_count; i++) {
        const network_total *const n = &b->network[i];
        printf("| %s | %.1f | %.1f | %.2f |\n", n->name, n->ns / 1e6, n->limit_ns / 1e6, n->limit_ns / n->ns);
    }
    printf("\nShare: limit / time. Lost: time above the limit as a share of a step, mean over the networks.\n\n");
    printf("| op | direction | ms in all steps | share of the limit |%s Gflop/s | GB/s | limit | lost | most in |\n"
           "|---|---|---|---|%s---|---|---|---|---|\n",
           before ? " before, ms | before, share |" : "", before ? "---|---|" : "");
    qsort(b->entry, (size_t)b->count, sizeof b->entry[0], by_lost);
    for (int i = 0; i < b->count; i++) {
        const entry *const e = &b->entry[i];
        printf("| %s | %s | %.3f | %.2f |", e->op, e->direction, e->ns / 1e6, e->limit_ns / e->ns);
        if (before && e->before_ns > 0) {
            printf(" %.3f | %.2f |", e->before_ns / 1e6, e->before_share);
        } else if (before) {
            printf(" | |");
        }
        printf(" %.1f | %.1f | %s | %.2f %% | %s (%.1f %%) |\n", e->flop / e->ns, e->bytes / e->ns,
               e->by_flop_ns > e->limit_ns / 2 ? "flop/s" : "bytes/s", 100 * e->lost / b->network_count, e->most,
               100 * e->most_of_step);
    }
}

static ckpt_code run(bench *b, char **what, int count, bool limits, const char *before, int argc, char **argv,
                     ckpt_arena *arena, ckpt_err *err)
{
    CKPT_TRY(measure_peaks(b->device, &b->peaks, err));
    if (limits) {
        print_limits(b, b->device->api->describe(b->device));
        return CKPT_OK;
    }
    const int usual_count = (int)(sizeof usual / sizeof *usual);
    for (int i = 0; i < (count > 0 ? count : usual_count); i++) {
        char *const mine = ckpt_arena_text(arena, count > 0 ? what[i] : usual[i]);
        if (mine == NULL) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a network's name");
        }
        CKPT_TRY(add_network(b, mine, arena, err));
    }
    if (before != NULL) {
        CKPT_TRY(read_before(b, before, err));
    }
    ckpt_machine machine = {0};
    const ckpt_device_api *const api = b->device->api;
    CKPT_TRY(ckpt_machine_read(b->device->threads, api->libraries(b->device), argc, argv, arena, &machine, err));
    machine.device = api->describe(b->device);
    print_page(b, &machine, before != NULL);
    return CKPT_OK;
}

int main(int argc, char **argv)
{
    static bench b;
    const char *before = NULL;
    bool limits = false;
    int threads = ckpt_machine_threads();
    for (int o = getopt(argc, argv, "t:b:l"); o != -1; o = getopt(argc, argv, "t:b:l")) {
        switch (o) {
        case 't': threads = (int)strtol(optarg, NULL, 10); break;
        case 'b': before = optarg; break;
        case 'l': limits = true; break;
        default: return 2;
        }
    }
    ckpt_cli_settle_threads(argv, threads, 0, 1);
    ckpt_err err = {0};
    ckpt_arena arena;
    ckpt_arena_init(&arena);
    ckpt_code code = ckpt_device_open("cpu", threads, &b.device, &err);
    code = code == CKPT_OK ? run(&b, argv + optind, argc - optind, limits, before, argc, argv, &arena, &err) : code;
    if (code != CKPT_OK) {
        fprintf(stderr, "bench_kernels: %s\n", err.msg);
    }
    ckpt_device_close(b.device);
    ckpt_arena_fini(&arena);
    return ckpt_exit_code(code);
}
