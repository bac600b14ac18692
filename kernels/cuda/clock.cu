/* Runs operations once, as one graph, between two readings of the device's clock, for gpu-bench. This is a module of its own,
 * because drivers that reject repeat.cu accept this one. */
#include "kernels/cuda/cuda.h"

struct timed_put {
    struct cuda_context *context;
    void (*put)(void *);
    void *put_context;
    uint64_t *stamp;                     /* [2] on the device */
};

__global__ void stamp_kernel(uint64_t *stamp)
{
    *stamp = device_clock();
}

static void put_timed(const struct timed_put *timed)
{
    dev_stream stream = timed->context->stream;
    LAUNCH(stamp_kernel, dim3(1), dim3(1), 0, stream, timed->stamp);
    timed->put(timed->put_context);
    LAUNCH(stamp_kernel, dim3(1), dim3(1), 0, stream, timed->stamp + 1);
}

static int run_timed(const struct timed_put *timed)
{
    dev_graph graph = nullptr;
    dev_runnable runnable = nullptr;
    dev_stream stream = timed->context->stream;
    int error = dev_capture_begin(stream, nullptr);
    if (error)
        return error;
    put_timed(timed);
    error = dev_capture_end(stream, &graph);
    if (!error)
        error = dev_failure(stream);
    if (!error)
        error = dev_runnable_new(&runnable, graph);
    if (!error)
        error = dev_runnable_upload(runnable, stream);
    if (!error)
        error = dev_runnable_launch(runnable, stream);
    if (!error)
        error = dev_wait(stream);
    dev_runnable_free(&runnable);
    dev_graph_free(&graph);
    return error;
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
    const struct timed_put timed = {context, put, put_context, static_cast<uint64_t *>(stamps)};
    error = run_timed(&timed);
    if (!error)
        error = dev_download(at, stamps, sizeof at, context->stream);
    if (!error)
        error = dev_wait(context->stream);
    dev_free(stamps);
    *seconds = 1e-9 * (double)(at[1] - at[0]);
    return error;
}
