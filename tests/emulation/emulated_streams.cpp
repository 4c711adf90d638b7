/* Streams, events and recordings. Without a schedule what is started is done at once; with one, every stream is a queue
 * whose head may run when the events it waits for have come. A recording is a list of nodes with the nodes each one
 * waits for, as CUDA's documentation of stream capture derives them; a replay runs them in a random order that those
 * allow. */
#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "emulated_impl.h"
#include "emulation.h"

namespace
{

typedef std::chrono::steady_clock steady;

/* One record of an event: what waits for it holds on to it, whatever the event is recorded for later. */
struct moment {
    bool done;
    CUstream_st *stream; /* where it is queued */
    steady::time_point time;
};

struct node {
    enum cudaGraphNodeType type;
    std::function<void()> run;
    CUstream_st *stream;       /* whose weight it has; it may be gone when the recording is replayed */
    std::vector<size_t> after; /* what must be done before */
    std::vector<size_t> known; /* and what CUDA would count as joined: with lost waits */
};

/* Nodes that what comes next follows; `lost`: only as far as joining is concerned. */
struct dependency {
    size_t node;
    bool lost;
};

struct capture {
    CUstream_st *origin;
    std::vector<node> nodes;
    std::vector<CUstream_st *> joined;
    bool broken;
};

struct replay {
    std::shared_ptr<const std::vector<node>> nodes;
    std::vector<bool> done;
    size_t left;
};

struct work {
    std::function<void()> run;
    std::shared_ptr<moment> record, wait;
    std::shared_ptr<replay> graph;
};

int candidates;
int64_t starts;
steady::duration spent; /* by made-up times, ever */

steady::time_point device_now()
{
    return steady::now() + spent;
}

uint64_t schedule_seed;
unsigned eagerness;    /* of 16: how often something runs although nobody waits */
uint64_t patience = 1; /* about how often something is picked before the streams' weights are drawn anew */
int64_t wait_count, lost_wait = -1;
std::vector<CUstream_st *> streams;
std::map<const void *, size_t> allowed_shared;

} // namespace

struct CUstream_st {
    uint64_t weight; /* how fast it is, beside the others, for the time being */
    std::deque<work> queue;
    std::shared_ptr<capture> recording;
    std::vector<dependency> last; /* while recording */
};

struct CUevent_st {
    bool timed;
    std::shared_ptr<moment> latest;     /* NULL: never recorded */
    std::shared_ptr<capture> recording; /* the latest record was in it */
    std::vector<dependency> last;
};

struct CUgraph_st {
    std::shared_ptr<const std::vector<node>> nodes;
};

struct CUgraphExec_st {
    std::shared_ptr<const std::vector<node>> nodes;
};

static bool is_stream(cudaStream_t stream)
{
    return stream != nullptr && std::find(streams.begin(), streams.end(), stream) != streams.end();
}

/* ------------------------------------------------------------------------------------------- running */

static bool can_run(const CUstream_st *stream)
{
    return !stream->queue.empty() && (stream->queue.front().wait == nullptr || stream->queue.front().wait->done);
}

/* From 1 to 256: a stream that is behind all others for a long time is what finds a lost wait. */
static void draw_weight(CUstream_st *stream)
{
    stream->weight = (uint64_t)1 << 2 * emulated_random(5);
}

static void draw_weights_at_times()
{
    if (emulated_random(patience) == 0) {
        for (CUstream_st *stream : streams) {
            draw_weight(stream);
        }
    }
}

static uint64_t weight_of(const node &n)
{
    return is_stream(n.stream) ? n.stream->weight : 1;
}

static void run_node(replay &graph)
{
    draw_weights_at_times();
    uint64_t sum = 0;
    std::vector<size_t> ready;
    for (size_t i = 0; i < graph.nodes->size(); i++) {
        const std::vector<size_t> &after = (*graph.nodes)[i].after;
        if (!graph.done[i] && std::all_of(after.begin(), after.end(), [&](size_t k) { return graph.done[k]; })) {
            ready.push_back(i);
            sum += weight_of((*graph.nodes)[i]);
            if (schedule_seed == 0) {
                break; /* in the order of the recording */
            }
        }
    }
    size_t pick = ready[0];
    uint64_t left = emulated_random(sum);
    for (size_t i : ready) {
        pick = i;
        if (left < weight_of((*graph.nodes)[i])) {
            break;
        }
        left -= weight_of((*graph.nodes)[i]);
    }
    (*graph.nodes)[pick].run();
    graph.done[pick] = true;
    graph.left--;
}

