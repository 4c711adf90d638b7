/* Devices as the roofline model sees them.
 *
 * The rates of the CPU are fitted to recorded profiles. Those of the GPUs are the makers' data sheets times fractions
 * that we assume and have not measured: 0.7 of the float32 rate without tensor cores and of the bfloat16 rate with them
 * (dense, sums in float32: where a sheet gives the rate with sparsity, half of it), 0.8 of the memory bandwidth, 0.8 of
 * one direction of the link, 5 us per launch. V100 and T4 have no bfloat16 arithmetic: their float32 rate. The RTX 3060
 * is in no table of NVIDIA's white papers; GeForce cards of its generation do twice their float32 rate. These rates
 * rank layers well and predict seconds roughly; a profile replaces them. */
#include "ops/device_model.h"

#include <string.h>

#include "core/json/json.h"
#include "ops/device_cpu_impl.h"
#include "ops/op.h"

#define FLOP_FRACTION   0.7 /* assumed */
#define MEMORY_FRACTION 0.8
#define LINK_FRACTION   0.8
#define LAUNCH_NS       5000

#define GPU(tera_flop, tera_flop16, memory_gb, giga_bytes, link_gb)                                                    \
    .gpu = true, .memory_bytes = (ckpt_bytes)(memory_gb)*1000000000, .sheet_flop_per_s = (tera_flop)*1e12,             \
    .sheet_flop_per_s16 = (tera_flop16)*1e12, .sheet_bytes_per_s = (giga_bytes)*1e9,                                   \
    .flop_per_s = FLOP_FRACTION * (tera_flop)*1e12, .flop_per_s16 = FLOP_FRACTION * (tera_flop16)*1e12,                \
    .bytes_per_s = MEMORY_FRACTION * (giga_bytes)*1e9, .link_bytes_per_s = (int64_t)(LINK_FRACTION * (link_gb)*1e9),   \
    .launch_ns = LAUNCH_NS

const ckpt_device_model ckpt_device_models[] = {
    {.name = "cpu",
     .about = "two cores of an AMD EPYC (Zen 4): 2 cores x 3.7 GHz x 32 float32 operations (AVX-512 in two halves), 64 "
              "bytes a cycle and core between second and third level of cache; rates fitted to recorded profiles of 16 "
              "networks (traces/cpu-2-threads/profiles)",
     .memory_bytes = (ckpt_bytes)16 * 1000000000,
     .sheet_flop_per_s = 2.368e11,
     .sheet_flop_per_s16 = 2.368e11,
     .sheet_bytes_per_s = 4.736e11,
     CPU_FITTED},
    {.name = "h200",
     .cuda_name = "NVIDIA H200",
     .about = "NVIDIA H200 SXM, data sheet: 67 TFLOPS float32, 989.5 bfloat16, 141 GB at 4.8 TB/s, PCIe 5.0 x16",
     GPU(67.0, 989.5, 141, 4800, 64)},
    {.name = "h100",
     .cuda_name = "NVIDIA H100 80GB HBM3",
     .about = "NVIDIA H100 SXM5, data sheet: 67 TFLOPS float32, 989.5 bfloat16, 80 GB at 3.35 TB/s, PCIe 5.0 x16",
     GPU(67.0, 989.5, 80, 3350, 64)},
    {.name = "a100",
     .cuda_name = "NVIDIA A100-SXM4-80GB",
     .about = "NVIDIA A100 80GB SXM4, data sheet: 19.5 TFLOPS float32, 312 bfloat16, 80 GB at 2.039 TB/s, PCIe 4.0 x16",
     GPU(19.5, 312.0, 80, 2039, 32)},
    {.name = "a100-40gb",
     .cuda_name = "NVIDIA A100-SXM4-40GB",
     .about = "NVIDIA A100 40GB SXM4, data sheet: 19.5 TFLOPS float32, 312 bfloat16, 40 GB at 1.555 TB/s, PCIe 4.0 x16",
     GPU(19.5, 312.0, 40, 1555, 32)},
    {.name = "l40s",
     .cuda_name = "NVIDIA L40S",
     .about = "NVIDIA L40S, data sheet: 91.6 TFLOPS float32, 362.05 bfloat16, 48 GB at 864 GB/s, PCIe 4.0 x16",
     GPU(91.6, 362.05, 48, 864, 32)},
    {.name = "a10",
     .cuda_name = "NVIDIA A10",
     .about = "NVIDIA A10, data sheet: 31.2 TFLOPS float32, 125 bfloat16, 24 GB at 600 GB/s, PCIe 4.0 x16",
     GPU(31.2, 125.0, 24, 600, 32)},
    {.name = "rtx4090",
     .cuda_name = "NVIDIA GeForce RTX 4090",
     .about = "GeForce RTX 4090, specification: 82.6 TFLOPS float32, 165.2 bfloat16, 24 GB at 1008 GB/s, PCIe 4.0 x16",
     GPU(82.6, 165.2, 24, 1008, 32)},
    {.name = "rtx3090",
     .cuda_name = "NVIDIA GeForce RTX 3090",
     .about = "GeForce RTX 3090, specification: 35.6 TFLOPS float32, 71 bfloat16, 24 GB at 936 GB/s, PCIe 4.0 x16",
     GPU(35.6, 71.0, 24, 936, 32)},
    {.name = "rtx3060",
     .cuda_name = "NVIDIA GeForce RTX 3060",
     .about = "GeForce RTX 3060, specification: 12.7 TFLOPS float32, 25.4 bfloat16, 12 GB at 360 GB/s, PCIe 4.0 x16",
     GPU(12.7, 25.4, 12, 360, 32)},
    {.name = "v100",
     .cuda_name = "Tesla V100-SXM2-32GB",
     .about = "NVIDIA V100 SXM2, data sheet: 15.7 TFLOPS float32, 32 GB at 900 GB/s, PCIe 3.0 x16",
     GPU(15.7, 15.7, 32, 900, 16)},
    {.name = "t4",
     .cuda_name = "Tesla T4",
     .about = "NVIDIA T4, data sheet: 8.1 TFLOPS float32, 16 GB at 320 GB/s, PCIe 3.0 x16",
     GPU(8.1, 8.1, 16, 320, 16)},
    {0},
};

