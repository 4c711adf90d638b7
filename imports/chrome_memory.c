/* The memory events of a Chrome trace.
 *
 * Two things tell what was allocated before the recording began: "Total Allocated" of the first event, and frees of
 * blocks that no event allocated. Each such block becomes an allocation at the start. The rest of the total becomes one
 * more allocation, so that the sum over time is what the recorder saw. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "imports/chrome_impl.h"

static const char *device_name(ckpt_chrome_device_id d, char text[64])
{
    if (d.type == CKPT_CHROME_CPU) {
        snprintf(text, 64, "the CPU");
    } else if (d.type == 1) {
        snprintf(text, 64, "CUDA device %" PRId64, d.number);
    } else {
        snprintf(text, 64, "device %" PRId64 " of type %" PRId64, d.number, d.type);
    }
    return text;
}

static int by_device_and_time(const void *a, const void *b)
{
    const ckpt_chrome_memory *const x = a, *const y = b;
    const int device = x->device_type != y->device_type ? ckpt_import_compare(x->device_type, y->device_type)
                                                        : ckpt_import_compare(x->device, y->device);
    const int time = device != 0 ? device : ckpt_import_compare(x->at_ns, y->at_ns);
    return time != 0 ? time : ckpt_import_compare(x->order, y->order);
}

/* The most bytes that a device held, by the recorder's totals or else the running sum. The sum may wrap: it only helps
 * to choose a device, and the timeline checks for overflow. */
static uint64_t most_bytes(const ckpt_chrome_memory *memory, int count)
{
    uint64_t sum = 0;
    uint64_t most = 0;
    for (int i = 0; i < count; i++) {
        sum += (uint64_t)memory[i].bytes;
        const uint64_t held = memory[i].total >= 0 ? (uint64_t)memory[i].total : sum;
        most = held > most && held <= INT64_MAX ? held : most;
    }
    return most;
}

void ckpt_chrome_choose_memory(ckpt_chrome_import *in)
{
    ckpt_chrome_memory *const all = in->chrome->memories.at;
    const int count = in->chrome->memories.count;
    uint64_t most = 0;
    if (count == 0) {
        return;
    }
    qsort(all, (size_t)count, sizeof *all, by_device_and_time);
    for (int begin = 0, end = 0; begin < count; begin = end) {
        while (end < count && all[end].device_type == all[begin].device_type && all[end].device == all[begin].device) {
            end++;
        }
        const uint64_t held = most_bytes(&all[begin], end - begin);
        const bool gpu = all[begin].device_type != CKPT_CHROME_CPU;
        const bool have_gpu = in->memory_count > 0 && in->memory_of.type != CKPT_CHROME_CPU;
        if (in->memory_count == 0 || (gpu && !have_gpu) || (gpu == have_gpu && held > most)) {
            most = held;
            in->memory = &all[begin];
            in->memory_count = end - begin;
            in->memory_of = (ckpt_chrome_device_id){all[begin].device_type, all[begin].device};
        }
    }
    const int others = count - in->memory_count;
    if (others > 0) {
        char name[64];
        ckpt_import_say(in->note, "%d memory events of other devices are left out: the trace has the memory of %s",
                        others, device_name(in->memory_of, name));
    }
}

static const char before_name[] = "before the recording";

static ckpt_code add_before(ckpt_chrome_import *in, int64_t address, ckpt_bytes bytes)
{
    const ckpt_event event = {
        .name = before_name,
        .layer = "",
        .stream = "compute",
        .span = CKPT_SPAN_ALLOCATE,
        .start_ns = in->first_ns,
        .end_ns = in->first_ns,
        .size_bytes = bytes,
        .address = address,
    };
    return ckpt_chrome_put(in, &event);
}

/* Adds the blocks from before the recording: those freed without an allocation, and the rest of the first total. The
 * rest gets address 0, where no allocator places a block. */
