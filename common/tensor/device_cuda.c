/* A GPU, through the plug-in that nvcc builds from kernels/cuda (kernels/plugin.h). It is opened at run time, so that the same
 * commands run without plug-in or driver and report what is missing. The plug-in of the emulator in test builds is opened in
 * the same way. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/base/plugin.h"
#include "common/tensor/device_class.h"
#include "kernels/plugin.h"

#define ERROR_NO_DRIVER 35                       /* cudaErrorInsufficientDriver */
#define ERROR_NO_DEVICE 100                      /* cudaErrorNoDevice */

struct cuda_device {
    struct device base;
    void *library;
    const struct cuda_plugin *plugin;
    int failed;                                  /* first error of a call that cannot report it; 0: none */
};

static struct cuda_device *cuda_of(struct device *device)
{
    return (struct cuda_device *)device;
}

static struct cuda_context *context_of(struct device *device)
{
    return device->queue.state;
}

static int report(const struct cuda_plugin *plugin, int error, const char *what, struct err *err)
{
    return err_set(err, error == 2 ? ERR_MEMORY : ERR_IO, "%s: %s (CUDA error %d, %s)", what, plugin->error_text(error), error,
                   plugin->error_name(error));
}

/* Reports an error with the launch that caused it. */
static int report_where(struct device *device, int error, const char *what, struct err *err)
{
    const struct cuda_plugin *plugin = cuda_of(device)->plugin;
    char launch[512];
    plugin->blame(context_of(device), launch, sizeof launch);
    report(plugin, error, what, err);
    return launch[0] ? err_at(err, "%s", launch) : -1;
}

static void cuda_close(struct device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    struct cuda_context *context = context_of(device);
    cuda->plugin->close(&context);
    dlclose(cuda->library);
    mem_free(&cuda);
}

static int cuda_alloc(struct device *device, size_t bytes, struct buffer *out, struct err *err)
{
    void *memory = NULL;
    int error = cuda_of(device)->plugin->alloc(context_of(device), bytes, &memory);
    if (error == 2)
        return err_set(err, ERR_MEMORY, "device %s: has no free memory for another %zu MiB; use a smaller model or a shorter "
                       "context",
                       device->info.name, bytes >> 20);
    if (error)
        return report(cuda_of(device)->plugin, error, "memory", err);
    *out = (struct buffer){(uint64_t)(uintptr_t)memory, bytes};
    return 0;
}

static void keep(struct device *device, int error)
{
    if (!cuda_of(device)->failed)
        cuda_of(device)->failed = error;
}

static void cuda_free(struct device *device, struct buffer buffer)
{
    keep(device, cuda_of(device)->plugin->free(context_of(device), (void *)(uintptr_t)buffer.address));
}

static int64_t cuda_memory_left(struct device *device)
{
    size_t left = 0;
    return cuda_of(device)->plugin->memory_left(context_of(device), &left) ? -1 : (int64_t)left;
}

static void cuda_upload(struct device *device, struct buffer to, const void *data, size_t bytes)
{
    keep(device, cuda_of(device)->plugin->upload(context_of(device), (void *)(uintptr_t)to.address, data, bytes));
}

static void cuda_download(struct device *device, void *data, struct buffer from, size_t bytes)
{
    keep(device, cuda_of(device)->plugin->download(context_of(device), data, (const void *)(uintptr_t)from.address, bytes));
}

static int cuda_wait(struct device *device, struct err *err)
{
    struct cuda_device *cuda = cuda_of(device);
    keep(device, cuda->plugin->wait(context_of(device)));
    int error = cuda->failed;
    cuda->failed = 0;
    return error ? report_where(device, error, device->info.name, err) : 0;
}

static int cuda_alloc_shared(struct device *device, size_t bytes, struct buffer *out, struct err *err)
{
    void *memory = NULL;
    int error = cuda_of(device)->plugin->alloc_shared(context_of(device), bytes, &memory);
    if (error)
        return report(cuda_of(device)->plugin, error, "memory shared with the host", err);
    *out = (struct buffer){(uint64_t)(uintptr_t)memory, bytes};
    return 0;
}

static void cuda_free_shared(struct device *device, struct buffer buffer)
{
    keep(device, cuda_of(device)->plugin->free_shared(context_of(device), (void *)(uintptr_t)buffer.address));
}

struct cuda_marker {
    struct device_event base;
    struct cuda_event *event;
};

static struct cuda_event *marker_of(struct device_event *event)
{
    return ((struct cuda_marker *)event)->event;
}

static void cuda_copy_upload(struct device *device, struct buffer to, const void *data, size_t bytes)
{
    keep(device, cuda_of(device)->plugin->copy_upload(context_of(device), (void *)(uintptr_t)to.address, data, bytes));
}