static ckpt_code read_rate(const ckpt_item *root, const char *key, double *rate, ckpt_err *err)
{
    ckpt_item item;
    CKPT_TRY(ckpt_item_need(root, key, &item, err));
    CKPT_TRY(ckpt_item_real(&item, rate, err));
    if (!(*rate > 0)) {
        return ckpt_item_fail(&item, err, "\"%s\" is %g, wanted a number above 0", key, *rate);
    }
    return CKPT_OK;
}

static ckpt_code read_optional(const ckpt_item *root, const char *key, double *rate, ckpt_err *err)
{
    ckpt_item item;
    return ckpt_item_find(root, key, &item) ? read_rate(root, key, rate, err) : CKPT_OK;
}

static ckpt_code read_int(const ckpt_item *root, const char *key, int64_t *value, ckpt_err *err)
{
    ckpt_item item;
    return ckpt_item_find(root, key, &item) ? ckpt_item_int(&item, 0, INT64_MAX, value, err) : CKPT_OK;
}

static ckpt_code read_text(const ckpt_item *root, const char *key, ckpt_arena *out, const char **text, ckpt_err *err)
{
    ckpt_item item;
    return ckpt_item_find(root, key, &item) ? ckpt_item_text(&item, out, text, err) : CKPT_OK;
}

static ckpt_code read_factor(const ckpt_item *op, ckpt_arena *out, ckpt_op_factor *factor, ckpt_err *err)
{
    static const char *const names[CKPT_DIRECTION_COUNT] = {"forward", "backward", "update"};
    if (strcmp(op->key, "update") != 0 && ckpt_op_find(op->key) == NULL) {
        return ckpt_item_fail(op, err, "no op \"%.40s\": wanted one of ckpt-graph --list-ops, or update", op->key);
    }
    factor->op = ckpt_arena_text(out, op->key);
    if (factor->op == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the name of an op");
    }
    CKPT_TRY(ckpt_item_object(op, err));
    for (int d = 0; d < CKPT_DIRECTION_COUNT; d++) {
        CKPT_TRY(read_optional(op, names[d], &factor->times[d], err));
    }
    return CKPT_OK;
}

