/* Facts about a forward on the host (common/engine/facts.c): per row, independent of other rows in the forward, with one
 * wait. And the device functions they need: memory that downloads reach, and the device's own time. */
#include "tests/unit/unit.h"

#include "common/engine/internal.h"
#include "common/tensor/device_class.h"
#include "tests/unit/rig.h"

enum { ROWS = 7, MODELS = 4 };

static void *copied(const void *from, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    assert_non_null(copy);
    return memcpy(copy, from, bytes);
}

static struct batch everything(const struct rig *rig, int first, int rows)
{
    return (struct batch){.rows = rows, .token = rig->token + first, .logit_rows = rows, .want_scores = true,
                          .want_hidden = true};
}

/* Writes a random small model to `path` and opens it with an engine for `rows` rows. */
static void open_tiny(struct rig *rig, const char *path, uint64_t seed, int rows, int logit_rows, struct hparams *shape)
{
    struct chance chance = {seed};
    struct err err = {0};
    *shape = tiny_shape(&chance);
    must(tiny_write(path, shape, FORMAT_F32, seed, &err), &err);
    rig_open(rig, path, device_name("host"));
    rig_engine(rig, (struct engine_setup){.max_rows = rows, .max_logit_rows = logit_rows}, logit_rows + 1);
}

/* Compares row `row` of an array over all rows with the array of a forward over that row alone. */
static void same_row(const void *all, int row, const void *alone, size_t bytes, const char *what)
{
    if (bytes && memcmp((const char *)all + (size_t)row * bytes, alone, bytes))
        fail_msg("%s of row %d differ from those of the row alone", what, row);
}

static void rows_are_what_they_are_alone(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "tiny.moe");
    for (uint64_t seed = 1; seed <= MODELS; seed++) {
        struct hparams shape;
        struct rig rig;
        struct forward out;
        open_tiny(&rig, path, seed, ROWS + 2, ROWS, &shape);
        const size_t moe = (size_t)hparams_moe_layers(&shape), slots = moe * (size_t)shape.router.top_k * 4;
        const size_t scores = moe * (size_t)shape.router.experts * 4, logits = (size_t)shape.vocab * 4;
        const size_t hidden = (size_t)shape.layers * (size_t)shape.hidden * 4;
        struct batch batch = everything(&rig, 0, 1);         /* later calls need more room */
        must(engine_forward(rig.engine, rig.sequence, &batch, &out, &rig.err), &rig.err);
        sequence_rollback(rig.sequence);
        batch = everything(&rig, 0, ROWS);
        must(engine_forward(rig.engine, rig.sequence, &batch, &out, &rig.err), &rig.err);
        struct forward all = out;
        all.logits = copied(out.logits, ROWS * logits);
        all.hidden = copied(out.hidden, ROWS * hidden);
        if (moe) {
            all.expert = copied(out.expert, ROWS * slots);
            all.weight = copied(out.weight, ROWS * slots);
            all.wanted = copied(out.wanted, ROWS * slots);
            all.score = copied(out.score, ROWS * scores);
        }
        sequence_rollback(rig.sequence);
        for (int row = 0; row < ROWS; row++) {
            batch = everything(&rig, row, 1);
            must(engine_forward(rig.engine, rig.sequence, &batch, &out, &rig.err), &rig.err);
            same_row(all.logits, row, out.logits, logits, "logits");
            same_row(all.hidden, row, out.hidden, hidden, "hidden states");
            same_row(all.expert, row, out.expert, slots, "experts");
            same_row(all.weight, row, out.weight, slots, "weights");
            same_row(all.wanted, row, out.wanted, slots, "wanted experts");
            same_row(all.score, row, out.score, scores, "scores");
        }
        const void *copies[] = {all.logits, all.hidden, moe ? all.expert : NULL, moe ? all.weight : NULL,
                                moe ? all.wanted : NULL, moe ? all.score : NULL};
        for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
            free((void *)(uintptr_t)copies[i]);
        rig_close(&rig);
    }
    unit_remove(folder);
}

/* A device class that counts calls of the device's own class. */
static const struct device_class *own;
static int waits, unfinished;

