/* Devices, memory and the queue: the functions of the table that common/tensor/device_cuda.c opens. */
#include "kernels/plugin.h"

#include <stdlib.h>

#include <new>

#include "kernels/cuda/context.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/learn.h"
#include "kernels/cuda/slab.h"

static const size_t SCRATCH = (size_t)256 << 10, SCRATCH_PART = 512;     /* scratch: bytes for each processor, at least
                                                                          * 1/SCRATCH_PART of memory */
static const size_t SLAB_ROOM = (size_t)256 << 20;

struct plugin_device : cuda_context {
    struct dev_properties properties;
    dev_stream copies;
    int failed;                                              /* the first error since the last wait; 0: none */
};

struct cuda_event {
    struct plugin_device *device;
    dev_event event;
};

static struct plugin_device *device_of(struct cuda_context *context) { return static_cast<struct plugin_device *>(context); }

static void plugin_close(struct cuda_context **context)
{
    if (*context) {
        struct plugin_device *device = device_of(*context);
        dev_use(device->device);
        if (device->copies)
            dev_wait(device->copies);
        if (device->stream)
            dev_wait(device->stream);
        cuda_loop_forget(device);
        slab_close(&device->slab);
        dev_free((void *)(uintptr_t)device->scratch.address);
        dev_free(device->tickets);
        if (device->copies)
            dev_stream_free(device->copies);
        if (device->stream)
            dev_stream_free(device->stream);
        delete device;
    }
    *context = nullptr;
}

/* Reads environment switches that help to locate a fault on a GPU, or to measure a part of it, without a new build. */
static void read_switches(struct plugin_device *device)
{
    static const struct { const char *name; enum cuda_switch what; } switches[] = {
        {"MOE_CUDA_NO_FEW", CUDA_FEW}, {"MOE_CUDA_NO_AHEAD", CUDA_AHEAD},
        {"MOE_CUDA_NO_TREE", CUDA_TREE}, {"MOE_CUDA_NO_SUM", CUDA_SUM}, {"MOE_CUDA_NO_CHOICE", CUDA_CHOICE},
        {"MOE_CUDA_NO_ROUTE", CUDA_ROUTE}, {"MOE_CUDA_NO_NORM", CUDA_NORM}, {"MOE_CUDA_NO_LOGITS", CUDA_LOGITS}};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
        device->off |= getenv(switches[i].name) ? (unsigned)switches[i].what : 0;
    if (getenv("MOE_CUDA_NO_PDL"))
        dev_stream_in_order(device->stream);
    device->no_while = getenv("MOE_CUDA_NO_WHILE") != nullptr;
}

static int plugin_open(struct cuda_context **out, int number, char *name, size_t room, char *why, size_t why_room)
{
    struct plugin_device *device = new (std::nothrow) struct plugin_device();
    if (!device)
        return 2;
    void *scratch = nullptr, *tickets = nullptr;
    device->device = number;
    int error = dev_use(number);
    if (!error)
        error = dev_properties_of(number, &device->properties);
    if (!error)
        error = dev_stream_new(&device->stream);
    if (!error)
        error = dev_copies_new(&device->copies);
    size_t bytes = SCRATCH * (size_t)device->properties.processors, part = device->properties.memory / SCRATCH_PART;
    bytes = bytes > part ? bytes : part / 256 * 256;
    if (!error)
        error = dev_alloc(&scratch, bytes);
    device->scratch = buffer{(uint64_t)(uintptr_t)scratch, bytes};
    if (!error)
        error = dev_alloc(&tickets, CONTEXT_TICKETS * sizeof *device->tickets);
    device->tickets = (unsigned *)tickets;
    if (!error)
        error = dev_fill(tickets, 0, CONTEXT_TICKETS * sizeof *device->tickets, device->stream);
    if (error) {
        struct cuda_context *failed = device;
        plugin_close(&failed);
        return error;
    }
    read_switches(device);
    device->slab = slab_open(device->stream, SLAB_ROOM, why, why_room);
    if (device->slab)
        why[0] = '\0';
    snprintf(name, room, "%s", device->properties.name);
    *out = device;
    return 0;
}

static int plugin_alloc(struct cuda_context *context, size_t bytes, void **out)
{
    int error = dev_use(context->device);
    return error ? error : dev_alloc(out, bytes);
}

static int plugin_free(struct cuda_context *context, void *memory)
{
    int error = dev_use(context->device);
    return error ? error : dev_free(memory);
}

static int keep(struct cuda_context *context, int error)
{
    struct plugin_device *device = device_of(context);
    if (!device->failed)
        device->failed = error;
    return error;
}

static int plugin_upload(struct cuda_context *context, void *to, const void *from, size_t bytes)
{
    dev_use(context->device);
    if (bytes > CUDA_PUT_MAX || dev_captures(context->stream))
        return keep(context, dev_upload(to, from, bytes, context->stream));
    cuda_put(context->stream, to, from, bytes);
    return 0;
}

