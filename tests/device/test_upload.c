/* The promise of queue_upload (common/tensor/device.h) on $MOE_TEST_DEVICE: the source has been read when it returns,
 * whatever memory it is, and copies run in the queue's order. The queue has work before each upload, so that a copy that
 * reads later finds other bytes. Takes ten seconds; on the emulator one, whose device 1 computes as late as possible. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "tests/unit/rig.h"

enum { SOURCES = 4, SIZES = 8 };

struct upload {
    struct device *device;
    struct buffer to, work, pinned;
    unsigned char *source[SOURCES], *back;
    size_t most;
    bool emulated;
    struct err err;
};

static const char *const SOURCE_NAMES[SOURCES] = {"new memory", "pinned memory", "a mapping", "a static array"};
static unsigned char in_program[1 << 16];

static void upload_open(struct upload *up, const char *name)
{
    *up = (struct upload){.emulated = !strncmp(name, "emu", 3)};
    must(device_open(&up->device, &(struct device_setup){.name = name}, &up->err), &up->err);
    up->most = up->emulated ? (size_t)1 << 18 : (size_t)1 << 26;
    const size_t work = up->emulated ? 1 << 10 : (size_t)1 << 28;
    must(device_alloc(up->device, up->most, &up->to, &up->err) || device_alloc(up->device, work, &up->work, &up->err) ||
         device_alloc_shared(up->device, up->most, &up->pinned, &up->err), &up->err);
    up->source[0] = malloc(up->most);
    up->source[1] = (unsigned char *)(uintptr_t)up->pinned.address;
    up->source[2] = mmap(NULL, up->most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    up->source[3] = in_program;
    up->back = malloc(up->most);
    assert_non_null(up->source[0]);
    assert_true(up->source[2] != MAP_FAILED);
    assert_non_null(up->back);
}

static void upload_close(struct upload *up)
{
    munmap(up->source[2], up->most);
    free(up->source[0]);
    free(up->back);
    device_free_shared(up->device, &up->pinned);
    device_free(up->device, &up->work);
    device_free(up->device, &up->to);
    device_close(&up->device);
}

/* About a millisecond on a large GPU. */
static void keep_busy(const struct upload *up)
{
    const int width = 1 << (up->emulated ? 6 : 17), rows = (int)(up->work.bytes / sizeof(float)) / width;
    const struct clamp_args args = {.x = up->work, .limit = 1, .rows = rows, .width = width, .stride = width};
    for (int i = 0; i < 8; i++)
        device_ops(up->device)->clamp(device_queue(up->device), &args);
}

static unsigned char byte_of(size_t at, int turn) { return (unsigned char)(at * 31 + (at >> 8) * 7 + (size_t)turn * 101 + 1); }

/* Two uploads to the same memory, with the source changed after each: the second one's bytes arrive. */
static void upload_once(struct upload *up, int source, size_t bytes, int turn)
{
    unsigned char *from = up->source[source];
    const struct buffer to = buffer_part(up->to, 0, bytes);
    keep_busy(up);
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < bytes; i++)
            from[i] = byte_of(i, turn + again);
        queue_upload(up->device, to, from, bytes);
        memset(from, 0xee, bytes);
    }
    queue_download(up->device, up->back, to, bytes);
    must(queue_wait(up->device, &up->err), &up->err);
    for (size_t i = 0; i < bytes; i++)
        if (up->back[i] != byte_of(i, turn + 1))
            fail_msg("byte %zu of %zu from %s is %d, not %d: the source was read after the upload had returned", i, bytes,
                     SOURCE_NAMES[source], up->back[i], byte_of(i, turn + 1));
}

static void sources_were_read(const char *name)
{
    struct upload up;
    upload_open(&up, name);
    const size_t sizes[SIZES] = {4, 100, 1024, 4096, 8192, 8193, 1 << 16, up.most};
    const double end = clock_seconds() + (up.emulated ? 0.3 : 9);
    int turn = 0;
    do {
        for (int source = 0; source < SOURCES; source++)
            for (int i = 0; i < SIZES; i++)
                if (source < 3 || sizes[i] <= sizeof in_program)
                    upload_once(&up, source, sizes[i], turn++);
    } while (clock_seconds() < end);
    upload_close(&up);
}

static void the_source_was_read_when_an_upload_returns(void **state)
{
    (void)state;
    const char *name = getenv("MOE_TEST_DEVICE");
    sources_were_read(name && *name ? name : "cuda");
    if (name && !strcmp(name, "emu"))
        sources_were_read("emu:1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_source_was_read_when_an_upload_returns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
