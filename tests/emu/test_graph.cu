/* Graphs of the emulator (kernels/cuda/dev_graph.h), and the loops that the plug-in builds from them: text after text in one
 * process, each in memory of its own. */
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
}
#include "kernels/cuda/cuda.h"
#include "kernels/plugin.h"

enum { RING = 4, LONGEST = 40 };

/* A model text: each iteration writes its number and states whether another one follows. */
struct text {
    int32_t rows, more, length;
    int32_t word[LONGEST];
};

__global__ void write_kernel(struct text *text, int length, int ring)
{
    pdl_begin();
    text->word[text->length] = 100 * length + text->length;
    text->length++;
    text->more = text->length < length && text->length % ring != 0;
}

__global__ void pass_kernel(const struct text *)
{
    pdl_begin();
}

struct put {
    struct cuda_context *context;
    struct text *text;
    int length, passes, ring;
};

static void put_iteration(void *of)
{
    const struct put *put = static_cast<const struct put *>(of);
    dev_stream stream = put->context->stream;
    LAUNCH_PDL(write_kernel, dim3(1), dim3(1), 0, stream, put->text, put->length, put->ring);
    for (int i = 0; i < put->passes; i++)
        LAUNCH_PDL(pass_kernel, dim3(2), dim3(32), 0, stream, put->text);
}

static struct cuda_context *open_device(void)
{
    struct cuda_context *context = nullptr;
    char name[64], no_slabs[64];
    assert_int_equal(moe_cuda_plugin()->open(&context, 0, name, sizeof name, no_slabs, sizeof no_slabs), 0);
    return context;
}

static struct text *new_text(struct cuda_context *context)
{
    const struct text empty = {};
    void *memory = nullptr;
    assert_int_equal(moe_cuda_plugin()->alloc(context, sizeof empty, &memory), 0);
    assert_int_equal(moe_cuda_plugin()->upload(context, memory, &empty, sizeof empty), 0);
    return static_cast<struct text *>(memory);
}

/* Decodes a text of `length` words and checks each. Returns the number of launches of graphs. */
static int decode(struct cuda_context *context, int length, int passes)
{
    const struct cuda_plugin *plugin = moe_cuda_plugin();
    struct text *text = new_text(context), got = {};
    struct put put = {context, text, length, passes, RING};
    const struct cuda_loop_body body = {put_iteration, &put, &text->rows, &text->more, RING};
    struct cuda_loop *loop = nullptr;
    int times = 0, busy = 0;
    assert_int_equal(plugin->loop_open(context, &body, &loop), 0);
    while (got.length < length && times <= length) {
        assert_int_equal(plugin->loop_go(loop), 0);
        assert_int_equal(plugin->loop_busy(loop, &busy), 0);
        assert_int_equal(busy, 0);
        assert_int_equal(plugin->download(context, &got, text, sizeof got), 0);
        times++;
    }
    assert_int_equal(plugin->loop_close(&loop), 0);
    assert_int_equal(got.length, length);
    for (int i = 0; i < length; i++)
        assert_int_equal(got.word[i], 100 * length + i);
    assert_int_equal(plugin->free(context, text), 0);
    return times;
}

/* The first text makes a graph runnable, and others of the same form reuse it, each with its own memory and words. */
static void texts_of_one_process_have_a_loop_each(void **state)
{
    (void)state;
    for (int old_driver = 0; old_driver < 2; old_driver++) {
        struct cuda_context *context = open_device();
        int made = emu_runnables_made();
        emu_options.old_driver = old_driver;
        for (int turn = 0; turn < 4; turn++) {
            int length = 1 + 9 * turn;
            assert_int_equal(decode(context, length, 2), old_driver ? length : (length + RING - 1) / RING);
            assert_int_equal(emu_runnables_made(), made + 1);
        }
        decode(context, 7, 3);                      /* of another form */
        decode(context, 9, 3);
        assert_int_equal(emu_runnables_made(), made + 2);
        emu_options.old_driver = !old_driver;
        decode(context, 11, 3);
        assert_int_equal(emu_runnables_made(), made + 3);
        moe_cuda_plugin()->close(&context);
    }
    emu_options.old_driver = false;
}

__global__ void waits_for_nothing_kernel(int *) {}

/* MOE_CUDA_NO_PDL and MOE_CUDA_NO_WHILE. */
static void switches_turn_off_early_launches_and_while_nodes(void **state)
{
    (void)state;
    for (int off = 0; off < 2; off++) {
        if (off) {
            setenv("MOE_CUDA_NO_PDL", "1", 1);
            setenv("MOE_CUDA_NO_WHILE", "1", 1);
        }
        struct cuda_context *context = open_device();
        unsetenv("MOE_CUDA_NO_PDL");
        unsetenv("MOE_CUDA_NO_WHILE");
        assert_int_equal(decode(context, 10, 1), off ? 10 : 3);
        emu_options.collect = true;
        LAUNCH_PDL(waits_for_nothing_kernel, dim3(1), dim3(1), 0, context->stream, (int *)nullptr);
        emu_options.collect = false;
        assert_int_equal(!strstr(emu_findings(), "ended without pdl_wait"), off);
        emu_clear();
        dev_wait(context->stream);
        moe_cuda_plugin()->close(&context);
    }
}

