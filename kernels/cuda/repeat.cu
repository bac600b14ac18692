/* Operations that the device repeats by itself, or once while its clock runs.
 *
 * On a GPU they are captured once. With a toolkit and a driver that have conditional nodes (CUDA 12.4) they are the body of a
 * WHILE node, whose last kernel looks at `more`: one launch then runs until that is 0, and the host only reads what comes out.
 * With older ones the captured graph is launched for each iteration. Making a graph executable takes longer than capturing it,
 * so that of the last loop is kept (cuda_context.kept), and the next one's operations are put into it, where they are of the
 * same kind. The emulator has no graphs: there the host puts the operations of each iteration on the queue, which runs the
 * same kernels.
 *
 * While operations of a loop are put, cuda_context.live says where the number of rows will stand. */
#include <new>

#include "kernels/cuda/cuda.h"
#include "kernels/plugin.h"

#if defined(__CUDACC__)
#define REPEAT_GRAPH 1
#define REPEAT_WHILE (CUDART_VERSION >= 12040)
#else
#define REPEAT_GRAPH 0
#define REPEAT_WHILE 0
#endif

struct cuda_loop {
    struct cuda_context *context;
    struct cuda_loop_body body;
#if REPEAT_GRAPH
    cudaGraph_t graph;
    cudaGraphExec_t runnable;
#endif
};

static void put_body(void *of)
{
    struct cuda_loop *loop = static_cast<struct cuda_loop *>(of);
    const int32_t *before = loop->context->live;
    loop->context->live = loop->body.rows;
    loop->body.put(loop->body.context);
    loop->context->live = before;
}

#if REPEAT_GRAPH

/* A kernel's first launch loads it, also while operations are captured: this mode forbids nothing that may want. */
static const cudaStreamCaptureMode CAPTURE_MODE = cudaStreamCaptureModeRelaxed;

/* What `put` puts on the stream, as a graph. */
static cudaError_t capture(dev_stream stream, void (*put)(void *), void *context, cudaGraph_t *graph)
{
    cudaError_t error = cudaStreamBeginCapture(dev_stream_of(stream), CAPTURE_MODE);
    if (error)
        return error;
    put(context);
    return cudaStreamEndCapture(dev_stream_of(stream), graph);
}

#if REPEAT_WHILE

__global__ void repeat_kernel(cudaGraphConditionalHandle handle, const int32_t *more)
{
    cudaGraphSetConditional(handle, *more != 0);
}

/* A toolkit also runs on drivers that are older than itself, which know no conditional nodes. */
static bool driver_has_while(void)
{
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess && version >= 12040;
}

/* loop->graph with one WHILE node, and the operations in its body. */
static cudaError_t capture_while(struct cuda_loop *loop)
{
    dev_stream stream = loop->context->stream;
    cudaGraphConditionalHandle handle;
    cudaGraphNodeParams node = {};
    cudaGraphNode_t made;
    cudaError_t error = cudaGraphCreate(&loop->graph, 0);
    if (!error)
        error = cudaGraphConditionalHandleCreate(&handle, loop->graph, 1, cudaGraphCondAssignDefault);
    if (error)
        return error;
    node.type = cudaGraphNodeTypeConditional;
    node.conditional.handle = handle;
    node.conditional.type = cudaGraphCondTypeWhile;
    node.conditional.size = 1;
#if CUDART_VERSION >= 13000
    error = cudaGraphAddNode(&made, loop->graph, nullptr, nullptr, 0, &node);
#else
    error = cudaGraphAddNode(&made, loop->graph, nullptr, 0, &node);
#endif
    if (!error)
        error = cudaStreamBeginCaptureToGraph(dev_stream_of(stream), node.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                              CAPTURE_MODE);
    if (error)
        return error;
    put_body(loop);
    LAUNCH(repeat_kernel, dim3(1), dim3(1), 0, stream, handle, loop->body.more);
    cudaGraph_t body = nullptr;
    return cudaStreamEndCapture(dev_stream_of(stream), &body);
}

#endif

static cudaError_t capture_loop(struct cuda_loop *loop)
{
#if REPEAT_WHILE
    if (driver_has_while())
        return capture_while(loop);
#endif
    return capture(loop->context->stream, put_body, loop, &loop->graph);
}

/* The kept graph with the loop's operations in it, else a new one. */
static cudaError_t make_runnable(struct cuda_loop *loop)
{
    cudaGraphExec_t kept = (cudaGraphExec_t)loop->context->kept;
    cudaGraphExecUpdateResultInfo info;
    loop->context->kept = nullptr;
    if (kept && cudaGraphExecUpdate(kept, loop->graph, &info) == cudaSuccess) {
        loop->runnable = kept;
        return cudaSuccess;
    }
    if (kept) {
        cudaGetLastError();              /* another kind of operations is no error */
        cudaGraphExecDestroy(kept);
    }
    return cudaGraphInstantiate(&loop->runnable, loop->graph, 0);
}