/* The head of a queue, of a replay one node. */
static void run_head(CUstream_st *stream)
{
    const emulated_working scope;
    work &head = stream->queue.front();
    if (head.graph != nullptr && head.graph->left > 0) {
        run_node(*head.graph);
        if (head.graph->left > 0) {
            return;
        }
    }
    if (head.run) {
        head.run();
    }
    if (head.record != nullptr) {
        head.record->done = true;
        head.record->time = device_now();
    }
    stream->queue.pop_front();
}

/* A queue, fast ones more often, a little of the way if it may run: streams overtake each other by more than a step.
 * Not "one that may run": then a slow stream would run as soon as the fast one has nothing to do. */
static void run_any()
{
    draw_weights_at_times();
    uint64_t sum = 0;
    for (const CUstream_st *stream : streams) {
        sum += stream->weight;
    }
    uint64_t pick = sum > 0 ? emulated_random(sum) : 0;
    for (CUstream_st *stream : streams) {
        if (pick < stream->weight) {
            for (uint64_t left = 1 + emulated_random(8); left > 0 && can_run(stream); left--) {
                run_head(stream);
            }
            return;
        }
        pick -= stream->weight;
    }
}

/* One step towards the end of `stream`: its head, or what that waits for; now and then something else instead. */
static void step_towards(CUstream_st *stream)
{
    const emulated_working scope;
    if (emulated_random(16) < eagerness) {
        run_any();
    }
    if (stream->queue.empty()) {
        return;
    }
    while (!can_run(stream)) {
        stream = stream->queue.front().wait->stream;
    }
    run_head(stream);
}

static void drain_stream(CUstream_st *stream)
{
    const emulated_working scope;
    while (!stream->queue.empty()) {
        step_towards(stream);
    }
}

void emulated_drain()
{
    const emulated_working scope;
    for (size_t i = 0; i < streams.size(); i++) {
        drain_stream(streams[i]);
    }
}

static cudaError_t health()
{
    return emulated_failed() ? cudaErrorLaunchFailure : cudaSuccess;
}

static void enqueue(CUstream_st *stream, work item)
{
    stream->queue.push_back(std::move(item));
    if (schedule_seed == 0) {
        drain_stream(stream);
    } else {
        while (emulated_random(16) < eagerness) {
            run_any();
        }
    }
}

/* ------------------------------------------------------------------------------------------- starting work */

static void add_node(CUstream_st *stream, std::function<void()> run, enum cudaGraphNodeType type)
{
    node made;
    made.type = type;
    made.run = std::move(run);
    made.stream = stream;
    for (const dependency &d : stream->last) {
        made.known.push_back(d.node);
        if (!d.lost) {
            made.after.push_back(d.node);
        }
    }
    stream->recording->nodes.push_back(std::move(made));
    stream->last = {{stream->recording->nodes.size() - 1, false}};
}

cudaError_t ckpt_emulated_start(cudaStream_t stream, std::function<void()> run, enum cudaGraphNodeType type)
{
    if (!is_stream(stream)) {
        return emulated_refuse(cudaErrorInvalidResourceHandle);
    }
    if (emulated_failed()) {
        return cudaErrorLaunchFailure;
    }
    starts++;
    if (stream->recording != nullptr) {
        if (stream->recording->broken) {
            return emulated_refuse(cudaErrorStreamCaptureInvalidated);
        }
        add_node(stream, std::move(run), type);
        return cudaSuccess;
    }
    enqueue(stream, {.run = std::move(run), .record = nullptr, .wait = nullptr, .graph = nullptr});
    return health();
}

cudaError_t ckpt_emulated_start_grid(const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                                     std::function<void()> thread)
{
    const uint64_t threads = (uint64_t)block.x * block.y * block.z, blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (threads == 0 || threads > 1024 || block.x > 1024 || block.y > 1024 || block.z > 64 || blocks == 0 ||
        grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
        return emulated_refuse(cudaErrorInvalidConfiguration);
    }
    const auto asked = allowed_shared.find(kernel);
    if (shared > (asked == allowed_shared.end() ? (size_t)EMULATED_SHARED_FREE : asked->second)) {
        return emulated_refuse(cudaErrorInvalidValue);
    }
    return ckpt_emulated_start(stream,
                               [grid, block, shared, thread] { (void)emulated_run_grid(grid, block, shared, thread); });
}

