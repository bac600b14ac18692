/* Loops of a device (loop_start of common/tensor/device.h) that do not keep to their contract: an error, and not a host that
 * waits for ever. */
#include "tests/unit/unit.h"

#include "common/tensor/device.h"

static void put_nothing(void *context) { ++*(int *)context; }

/* Nobody writes a record: the host asks for the first one, and then again. */
static void an_iteration_without_a_record_is_an_error(void **state)
{
    (void)state;
    const int32_t zero = 0;
    struct device *device = NULL;
    struct loop *loop = NULL;
    struct err err = {0};
    struct buffer rows, more, ring, head;
    int calls = 0;
    must(device_open(&device, &(struct device_setup){.name = "emu"}, &err), &err);
    must(device_alloc(device, sizeof zero, &rows, &err) || device_alloc(device, sizeof zero, &more, &err) ||
             device_alloc_shared(device, 64, &ring, &err) || device_alloc_shared(device, sizeof zero, &head, &err) ? -1 : 0,
         &err);
    queue_upload(device, rows, &zero, sizeof zero);
    queue_upload(device, more, &zero, sizeof zero);
    *(int32_t *)(uintptr_t)head.address = 0;
    const struct loop_setup setup = {.put = put_nothing, .context = &calls, .rows = rows, .more = more, .ring = ring,
                                     .head = head, .record_bytes = 16, .records = 4};
    must(loop_start(&loop, device, &setup, &err), &err);
    assert_int_equal(calls, 1);
    for (int turn = 0; turn < 2; turn++) {
        const void *record = NULL;
        assert_int_equal(loop_drain(loop, &record, &err), -1);
        assert_non_null(strstr(err.text, "an iteration ended without a record"));
        assert_null(record);
    }
    must(loop_end(&loop, &err), &err);
    assert_null(loop);
    must(queue_wait(device, &err), &err);
    device_free(device, &rows);
    device_free(device, &more);
    device_free_shared(device, &ring);
    device_free_shared(device, &head);
    device_close(&device);
}

/* The emulator has four devices. */
static void a_device_without_a_number_is_the_one_of_the_turn(void **state)
{
    static const struct { const char *name; int turn; const char *opened; } cases[] = {
        {"emu", 0, "emu emulated"}, {"emu", 1, "emu:1 emulated"}, {"emu", 6, "emu:2 emulated"}, {"emu:3", 1, "emu:3 emulated"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device *device = NULL;
        struct err err = {0};
        must(device_open(&device, &(struct device_setup){.name = cases[i].name, .turn = cases[i].turn}, &err), &err);
        assert_string_equal(device_info(device)->name, cases[i].opened);
        device_close(&device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_iteration_without_a_record_is_an_error),
        cmocka_unit_test(a_device_without_a_number_is_the_one_of_the_turn),
    };
    struct device *device = NULL;
    struct err err = {0};
    if (device_open(&device, &(struct device_setup){.name = "emu"}, &err)) {
        printf("1..0 # skip %s\n", err.text);
        return 0;
    }
    device_close(&device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
