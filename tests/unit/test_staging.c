/* Data that pass through the host's buffers to slots of a device (common/store/staging.h) arrive unchanged, in whatever
 * order the device runs its two queues: `emu` copies as late as events allow, `emu:1` as early as possible. A download on
 * the queue of operations plays the computation. */
#include "tests/unit/unit.h"

#include "common/base/direct.h"
#include "common/store/staging.h"

enum { BYTES = DIRECT_STEP, SLOTS = 3, BUFFERS = 2, TURNS = 40 };

static void is_all(const unsigned char *data, int byte)
{
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(data[i], byte);
}

static struct device *open_named(const char *name)
{
    struct device *device = NULL;
    struct err err = {0};
    return device_open(&device, &(struct device_setup){.name = name}, &err) ? NULL : device;
}

/* Returns a buffer that no copy reads from, given those in use in `out`. */
static int take(struct staging *staging, bool *out)
{
    struct err err = {0};
    for (;;) {
        int buffer = 0;
        while (buffer < BUFFERS && out[buffer])
            buffer++;
        if (buffer < BUFFERS) {
            out[buffer] = true;
            return buffer;
        }
        assert_int_equal(staging_next(staging, true, &buffer, &err), 1);
        assert_true(out[buffer]);
        out[buffer] = false;
    }
}

/* Each slot in turn gets its own byte and is read, without a wait before the end. */
static void turns_on(struct device *device)
{
    static unsigned char got[TURNS][BYTES];
    struct staging *staging = NULL;
    struct err err = {0};
    bool out[BUFFERS] = {false};
    must(staging_open(&staging, device, SLOTS, BUFFERS, BYTES, &err), &err);
    memset(got, 0, sizeof got);
    for (int turn = 0; turn < TURNS; turn++) {
        const int slot = turn * turn % SLOTS, buffer = take(staging, out);
        assert_int_equal((uintptr_t)staging_data(staging, buffer) % DIRECT_STEP, 0);
        memset(staging_data(staging, buffer), turn + 1, BYTES);
        staging_copy(staging, buffer, slot, BYTES);
        staging_use(staging, slot);
        queue_download(device, got[turn], (struct buffer){staging_address(staging, slot), BYTES}, BYTES);
        staging_release(staging, slot);
    }
    must(queue_wait(device, &err), &err);
    for (int turn = 0; turn < TURNS; turn++)
        is_all(got[turn], turn + 1);
    staging_close(&staging);
    assert_null(staging);
}

/* Copies that are never used: each returns its buffer in its turn, whoever polls. */
static void buffers_on(struct device *device)
{
    struct staging *staging = NULL;
    struct err err = {0};
    unsigned char got[SLOTS][BYTES];
    int buffer = -1;
    must(staging_open(&staging, device, SLOTS, SLOTS, BYTES, &err), &err);
    assert_int_equal(staging_next(staging, true, &buffer, &err), 0);
    for (int slot = 0; slot < SLOTS; slot++) {
        assert_true(staging_has(staging, slot));
        memset(staging_data(staging, slot), 10 + slot, BYTES);
        staging_copy(staging, slot, slot, BYTES);
        assert_false(staging_has(staging, slot));
    }
    assert_int_equal(staging_busy(staging), SLOTS);
    for (int slot = 0; slot < SLOTS; slot++) {
        while (!staging_next(staging, slot == 1, &buffer, &err))
            continue;
        assert_int_equal(buffer, slot);
        assert_true(staging_has(staging, slot));
        assert_int_equal(staging_busy(staging), SLOTS - 1 - slot);
        queue_download(device, got[slot], (struct buffer){staging_address(staging, slot), BYTES}, BYTES);
    }
    must(queue_wait(device, &err), &err);
    for (int slot = 0; slot < SLOTS; slot++)
        is_all(got[slot], 10 + slot);
    staging_close(&staging);
}

/* Copies one buffer to all slots, and then another buffer to slot 0: the slot is ready after the latest copy.
 * Closing waits for copies in flight. */
static void latest_on(struct device *device, bool late)
{
    struct staging *staging = NULL;
    struct err err = {0};
    unsigned char got[SLOTS][BYTES];
    int buffer = -1;
    must(staging_open(&staging, device, SLOTS, BUFFERS, BYTES, &err), &err);
    memset(staging_data(staging, 0), 20, BYTES);
    memset(staging_data(staging, 1), 21, BYTES);
    for (int slot = 0; slot < SLOTS; slot++)
        staging_copy(staging, 0, slot, BYTES);
    staging_copy(staging, 1, 0, BYTES);
    assert_int_equal(staging_next(staging, late, &buffer, &err), 1);
    assert_int_equal(buffer, 0);
    assert_false(staging_has(staging, 0));               /* the first copy to the slot has arrived */
    for (int slot = 0; slot < SLOTS; slot++) {
        staging_use(staging, slot);
        queue_download(device, got[slot], (struct buffer){staging_address(staging, slot), BYTES}, BYTES);
        staging_release(staging, slot);
    }
    must(queue_wait(device, &err), &err);
    for (int slot = 0; slot < SLOTS; slot++)
        is_all(got[slot], slot ? 20 : 21);
    for (int i = staging_busy(staging); i < STAGING_COPIES; i++)
        staging_copy(staging, i % BUFFERS, i % SLOTS, BYTES);
    assert_int_equal(staging_busy(staging), STAGING_COPIES);
    staging_close(&staging);
}

static void every_slot_has_what_was_read(void **state)
{
    static const char *const names[] = {"ref", "emu", "emu:1"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct device *device = open_named(names[i]);
        if (!device) {
            assert_true(i > 0);
            print_message("without %s\n", names[i]);
            continue;
        }
        turns_on(device);
        buffers_on(device);
        latest_on(device, i == 1);
        device_close(&device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_slot_has_what_was_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
