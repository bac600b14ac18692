/* Graphs of launches: host code captures the operations on a stream once, and launches them as a whole. Included by dev.h;
 * tests/emu/graph.cc implements the same for the emulator.
 *
 *     dev_graph_new(&graph), dev_graph_free(&graph)
 *     dev_while_new(graph, &condition, &body)      a WHILE node, the graph's first and only one; its `body` is a graph that it
 *                                  owns, and is repeated while `condition` is set; every launch of `graph` sets it at the start
 *     dev_has_while(&has)          whether toolkit and driver support such nodes (CUDA 12.4)
 *     dev_capture_begin(stream, into), dev_capture_end(stream, &graph)     operations queued on the stream between these calls
 *                                  do not run, but become nodes of `into`, an empty graph; NULL: of a new one, `graph`
 *     dev_captures(stream)         whether the stream is capturing
 *     dev_graph_clear(graph)       removes its nodes
 *     dev_runnable_new(&runnable, graph)           lasts milliseconds; for graphs with a WHILE node, one may exist at a time
 *     dev_runnable_update(runnable, graph)         replaces its nodes by those of a graph of the same form, 100 times faster;
 *                                  returns an error if the form differs, and then changes nothing
 *     dev_runnable_upload, dev_runnable_launch(runnable, stream), dev_runnable_free(&runnable)
 *     set_condition(condition, on)                 in a kernel: called by one thread, once per iteration
 *
 * A condition belongs to the graph in which it was created. Its effect on a runnable of another graph, or of a freed graph, is
 * not guaranteed: cudaGraphExecUpdate copies the flags and the first value of a new graph's condition to a runnable, not its
 * handle. On the emulator the condition then has no effect. So code that keeps a runnable with a WHILE node also keeps its
 * graph, and changes the operations in the body. */
#ifndef MOE_KERNELS_CUDA_DEV_GRAPH_H
#define MOE_KERNELS_CUDA_DEV_GRAPH_H

#include "kernels/cuda/dev.h"

#ifdef __CUDACC__

#define DEV_WHILE (CUDART_VERSION >= 12040)

typedef cudaGraph_t dev_graph;
typedef cudaGraphExec_t dev_runnable;
typedef unsigned long long dev_condition;        /* cudaGraphConditionalHandle, if the toolkit defines it */

/* The first launch of a kernel loads it, also while operations are captured; the relaxed mode permits that. */
static const cudaStreamCaptureMode DEV_CAPTURE = cudaStreamCaptureModeRelaxed;

/* Sets *has. A toolkit may run with an older driver, so both versions are checked. */
static inline int dev_has_while(bool *has)
{
    int version = 0, error = dev_reported(cudaDriverGetVersion(&version));
    *has = DEV_WHILE && version >= 12040;
    return error;
}

static inline int dev_graph_new(dev_graph *out) { return dev_reported(cudaGraphCreate(out, 0)); }

static inline int dev_graph_free(dev_graph *graph)
{
    int error = *graph ? dev_reported(cudaGraphDestroy(*graph)) : 0;
    *graph = nullptr;
    return error;
}

static inline int dev_while_new(dev_graph graph, dev_condition *condition, dev_graph *body)
{
#if DEV_WHILE
    cudaGraphNodeParams node = {};
    cudaGraphNode_t made;
    cudaError_t error = cudaGraphConditionalHandleCreate(condition, graph, 1, cudaGraphCondAssignDefault);
    if (error != cudaSuccess)
        return dev_reported(error);
    node.type = cudaGraphNodeTypeConditional;
    node.conditional.handle = *condition;
    node.conditional.type = cudaGraphCondTypeWhile;
    node.conditional.size = 1;
#if CUDART_VERSION >= 13000
    error = cudaGraphAddNode(&made, graph, nullptr, nullptr, 0, &node);
#else
    error = cudaGraphAddNode(&made, graph, nullptr, 0, &node);
#endif
    *body = error == cudaSuccess ? node.conditional.phGraph_out[0] : nullptr;
    return dev_reported(error);
#else
    (void)graph, (void)condition, (void)body;
    return cudaErrorNotSupported;
#endif
}