static ckpt_code read_factors(const ckpt_item *root, ckpt_arena *out, ckpt_device_model *device, ckpt_err *err)
{
    ckpt_item ops, op;
    if (!ckpt_item_find(root, "op_factors", &ops)) {
        return CKPT_OK;
    }
    CKPT_TRY(ckpt_item_object(&ops, err));
    ckpt_op_factor *const factor = CKPT_NEW(out, ckpt_op_factor, ckpt_item_count(&ops) + 1);
    if (factor == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for the factors of %d ops", ckpt_item_count(&ops));
    }
    int count = 0;
    for (int at = 0; ckpt_item_next(&ops, &at, &op);) {
        CKPT_TRY(read_factor(&op, out, &factor[count++], err));
    }
    device->factor = factor;
    return CKPT_OK;
}

static ckpt_code read_fields(const ckpt_item *root, const char *path, ckpt_arena *out, ckpt_device_model *device,
                             ckpt_err *err)
{
    ckpt_item item;
    device->launch_ns = 5000;
    CKPT_TRY(read_rate(root, "flop_per_s", &device->flop_per_s, err));
    device->flop_per_s16 = device->flop_per_s;
    CKPT_TRY(read_optional(root, "flop_per_s16", &device->flop_per_s16, err));
    if (ckpt_item_find(root, "gpu", &item)) {
        CKPT_TRY(ckpt_item_bool(&item, &device->gpu, err));
    }
    CKPT_TRY(read_rate(root, "bytes_per_s", &device->bytes_per_s, err));
    device->sheet_flop_per_s = device->flop_per_s;
    device->sheet_flop_per_s16 = device->flop_per_s16;
    device->sheet_bytes_per_s = device->bytes_per_s;
    CKPT_TRY(read_optional(root, "sheet_flop_per_s", &device->sheet_flop_per_s, err));
    CKPT_TRY(read_optional(root, "sheet_flop_per_s16", &device->sheet_flop_per_s16, err));
    CKPT_TRY(read_optional(root, "sheet_bytes_per_s", &device->sheet_bytes_per_s, err));
    CKPT_TRY(read_int(root, "cache_bytes", &device->cache_bytes, err));
    if (device->cache_bytes > 0) {
        CKPT_TRY(read_rate(root, "cache_bytes_per_s", &device->cache_bytes_per_s, err));
    }
    CKPT_TRY(read_factors(root, out, device, err));
    CKPT_TRY(read_int(root, "memory_bytes", &device->memory_bytes, err));
    CKPT_TRY(read_int(root, "launch_ns", &device->launch_ns, err));
    CKPT_TRY(read_int(root, "link_bytes_per_s", &device->link_bytes_per_s, err));
    CKPT_TRY(read_text(root, "name", out, &device->name, err));
    CKPT_TRY(read_text(root, "about", out, &device->about, err));
    if (device->name == NULL) {
        device->name = ckpt_arena_text(out, path);
    }
    if (device->about == NULL) {
        device->about = ckpt_arena_text(out, path);
    }
    if (device->name == NULL || device->about == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "device model of %s", path);
    }
    return CKPT_OK;
}

ckpt_code ckpt_device_model_item(const ckpt_item *root, ckpt_arena *out, const ckpt_device_model **device,
                                 ckpt_err *err)
{
    const char *const source = ckpt_json_source(root->json);
    ckpt_device_model *const read = CKPT_NEW(out, ckpt_device_model, 1);
    if (read == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "device model of %s", source);
    }
    CKPT_TRY(read_fields(root, source, out, read, err));
    *device = read;
    return CKPT_OK;
}

static ckpt_code read_device(const char *path, ckpt_arena *out, const ckpt_device_model **device, ckpt_err *err)
{
    ckpt_json *json = NULL;
    ckpt_item root;
    CKPT_TRY(ckpt_json_open(path, NULL, &json, &root, err));
    const ckpt_code code = ckpt_device_model_item(&root, out, device, err);
    ckpt_json_close(json);
    return code;
}