static int cuda_event_open(struct device_event **out, struct device *device, struct err *err)
{
    struct cuda_marker *marker = mem_alloc(1, sizeof *marker, err);
    if (!marker)
        return -1;
    marker->base.device = device;
    int error = cuda_of(device)->plugin->event_open(context_of(device), &marker->event);
    if (error) {
        mem_free(&marker);
        return report(cuda_of(device)->plugin, error, "an event", err);
    }
    *out = &marker->base;
    return 0;
}

static void cuda_event_close(struct device_event *event)
{
    struct cuda_marker *marker = (struct cuda_marker *)event;
    keep(event->device, cuda_of(event->device)->plugin->event_close(&marker->event));
    mem_free(&marker);
}

static void cuda_event_record(struct device_event *event, enum queue_kind queue)
{
    keep(event->device, cuda_of(event->device)->plugin->event_record(marker_of(event), queue == QUEUE_COPIES));
}

static void cuda_event_hold(struct device_event *event, enum queue_kind queue)
{
    keep(event->device, cuda_of(event->device)->plugin->event_hold(marker_of(event), queue == QUEUE_COPIES));
}

static bool cuda_event_passed(struct device_event *event)
{
    int busy = 0;
    keep(event->device, cuda_of(event->device)->plugin->event_busy(marker_of(event), &busy));
    return !busy;
}

static int cuda_event_wait(struct device_event *event, struct err *err)
{
    int error = cuda_of(event->device)->plugin->event_wait(marker_of(event));
    return error ? report_where(event->device, error, event->device->info.name, err) : 0;
}

struct repeated {
    struct loop base;
    struct loop_setup setup;
    struct cuda_loop *loop;
    int taken;                                   /* records returned so far */
    int taken_at_go;                             /* `taken` when the device was last started; -1: not started yet */
};

static int cuda_loop_start(struct loop **out, struct device *device, const struct loop_setup *setup, struct err *err)
{
    const struct cuda_plugin *plugin = cuda_of(device)->plugin;
    const struct cuda_loop_body body = {setup->put, setup->context, (const int32_t *)(uintptr_t)setup->rows.address,
                                        (const int32_t *)(uintptr_t)setup->more.address, setup->records};
    struct repeated *loop = mem_alloc(1, sizeof *loop, err);
    if (!loop)
        return -1;
    *loop = (struct repeated){.base = {device}, .setup = *setup, .taken_at_go = -1};
    int error = plugin->loop_open(context_of(device), &body, &loop->loop);
    if (error) {
        mem_free(&loop);
        return report_where(device, error, "recording an iteration", err);
    }
    *out = &loop->base;
    return 0;
}

/* Waits for the next record. If the device was idle before the ring was found empty, no record is pending and the device is
 * started. It is started only once per record, because a started device must write one. */
static int cuda_loop_drain(struct loop *base, const void **record, struct err *err)
{
    struct repeated *loop = (struct repeated *)base;
    const struct cuda_plugin *plugin = cuda_of(base->device)->plugin;
    const int32_t *head = (const int32_t *)(uintptr_t)loop->setup.head.address;
    int busy, error;
    while (!(error = plugin->loop_busy(loop->loop, &busy))) {
        if (__atomic_load_n(head, __ATOMIC_ACQUIRE) > loop->taken) {
            size_t at = (size_t)(loop->taken++ % loop->setup.records);
            *record = (const char *)(uintptr_t)loop->setup.ring.address + at * loop->setup.record_bytes;
            return 0;
        }
        if (busy)
            continue;
        if (loop->taken_at_go == loop->taken)
            return err_set(err, ERR_IO, "%s: an iteration ended without a record", base->device->info.name);
        loop->taken_at_go = loop->taken;
        if ((error = plugin->loop_go(loop->loop)) != 0)
            break;
    }
    return report_where(base->device, error, base->device->info.name, err);
}

static int cuda_loop_end(struct loop **base, struct err *err)
{
    struct repeated *loop = (struct repeated *)*base;
    const struct cuda_plugin *plugin = cuda_of((*base)->device)->plugin;
    struct device *device = (*base)->device;
    int error = plugin->loop_close(&loop->loop);
    mem_free(&loop);
    *base = NULL;
    return error ? report_where(device, error, "an iteration", err) : 0;
}

static int cuda_time(struct device *device, void (*put)(void *context), void *context, double *seconds, struct err *err)
{
    const struct cuda_plugin *plugin = cuda_of(device)->plugin;
    double took = 0;
    int error = plugin->time(context_of(device), put, context, &took);
    if (error)
        return report(plugin, error, "timing operations", err);
    *seconds = took;
    return 0;
}

static double cuda_read_bandwidth(struct device *device, const void *data, size_t bytes, double seconds, struct err *err)
{
    const struct cuda_plugin *plugin = cuda_of(device)->plugin;
    double speed = 0;
    if (data)
        return 0;
    int error = plugin->copy_bandwidth(context_of(device), bytes, seconds, &speed);
    if (error) {
        report(plugin, error, "copying within the device", err);
        return -1;
    }
    return speed;
}