static int plugin_download(struct cuda_context *context, void *to, const void *from, size_t bytes)
{
    dev_use(context->device);
    return keep(context, dev_download(to, from, bytes, context->stream));
}

static int plugin_wait(struct cuda_context *context)
{
    struct plugin_device *device = device_of(context);
    dev_use(context->device);
    keep(context, dev_wait(context->stream));
    int error = device->failed;
    device->failed = 0;
    return error;
}

static void plugin_blame(struct cuda_context *context, char *text, size_t room)
{
    if (context->ran_on && *(const volatile int32_t *)context->ran_on)
        snprintf(text, room, "the graph of the loop went on after its end (repeat_kernel)");
    else
        dev_blame(context->stream, text, room);
}

/* Measures copies within the device. Each byte is read and written once, and both count. The first round touches new memory. */
static int plugin_copy_bandwidth(struct cuda_context *context, size_t bytes, double seconds, double *bytes_per_second)
{
    const int copies = 8;
    void *from = nullptr, *to = nullptr;
    int error = plugin_alloc(context, bytes, &from);
    if (!error)
        error = plugin_alloc(context, bytes, &to);
    if (!error)
        error = dev_fill(from, 1, bytes, context->stream);
    double best = 0, all = 0;
    for (int round = 0; !error && (round < 3 || all < seconds); round++) {
        double start = dev_seconds();
        for (int i = 0; i < copies && !error; i++)
            error = dev_copy(to, from, bytes, context->stream);
        if (!error)
            error = dev_wait(context->stream);
        double took = dev_seconds() - start, speed = 2.0 * copies * (double)bytes / took;
        best = round && speed > best ? speed : best;
        all += took;
    }
    plugin_free(context, from);
    plugin_free(context, to);
    *bytes_per_second = best;
    return error;
}

static int plugin_alloc_shared(struct cuda_context *context, size_t bytes, void **out)
{
    int error = dev_use(context->device);
    return error ? error : dev_alloc_shared(out, bytes);
}

static int plugin_free_shared(struct cuda_context *context, void *memory)
{
    int error = dev_use(context->device);
    return error ? error : dev_free_shared(memory);
}

static int plugin_copy_upload(struct cuda_context *context, void *to, const void *from, size_t bytes)
{
    dev_use(context->device);
    return keep(context, dev_upload_pinned(to, from, bytes, device_of(context)->copies));
}

static int plugin_event_close(struct cuda_event **event)
{
    int error = 0;
    if (*event) {
        dev_use((*event)->device->device);
        error = dev_event_free(&(*event)->event);
        delete *event;
    }
    *event = nullptr;
    return error;
}

static int plugin_event_open(struct cuda_context *context, struct cuda_event **out)
{
    struct cuda_event *event = new (std::nothrow) struct cuda_event();
    if (!event)
        return 2;
    event->device = device_of(context);
    int error = dev_use(context->device);
    if (!error)
        error = dev_event_new(&event->event);
    if (error)
        delete event;
    else
        *out = event;
    return error;
}

static dev_stream stream_for(const struct cuda_event *event, int copies)
{
    dev_use(event->device->device);
    return copies ? event->device->copies : event->device->stream;
}

static int plugin_event_record(struct cuda_event *event, int copies)
{
    return keep(event->device, dev_event_record(event->event, stream_for(event, copies)));
}

static int plugin_event_hold(struct cuda_event *event, int copies)
{
    return keep(event->device, dev_event_hold(event->event, stream_for(event, copies)));
}

static int plugin_event_wait(struct cuda_event *event)
{
    dev_use(event->device->device);
    return dev_event_wait(event->event);
}

static int plugin_event_busy(struct cuda_event *event, int *busy)
{
    dev_use(event->device->device);
    return dev_event_busy(event->event, busy);
}

static int plugin_memory_left(struct cuda_context *context, size_t *bytes)
{
    int error = dev_use(context->device);
    return error ? error : dev_memory_left(bytes);
}

static int plugin_chooses(const struct cuda_context *context) { return !(context->off & CUDA_CHOICE); }

extern "C" const struct cuda_plugin *moe_cuda_plugin(void)
{
    static const struct cuda_plugin plugin = {
        CUDA_PLUGIN_VERSION, &cuda_ops, dev_count, plugin_open, plugin_close, plugin_alloc, plugin_free, plugin_upload,
        plugin_download, plugin_wait, plugin_copy_bandwidth, dev_error_text, dev_error_name, plugin_blame, plugin_alloc_shared,
        plugin_free_shared, cuda_loop_open, cuda_loop_busy, cuda_loop_go, cuda_loop_close, cuda_time,
        plugin_copy_upload, plugin_event_open, plugin_event_close, plugin_event_record, plugin_event_hold, plugin_event_wait,
        plugin_event_busy, plugin_memory_left, &cuda_learn_ops, plugin_chooses,
    };
    return &plugin;
}