static int counted_wait(struct device *device, struct err *err)
{
    waits++;
    unfinished = 0;
    return own->wait(device, err);
}

static void counted_download(struct device *device, void *data, struct buffer from, size_t bytes)
{
    unfinished++;
    own->download(device, data, from, bytes);
}

static void a_forward_is_waited_for_once(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "tiny.moe");
    for (uint64_t seed = 1; seed <= MODELS; seed++) {
        struct hparams shape;
        struct rig rig;
        struct forward out;
        open_tiny(&rig, path, seed, ROWS, ROWS, &shape);
        struct device_class counting = *rig.device->class;
        own = rig.device->class;
        counting.wait = counted_wait;
        counting.download = counted_download;
        rig.device->class = &counting;
        const struct batch batch = everything(&rig, 0, ROWS);
        waits = unfinished = 0;
        must(engine_forward(rig.engine, rig.sequence, &batch, &out, &rig.err), &rig.err);
        assert_int_equal(waits, 1);
        assert_int_equal(unfinished, 0);
        rig.device->class = own;
        rig_close(&rig);
    }
    unit_remove(folder);
}

struct put {
    struct device *device;
    struct buffer from, to;
    int calls;
};

static void put_gather(void *of)
{
    struct put *put = of;
    put->calls++;
    device_ops(put->device)->gather(device_queue(put->device), &(struct gather_args){
        .in = put->from, .index = buffer_part(put->from, 0, 4), .out = put->to, .rows = 1, .count = 1, .width = 4});
}

/* On every device: a queued operation runs once, takes time, and is finished after the wait; its result is in shared memory. */
static void devices_tell_their_time(void **state)
{
    (void)state;
    const char *const names[] = {"host", "ref", getenv("MOE_TEST_DEVICE")};
    for (size_t i = 0; i < sizeof names / sizeof *names && names[i]; i++) {
        const float row[4] = {0, 1, 2, 3};              /* the first index is 0, too */
        struct put put = {0};
        struct buffer shared;
        struct err err = {0};
        double seconds = -1;
        must(device_open(&put.device, &(struct device_setup){.name = names[i]}, &err), &err);
        must(device_alloc(put.device, sizeof row, &put.from, &err) || device_alloc(put.device, sizeof row, &put.to, &err) ||
                 device_alloc_shared(put.device, sizeof row, &shared, &err), &err);
        assert_int_equal(shared.address % 16, 0);
        queue_upload(put.device, put.from, row, sizeof row);
        must(device_time(put.device, put_gather, &put, &seconds, &err), &err);
        assert_int_equal(put.calls, 1);
        assert_true(seconds > 0 && seconds < 60);
        queue_download(put.device, (void *)(uintptr_t)shared.address, put.to, sizeof row);
        must(queue_wait(put.device, &err), &err);
        assert_memory_equal((void *)(uintptr_t)shared.address, row, sizeof row);
        device_free_shared(put.device, &shared);
        assert_int_equal(shared.address, 0);
        device_free(put.device, &put.from);
        device_free(put.device, &put.to);
        device_close(&put.device);
    }
}

