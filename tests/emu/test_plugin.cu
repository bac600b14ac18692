/* The plug-in's table (kernels/plugin.h): devices by number; errors, which are reported once, the first one first; loops. */
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
}
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm_path.h"
#include "kernels/plugin.h"

enum { NAME_ROOM = 32 };

/* Every emulated device accepts slabs. */
static int open_device(struct cuda_context **context, int number, char *name)
{
    char no_slabs[64] = "";
    int error = moe_cuda_plugin()->open(context, number, name, NAME_ROOM, no_slabs, sizeof no_slabs);
    assert_string_equal(no_slabs, "");
    return error;
}

static void devices_have_numbers(void **state)
{
    (void)state;
    const struct cuda_plugin *plugin = moe_cuda_plugin();
    struct cuda_context *context = nullptr;
    char name[NAME_ROOM];
    int devices = 0, few = 0, many = 0;
    size_t scratch = 0;
    assert_int_equal(plugin->count(&devices), 0);
    assert_true(devices > 1);
    for (int number = 0; number < devices; number++) {
        struct dev_properties properties;
        assert_int_equal(open_device(&context, number, name), 0);
        assert_int_equal(dev_properties_of(number, &properties), 0);
        assert_string_equal(name, properties.name);
        assert_int_equal(context->device, number);
        if (number == 1)                    /* of one processor */
            scratch = context->scratch.bytes;
        size_t each = scratch * (size_t)properties.processors, part = properties.memory / 512;
        assert_true(!scratch || context->scratch.bytes == (each > part ? each : part));
        few += each > part;
        many += scratch && part > each;
        assert_int_equal(plugin->wait(context), 0);
        for (int i = 0; i < CONTEXT_TICKETS; i++)
            assert_int_equal(context->tickets[i], 0);
        memset((void *)(uintptr_t)context->scratch.address, 0, context->scratch.bytes);
        plugin->close(&context);
        assert_null(context);
    }
    assert_true(few && many);
    const int others[] = {-1, devices};
    for (int number : others) {
        assert_int_equal(open_device(&context, number, name), 101);
        assert_null(context);
    }
    plugin->close(&context);
}

static void the_first_error_is_told_once(void **state)
{
    (void)state;
    const struct cuda_plugin *plugin = moe_cuda_plugin();
    struct cuda_context *context = nullptr;
    char name[NAME_ROOM];
    static char here[CUDA_PUT_MAX + 1] = "seven", back[sizeof here];       /* a copy, not a launch */
    void *memory = nullptr;
    assert_int_equal(open_device(&context, 0, name), 0);
    assert_int_equal(plugin->alloc(context, sizeof here, &memory), 0);
    for (int turn = 0; turn < 3; turn++) {
        emu_options.fail = 700;
        if (turn == 0)
            assert_int_equal(plugin->upload(context, memory, here, sizeof here), 700);
        else if (turn == 1)
            assert_int_equal(plugin->download(context, back, memory, sizeof back), 700);
        if (turn < 2) {
            emu_options.fail = 1;
            assert_int_equal(plugin->upload(context, memory, here, sizeof here), 1);
        }
        assert_int_equal(plugin->upload(context, memory, here, sizeof here), turn < 2 ? 0 : 700);
        assert_int_equal(plugin->wait(context), 700);
        assert_int_equal(plugin->wait(context), 0);
    }
    assert_int_equal(plugin->download(context, back, memory, sizeof back), 0);
    assert_int_equal(plugin->wait(context), 0);
    assert_string_equal(back, here);
    assert_int_equal(plugin->free(context, memory), 0);
    plugin->close(&context);
}

/* Uploads of any size and address arrive, even if the source changes right afterwards; small ones are launches instead of
 * copies. */
