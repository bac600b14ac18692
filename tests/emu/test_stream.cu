/* Two streams of a device and events between them: a missing wait shows on a device of one order or of the other, and with
 * all waits both give the same result. */
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
}
#include "kernels/cuda/context.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/learn.h"
#include "kernels/cuda/slab.h"

enum { NEVER_WRITTEN = 0xff };

__global__ void read_kernel(const unsigned char *from, unsigned char *to)
{
    *to = *from;
}

/* A slot of device memory, the values read from it, and the pinned host memory from which it is filled. */
struct rig {
    dev_stream stream, copies;
    dev_event copied, used;
    unsigned char *slot, *got, *pinned;
};

static struct rig rig_open(int device)
{
    struct rig rig = {};
    void *memory[3];
    assert_int_equal(dev_use(device), 0);
    assert_int_equal(dev_stream_new(&rig.stream), 0);
    assert_int_equal(dev_copies_new(&rig.copies), 0);
    assert_int_equal(dev_event_new(&rig.copied), 0);
    assert_int_equal(dev_event_new(&rig.used), 0);
    assert_int_equal(dev_alloc(&memory[0], 1), 0);
    assert_int_equal(dev_alloc(&memory[1], 2), 0);
    assert_int_equal(dev_alloc_shared(&memory[2], 2), 0);
    rig.slot = (unsigned char *)memory[0];
    rig.got = (unsigned char *)memory[1];
    rig.pinned = (unsigned char *)memory[2];
    rig.pinned[0] = 1;
    rig.pinned[1] = 2;
    return rig;
}

static void rig_close(struct rig *rig)
{
    assert_int_equal(dev_wait(rig->copies), 0);
    assert_int_equal(dev_wait(rig->stream), 0);
    dev_event_free(&rig->copied);
    dev_event_free(&rig->used);
    dev_free(rig->slot);
    dev_free(rig->got);
    dev_free_shared(rig->pinned);
    dev_stream_free(rig->copies);
    dev_stream_free(rig->stream);
    dev_use(0);
}

/* Fills the slot, reads it, fills it with other data and reads it again: both reads must be correct. */
static void fill_and_read(int device, bool await_copy, bool await_use, int got[2])
{
    struct rig rig = rig_open(device);
    for (int turn = 0; turn < 2; turn++) {
        if (await_use)
            assert_int_equal(dev_event_hold(rig.used, rig.copies), 0);
        assert_int_equal(dev_upload_pinned(rig.slot, rig.pinned + turn, 1, rig.copies), 0);
        assert_int_equal(dev_event_record(rig.copied, rig.copies), 0);
        if (await_copy)
            assert_int_equal(dev_event_hold(rig.copied, rig.stream), 0);
        LAUNCH(read_kernel, dim3(1), dim3(1), 0, rig.stream, rig.slot, rig.got + turn);
        assert_int_equal(dev_event_record(rig.used, rig.stream), 0);
    }
    assert_int_equal(dev_wait(rig.stream), 0);
    got[0] = rig.got[0];
    got[1] = rig.got[1];
    rig_close(&rig);
}

static void a_wait_that_is_left_out_shows(void **state)
{
    (void)state;
    int got[2];
    for (int device = 0; device < 4; device++) {
        fill_and_read(device, true, true, got);
        assert_int_equal(got[0], 1);
        assert_int_equal(got[1], 2);
    }
    fill_and_read(0, false, true, got);                  /* copies are late */
    assert_int_equal(got[0], NEVER_WRITTEN);
    fill_and_read(1, true, false, got);                  /* kernels are */
    assert_int_equal(got[0], 2);
    assert_int_equal(got[1], 2);
}