cudaError_t ckpt_emulated_allow_shared(const void *kernel, size_t bytes)
{
    if (bytes > EMULATED_SHARED_MOST) {
        return emulated_refuse(cudaErrorInvalidValue);
    }
    size_t &most = allowed_shared[kernel];
    most = std::max({most, bytes, (size_t)EMULATED_SHARED_FREE});
    return cudaSuccess;
}

/* What a copy's direction promises about its two addresses. */
static bool is_legal_copy(const void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    const bool to_device = emulated_is_device(to, bytes), from_device = emulated_is_device(from, bytes);
    switch (kind) {
    case cudaMemcpyHostToDevice: return to_device && !emulated_is_device(from, 0);
    case cudaMemcpyDeviceToHost: return from_device && !emulated_is_device(to, 0);
    case cudaMemcpyDeviceToDevice: return to_device && from_device;
    default: return false;
    }
}

/* Host memory that is not page-locked goes through a buffer of the driver's: the call comes back when it has been read
 * or written. */
extern "C" cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                                       cudaStream_t stream)
{
    if (!is_legal_copy(to, from, bytes, kind)) {
        return emulated_refuse(cudaErrorInvalidValue);
    }
    const void *const host = kind == cudaMemcpyHostToDevice ? from : to;
    const bool late = kind == cudaMemcpyDeviceToDevice || emulated_is_pinned(host, bytes);
    if (!late && is_stream(stream) && stream->recording != nullptr) {
        return emulated_break_captures();
    }
    const cudaError_t code = ckpt_emulated_start(
        stream, [=] { memmove(to, from, bytes); }, cudaGraphNodeTypeMemcpy);
    if (code == cudaSuccess && !late) {
        drain_stream(stream);
    }
    return code;
}

extern "C" cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream)
{
    if (!emulated_is_device(to, bytes)) {
        return emulated_refuse(cudaErrorInvalidValue);
    }
    return ckpt_emulated_start(
        stream, [=] { memset(to, byte, bytes); }, cudaGraphNodeTypeMemset);
}

/* ------------------------------------------------------------------------------------------- streams */

extern "C" cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    (void)flags;
    *stream = new CUstream_st{};
    draw_weight(*stream);
    streams.push_back(*stream);
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

extern "C" cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(stream, flags);
}

extern "C" cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (!is_stream(stream)) {
        return emulated_refuse(cudaErrorInvalidResourceHandle);
    }
    drain_stream(stream);
    if (stream->recording != nullptr) {
        stream->recording->broken = true;
    }
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (!is_stream(stream)) {
        return emulated_refuse(cudaErrorInvalidResourceHandle);
    }
    if (emulated_capturing()) {
        return emulated_break_captures();
    }
    drain_stream(stream);
    return health();
}

extern "C" cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    if (!is_stream(stream)) {
        return emulated_refuse(cudaErrorInvalidResourceHandle);
    }
    if (emulated_capturing()) {
        return emulated_break_captures();
    }
    return stream->queue.empty() ? health() : cudaErrorNotReady;
}

extern "C" cudaError_t cudaDeviceSynchronize(void)
{
    if (emulated_capturing()) {
        return emulated_break_captures();
    }
    emulated_drain();
    return health();
}

/* ------------------------------------------------------------------------------------------- events */

extern "C" cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    *event = new CUevent_st{};
    (*event)->timed = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
}

extern "C" cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

extern "C" cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

/* In a recording an external record is a node that notes the time at every replay; the next replay notes it anew. */
static cudaError_t record_external(cudaEvent_t event, cudaStream_t stream)
{
    const std::shared_ptr<moment> at(new moment{});
    event->latest = at;
    event->recording = nullptr;
    return ckpt_emulated_start(
        stream,
        [at] {
            at->done = true;
            at->time = device_now();
        },
        cudaGraphNodeTypeEventRecord);
}

