#include "executor/data/loader.h"

#include <pthread.h>
#include <string.h>

#include "core/base/clock.h"
#include "kernels/place.h"

/* A batch that is made, ready or taken. */
typedef struct slot {
    void **input; /* host memory of each wanted input */
    bool ready;
    ckpt_code code;
    ckpt_err err;
} slot;

struct ckpt_loader {
    const ckpt_data *data;
    const ckpt_model *model;
    void *const *wanted;
    const uint64_t *number;
    uint64_t count, stride;
    ckpt_arena arena;
    ckpt_bytes bytes;
    ckpt_ns waited_ns;
    uint64_t taken; /* batches, in their order */
    /* Of the workers, under `lock`: */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t begun;
    bool over;
    slot *slot; /* batch b is in slot b % slot_count */
    uint64_t slot_count;
    pthread_t thread[CKPT_LOADER_WORKERS_MAX];
    int threads;
};

static uint64_t number_of(const ckpt_loader *loader, uint64_t batch)
{
    return loader->number[batch % loader->count] + batch / loader->count * loader->stride;
}

static void *work(void *argument)
{
    ckpt_loader *const loader = argument;
    ckpt_place_leave();
    pthread_mutex_lock(&loader->lock);
    for (;;) {
        while (!loader->over && loader->begun - loader->taken >= loader->slot_count) {
            pthread_cond_wait(&loader->changed, &loader->lock);
        }
        if (loader->over) {
            break;
        }
        const uint64_t batch = loader->begun++;
        slot *const mine = &loader->slot[batch % loader->slot_count];
        pthread_mutex_unlock(&loader->lock);
        ckpt_err err = {0};
        const ckpt_code code = ckpt_data_fill(loader->data, number_of(loader, batch), mine->input, &err);
        pthread_mutex_lock(&loader->lock);
        mine->code = code;
        mine->err = err;
        mine->ready = true;
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

/* Memory for every input that some batch wants. */
static ckpt_code open_slots(ckpt_loader *loader, ckpt_err *err)
{
    const int inputs = loader->model->input_count;
    loader->slot = CKPT_NEW(&loader->arena, slot, loader->slot_count);
    for (uint64_t s = 0; loader->slot != NULL && s < loader->slot_count; s++) {
        loader->slot[s].input = CKPT_NEW(&loader->arena, void *, inputs);
        for (int k = 0; loader->slot[s].input != NULL && k < inputs; k++) {
            bool wanted = false;
            for (uint64_t i = 0; i < loader->count; i++) {
                wanted = wanted || loader->wanted[i * (uint64_t)inputs + (uint64_t)k] != NULL;
            }
            if (wanted) {
                const ckpt_bytes bytes = ckpt_tensor_bytes(&loader->model->input[k]);
                loader->slot[s].input[k] = CKPT_NEW(&loader->arena, unsigned char, bytes);
                loader->bytes += bytes;
                if (loader->slot[s].input[k] == NULL) {
                    return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for batches ahead of the step");
                }
            }
        }
        if (loader->slot[s].input == NULL) {
            break;
        }
    }
    return loader->slot != NULL && loader->slot[loader->slot_count - 1].input != NULL
               ? CKPT_OK
               : CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for batches ahead of the step");
}

static ckpt_code start(ckpt_loader *loader, int workers, ckpt_err *err)
{
    if (workers == 0) {
        return CKPT_OK;
    }
    loader->slot_count = (uint64_t)workers + 1;
    CKPT_TRY(open_slots(loader, err));
    while (loader->threads < workers) {
        if (pthread_create(&loader->thread[loader->threads], NULL, work, loader) != 0) {
            return CKPT_FAIL(err, CKPT_NO_MEMORY, "the system gives no thread for a worker that reads data");
        }
        loader->threads++;
    }
    return CKPT_OK;
}

ckpt_code ckpt_loader_create(const ckpt_data *data, const ckpt_model *model, void *const *wanted,
                             const uint64_t *number, int count, uint64_t stride, int workers, ckpt_loader **loader,
                             ckpt_err *err)
{
    ckpt_loader *const made = ckpt_memory_get(sizeof *made);
    if (made == NULL) {
        return CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a loader");
    }
    made->data = data;
    made->model = model;
    made->count = (uint64_t)count;
    made->stride = stride;
    ckpt_arena_init(&made->arena);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    uint64_t *const numbers = CKPT_NEW(&made->arena, uint64_t, count);
    made->wanted = wanted;
    made->number = numbers;
    ckpt_code code = CKPT_OK;
    if (numbers == NULL) {
        code = CKPT_FAIL(err, CKPT_NO_MEMORY, "no memory for a loader");
    } else {
        memcpy(numbers, number, (size_t)count * sizeof *numbers);
        code = start(made, workers, err);
    }
    if (code != CKPT_OK) {
        ckpt_loader_destroy(made);
        return code;
    }
    *loader = made;
    return CKPT_OK;
}

void ckpt_loader_destroy(ckpt_loader *loader)
{
    if (loader == NULL) {
        return;
    }
    pthread_mutex_lock(&loader->lock);
    loader->over = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->threads; i++) {
        pthread_join(loader->thread[i], NULL);
    }
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    ckpt_arena_fini(&loader->arena);
    ckpt_memory_put(loader);
}

/* Waits for the next batch of the workers, copies it and lets its slot go. */
static ckpt_code take_ready(ckpt_loader *loader, void *const *input, ckpt_err *err)
{
    slot *const next = &loader->slot[loader->taken % loader->slot_count];
    pthread_mutex_lock(&loader->lock);
    while (!next->ready) {
        pthread_cond_wait(&loader->changed, &loader->lock);
    }
    const ckpt_code code = next->code;
    pthread_mutex_unlock(&loader->lock);
    if (code != CKPT_OK && err != NULL) {
        *err = next->err;
    }
    for (int k = 0; code == CKPT_OK && k < loader->model->input_count; k++) {
        if (input[k] != NULL) {
            memcpy(input[k], next->input[k], (size_t)ckpt_tensor_bytes(&loader->model->input[k]));
        }
    }
    pthread_mutex_lock(&loader->lock);
    next->ready = false;
    loader->taken++;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    return code;
}

ckpt_code ckpt_loader_take(ckpt_loader *loader, void *const *input, ckpt_err *err)
{
    const ckpt_ns begun = ckpt_clock_ns();
    ckpt_code code;
    if (loader->threads > 0) {
        code = take_ready(loader, input, err);
    } else {
        code = ckpt_data_fill(loader->data, number_of(loader, loader->taken), input, err);
        loader->taken++;
    }
    loader->waited_ns += ckpt_clock_ns() - begun;
    return code;
}

ckpt_ns ckpt_loader_waited_ns(const ckpt_loader *loader)
{
    return loader->waited_ns;
}

ckpt_bytes ckpt_loader_bytes(const ckpt_loader *loader)
{
    return loader->bytes;
}
