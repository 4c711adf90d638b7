/* Device memory for a framework: a step that repeats is served from one block.
 *
 *     recording   every allocation of the step comes from the device; when it ends, those that were freed are packed
 *     serving     the i-th allocation that is like the recorded one lies where that was packed
 *
 * A framework may do something else than last time. So a place is given only if nothing live touches it, and what is not
 * expected comes from the device. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/handles_impl.h"
#include "planner/placement/allocate.h"

enum {
    ALIGNMENT = 512, /* of addresses and sizes, as PyTorch's own allocator has it */
    LOOK_AHEAD = 16, /* recorded allocations that may be missing this time */
    FIRST_CAPACITY = 64
};

typedef struct recorded {
    ckpt_bytes bytes;
    int from, to;      /* number of the event that made it, and of the last before it was freed */
    ckpt_bytes offset; /* -1: it outlives the step */
} recorded;

struct ckpt_step_arena {
    recorded *slot;
    int count, capacity, events;
    bool ready;       /* recorded and packed */
    ckpt_bytes bytes; /* of the block it needs */
    ckpt_step_arena_counts counts;
};

/* What is live of a recording, or in the block; sorted by address. */
typedef struct live {
    char *address;
    ckpt_bytes bytes;
    int slot; /* of a recording; else -1 */
} live;

static struct device_memory {
    pthread_mutex_t lock;
    int32_t (*take)(void **address, size_t bytes, void *stream);
    int32_t (*give)(void *address, void *stream);
    ckpt_gpu_counts counts;
    char *block;
    ckpt_bytes block_bytes;
    void *block_stream;
    struct live *live;
    int count, capacity;
    ckpt_step_arena *active; /* whose step runs */
    void *stream;            /* of that step */
    int cursor;              /* serving: the next slot */
} device = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool in_block(const char *address)
{
    return device.block != NULL && address >= device.block && address < device.block + device.block_bytes;
}

