/* Operations that the device repeats by itself.
 *
 * On a GPU they are captured once. With a toolkit that has conditional nodes (CUDA 12.4) they are the body of a WHILE node,
 * whose last kernel looks at `more`: one launch then runs until that is 0, and the host only reads what comes out. With an
 * older one the captured graph is launched for each iteration. The emulator has no graphs: there the host puts the operations
 * on the queue anew for each iteration, which runs the same kernels.
 *
 * While operations are put, cuda_context.live says where the number of rows will stand. */
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

static void put_body(struct cuda_loop *loop)
{
    const int32_t *before = loop->context->live;
    loop->context->live = loop->body.rows;
    loop->body.put(loop->body.context);
    loop->context->live = before;
}

#if REPEAT_WHILE

__global__ void repeat_kernel(cudaGraphConditionalHandle handle, const int32_t *more)
{
    cudaGraphSetConditional(handle, *more != 0);
}

/* loop->graph with one WHILE node, and the operations in its body. */
static int capture(struct cuda_loop *loop)
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
                                              cudaStreamCaptureModeThreadLocal);
    if (error)
        return error;
    put_body(loop);
    LAUNCH(repeat_kernel, dim3(1), dim3(1), 0, stream, handle, loop->body.more);
    cudaGraph_t body = nullptr;
    return cudaStreamEndCapture(dev_stream_of(stream), &body);
}

#elif REPEAT_GRAPH

static int capture(struct cuda_loop *loop)
{
    cudaError_t error = cudaStreamBeginCapture(dev_stream_of(loop->context->stream), cudaStreamCaptureModeThreadLocal);
    if (error)
        return error;
    put_body(loop);
    return cudaStreamEndCapture(dev_stream_of(loop->context->stream), &loop->graph);
}

#endif

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
        error = capture(loop);
    if (!error)
        error = cudaGraphInstantiate(&loop->runnable, loop->graph, 0);
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
    cudaError_t state = cudaStreamQuery(dev_stream_of(loop->context->stream));
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
    return error ? error : cudaGraphLaunch(loop->runnable, dev_stream_of(loop->context->stream));
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
        if ((*loop)->runnable)
            cudaGraphExecDestroy((*loop)->runnable);
        if ((*loop)->graph)
            cudaGraphDestroy((*loop)->graph);
#endif
        delete *loop;
    }
    *loop = nullptr;
    return error;
}
