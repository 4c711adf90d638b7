/* A grid on the host: blocks one after another, the threads of a block as fibers. A fiber runs one thread after another
 * until one has to wait; then it keeps that thread's stack, and another fiber goes on. So a kernel without barriers
 * runs in one loop without a switch. Which thread goes on is drawn at random. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <vector>

#include "emulated_impl.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define FIBERS_OF_ASAN 1
#else
#define FIBERS_OF_ASAN 0
#endif

/* ------------------------------------------------------------------------------------------- fibers */

enum : size_t { STACK = 256 * 1024, PAGE = 4096, SLOT_MOST = 256, LANES_BYTES = 32 * SLOT_MOST };
enum { LANES = 32 };

#if defined(__x86_64__)
/* Saves what a called function must keep, changes stacks, restores, returns there. */
extern "C" void emulated_switch(void **from, void *to);
asm(R"(
    .text
    .type emulated_switch, @function
    .hidden emulated_switch
    .globl emulated_switch
emulated_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulated_switch, .-emulated_switch
)");
typedef void *fiber_state;
#else
#include <ucontext.h>
typedef ucontext_t fiber_state;
#endif

namespace
{

struct fiber {
    fiber_state state;
    char *stack; /* lowest address; NULL: the host's own stack */
    size_t stack_bytes;
    void *fake; /* AddressSanitizer's */
};

struct thread {
    uint3 index;
    fiber *on; /* where it waits; NULL: not started */
    unsigned gathers;
};

/* Two sets of slots in turn: nobody writes one again before all lanes have left it. */
struct warp {
    alignas(16) unsigned char slot[2][LANES_BYTES];
    int arrived, lanes;
    size_t bytes;
};

fiber host;
fiber *running = &host;
std::vector<fiber *> fallback; /* stacks without a thread */
/* Never destroyed: the fibers are the process's to the end, and are then still pointed to. */
std::vector<fiber *> &every = *new std::vector<fiber *>;
std::vector<thread> threads;
std::vector<warp> warps;
std::vector<int> ready;
int now, at_barrier, finished, count;
bool broken;
uint64_t block_number, block_count, block_first;
const std::function<void()> *body;
size_t shared_bytes;
alignas(128) unsigned char shared_memory[EMULATED_SHARED_MOST];

} // namespace

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

static void fiber_main();

static void enter_fiber()
{
#if FIBERS_OF_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (host.stack == nullptr) { /* the first switch ever comes from the host */
        host.stack = (char *)bottom;
        host.stack_bytes = bytes;
    }
#endif
    fiber_main();
}

static void fiber_reset(fiber *f)
{
#if FIBERS_OF_ASAN
    __asan_unpoison_memory_region(f->stack, STACK);
    f->fake = nullptr;
#endif
#if defined(__x86_64__)
    void **const top = (void **)(f->stack + STACK);
    memset(top - 8, 0, 8 * sizeof *top);
    top[-2] = (void *)enter_fiber;
    f->state = top - 8;
#else
    getcontext(&f->state);
    f->state.uc_stack.ss_sp = f->stack;
    f->state.uc_stack.ss_size = STACK;
    f->state.uc_link = nullptr;
    makecontext(&f->state, enter_fiber, 0);
#endif
}

/* A stack with an unmapped page below it. */
static fiber *fiber_make()
{
    if (fallback.empty()) {
        char *const place = (char *)mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (place == MAP_FAILED) {
            perror("emulation: no memory for a stack");
            abort();
        }
        mprotect(place, PAGE, PROT_NONE);
        fiber *const made = new fiber{};
        made->stack = place + PAGE;
        made->stack_bytes = STACK;
        fiber_reset(made);
        every.push_back(made);
        return made;
    }
    fiber *const f = fallback.back();
    fallback.pop_back();
    return f;
}

static void switch_to(fiber *to)
{
    fiber *const from = running;
    running = to;
#if FIBERS_OF_ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->stack_bytes);
#endif
#if defined(__x86_64__)
    emulated_switch(&from->state, to->state);
#else
    swapcontext(&from->state, &to->state);
#endif
#if FIBERS_OF_ASAN
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
}

/* ------------------------------------------------------------------------------------------- who goes on */

static void open_block()
{
    const uint64_t n = (block_first + block_number) % block_count;
    blockIdx = {(unsigned)(n % gridDim.x), (unsigned)(n / gridDim.x % gridDim.y),
                (unsigned)(n / gridDim.x / gridDim.y)};
    at_barrier = finished = 0;
    for (int t = 0; t < count; t++) {
        threads[(size_t)t].on = nullptr;
        threads[(size_t)t].gathers = 0;
        ready[(size_t)t] = t;
    }
    for (warp &w : warps) {
        w.arrived = 0;
    }
    memset(shared_memory, 0xff, shared_bytes);
}

static void fail_deadlock()
{
    int at_warp = 0;
    for (const warp &w : warps) {
        at_warp += w.arrived;
    }
    ckpt_emulated_broken(nullptr);
    emulated_fail("block (%u, %u, %u) of %d threads: %d wait at __syncthreads, %d at something their whole warp must "
                  "reach, %d have left",
                  blockIdx.x, blockIdx.y, blockIdx.z, count, at_barrier, at_warp, finished);
}