static void uploads_of_all_sizes_arrive(void **state)
{
    (void)state;
    const struct cuda_plugin *plugin = moe_cuda_plugin();
    static const size_t sizes[] = {1, 3, 4, 255, 256, 257, 1021, 1024, 1028, 4079, 4080, 4081, CUDA_PUT_MAX,
                                   CUDA_PUT_MAX + 1};
    static unsigned char here[CUDA_PUT_MAX + 8], back[CUDA_PUT_MAX + 8];
    for (int number = 0; number < 2; number++) {
        struct cuda_context *context = nullptr;
        char name[NAME_ROOM];
        void *memory = nullptr;
        assert_int_equal(open_device(&context, number, name), 0);
        assert_int_equal(plugin->alloc(context, sizeof back, &memory), 0);
        for (int turn = 0; turn < 4 * (int)(sizeof sizes / sizeof *sizes); turn++) {
            const size_t bytes = sizes[turn / 4], at = (size_t)turn % 4;
            memset(back, 0, sizeof back);
            dev_fill(memory, 0x55, sizeof back, context->stream);
            for (size_t i = 0; i < bytes; i++)
                here[i] = (unsigned char)(i * 7 + bytes + (i >> 8));
            assert_int_equal(plugin->upload(context, (unsigned char *)memory + at, here, bytes), 0);
            memset(here, 0xee, bytes);
            const struct dev_launches *launches = dev_launches_of(context->stream);
            if (bytes == CUDA_PUT_MAX)
                assert_non_null(strstr(launches->kernel, "put_kernel"));
            assert_int_equal(plugin->download(context, back, memory, sizeof back), 0);
            assert_int_equal(plugin->wait(context), 0);
            for (size_t i = 0; i < sizeof back; i++)
                assert_int_equal(back[i], i < at || i >= at + bytes ? 0x55
                                                                    : ((i - at) * 7 + bytes + ((i - at) >> 8)) & 0xff);
        }
        assert_int_equal(plugin->free(context, memory), 0);
        plugin->close(&context);
    }
}

struct put {
    struct cuda_context *context;
    const int32_t *live;
    int calls;
};

static void note_live(void *context)
{
    struct put *put = static_cast<struct put *>(context);
    put->live = put->context->live;
    put->calls++;
}

/* Operations of a loop learn the address of the number of rows while they are put; earlier and later ones do not. */
static void operations_of_a_loop_know_their_rows(void **state)
{
    (void)state;
    const struct cuda_plugin *plugin = moe_cuda_plugin();
    struct cuda_context *context = nullptr;
    struct cuda_loop *loop = nullptr;
    void *memory = nullptr;
    int busy = 1;
    char name[NAME_ROOM];
    const int32_t rows_and_more[2] = {3, 0};
    assert_int_equal(open_device(&context, 0, name), 0);
    assert_int_equal(plugin->alloc(context, sizeof rows_and_more, &memory), 0);
    assert_int_equal(plugin->upload(context, memory, rows_and_more, sizeof rows_and_more), 0);
    const int32_t *rows = static_cast<int32_t *>(memory);
    struct put put = {context, nullptr, 0};
    const struct cuda_loop_body body = {note_live, &put, rows, rows + 1, 4};
    assert_int_equal(plugin->loop_open(context, &body, &loop), 0);
    assert_int_equal(put.calls, 1);
    assert_ptr_equal(put.live, rows);
    for (int turn = 1; turn <= 2; turn++) {
        assert_null(context->live);
        assert_int_equal(plugin->loop_go(loop), 0);
        assert_int_equal(put.calls, 1);
        assert_int_equal(plugin->loop_busy(loop, &busy), 0);
        assert_int_equal(busy, 0);
    }
    assert_int_equal(plugin->loop_close(&loop), 0);
    assert_null(loop);
    assert_int_equal(plugin->free(context, memory), 0);
    plugin->close(&context);
}

__global__ void count_kernel(int *count)
{
    atomicAdd(count, 1);
}

struct counted {
    struct cuda_context *context;
    int *count;
    int calls;
};

static void put_counts(void *of)
{
    struct counted *counted = static_cast<struct counted *>(of);
    counted->calls++;
    for (int i = 0; i < 3; i++)
        LAUNCH(count_kernel, dim3(2), dim3(4), 0, counted->context->stream, counted->count);
}

/* Queued operations run once, and the device's clock advances. After an error the call returns the error and
 * measures nothing. */