static inline int dev_graph_clear(dev_graph graph)
{
    size_t count = 0;
    int error = dev_reported(cudaGraphGetNodes(graph, nullptr, &count));
    cudaGraphNode_t *nodes = !error && count ? (cudaGraphNode_t *)malloc(count * sizeof *nodes) : nullptr;
    if (!error && count)
        error = nodes ? dev_reported(cudaGraphGetNodes(graph, nodes, &count)) : cudaErrorMemoryAllocation;
    for (size_t i = 0; i < count && !error; i++)
        error = dev_reported(cudaGraphDestroyNode(nodes[i]));
    free(nodes);
    return error;
}

static inline int dev_capture_begin(dev_stream stream, dev_graph into)
{
    if (!into)
        return dev_reported(cudaStreamBeginCapture(dev_stream_of(stream), DEV_CAPTURE));
#if DEV_WHILE
    return dev_reported(cudaStreamBeginCaptureToGraph(dev_stream_of(stream), into, nullptr, nullptr, 0, DEV_CAPTURE));
#else
    return cudaErrorNotSupported;
#endif
}

static inline int dev_capture_end(dev_stream stream, dev_graph *graph)
{
    return dev_reported(cudaStreamEndCapture(dev_stream_of(stream), graph));
}

static inline bool dev_captures(dev_stream stream)
{
    cudaStreamCaptureStatus status;
    return dev_reported(cudaStreamIsCapturing(dev_stream_of(stream), &status)) || status != cudaStreamCaptureStatusNone;
}

static inline int dev_runnable_new(dev_runnable *out, dev_graph graph)
{
    return dev_reported(cudaGraphInstantiate(out, graph, 0));
}

static inline int dev_runnable_free(dev_runnable *runnable)
{
    int error = *runnable ? dev_reported(cudaGraphExecDestroy(*runnable)) : 0;
    *runnable = nullptr;
    return error;
}

static inline int dev_runnable_update(dev_runnable runnable, dev_graph graph)
{
    cudaGraphExecUpdateResultInfo info;
    return dev_reported(cudaGraphExecUpdate(runnable, graph, &info));
}

static inline int dev_runnable_upload(dev_runnable runnable, dev_stream stream)
{
    return dev_reported(cudaGraphUpload(runnable, dev_stream_of(stream)));
}

static inline int dev_runnable_launch(dev_runnable runnable, dev_stream stream)
{
    int error = dev_use(dev_device_of(stream));
    return error ? error : dev_reported(cudaGraphLaunch(runnable, dev_stream_of(stream)));
}

static __device__ __forceinline__ void set_condition(dev_condition condition, bool on)
{
#if DEV_WHILE
    cudaGraphSetConditional(condition, on);
#else
    (void)condition, (void)on;
#endif
}

#else

struct emu_graph;
struct emu_runnable;
typedef struct emu_graph *dev_graph;
typedef struct emu_runnable *dev_runnable;
typedef uint64_t dev_condition;

int dev_has_while(bool *has);
int dev_graph_new(dev_graph *out);
int dev_graph_free(dev_graph *graph);
int dev_while_new(dev_graph graph, dev_condition *condition, dev_graph *body);
int dev_graph_clear(dev_graph graph);
int dev_capture_begin(dev_stream stream, dev_graph into);
int dev_capture_end(dev_stream stream, dev_graph *graph);
bool dev_captures(dev_stream stream);
int dev_runnable_new(dev_runnable *out, dev_graph graph);
int dev_runnable_free(dev_runnable *runnable);
int dev_runnable_update(dev_runnable runnable, dev_graph graph);
int dev_runnable_upload(dev_runnable runnable, dev_stream stream);
int dev_runnable_launch(dev_runnable runnable, dev_stream stream);
void set_condition(dev_condition condition, bool on);

#endif

#endif