ckpt_code ckpt_device_model_find(const char *name_or_path, ckpt_arena *out, const ckpt_device_model **device,
                                 ckpt_err *err)
{
    for (const ckpt_device_model *model = ckpt_device_models; model->name != NULL; model++) {
        if (strcmp(model->name, name_or_path) == 0) {
            *device = model;
            return CKPT_OK;
        }
    }
    if (strpbrk(name_or_path, "./") != NULL) {
        return read_device(name_or_path, out, device, err);
    }
    char names[256] = "";
    for (const ckpt_device_model *model = ckpt_device_models; model->name != NULL; model++) {
        const size_t used = strlen(names);
        if (used + strlen(model->name) + 3 < sizeof names) {
            strcat(names, used > 0 ? ", " : "");
            strcat(names, model->name);
        }
    }
    return CKPT_FAIL(err, CKPT_BAD_INPUT, "no device \"%s\": wanted one of %s, or a JSON file", name_or_path, names);
}

const ckpt_device_model *ckpt_device_model_of(const char *cuda_name)
{
    for (const ckpt_device_model *model = ckpt_device_models; model->name != NULL; model++) {
        if (model->cuda_name != NULL && strcmp(model->cuda_name, cuda_name) == 0) {
            return model;
        }
    }
    return NULL;
}

/* A GPU describes itself as "cuda:0: NVIDIA H200, 132 multiprocessors, ...", the CPU as it did for the fit. */
const ckpt_device_model *ckpt_device_model_of_machine(const ckpt_machine *machine)
{
    for (const ckpt_device_model *model = ckpt_device_models; model->name != NULL; model++) {
        const bool cpu = !machine->gpu && model->fitted_to != NULL && strcmp(model->fitted_to, machine->device) == 0;
        const char *const name =
            machine->gpu && model->cuda_name != NULL ? strstr(machine->device, model->cuda_name) : NULL;
        if (cpu || (name != NULL && name[strlen(model->cuda_name)] == ',')) {
            return model;
        }
    }
    return NULL;
}

double ckpt_sheet_ns(const ckpt_device_model *device, ckpt_dtype dtype, ckpt_flop flop, ckpt_bytes moved)
{
    const double rate = dtype == CKPT_BFLOAT16 ? device->sheet_flop_per_s16 : device->sheet_flop_per_s;
    const double compute = 1e9 * (double)flop / rate;
    const double memory = 1e9 * (double)moved / device->sheet_bytes_per_s;
    return compute > memory ? compute : memory;
}

static double factor_of(const ckpt_device_model *device, const char *op, ckpt_direction direction)
{
    const char *const name = direction == CKPT_DIRECTION_UPDATE ? "update" : op;
    for (const ckpt_op_factor *factor = device->factor; name != NULL && factor != NULL && factor->op != NULL;
         factor++) {
        if (strcmp(factor->op, name) == 0) {
            return factor->times[direction] > 0 ? factor->times[direction] : 1;
        }
    }
    return 1;
}

/* An op that moves less than the cache holds finds all of it there. Of more bytes a fraction of cache_bytes / moved is
 * found, as in a cache with random replacement. */
static double moving_s(const ckpt_device_model *device, ckpt_bytes moved)
{
    const ckpt_bytes cached = moved < device->cache_bytes ? moved : device->cache_bytes;
    const double from_memory = (double)(moved - cached) / device->bytes_per_s;
    return cached > 0 ? from_memory + (double)cached / device->cache_bytes_per_s : from_memory;
}

ckpt_ns ckpt_roofline_ns(const ckpt_device_model *device, const char *op, ckpt_direction direction, ckpt_dtype dtype,
                         ckpt_flop flop, ckpt_bytes moved)
{
    const double compute = (double)flop / (dtype == CKPT_BFLOAT16 ? device->flop_per_s16 : device->flop_per_s);
    const double memory = moving_s(device, moved);
    const double busy = factor_of(device, op, direction) * (compute > memory ? compute : memory);
    const double ns = (double)device->launch_ns + 1e9 * busy;
    /* Beyond a century the sum over the step overflows soon enough, and the graph check says so. */
    const double limit = 4e18;
    return ns < limit ? (ckpt_ns)ns : (ckpt_ns)limit;
}