/* A copy reads pinned memory when its turn comes; the host learns of its end by polling or waiting. */
static void the_host_waits_for_copies(void **state)
{
    (void)state;
    struct rig rig = rig_open(0);
    int busy = 1;
    assert_int_equal(dev_event_busy(rig.copied, &busy), 0);
    assert_int_equal(busy, 0);                           /* it was never recorded */
    assert_int_equal(dev_event_wait(rig.copied), 0);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(dev_upload_pinned(rig.slot, rig.pinned, 1, rig.copies), 0);
        assert_int_equal(dev_event_record(rig.copied, rig.copies), 0);
        rig.pinned[0] = (unsigned char)(7 + turn);       /* too early: the copy takes this value */
        if (turn) {
            assert_int_equal(dev_event_wait(rig.copied), 0);
        } else {
            assert_int_equal(dev_event_busy(rig.copied, &busy), 0);
            assert_int_equal(busy, 1);
            assert_int_equal(dev_event_busy(rig.copied, &busy), 0);
            assert_int_equal(busy, 0);
        }
        assert_int_equal(*rig.slot, 7 + turn);
    }
    rig_close(&rig);
}

/* dev_upload has read its source when it returns, even if the memory is pinned and the copy's turn comes late. */
static void an_upload_has_read_its_source(void **state)
{
    (void)state;
    for (int device = 0; device < 4; device++) {
        struct rig rig = rig_open(device);
        unsigned char mine = 5, *const from[] = {rig.pinned, &mine};
        for (int i = 0; i < 2; i++) {
            unsigned char before = *from[i];
            assert_int_equal(dev_upload(rig.slot, from[i], 1, rig.stream), 0);
            *from[i] = 99;
            assert_int_equal(dev_wait(rig.stream), 0);
            assert_int_equal(*rig.slot, before);
        }
        rig_close(&rig);
    }
}

static void mistakes_with_copies_are_found(void **state)
{
    (void)state;
    struct rig rig = rig_open(0);
    unsigned char mine = 3;
    void *memory = nullptr;
    emu_options.collect = true;
    assert_int_equal(dev_upload_pinned(rig.slot, &mine, 1, rig.copies), 0);
    assert_non_null(strstr(emu_findings(), "1 bytes of memory that is not pinned are copied"));
    emu_clear();
    assert_int_equal(dev_alloc(&memory, 16), 0);
    assert_int_equal(dev_upload_pinned(memory, rig.pinned, 3, rig.copies), 0);       /* its end is not */
    assert_non_null(strstr(emu_findings(), "3 bytes of memory that is not pinned are copied"));
    emu_clear();
    assert_int_equal(dev_wait(rig.copies), 0);
    assert_int_equal(dev_upload_pinned(memory, rig.pinned, 1, rig.copies), 0);
    assert_int_equal(dev_free(memory), 0);
    assert_non_null(strstr(emu_findings(), "nobody has waited for a copy there"));
    emu_clear();
    LAUNCH(read_kernel, dim3(1), dim3(1), 0, rig.copies, rig.slot, rig.got);
    assert_non_null(strstr(emu_findings(), "is put on a stream for copies"));
    emu_clear();
    emu_options.collect = false;
    rig_close(&rig);
}

/* A product of a library selects the device of its stream. */
static void a_product_selects_its_device(void **state)
{
    (void)state;
    struct rig rig = rig_open(1);
    char why[64];
    void *memory;
    struct cuda_context context = {};
    context.stream = rig.stream;
    context.slab = slab_open(rig.stream, 1024, why, sizeof why);
    assert_int_equal(dev_alloc(&memory, 3 * sizeof(float)), 0);
    const uint64_t at = (uint64_t)(uintptr_t)memory;
    struct queue queue = {};
    queue.state = &context;
    struct learn_product_args product = {};
    product.a = buffer{at, 4};
    product.b = buffer{at + 4, 4};
    product.c = buffer{at + 8, 4};
    product.a_stride = product.b_stride = product.c_stride = product.rows = product.columns = product.depth = 1;
    assert_int_equal(dev_use(0), 0);
    emu_options.collect = true;
    cuda_learn_product(&queue, &product);
    assert_string_equal(emu_findings(), "");
    emu_clear();
    emu_options.collect = false;
    slab_close(&context.slab);
    dev_free(memory);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_that_is_left_out_shows),
        cmocka_unit_test(the_host_waits_for_copies),
        cmocka_unit_test(an_upload_has_read_its_source),
        cmocka_unit_test(mistakes_with_copies_are_found),
        cmocka_unit_test(a_product_selects_its_device),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