static void operations_are_timed_once(void **state)
{
    (void)state;
    const struct cuda_plugin *plugin = moe_cuda_plugin();
    struct cuda_context *context = nullptr;
    int zero = 0, count = 0;
    char name[NAME_ROOM];
    void *memory = nullptr;
    double seconds = -1;
    assert_int_equal(open_device(&context, 0, name), 0);
    assert_int_equal(plugin->alloc(context, sizeof zero, &memory), 0);
    assert_int_equal(plugin->upload(context, memory, &zero, sizeof zero), 0);
    struct counted counted = {context, static_cast<int *>(memory), 0};
    assert_int_equal(plugin->time(context, put_counts, &counted, &seconds), 0);
    assert_int_equal(counted.calls, 1);
    assert_true(seconds > 0 && seconds < 60);
    assert_int_equal(plugin->download(context, &count, memory, sizeof count), 0);
    assert_int_equal(plugin->wait(context), 0);
    assert_int_equal(count, 3 * 2 * 4);
    emu_options.fail = 700;
    assert_int_equal(plugin->time(context, put_counts, &counted, &seconds), 700);
    assert_int_equal(plugin->free(context, memory), 0);
    plugin->close(&context);
}

/* Places in which cuBLAS is searched, for each way to install a toolkit. */
static void libraries_lie_beside_the_compiler(void **state)
{
    (void)state;
    static const struct {
        const char *plugin, *nvcc, *path;
    } want[] = {
        {nullptr, nullptr, "lib.so.1"},
        {nullptr, "", "/usr/local/cuda/lib64/lib.so.1"},
        {"/opt/lib/moekit/moe-cuda.so", "", "/opt/lib/moekit/lib.so.1"},
        {"moe-cuda.so", "/opt/cuda/bin/nvcc", "/opt/cuda/bin/../lib64/lib.so.1"},
        {"", "/venv/nvidia/cu13/bin/nvcc", "/venv/nvidia/cu13/bin/../lib/lib.so.1"},
        {"", "/venv/nvidia/cuda_nvcc/bin/nvcc", "/venv/nvidia/cuda_nvcc/bin/../../cublas/lib/lib.so.1"},
        {"", "/conda/bin/nvcc", "/conda/bin/../targets/x86_64-linux/lib/lib.so.1"},
        {"", "/venv/bin/nvcc", "/venv/bin/../lib/python3*/site-packages/nvidia/*/lib/lib.so.1"},
        {"", "", "/usr/local/lib/python3*/dist-packages/nvidia/*/lib/lib.so.1"},
    };
    static char deep[2 * GEMM_PATH];
    char path[GEMM_PATH];
    for (const auto &one : want) {
        int found = 0;
        for (int i = 0; gemm_path(i, one.plugin, one.nvcc, "lib.so.1", path); i++) {
            found += !strcmp(path, one.path);
            assert_true(i > 0 || !strcmp(path, "lib.so.1"));
            assert_true(!path[0] || !strcmp(path + strlen(path) - 8, "lib.so.1"));
        }
        assert_int_equal(found, 1);
    }
    memset(deep, '/', sizeof deep - 1);
    for (int i = 0; gemm_path(i, deep, deep, "lib.so.1", path); i++)
        assert_true(!path[0] || strlen(path) < 80);
}

/* A failed launch is reported by the call that ends it, and by no later one. */
static void launches_that_fail_are_told_once(void **state)
{
    (void)state;
    const struct cuda_plugin *plugin = moe_cuda_plugin();
    struct cuda_context *context = nullptr;
    struct cuda_loop *loop = nullptr;
    int zero = 0;
    char name[NAME_ROOM], text[256];
    void *memory = nullptr;
    double seconds;
    assert_int_equal(open_device(&context, 0, name), 0);
    assert_int_equal(plugin->alloc(context, sizeof zero, &memory), 0);
    assert_int_equal(plugin->upload(context, memory, &zero, sizeof zero), 0);
    struct counted counted = {context, static_cast<int *>(memory), 0};
    const struct cuda_loop_body body = {put_counts, &counted, counted.count, counted.count, 4};
    for (int way = 0; way < 3; way++) {
        emu_options.fail_launch = 1;
        if (way == 0) {
            put_counts(&counted);
            assert_int_equal(plugin->wait(context), 1);
        } else if (way == 1) {
            assert_int_equal(plugin->loop_open(context, &body, &loop), 1);
            assert_null(loop);
        } else {
            assert_int_equal(plugin->time(context, put_counts, &counted, &seconds), 1);
        }
        plugin->blame(context, text, sizeof text);
        assert_ptr_equal(strstr(text, way < 2 ? "count_kernel at tests/emu/test_plugin.cu:"
                                              : "stamp_kernel at kernels/cuda/clock.cu:"), text);
        assert_int_equal(plugin->wait(context), 0);
        assert_int_equal(plugin->loop_open(context, &body, &loop), 0);
        assert_int_equal(plugin->loop_close(&loop), 0);
    }
    /* While a loop is open, failed operations are reported when it is closed. */
    assert_int_equal(plugin->loop_open(context, &body, &loop), 0);
    emu_options.fail_launch = 700;
    put_counts(&counted);
    assert_int_equal(plugin->loop_close(&loop), 700);
    assert_int_equal(plugin->wait(context), 0);
    assert_int_equal(plugin->free(context, memory), 0);
    plugin->close(&context);
}

