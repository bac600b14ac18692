/* Operations that the device repeats without the host.
 *
 * They are captured once. If toolkit and driver support conditional nodes (CUDA 12.4), the operations become the body of a
 * WHILE node, whose last kernel reads `more`: one launch then runs until `more` is 0, and the host only reads the results. With
 * older versions, the captured graph is launched once per iteration.
 *
 * Making a graph runnable takes longer than capturing it, so the runnable of the last loop is kept (cuda_context.kept), and
 * updated with the operations of the next loop if they have the same form. The graph with the WHILE node is kept as well, and
 * the new operations replace those of its own body, so that its condition keeps the handle with which the runnable was made
 * (dev_graph.h).
 *
 * If setting the condition had no effect, the node would run forever, and the host could not stop it. So repeat_kernel counts
 * the iterations of a launch: if one runs after the end, or if there are more iterations than fit into the ring, the kernel
 * ends the launch with an error, and sets ran_on to report the reason.
 *
 * While the operations of a loop are captured, cuda_context.live is the address of the number of rows. */
#include <new>

#include "kernels/cuda/cuda.h"
#include "kernels/plugin.h"

/* Progress of one launch; on the device. */
struct loop_progress {
    int32_t done;
    int32_t ended;                       /* 1: the condition was cleared */
};

struct cuda_kept {
    dev_graph graph, body;               /* NULL without a WHILE node */
    dev_condition condition;
    dev_runnable runnable;
    struct loop_progress *progress;
};

struct cuda_loop {
    struct cuda_context *context;
    struct cuda_loop_body body;
    struct cuda_kept *own;
    int failed;                          /* the first error of a launch while the loop was captured; 0: none */
};

__global__ void repeat_kernel(dev_condition condition, const int32_t *more, int32_t iterations_max,
                              struct loop_progress *progress, int32_t *ran_on)
{
    pdl_begin();
    bool on = *more != 0;
    progress->done++;
    if (progress->ended || (on && progress->done >= iterations_max)) {
        *(volatile int32_t *)ran_on = 1;
        __threadfence_system();
        __trap();
    }
    progress->ended = !on;
    set_condition(condition, on);
}

static void kept_free(struct cuda_kept **kept)
{
    if (*kept) {
        dev_runnable_free(&(*kept)->runnable);
        dev_graph_free(&(*kept)->graph);
        dev_free((*kept)->progress);
        delete *kept;
    }
    *kept = nullptr;
}

/* Captures the operations of an iteration into `into`, or into a new graph (NULL). */
static int capture(struct cuda_loop *loop, const struct cuda_kept *own, dev_graph into, dev_graph *graph)
{
    struct cuda_context *context = loop->context;
    const int32_t *before = context->live;
    int error = dev_capture_begin(context->stream, into);
    if (error)
        return error;
    context->live = loop->body.rows;
    loop->body.put(loop->body.context);
    context->live = before;
    if (into)
        LAUNCH_PDL(repeat_kernel, dim3(1), dim3(1), 0, context->stream, own->condition, loop->body.more,
                   loop->body.iterations_max, own->progress, context->ran_on);
    error = dev_capture_end(context->stream, graph);
    loop->failed = dev_failure(context->stream);
    return loop->failed ? loop->failed : error;
}

/* Replaces the operations of the kept graph by those of this loop; fails if their form differs. */
static int refill_while(struct cuda_loop *loop, struct cuda_kept *kept)
{
    dev_graph body = nullptr;
    int error = dev_graph_clear(kept->body);
    if (!error)
        error = capture(loop, kept, kept->body, &body);
    return error ? error : dev_runnable_update(kept->runnable, kept->graph);
}

static int fill_while(struct cuda_loop *loop, struct cuda_kept *own)
{
    dev_graph body = nullptr;
    void *progress = nullptr;
    int error = dev_alloc(&progress, sizeof *own->progress);
    own->progress = static_cast<struct loop_progress *>(progress);
    if (!error)
        error = dev_graph_new(&own->graph);
    if (!error)
        error = dev_while_new(own->graph, &own->condition, &own->body);
    if (!error)
        error = capture(loop, own, own->body, &body);
    return error ? error : dev_runnable_new(&own->runnable, own->graph);
}

static int open_while(struct cuda_loop *loop, struct cuda_kept **kept)
{
    struct cuda_context *context = loop->context;
    bool refilled = *kept && (*kept)->graph && !refill_while(loop, *kept);
    if (refilled) {
        loop->own = *kept;
        *kept = nullptr;
    }
    kept_free(kept);
    if (refilled || loop->failed)
        return loop->failed;
    void *ran_on = nullptr;
    int error = context->ran_on ? 0 : dev_alloc_shared(&ran_on, sizeof *context->ran_on);
    if (error)
        return error;
    if (ran_on) {
        context->ran_on = static_cast<int32_t *>(ran_on);
        *context->ran_on = 0;
    }
    loop->own = new (std::nothrow) struct cuda_kept();
    return loop->own ? fill_while(loop, loop->own) : 2;
}

/* Opens a loop that launches one graph per iteration. */
static int open_each(struct cuda_loop *loop, struct cuda_kept **kept)
{
    dev_graph graph = nullptr;
    int error = capture(loop, nullptr, nullptr, &graph);
    if (!error && *kept && !(*kept)->graph && !dev_runnable_update((*kept)->runnable, graph)) {
        loop->own = *kept;
        *kept = nullptr;
    } else if (!error) {
        loop->own = new (std::nothrow) struct cuda_kept();
        error = loop->own ? dev_runnable_new(&loop->own->runnable, graph) : 2;
    }
    dev_graph_free(&graph);
    return error;
}

int cuda_loop_open(struct cuda_context *context, const struct cuda_loop_body *body, struct cuda_loop **out)
{
    bool has_while = false;
    struct cuda_loop *loop = new (std::nothrow) struct cuda_loop();
    struct cuda_kept *kept = context->kept;
    if (!loop)
        return 2;
    loop->context = context;
    loop->body = *body;
    context->kept = nullptr;
    int error = dev_use(context->device);
    if (!error)
        error = dev_has_while(&has_while);
    if (!error)
        error = has_while && !context->no_while ? open_while(loop, &kept) : open_each(loop, &kept);
    kept_free(&kept);
    if (error) {
        kept_free(&loop->own);
        delete loop;
        return error;
    }
    *out = loop;
    return 0;
}

int cuda_loop_busy(struct cuda_loop *loop, int *busy) { return dev_busy(loop->context->stream, busy); }

int cuda_loop_go(struct cuda_loop *loop)
{
    dev_stream stream = loop->context->stream;
    int error = dev_use(loop->context->device);
    if (!error && loop->own->graph)
        error = dev_fill(loop->own->progress, 0, sizeof *loop->own->progress, stream);
    return error ? error : dev_runnable_launch(loop->own->runnable, stream);
}

/* Frees the loop, but keeps its graph for the next loop unless the loop failed. */
int cuda_loop_close(struct cuda_loop **loop)
{
    int error = 0;
    if (*loop) {
        struct cuda_context *context = (*loop)->context;
        error = dev_use(context->device);
        if (!error)
            error = dev_wait(context->stream);
        if (error)
            kept_free(&(*loop)->own);
        kept_free(&context->kept);
        context->kept = (*loop)->own;
        delete *loop;
    }
    *loop = nullptr;
    return error;
}

void cuda_loop_forget(struct cuda_context *context)
{
    kept_free(&context->kept);
    if (context->ran_on)
        dev_free_shared(context->ran_on);
    context->ran_on = nullptr;
}