/* The first that is live at or above an address. */
static int live_from(const char *address)
{
    int low = 0;
    for (int high = device.count; low < high;) {
        const int middle = low + (high - low) / 2;
        if (device.live[middle].address < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool grow(void **array, int count, int *capacity, size_t size)
{
    if (count < *capacity) {
        return true;
    }
    const int more = *capacity == 0 ? FIRST_CAPACITY : 2 * *capacity;
    void *const grown = ckpt_memory_resize(*array, (size_t)more * size);
    if (grown != NULL) {
        *array = grown;
        *capacity = more;
    }
    return grown != NULL;
}

static bool live_add(char *address, ckpt_bytes bytes, int of)
{
    if (!grow((void **)&device.live, device.count, &device.capacity, sizeof *device.live)) {
        return false;
    }
    const int at = live_from(address);
    memmove(device.live + at + 1, device.live + at, (size_t)(device.count - at) * sizeof *device.live);
    device.live[at] = (live){address, bytes, of};
    device.count++;
    return true;
}

static void live_remove(int at)
{
    device.count--;
    memmove(device.live + at, device.live + at + 1, (size_t)(device.count - at) * sizeof *device.live);
}

static bool is_free(const char *from, ckpt_bytes bytes)
{
    const int at = live_from(from);
    return (at == device.count || device.live[at].address >= from + bytes) &&
           (at == 0 || device.live[at - 1].address + device.live[at - 1].bytes <= from);
}

/* The place of an allocation that was recorded, or NULL. */
static char *serve(ckpt_step_arena *arena, ckpt_bytes bytes)
{
    int at = device.cursor;
    while (at < arena->count && at < device.cursor + LOOK_AHEAD && arena->slot[at].bytes != bytes) {
        at++;
    }
    if (at == arena->count || at == device.cursor + LOOK_AHEAD) {
        arena->counts.missed++;
        arena->counts.missed_bytes += bytes;
        return NULL;
    }
    device.cursor = at + 1;
    if (arena->slot[at].offset < 0) {
        arena->counts.outlived++;
        return NULL;
    }
    char *const address = device.block + arena->slot[at].offset;
    if (!is_free(address, bytes) || !live_add(address, bytes, -1)) {
        arena->counts.missed++;
        arena->counts.missed_bytes += bytes;
        return NULL;
    }
    arena->counts.served++;
    return address;
}

/* What was recorded of a step is forgotten, with all that is live of it. */
static void forget(ckpt_step_arena *arena)
{
    arena->count = arena->events = 0;
    arena->ready = false;
    if (device.active == arena) {
        int kept = 0;
        for (int i = 0; i < device.count; i++) {
            if (device.live[i].slot < 0) {
                device.live[kept++] = device.live[i];
            }
        }
        device.count = kept;
        device.active = NULL;
    }
}

static void record(ckpt_step_arena *arena, char *address, ckpt_bytes bytes)
{
    if (!grow((void **)&arena->slot, arena->count, &arena->capacity, sizeof *arena->slot) ||
        !live_add(address, bytes, arena->count)) {
        forget(arena); /* no memory of the host: the next step is recorded */
        return;
    }
    arena->slot[arena->count++] = (recorded){bytes, arena->events++, -1, -1};
}

void ckpt_gpu_memory_from(int32_t (*take)(void **address, size_t bytes, void *stream),
                          int32_t (*give)(void *address, void *stream))
{
    pthread_mutex_lock(&device.lock);
    device.take = take;
    device.give = give;
    pthread_mutex_unlock(&device.lock);
}

void ckpt_gpu_memory_counts(ckpt_gpu_counts *counts, int32_t reset_peak)
{
    pthread_mutex_lock(&device.lock);
    *counts = device.counts;
    if (reset_peak != 0) {
        device.counts.peak_bytes = device.counts.live_bytes;
        device.counts.taken_peak_bytes = device.counts.taken_bytes;
    }
    pthread_mutex_unlock(&device.lock);
}

static void count(ckpt_bytes bytes)
{
    device.counts.live_bytes += bytes;
    if (device.counts.live_bytes > device.counts.peak_bytes) {
        device.counts.peak_bytes = device.counts.live_bytes;
    }
}

static void count_taken(ckpt_bytes bytes)
{
    device.counts.taken_bytes += bytes;
    if (device.counts.taken_bytes > device.counts.taken_peak_bytes) {
        device.counts.taken_peak_bytes = device.counts.taken_bytes;
    }
}

static ckpt_bytes aligned(ptrdiff_t bytes)
{
    return ((ckpt_bytes)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void *ckpt_gpu_malloc(ptrdiff_t bytes, int32_t index, void *stream)
{
    (void)index; /* of the device, which is the current one */
    if (bytes <= 0 || bytes > PTRDIFF_MAX - ALIGNMENT) {
        return NULL;
    }
    const ckpt_bytes size = aligned(bytes);
    pthread_mutex_lock(&device.lock);
    ckpt_step_arena *const arena = device.active != NULL && stream == device.stream ? device.active : NULL;
    char *const served = arena != NULL && arena->ready ? serve(arena, size) : NULL;
    void *taken = served;
    if (served == NULL && (device.take == NULL || device.take(&taken, (size_t)size, stream) != 0)) {
        taken = NULL;
        device.counts.failed++;
    }
    if (taken != NULL) {
        count(size);
        count_taken(served == NULL ? size : 0);
    }
    if (taken != NULL && arena != NULL && !arena->ready) {
        record(arena, taken, size);
    }
    pthread_mutex_unlock(&device.lock);
    return taken;
}

void ckpt_gpu_free(void *address, ptrdiff_t bytes, int32_t index, void *stream)
{
    (void)index;
    if (address == NULL) {
        return;
    }
    pthread_mutex_lock(&device.lock);
    count(-aligned(bytes));
    const int at = live_from(address);
    if (at < device.count && device.live[at].address == address) {
        if (device.live[at].slot >= 0) {
            device.active->slot[device.live[at].slot].to = device.active->events++ - 1;
        }
        live_remove(at);
    }
    if (!in_block(address) && device.give != NULL) {
        count_taken(-aligned(bytes));
        device.give(address, stream);
    }
    pthread_mutex_unlock(&device.lock);
}

int ckpt_step_arena_create(ckpt_step_arena **arena, ckpt_error *error)
{
    ckpt_err err = {0};
    ckpt_step_arena *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return ckpt_status_of(CKPT_FAIL(&err, CKPT_NO_MEMORY, "no memory for an arena"), &err, error);
    }
    *arena = made;
    return ckpt_status_of(CKPT_OK, &err, error);
}

void ckpt_step_arena_destroy(ckpt_step_arena *arena)
{
    if (arena == NULL) {
        return;
    }
    pthread_mutex_lock(&device.lock);
    forget(arena);
    pthread_mutex_unlock(&device.lock);
    ckpt_memory_put(arena->slot);
    ckpt_memory_put(arena);
}

/* Offsets for the allocations that were freed in the recorded step. */
static ckpt_code pack(ckpt_step_arena *arena, ckpt_arena *scratch, ckpt_err *err)
{
    ckpt_allocation *const allocation = CKPT_NEW(scratch, ckpt_allocation, arena->count);
    int count = 0;
    if (allocation == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for %d allocations", arena->count);
    }
    for (int i = 0; i < arena->count; i++) {
        const recorded *const s = &arena->slot[i];
        if (s->to >= 0) {
            allocation[count++] =
                (ckpt_allocation){.name = "", .buffer = i, .from = s->from, .to = s->to, .bytes = s->bytes};
        }
    }
    ckpt_bytes bytes = 0;
    CKPT_TRY(ckpt_allocations_pack(allocation, count, 0, NULL, scratch, &bytes, err));
    for (int i = 0; i < count; i++) {
        arena->slot[allocation[i].buffer].offset = allocation[i].offset;
    }
    arena->bytes = bytes;
    return CKPT_OK;
}

/* A block that is large enough, unless something lives in the one there is. */
static ckpt_code reserve(ckpt_bytes bytes, void *stream, ckpt_err *err)
{
    if (bytes <= device.block_bytes) {
        return CKPT_OK;
    }
    for (int i = 0; i < device.count; i++) {
        if (in_block(device.live[i].address)) {
            return CKPT_FAIL(err, CKPT_DEVICE, "something of an earlier step lives in the arena, which is to grow");
        }
    }
    if (device.block != NULL) {
        device.give(device.block, device.block_stream);
        count_taken(-device.block_bytes);
        device.block = NULL;
        device.block_bytes = 0;
    }
    void *block = NULL;
    if (device.take == NULL || device.take(&block, (size_t)bytes, stream) != 0) {
        return CKPT_FAIL(err, CKPT_DEVICE, "the device has no %lld bytes for the arena", (long long)bytes);
    }
    count_taken(bytes);
    device.block = block;
    device.block_bytes = bytes;
    device.block_stream = stream;
    return CKPT_OK;
}

int ckpt_step_arena_begin(ckpt_step_arena *arena, void *stream, ckpt_error *error)
{
    ckpt_err err = {0};
    ckpt_code code = CKPT_OK;
    pthread_mutex_lock(&device.lock);
    if (device.active != NULL && !device.active->ready) {
        forget(device.active); /* a step without an end */
    }
    code = arena->ready ? reserve(arena->bytes, stream, &err) : CKPT_OK;
    if (code != CKPT_OK || !arena->ready) {
        forget(arena);
    }
    arena->counts = (ckpt_step_arena_counts){.arena_bytes = arena->ready ? arena->bytes : 0};
    device.active = arena;
    device.stream = stream;
    device.cursor = 0;
    pthread_mutex_unlock(&device.lock);
    return ckpt_status_of(code, &err, error);
}

int ckpt_step_arena_end(ckpt_step_arena *arena, ckpt_step_arena_counts *counts, ckpt_error *error)
{
    ckpt_err err = {0};
    ckpt_code code = CKPT_OK;
    pthread_mutex_lock(&device.lock);
    if (device.active == arena && !arena->ready) {
        ckpt_arena scratch;
        ckpt_arena_init(&scratch);
        code = pack(arena, &scratch, &err);
        ckpt_arena_fini(&scratch);
        const int slots = arena->count;
        forget(arena); /* what outlives the step is the device's */
        if (code == CKPT_OK) {
            arena->count = slots;
            arena->ready = true;
            arena->counts.arena_bytes = arena->bytes;
        }
    } else if (device.active == arena) {
        device.active = NULL;
    }
    *counts = arena->counts;
    pthread_mutex_unlock(&device.lock);
    return ckpt_status_of(code, &err, error);
}

void ckpt_step_arena_forget(ckpt_step_arena *arena)
{
    pthread_mutex_lock(&device.lock);
    forget(arena);
    pthread_mutex_unlock(&device.lock);
}
