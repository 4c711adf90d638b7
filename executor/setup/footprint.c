/* What the whole process takes on a device. */
#include "executor/setup/footprint.h"

ckpt_code ckpt_footprint_read(ckpt_device *device, ckpt_bytes static_bytes, ckpt_bytes arena_bytes,
                              ckpt_footprint *footprint, ckpt_err *err)
{
    ckpt_footprint found = {.static_bytes = static_bytes, .arena_bytes = arena_bytes};
    CKPT_TRY(device->api->memory(device, &found.device, err));
    *footprint = found;
    return CKPT_OK;
}

ckpt_code ckpt_footprint_check(const ckpt_footprint *footprint, ckpt_bytes budget, ckpt_bytes reserve, ckpt_err *err)
{
    const ckpt_device_memory *const device = &footprint->device;
    ckpt_bytes beside = reserve, planned = 0, sum = 0;
    const bool fits = (reserve >= 0 || ckpt_sum(device->context, device->libraries, &beside)) &&
                      ckpt_sum(footprint->static_bytes, footprint->arena_bytes, &planned) &&
                      ckpt_sum(planned, beside, &sum) && sum <= budget;
    if (fits) {
        return CKPT_OK;
    }
    char wanted[CKPT_UNITS_TEXT], statics[CKPT_UNITS_TEXT], arena[CKPT_UNITS_TEXT], rest[CKPT_UNITS_TEXT];
    if (beside >= budget || footprint->static_bytes >= budget - beside) {
        return CKPT_FAIL(
            err, CKPT_NO_MEMORY,
            "a budget of %s for the whole process: no plan fits, %s of %s and the static block of %s leave "
            "nothing for an arena",
            ckpt_bytes_show(budget, wanted), reserve >= 0 ? "a reserve" : "libraries and context",
            ckpt_bytes_show(beside, rest), ckpt_bytes_show(footprint->static_bytes, statics));
    }
    return CKPT_FAIL(err, CKPT_NO_MEMORY,
                     "a budget of %s for the whole process does not hold static %s + arena %s + %s of %s; ask "
                     "ckpt-plan --budget %lld for one that fits",
                     ckpt_bytes_show(budget, wanted), ckpt_bytes_show(footprint->static_bytes, statics),
                     ckpt_bytes_show(footprint->arena_bytes, arena),
                     reserve >= 0 ? "a reserve" : "libraries and context", ckpt_bytes_show(beside, rest),
                     (long long)(budget - beside));
}

void ckpt_footprint_show(const ckpt_footprint *footprint, ckpt_text *text)
{
    const ckpt_device_memory *const device = &footprint->device;
    char a[CKPT_UNITS_TEXT], b[CKPT_UNITS_TEXT];
    ckpt_text_add(text, "static %s + arena %s", ckpt_bytes_show(footprint->static_bytes, a),
                  ckpt_bytes_show(footprint->arena_bytes, b));
    if (device->total > 0) {
        ckpt_text_add(text, ", libraries %s, context %s", ckpt_bytes_show(device->libraries, a),
                      ckpt_bytes_show(device->context, b));
        ckpt_text_add(text, "; the device says %s free of %s", ckpt_bytes_show(device->free, a),
                      ckpt_bytes_show(device->total, b));
    }
}

void ckpt_footprint_json(const ckpt_footprint *footprint, const char *key, ckpt_json_writer *w)
{
    const ckpt_device_memory *const device = &footprint->device;
    ckpt_json_begin_object(w, key, CKPT_JSON_TIGHT);
    CKPT_JSON_INTS(w, {"static_bytes", footprint->static_bytes}, {"arena_bytes", footprint->arena_bytes},
                   {"libraries_bytes", device->libraries}, {"context_bytes", device->context},
                   {"free_bytes", device->free}, {"total_bytes", device->total});
    ckpt_json_end(w);
}