/* Thread `t` runs next: where it waits, or on a fiber of its own. */
static void take_turn(bool parked)
{
    for (;;) {
        if (broken || (ready.empty() && finished < count)) {
            if (!broken) {
                fail_deadlock();
            }
            switch_to(&host); /* this fiber is forgotten */
        }
        if (ready.empty()) {
            block_number++;
            if (block_number < block_count) {
                ready.resize((size_t)count);
                open_block();
                continue;
            }
            fallback.push_back(running);
            switch_to(&host);
            return; /* a later grid */
        }
        const size_t pick = emulated_random(ready.size());
        const int t = ready[pick];
        ready[pick] = ready.back();
        ready.pop_back();
        now = t;
        threadIdx = threads[(size_t)t].index;
        fiber *const place = threads[(size_t)t].on;
        if (place == running || (place == nullptr && !parked)) {
            return;
        }
        fiber *const next = place != nullptr ? place : fiber_make();
        if (!parked) {
            fallback.push_back(running);
        }
        switch_to(next);
        return;
    }
}

static void fiber_main()
{
    for (;;) {
        (*body)();
        finished++;
        take_turn(false);
    }
}

static void wait_turn()
{
    threads[(size_t)now].on = running;
    take_turn(true);
}

/* ------------------------------------------------------------------------------------------- what threads call */

void ckpt_emulated_broken(const char *what)
{
    if (what != nullptr) {
        emulated_fail("block (%u, %u, %u), thread (%u, %u, %u): %s", blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
                      threadIdx.y, threadIdx.z, what);
    }
    broken = true;
    if (what != nullptr && running != &host) {
        switch_to(&host);
    }
}

void __syncthreads()
{
    if (++at_barrier == count) {
        at_barrier = 0;
        for (int t = 0; t < count; t++) {
            ready.push_back(t);
        }
    }
    wait_turn();
}

static warp *meet(size_t bytes)
{
    warp *const w = &warps[(size_t)now / LANES];
    if (w->arrived > 0 && w->bytes != bytes) {
        ckpt_emulated_broken("lanes of a warp meet in different calls");
    }
    w->bytes = bytes;
    return w;
}

static void wait_warp(warp *w)
{
    if (++w->arrived == w->lanes) {
        w->arrived = 0;
        const int first = now / LANES * LANES;
        for (int lane = 0; lane < w->lanes; lane++) {
            ready.push_back(first + lane);
        }
    }
    wait_turn();
}

void __syncwarp(unsigned mask)
{
    if (mask != 0xffffffffu) {
        ckpt_emulated_broken("__syncwarp of some lanes only");
    }
    wait_warp(meet(0));
}

void ckpt_emulated_need_all(unsigned mask)
{
    if (mask != 0xffffffffu || warps[(size_t)now / LANES].lanes < LANES) {
        ckpt_emulated_broken("a shuffle of some lanes only, or in a warp of fewer than 32");
    }
}

int ckpt_emulated_lane()
{
    return now % LANES;
}

const void *ckpt_emulated_deposit(const void *mine, size_t bytes)
{
    warp *const w = meet(bytes);
    unsigned char *const slot = w->slot[threads[(size_t)now].gathers++ % 2];
    memcpy(slot + (size_t)(now % LANES) * bytes, mine, bytes);
    wait_warp(w);
    return slot;
}

unsigned char *ckpt_emulated_shared()
{
    return shared_memory;
}

/* ------------------------------------------------------------------------------------------- a grid */

static void close_shared(bool closed)
{
#if FIBERS_OF_ASAN
    if (closed) {
        __asan_poison_memory_region(shared_memory + shared_bytes, EMULATED_SHARED_MOST - shared_bytes);
    } else {
        __asan_unpoison_memory_region(shared_memory, EMULATED_SHARED_MOST);
    }
#else
    (void)closed;
#endif
}

bool emulated_run_grid(dim3 grid, dim3 block, size_t shared, const std::function<void()> &thread_body)
{
    gridDim = grid;
    blockDim = block;
    count = (int)(block.x * block.y * block.z);
    threads.resize((size_t)count);
    for (unsigned t = 0; t < (unsigned)count; t++) {
        threads[t].index = {t % block.x, t / block.x % block.y, t / block.x / block.y};
    }
    warps.resize((size_t)(count + LANES - 1) / LANES);
    for (size_t w = 0; w < warps.size(); w++) {
        warps[w].lanes = count - (int)w * LANES < LANES ? count - (int)w * LANES : LANES;
    }
    block_count = (uint64_t)grid.x * grid.y * grid.z;
    block_first = emulated_random(block_count);
    block_number = 0;
    body = &thread_body;
    shared_bytes = shared;
    broken = false;
    close_shared(true);
    ready.resize((size_t)count);
    open_block();
    const size_t pick = emulated_random(ready.size());
    now = ready[pick];
    ready[pick] = ready.back();
    ready.pop_back();
    threadIdx = threads[(size_t)now].index;
    switch_to(fiber_make());
    close_shared(false);
    if (broken) { /* threads hang in the middle of the kernel: forget their stacks */
        fallback = every;
        for (fiber *f : fallback) {
            fiber_reset(f);
        }
    }
    return !broken;
}