/* A loop without an end: iterations beyond the ring's room do not run. */
static void a_loop_without_an_end_is_an_error(void **state)
{
    (void)state;
    const struct cuda_plugin *plugin = moe_cuda_plugin();
    for (int texts = 0; texts < 2; texts++) {
        struct cuda_context *context = open_device();
        if (texts)
            decode(context, 6, 1);
        struct text *text = new_text(context);
        struct put put = {context, text, LONGEST + 1, 1, LONGEST + 1};
        const struct cuda_loop_body body = {put_iteration, &put, &text->rows, &text->more, RING};
        struct cuda_loop *loop = nullptr;
        int busy = 0;
        char why[256];
        assert_int_equal(plugin->loop_open(context, &body, &loop), 0);
        emu_options.collect = true;
        assert_int_equal(plugin->loop_go(loop), 0);
        emu_options.collect = false;
        assert_non_null(strstr(emu_findings(), "repeat_kernel"));
        assert_non_null(strstr(emu_findings(), "traps"));
        emu_clear();
        assert_int_equal(plugin->loop_busy(loop, &busy), 719);
        plugin->blame(context, why, sizeof why);
        assert_non_null(strstr(why, "went on after its end"));
        assert_int_equal(text->length, RING);
        plugin->loop_close(&loop);
        assert_int_equal(plugin->free(context, text), 0);
        plugin->close(&context);
    }
}

__global__ void set_kernel(dev_condition condition, int *left, int *count)
{
    ++*count;
    set_condition(condition, --*left > 0);
}

/* Makes a graph whose loop runs `*left` times, by a condition of its own. */
static dev_graph counting(dev_stream stream, int *left, int *count)
{
    dev_graph graph, body, same;
    dev_condition condition;
    assert_int_equal(dev_graph_new(&graph), 0);
    assert_int_equal(dev_while_new(graph, &condition, &body), 0);
    assert_int_equal(dev_capture_begin(stream, body), 0);
    LAUNCH(set_kernel, dim3(1), dim3(1), 0, stream, condition, left, count);
    assert_int_equal(dev_capture_end(stream, &same), 0);
    assert_ptr_equal(same, body);
    return graph;
}

static int *new_count(int value)
{
    int *count = nullptr;
    assert_int_equal(dev_alloc((void **)&count, sizeof *count), 0);
    *count = value;
    return count;
}

/* Emulator only: a condition controls graphs made from its own graph, while that graph exists. */
static void conditions_belong_to_their_graphs(void **state)
{
    (void)state;
    enum { OWN, UPDATED, GONE, WAYS };
    for (int way = 0; way < WAYS; way++) {
        dev_stream stream;
        dev_runnable runnable;
        int *left = new_count(5), *count = new_count(0), *later = new_count(0);
        assert_int_equal(dev_stream_new(&stream), 0);
        dev_graph first = counting(stream, left, count), second = counting(stream, left, later);
        assert_int_equal(*count, 0);                /* captured operations do not run */
        assert_int_equal(dev_runnable_new(&runnable, first), 0);
        if (way == UPDATED)
            assert_int_equal(dev_runnable_update(runnable, second), 0);
        if (way == GONE)
            dev_graph_free(&first);
        emu_options.collect = true;
        assert_int_equal(dev_runnable_launch(runnable, stream), 0);
        emu_options.collect = false;
        if (way == OWN) {
            assert_string_equal(emu_findings(), "");
            assert_int_equal(*count, 5);
        } else {
            assert_non_null(strstr(emu_findings(), "turns without an end"));
        }
        assert_int_equal(*later > 0, way == UPDATED);
        emu_clear();
        dev_runnable_free(&runnable);
        dev_graph_free(&first);
        dev_graph_free(&second);
        dev_stream_free(stream);
        dev_free(left);
        dev_free(count);
        dev_free(later);
    }
}

/* Emulator only: graphs that no GPU accepts. */
static void mistakes_with_graphs_are_found(void **state)
{
    (void)state;
    dev_stream stream;
    dev_runnable runnable, other;
    dev_graph graph;
    int *left = new_count(1), *count = new_count(0);
    assert_int_equal(dev_use(1), 0);
    assert_int_equal(dev_stream_new(&stream), 0);
    dev_graph loop = counting(stream, left, count);
    emu_options.collect = true;
    assert_int_equal(dev_runnable_new(&runnable, loop), 0);
    assert_int_equal(dev_runnable_new(&other, loop), 1);
    assert_non_null(strstr(emu_findings(), "runnable twice"));
    emu_clear();
    assert_int_equal(dev_capture_begin(stream, nullptr), 0);
    assert_int_equal(dev_wait(stream), 900);
    assert_non_null(strstr(emu_findings(), "a wait is put on a stream whose operations are captured"));
    emu_clear();
    assert_int_equal(dev_capture_end(stream, &graph), 0);
    assert_int_equal(dev_runnable_update(runnable, graph), 910);
    assert_int_equal(dev_use(0), 0);
    const dev_condition none = 0;
    assert_int_equal(dev_start(false, "a kernel", set_kernel, dim3(1), dim3(1), 0, stream, none, left, count), 400);
    assert_non_null(strstr(emu_findings(), "a stream of device 1 while device 0 is in use"));
    emu_clear();
    LAUNCH(set_kernel, dim3(1), dim3(1), 0, stream, none, left, count);
    assert_int_equal(dev_wait(stream), 0);
    assert_string_equal(emu_findings(), "");
    assert_int_equal(*count, 1);
    emu_options.collect = false;
    dev_runnable_free(&runnable);
    dev_graph_free(&graph);
    dev_graph_free(&loop);
    dev_stream_free(stream);
    dev_free(left);
    dev_free(count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_one_process_have_a_loop_each),
        cmocka_unit_test(switches_turn_off_early_launches_and_while_nodes),
        cmocka_unit_test(a_loop_without_an_end_is_an_error),
        cmocka_unit_test(conditions_belong_to_their_graphs),
        cmocka_unit_test(mistakes_with_graphs_are_found),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