/* Two devices open in one thread: each operation runs on its own device, whichever was used last. */
static void devices_take_turns(void **state)
{
    (void)state;
    const struct cuda_plugin *plugin = moe_cuda_plugin();
    struct cuda_context *context[2] = {nullptr, nullptr};
    char name[NAME_ROOM];
    int32_t row[2] = {0, 1};
    float value[2][2] = {{1, 2}, {3, 4}}, out[2];
    void *memory[2][3];
    for (int i = 0; i < 2; i++)
        assert_int_equal(open_device(&context[i], i, name), 0);
    for (int i = 0; i < 2; i++) {
        for (void *&one : memory[i])
            assert_int_equal(plugin->alloc(context[i], sizeof value, &one), 0);
        assert_int_equal(plugin->upload(context[i], memory[i][0], value, sizeof value), 0);
        assert_int_equal(plugin->upload(context[i], memory[i][1], row, sizeof row), 0);
    }
    for (int turn = 0; turn < 4; turn++) {
        int i = turn % 2;
        struct queue queue = {context[i]};
        struct gather_args args = {};
        args.in = buffer{(uint64_t)(uintptr_t)memory[i][0], sizeof value};
        args.index = buffer{(uint64_t)(uintptr_t)memory[i][1] + 4 * (turn / 2), 4};
        args.out = buffer{(uint64_t)(uintptr_t)memory[i][2], sizeof out};
        args.count = 1;
        args.width = 2;
        plugin->ops->gather(&queue, &args);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(plugin->download(context[i], out, memory[i][2], sizeof out), 0);
        assert_int_equal(plugin->wait(context[i]), 0);
        assert_memory_equal(out, value[1], sizeof out);
    }
    for (int i = 0; i < 2; i++) {
        for (void *one : memory[i])
            assert_int_equal(plugin->free(context[i], one), 0);
        plugin->close(&context[i]);
    }
}

/* The folder of a wheel contains Python's version and the part's name. */
static void libraries_lie_in_wheels(void **state)
{
    (void)state;
    char top[] = "/tmp/moekit-wheel-XXXXXX", nvcc[128], path[GEMM_PATH], file[GEMM_PATH], want[256], command[1024];
    int found = 0;
    assert_non_null(mkdtemp(top));
    snprintf(nvcc, sizeof nvcc, "%s/bin/nvcc", top);
    snprintf(want, sizeof want, "%s/bin/../lib/python3.12/site-packages/nvidia/cublas/lib/lib.so.1", top);
    snprintf(command, sizeof command, "mkdir -p %s/bin %s/lib/python3.12/site-packages/nvidia/cublas/lib "
             "%s/lib/python3.12/site-packages/nvidia/nccl/lib && : > %s", top, top, top, want);
    assert_int_equal(system(command), 0);
    for (int i = 0; gemm_path(i, "", nvcc, "lib.so.1", path); i++)
        for (int n = 0; gemm_file(path, n, file); n++) {
            found += !strcmp(file, want);
            assert_true(n < 8 && !strchr(file, '*'));
        }
    assert_int_equal(found, 1);
    snprintf(command, sizeof command, "rm -r %s", top);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_have_numbers),
        cmocka_unit_test(the_first_error_is_told_once),
        cmocka_unit_test(uploads_of_all_sizes_arrive),
        cmocka_unit_test(operations_of_a_loop_know_their_rows),
        cmocka_unit_test(operations_are_timed_once),
        cmocka_unit_test(launches_that_fail_are_told_once),
        cmocka_unit_test(devices_take_turns),
        cmocka_unit_test(libraries_lie_beside_the_compiler),
        cmocka_unit_test(libraries_lie_in_wheels),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