#endif

void cuda_loop_forget(struct cuda_context *context)
{
#if REPEAT_GRAPH
    if (context->kept)
        cudaGraphExecDestroy((cudaGraphExec_t)context->kept);
#endif
    context->kept = nullptr;
}

int cuda_loop_open(struct cuda_context *context, const struct cuda_loop_body *body, struct cuda_loop **out)
{
    struct cuda_loop *loop = new (std::nothrow) struct cuda_loop();
    if (!loop)
        return 2;
    loop->context = context;
    loop->body = *body;
#if REPEAT_GRAPH
    int error = dev_use(context->device);
    if (!error)
        error = dev_told(capture_loop(loop));
    if (!error)
        error = dev_told(make_runnable(loop));
    if (error) {
        cuda_loop_close(&loop);
        return error;
    }
#endif
    *out = loop;
    return 0;
}

int cuda_loop_busy(struct cuda_loop *loop, int *busy)
{
#if REPEAT_GRAPH
    int state = dev_told(cudaStreamQuery(dev_stream_of(loop->context->stream)));
    *busy = state == cudaErrorNotReady;
    return *busy ? 0 : state;
#else
    (void)loop;
    *busy = 0;
    return 0;
#endif
}

int cuda_loop_go(struct cuda_loop *loop)
{
#if REPEAT_GRAPH
    int error = dev_use(loop->context->device);
    return error ? error : dev_told(cudaGraphLaunch(loop->runnable, dev_stream_of(loop->context->stream)));
#else
    put_body(loop);
    return dev_wait(loop->context->stream);
#endif
}

int cuda_loop_close(struct cuda_loop **loop)
{
    int error = 0;
    if (*loop) {
        error = dev_use((*loop)->context->device);
        if (!error)
            error = dev_wait((*loop)->context->stream);
#if REPEAT_GRAPH
        if ((*loop)->runnable) {
            cuda_loop_forget((*loop)->context);
            (*loop)->context->kept = (*loop)->runnable;
        }
        if ((*loop)->graph)
            cudaGraphDestroy((*loop)->graph);
#endif
        delete *loop;
    }
    *loop = nullptr;
    return error;
}

/* ---- once, between two looks at the device's clock ---- */

struct timed {
    struct cuda_context *context;
    void (*put)(void *);
    void *put_context;
    uint64_t *stamp;                     /* [2] on the device */
};

__global__ void stamp_kernel(uint64_t *stamp)
{
    *stamp = device_clock();
}

static void put_timed(void *of)
{
    struct timed *timed = static_cast<struct timed *>(of);
    dev_stream stream = timed->context->stream;
    LAUNCH(stamp_kernel, dim3(1), dim3(1), 0, stream, timed->stamp);
    timed->put(timed->put_context);
    LAUNCH(stamp_kernel, dim3(1), dim3(1), 0, stream, timed->stamp + 1);
}

static int run_timed(struct timed *timed)
{
#if REPEAT_GRAPH
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t runnable = nullptr;
    dev_stream stream = timed->context->stream;
    cudaError_t error = capture(stream, put_timed, timed, &graph);
    if (!error)
        error = cudaGraphInstantiate(&runnable, graph, 0);
    if (!error)
        error = cudaGraphUpload(runnable, dev_stream_of(stream));
    if (!error)
        error = cudaGraphLaunch(runnable, dev_stream_of(stream));
    int late = dev_wait(stream);
    if (runnable)
        cudaGraphExecDestroy(runnable);
    if (graph)
        cudaGraphDestroy(graph);
    return error ? dev_told(error) : late;
#else
    put_timed(timed);
    return dev_wait(timed->context->stream);
#endif
}

int cuda_time(struct cuda_context *context, void (*put)(void *), void *put_context, double *seconds)
{
    void *stamps = nullptr;
    uint64_t at[2] = {0, 0};
    int error = dev_use(context->device);
    if (!error)
        error = dev_alloc(&stamps, sizeof at);
    if (error)
        return error;
    struct timed timed = {context, put, put_context, static_cast<uint64_t *>(stamps)};
    error = run_timed(&timed);
    if (!error)
        error = dev_download(at, stamps, sizeof at, context->stream);
    if (!error)
        error = dev_wait(context->stream);
    dev_free(stamps);
    *seconds = 1e-9 * (double)(at[1] - at[0]);
    return error;
}