/* Running routers ahead of their layers changes no bit, and their choice for a row does not depend on other rows. */
static void routers_asked_ahead_change_nothing(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "tiny.moe");
    static const int32_t parent[ROWS] = {-1, -1, -1, -1, -1, -1, -1};
    int told = 0;
    for (uint64_t seed = 1; seed <= 3 * MODELS; seed++) {
        struct hparams shape;
        struct rig rig;
        struct forward out;
        open_tiny(&rig, path, seed, ROWS + 2, ROWS, &shape);
        const int moe = hparams_moe_layers(&shape), top_k = shape.router.top_k;
        const size_t logits = (size_t)shape.vocab * 4, slots = (size_t)moe * (size_t)top_k * 4;
        struct batch batch = {.rows = ROWS, .token = rig.token, .parent = parent, .logit_rows = ROWS};
        must(engine_forward(rig.engine, rig.sequence, &batch, &out, &rig.err), &rig.err);
        assert_null(out.ahead);
        void *plain = copied(out.logits, ROWS * logits), *routed = moe ? copied(out.expert, ROWS * slots) : NULL;
        sequence_rollback(rig.sequence);
        batch.want_ahead = true;
        must(engine_forward(rig.engine, rig.sequence, &batch, &out, &rig.err), &rig.err);
        assert_memory_equal(plain, out.logits, ROWS * logits);
        if (moe)
            assert_memory_equal(routed, out.expert, ROWS * slots);
        int32_t *ahead = moe ? copied(out.ahead, ROWS * slots) : NULL;
        for (int i = 0; i < moe * ROWS * top_k; i++) {
            assert_true(i < ROWS * top_k ? ahead[i] == -1 : ahead[i] >= 0 && ahead[i] < shape.router.experts);
            for (int k = i / top_k * top_k; i >= ROWS * top_k && k < i; k++)
                assert_int_not_equal(ahead[i], ahead[k]);
            told += ahead[i] >= 0;
        }
        for (int row = 0; moe && row < ROWS; row++) {
            sequence_rollback(rig.sequence);
            batch = (struct batch){.rows = 1, .token = rig.token + row, .parent = parent, .logit_rows = 1, .want_ahead = true};
            must(engine_forward(rig.engine, rig.sequence, &batch, &out, &rig.err), &rig.err);
            for (int layer = 0; layer < moe; layer++)
                assert_memory_equal(out.ahead + layer * top_k, ahead + (layer * ROWS + row) * top_k, (size_t)top_k * 4);
        }
        free(plain), free(routed), free(ahead);
        rig_close(&rig);
    }
    assert_true(told > 0);
    unit_remove(folder);
}

/* The matrices that products read, and the hint of each product, in order. */
enum { PRODUCTS = 256 };
static struct { uint64_t reads, ahead; } products[PRODUCTS];
static int product_count;
static struct device_ops noting_ops;
static const struct device_ops *real_ops;

static void note_product(uint64_t reads, uint64_t ahead)
{
    assert_true(product_count < PRODUCTS);
    products[product_count].reads = reads;
    products[product_count++].ahead = ahead;
}

static void note_linear(struct queue *queue, const struct linear_args *args)
{
    note_product(args->weight.address, args->ahead.address);
    real_ops->linear(queue, args);
}

static void note_expert_ffn(struct queue *queue, const struct expert_ffn_args *args)
{
    note_product(0, args->ahead.address);
    real_ops->expert_ffn(queue, args);
}

/* Every hint is the matrix of a later product. In plain layers QKV names the output
 * projection, and the experts name QKV of the next layer. */
static void products_name_the_matrix_that_comes_later(void **state)
{
    char *folder = unit_folder();
    const char *path = unit_path(folder, "tiny.moe");
    int plain = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct hparams shape;
        struct rig rig;
        struct forward out;
        int named = 0;
        bool all = true;
        open_tiny(&rig, path, seed, ROWS, ROWS, &shape);
        real_ops = rig.engine->ops;
        noting_ops = *real_ops;
        noting_ops.linear = note_linear;
        noting_ops.expert_ffn = note_expert_ffn;
        rig.engine->ops = rig.engine->space.ops = &noting_ops;
        product_count = 0;
        const struct batch batch = everything(&rig, 0, ROWS);
        must(engine_forward(rig.engine, rig.sequence, &batch, &out, &rig.err), &rig.err);
        for (int i = 0; i < product_count; i++) {
            int later = i + 1;
            while (later < product_count && products[later].reads != products[i].ahead)
                later++;
            assert_true(!products[i].ahead || later < product_count);
            named += products[i].ahead != 0;
        }
        for (int n = 0; n < shape.layers; n++)
            all &= !shape.layer[n].state;
        if (all && !shape.shared_inner && !shape.attention.kv_rank) {
            plain++;
            assert_int_equal(named, 2 * shape.layers - 1);
        }
        rig_close(&rig);
    }
    assert_true(plain > 0);
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_what_they_are_alone),
        cmocka_unit_test(routers_asked_ahead_change_nothing),
        cmocka_unit_test(products_name_the_matrix_that_comes_later),
        cmocka_unit_test(a_forward_is_waited_for_once),
        cmocka_unit_test(devices_tell_their_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