static ckpt_code add_blocks_before(ckpt_chrome_import *in)
{
    ckpt_bytes known = 0;
    int count = 0;
    for (int i = 0; i < in->memory_count; i++) {
        const ckpt_chrome_memory *const m = &in->memory[i];
        if (m->bytes < 0 && in->before[i] < 0) {
            CKPT_TRY(add_before(in, m->address, -m->bytes));
            if (!ckpt_sum(known, -m->bytes, &known)) {
                return CKPT_FAIL(in->err, CKPT_OVERFLOW, "%.200s: the sum of bytes freed does not fit 63 bits",
                                 in->chrome->scan.source);
            }
            count++;
        }
    }
    const ckpt_chrome_memory *const first = &in->memory[0];
    const ckpt_bytes total = first->total >= 0 ? first->total - first->bytes : known;
    if (total > known) {
        CKPT_TRY(add_before(in, 0, total - known));
    }
    if (total > 0 || known > 0) {
        ckpt_import_say(
            in->note, "%" PRId64 " bytes were allocated before the recording began; %d of those blocks are freed in it",
            total > known ? total : known, count);
    }
    if (total < known) {
        ckpt_import_say(in->note,
                        "the blocks freed in it are %" PRId64 " bytes more than the total at the first event says",
                        known - total);
    }
    return CKPT_OK;
}

/* The event that allocated the block of event i: a free takes its name from there. NULL: not recorded. */
static const ckpt_chrome_memory *allocation_of(const ckpt_chrome_import *in, int i)
{
    const ckpt_chrome_memory *const m = &in->memory[i];
    return m->bytes > 0 ? m : in->before[i] >= 0 ? &in->memory[in->before[i]] : NULL;
}

ckpt_code ckpt_chrome_put_memory(ckpt_chrome_import *in)
{
    int freed_twice = 0;
    for (int i = 0; i < in->memory_count; i++) {
        const ckpt_chrome_memory *const m = &in->memory[i];
        const ckpt_chrome_memory *const made = allocation_of(in, i);
        if (made != NULL && made->bytes < 0) {
            freed_twice++;
            continue;
        }
        const ckpt_chrome_place *const place = made != NULL ? &made->span->place : NULL;
        const ckpt_event event = {
            .name = place == NULL       ? before_name
                    : place->op != NULL ? ckpt_chrome_op_name(place->op, &in->scratch)
                                        : "[memory]",
            .layer = ckpt_chrome_layer_name(place, &in->scratch),
            .stream = "compute",
            .span = m->bytes > 0 ? CKPT_SPAN_ALLOCATE : CKPT_SPAN_FREE,
            .start_ns = m->at_ns,
            .end_ns = m->at_ns,
            .size_bytes = m->bytes > 0 ? m->bytes : 0,
            .address = m->address,
        };
        CKPT_TRY(ckpt_chrome_put(in, &event));
    }
    if (freed_twice > 0) {
        ckpt_import_say(in->note, "%d frees of blocks that were freed already are left out", freed_twice);
    }
    return CKPT_OK;
}

ckpt_code ckpt_chrome_put_before(ckpt_chrome_import *in)
{
    if (in->memory_count == 0) {
        return CKPT_OK;
    }
    ckpt_arena *const arena = &in->chrome->arena;
    int64_t *const address = CKPT_NEW(arena, int64_t, in->memory_count);
    if (address == NULL) {
        return CKPT_FAIL(in->err, CKPT_NO_MEMORY, "%.200s: no memory for %d memory events", in->chrome->scan.source,
                         in->memory_count);
    }
    for (int i = 0; i < in->memory_count; i++) {
        address[i] = in->memory[i].address;
    }
    CKPT_TRY_WHILE(in->err, ckpt_timeline_previous(address, in->memory_count, arena, &in->before, in->err),
                   "importing %.200s", in->chrome->scan.source);
    return add_blocks_before(in);
}

void ckpt_chrome_check_totals(const ckpt_chrome_import *in)
{
    int said = 0;
    int wrong = 0;
    uint64_t sum = 0;
    for (int i = 0; i < in->memory_count; i++) {
        const ckpt_chrome_memory *const m = &in->memory[i];
        sum = i == 0 && m->total >= 0 ? (uint64_t)m->total : sum + (uint64_t)m->bytes;
        said += m->total >= 0;
        wrong += m->total >= 0 && (uint64_t)m->total != sum;
    }
    if (wrong > 0) {
        ckpt_import_say(in->note, "the recorder's own totals differ from the sum of its events at %d of %d", wrong,
                        said);
    }
}