extern "C" cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    if (event == nullptr || !is_stream(stream)) {
        return emulated_refuse(cudaErrorInvalidResourceHandle);
    }
    if (stream->recording != nullptr) {
        if (stream->recording->broken) {
            return emulated_refuse(cudaErrorStreamCaptureInvalidated);
        }
        if (flags == cudaEventRecordExternal) {
            return record_external(event, stream);
        }
        event->latest = nullptr;
        event->recording = stream->recording;
        event->last = stream->last;
        return cudaSuccess;
    }
    if (flags == cudaEventRecordExternal) { /* only within a recording */
        return emulated_refuse(cudaErrorInvalidValue);
    }
    event->recording = nullptr;
    event->latest = std::shared_ptr<moment>(new moment{false, stream, {}});
    enqueue(stream, {.run = nullptr, .record = event->latest, .wait = nullptr, .graph = nullptr});
    return health();
}

extern "C" cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

static cudaError_t wait_recording(cudaStream_t stream, cudaEvent_t event, bool lost)
{
    if (event->recording == nullptr || (stream->recording != nullptr && event->recording != stream->recording)) {
        return stream->recording == nullptr
                   ? emulated_refuse(cudaErrorCapturedEvent)
                   : (stream->recording->broken = true, emulated_refuse(cudaErrorStreamCaptureIsolation));
    }
    if (event->recording->broken) {
        return emulated_refuse(cudaErrorStreamCaptureInvalidated);
    }
    if (event->recording->origin == nullptr) { /* that recording has ended */
        return emulated_refuse(cudaErrorCapturedEvent);
    }
    if (stream->recording == nullptr) {
        stream->recording = event->recording;
        stream->recording->joined.push_back(stream);
        stream->last.clear();
    }
    for (const dependency &d : event->last) {
        stream->last.push_back({d.node, d.lost || lost});
    }
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    (void)flags;
    if (event == nullptr || !is_stream(stream)) {
        return emulated_refuse(cudaErrorInvalidResourceHandle);
    }
    const bool lost = wait_count++ == lost_wait;
    if (stream->recording != nullptr || event->recording != nullptr) {
        return wait_recording(stream, event, lost);
    }
    if (event->latest != nullptr && !event->latest->done && !lost) {
        enqueue(stream, {.run = nullptr, .record = nullptr, .wait = event->latest, .graph = nullptr});
    }
    return health();
}

extern "C" cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (event == nullptr || event->recording != nullptr) {
        return emulated_refuse(event == nullptr ? cudaErrorInvalidResourceHandle : cudaErrorCapturedEvent);
    }
    if (event->latest == nullptr || event->latest->done) {
        return health();
    }
    const std::shared_ptr<moment> latest = event->latest;
    if (latest->stream != nullptr && !emulated_capturing()) {
        step_towards(latest->stream); /* who asks again finds that time has passed */
    }
    return cudaErrorNotReady;
}

extern "C" cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (event == nullptr || event->recording != nullptr) {
        return emulated_refuse(event == nullptr ? cudaErrorInvalidResourceHandle : cudaErrorCapturedEvent);
    }
    if (emulated_capturing()) {
        return emulated_break_captures();
    }
    const std::shared_ptr<moment> latest = event->latest;
    while (latest != nullptr && !latest->done && latest->stream != nullptr) {
        step_towards(latest->stream);
    }
    return health();
}

extern "C" cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    for (const cudaEvent_t event : {start, end}) {
        if (event == nullptr || !event->timed || event->recording != nullptr || event->latest == nullptr) {
            return emulated_refuse(cudaErrorInvalidResourceHandle);
        }
        if (!event->latest->done) {
            return emulated_refuse(cudaErrorNotReady);
        }
    }
    *milliseconds = std::chrono::duration<float, std::milli>(end->latest->time - start->latest->time).count();
    return cudaSuccess;
}

/* ------------------------------------------------------------------------------------------- recordings */

bool emulated_capturing()
{
    return std::any_of(streams.begin(), streams.end(), [](CUstream_st *s) { return s->recording != nullptr; });
}

cudaError_t emulated_break_captures()
{
    for (CUstream_st *stream : streams) {
        if (stream->recording != nullptr) {
            stream->recording->broken = true;
        }
    }
    return emulated_refuse(cudaErrorStreamCaptureUnsupported);
}