/* Returns the number after the colon of "cuda:N", -1 for anything else; without a colon the number by `turn`, modulo
 * `devices`. */
static int number_of(const struct device_setup *setup, int devices)
{
    const char *colon = strchr(setup->name, ':');
    if (!colon)
        return setup->turn % devices;
    char *end;
    long n = strtol(colon + 1, &end, 10);
    return colon[1] >= '0' && colon[1] <= '9' && !*end && n <= 1023 ? (int)n : -1;
}

/* Checks for Linux's own driver, or for that of Windows below WSL. */
bool device_cuda_likely(void)
{
    return !access("/dev/nvidiactl", F_OK) || !access("/dev/dxg", F_OK);
}

static int open_plugin(struct cuda_device *cuda, const struct device_setup *setup, const char *file, struct err *err)
{
    cuda->library = plugin_load(file, "build where nvcc is, or fetch it with make deps-cuda", err);
    if (!cuda->library)
        return -1;
    const struct cuda_plugin *(*entry)(void) = NULL;
    void *symbol = dlsym(cuda->library, CUDA_PLUGIN_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry);
    cuda->plugin = entry ? entry() : NULL;
    if (!cuda->plugin || cuda->plugin->version != CUDA_PLUGIN_VERSION)
        return err_set(err, ERR_INPUT, "%s and this command were built from different sources; build moekit again", file);
    int devices = 0, error = cuda->plugin->count(&devices);
    if (error == ERROR_NO_DRIVER || error == ERROR_NO_DEVICE || (!error && devices == 0))
        return err_set(err, ERR_INPUT, "this machine has no GPU, or no driver for it (%s); choose auto or host",
                       error ? cuda->plugin->error_text(error) : "no devices");
    if (error)
        return report(cuda->plugin, error, "looking for devices", err);
    const int number = number_of(setup, devices);
    if (number < 0 || number >= devices)
        return err_set(err, ERR_INPUT, "no such device; there are %d, numbered from 0", devices);
    struct cuda_context *context = NULL;
    char what[48], why[192] = "";
    error = cuda->plugin->open(&context, number, what, sizeof what, why, sizeof why);
    if (error)
        return report(cuda->plugin, error, "opening it", err);
    cuda->base.queue.state = context;
    cuda->base.info.slabs = !why[0];
    if (why[0])
        snprintf(cuda->base.info.no_slabs, sizeof cuda->base.info.no_slabs,
                 "device %.10s: %s: long prompts are computed like short ones, more slowly", setup->name, why);
    if (number && !strchr(setup->name, ':'))
        snprintf(cuda->base.info.name, sizeof cuda->base.info.name, "%.10s:%d %.44s", setup->name, number, what);
    else
        snprintf(cuda->base.info.name, sizeof cuda->base.info.name, "%.10s %.48s", setup->name, what);
    return 0;
}

int device_open_cuda(struct device **out, const struct device_setup *setup, struct err *err)
{
    static const struct device_class class = {
        .close = cuda_close, .alloc = cuda_alloc, .free = cuda_free, .memory_left = cuda_memory_left,
        .upload = cuda_upload, .download = cuda_download,
        .wait = cuda_wait, .alloc_shared = cuda_alloc_shared, .free_shared = cuda_free_shared, .loop_start = cuda_loop_start,
        .loop_drain = cuda_loop_drain, .loop_end = cuda_loop_end, .time = cuda_time, .read_bandwidth = cuda_read_bandwidth,
        .copy_upload = cuda_copy_upload, .event_open = cuda_event_open, .event_close = cuda_event_close,
        .event_record = cuda_event_record, .event_hold = cuda_event_hold, .event_passed = cuda_event_passed,
        .event_wait = cuda_event_wait,
    };
    char file[64];
    if (setup->bf16_activations)
        return err_set(err, ERR_INPUT, "device %s: cannot round activations to bf16; leave --activations out, or give "
                       "--device host", setup->name);
    struct cuda_device *cuda = mem_alloc(1, sizeof *cuda, err);
    if (!cuda)
        return -1;
    snprintf(file, sizeof file, "moe-%.*s.so", (int)strcspn(setup->name, ":"), setup->name);
    if (open_plugin(cuda, setup, file, err)) {
        if (cuda->library)
            dlclose(cuda->library);
        mem_free(&cuda);
        return err_at(err, "device %s", setup->name);
    }
    cuda->base.class = &class;
    cuda->base.ops = *cuda->plugin->ops;
    cuda->base.learn = cuda->plugin->learn;
    cuda->base.info.threads = 1;
    cuda->base.info.narrow_cache = true;
    cuda->base.info.loops = true;
    cuda->base.info.chooses = cuda->plugin->chooses(cuda->base.queue.state);
    *out = &cuda->base;
    return 0;
}