extern "C" cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    if (!is_stream(stream)) {
        return emulated_refuse(cudaErrorInvalidResourceHandle);
    }
    if (stream->recording != nullptr) {
        return emulated_refuse(cudaErrorStreamCaptureUnsupported);
    }
    stream->recording = std::shared_ptr<capture>(new capture{stream, {}, {stream}, false});
    stream->last.clear();
    return cudaSuccess;
}

extern "C" cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    if (!is_stream(stream)) {
        return emulated_refuse(cudaErrorInvalidResourceHandle);
    }
    *status = stream->recording == nullptr ? cudaStreamCaptureStatusNone
              : stream->recording->broken  ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* Does the origin's end follow every node of every stream that joined? */
static bool all_joined(const capture &recording)
{
    std::vector<bool> reached(recording.nodes.size());
    std::vector<size_t> open;
    for (const dependency &d : recording.origin->last) {
        open.push_back(d.node);
    }
    while (!open.empty()) {
        const size_t n = open.back();
        open.pop_back();
        if (!reached[n]) {
            reached[n] = true;
            open.insert(open.end(), recording.nodes[n].known.begin(), recording.nodes[n].known.end());
        }
    }
    return std::all_of(reached.begin(), reached.end(), [](bool is) { return is; });
}

extern "C" cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = nullptr;
    if (!is_stream(stream) || stream->recording == nullptr) {
        return emulated_refuse(cudaErrorInvalidValue);
    }
    const std::shared_ptr<capture> recording = stream->recording;
    if (recording->origin != stream) {
        return emulated_refuse(cudaErrorStreamCaptureUnmatched);
    }
    const bool joined = all_joined(*recording);
    for (CUstream_st *other : streams) {
        if (other->recording == recording) {
            other->recording = nullptr;
            other->last.clear();
        }
    }
    recording->origin = nullptr;
    if (recording->broken || !joined) {
        return emulated_refuse(recording->broken ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined);
    }
    *graph = new CUgraph_st{std::make_shared<const std::vector<node>>(recording->nodes)};
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    const size_t room = nodes == nullptr ? 0 : std::min(*count, graph->nodes->size());
    for (size_t i = 0; i < room; i++) {
        const node *const at = &(*graph->nodes)[i];
        nodes[i] = (cudaGraphNode_t)(uintptr_t)at;
    }
    *count = nodes == nullptr ? graph->nodes->size() : room;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    *type = ((const struct node *)(uintptr_t)node)->type;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    *exec = new CUgraphExec_st{graph->nodes};
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    return exec == nullptr || !is_stream(stream) ? emulated_refuse(cudaErrorInvalidResourceHandle) : cudaSuccess;
}

extern "C" cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    if (exec == nullptr || !is_stream(stream)) {
        return emulated_refuse(cudaErrorInvalidResourceHandle);
    }
    if (stream->recording != nullptr) { /* CUDA makes a child graph of it; the project does not */
        return emulated_break_captures();
    }
    const size_t count = exec->nodes->size();
    const std::shared_ptr<replay> graph(new replay{exec->nodes, std::vector<bool>(count), count});
    enqueue(stream, {.run = nullptr, .record = nullptr, .wait = nullptr, .graph = graph});
    return health();
}

extern "C" cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}

extern "C" cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

/* ------------------------------------------------------------------------------------------- the schedule */

int emulated_multiprocessors()
{
    return schedule_seed == 0 ? 2 : 1 + (int)(schedule_seed % 5);
}

void ckpt_emulated_schedule(uint64_t seed)
{
    emulated_drain();
    emulated_recover();
    schedule_seed = seed;
    emulated_random_seed(seed + 1);
    eagerness = seed == 0 ? 0 : (unsigned)emulated_random(16);
    patience = (uint64_t)16 << emulated_random(10);
    for (CUstream_st *stream : streams) {
        draw_weight(stream);
    }
    wait_count = 0;
    lost_wait = -1;
}

int64_t ckpt_emulated_waits(void)
{
    return wait_count;
}

void ckpt_emulated_lose_wait(int64_t n)
{
    lost_wait = n;
}

extern "C" void ckpt_emulated_candidates(int which)
{
    candidates = which;
}

extern "C" int64_t ckpt_emulated_starts(void)
{
    return starts;
}

int emulated_candidates()
{
    return candidates;
}

void emulated_spend(int64_t ns)
{
    spent += std::chrono::nanoseconds(ns);
}
