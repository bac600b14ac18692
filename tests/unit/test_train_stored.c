/* The target's output head, unpacked in blocks: each weight equals the file's, in every format; losses that read blocks
 * equal those that read f32; data that the device holds already are not copied. Also products that the host divides into
 * blocks. */
#include <math.h>

#include "common/engine/engine.h"
#include "common/train/loss.h"
#include "common/train/network.h"
#include "common/train/start.h"
#include "common/train/stored.h"
#include "tests/unit/tiny.h"
#include "tests/unit/unit.h"

enum { ROWS = 5, WIDE = 2049 };

/* A model whose output head is [vocab][hidden] in this format. */
static struct model *model_of(const char *folder, int vocab, int hidden, enum weight_format format, bool tied)
{
    struct chance chance = {4};
    struct hparams shape = tiny_shape(&chance);
    struct model *model = NULL;
    struct err err = {0};
    shape.vocab = vocab;
    shape.hidden = hidden;
    shape.layers = 1;
    shape.tied = tied;
    if (tiny_write(unit_path(folder, "m.moe"), &shape, format, 1, &err) || model_open(&model, unit_path(folder, "m.moe"), &err))
        fail_msg("%s", err.text);
    return model;
}

static void every_weight_is_the_files(void **state)
{
    static const enum weight_format formats[] = {FORMAT_F32, FORMAT_BF16, FORMAT_F16, FORMAT_Q8};
    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        const bool blocks = formats[i] == FORMAT_BF16;          /* several blocks of 8 Mi weights */
        char *folder = unit_folder();
        struct model *model = model_of(folder, blocks ? 4133 : 83, blocks ? WIDE : 45, formats[i], false);
        struct err err = {0};
        struct stored_matrix *matrix = NULL;
        struct device *device = NULL;
        const struct tensor *head = model_tensor(model, &err, "head");
        assert_non_null(head);
        assert_int_equal(device_open(&device, &(struct device_setup){"host", 2, NULL, false}, &err), 0);
        assert_int_equal(stored_open(&matrix, &(struct stored_setup){model, head, device, {0, 0}, true}, &err), 0);
        assert_true(blocks == (stored_rows(matrix) < head->outputs));
        for (int turn = 0; turn < 2; turn++)
            for (int first = 0; first < head->outputs; first += stored_rows(matrix)) {
                const struct buffer at = stored_block(matrix, device_learn(device), first);
                const float *block = (const float *)(uintptr_t)at.address;
                const int step = blocks ? 37 : 1;               /* a sample of nine million weights */
                for (int row = first; row < head->outputs && row < first + stored_rows(matrix); row += row % step ? 1 : step)
                    for (int k = 0; k < head->inputs; k++)
                        assert_true(block[(size_t)(row - first) * (size_t)head->inputs + (size_t)k] ==
                                    matrix_at(head->format, model_data(model, head), head->inputs, row, k));
            }
        stored_close(&matrix);
        device_close(&device);
        model_close(&model);
        unit_remove(folder);
    }
}

/* Computes a loss on made-up outputs, and its gradient. */
static double loss_of(struct device *device, struct variable *head, float gradient[ROWS * WIDE])
{
    static float x[ROWS * WIDE], states[ROWS * WIDE], weight[ROWS] = {1, 2, 0.5f, 1, 3};
    static const int target[ROWS] = {1, -1, 3, 4, 0};
    struct chance chance = {8};
    struct tape *tape = NULL;
    struct err err = {0};
    const size_t bytes = sizeof x;
    const double zero = 0;
    for (int i = 0; i < ROWS * WIDE; i++) {
        x[i] = chance_signed(&chance);
        states[i] = chance_signed(&chance);
    }
    memset(gradient, 0, bytes);
    assert_int_equal(tape_new(&tape, device, &err), 0);
    tape_begin(tape);
    struct variable out = {.rows = ROWS, .width = WIDE, .data = device_map(device, x, bytes),
                           .gradient = device_map(device, gradient, bytes)};
    const struct judged judged = {&out, target, weight, 1, tape_copy(tape, &zero, 1, sizeof zero)};
    const struct soft_target soft = {.states = device_map(device, states, bytes), .head = head, .words = head->rows,
                                     .output = head};
    assert_int_equal(loss_soft(tape, &soft, &judged, 1), 0);
    const double sum = *(const double *)tape_download(tape, judged.sum, 1, sizeof zero);
    tape_free(&tape);
    return sum;
}

static void losses_are_the_same_by_blocks(void **state)
{
    static float gradient[2][ROWS * WIDE];
    char *folder = unit_folder();
    struct model *model = model_of(folder, 4133, WIDE, FORMAT_BF16, false);
    struct err err = {0};
    struct device *device = NULL;
    const struct tensor *tensor = model_tensor(model, &err, "head");
    struct variable whole = {.rows = tensor->outputs, .width = tensor->inputs}, stored = whole;
    double off = 0, norm = 0;
    (void)state;
    assert_int_equal(device_open(&device, &(struct device_setup){"host", 2, NULL, false}, &err), 0);
    assert_int_equal(stored_open(&stored.stored, &(struct stored_setup){model, tensor, device, {0, 0}, true}, &err), 0);
    float *data = malloc((size_t)whole.rows * WIDE * sizeof *data);
    for (int row = 0; row < whole.rows; row++)
        for (int k = 0; k < WIDE; k++)
            data[(size_t)row * WIDE + (size_t)k] = matrix_at(tensor->format, model_data(model, tensor), WIDE, row, k);
    whole.data = device_map(device, data, (size_t)whole.rows * WIDE * sizeof *data);
    const double a = loss_of(device, &whole, gradient[0]), b = loss_of(device, &stored, gradient[1]);
    assert_true(fabs(a - b) < 1e-6 * a);
    for (int i = 0; i < ROWS * WIDE; i++) {
        off += pow((double)gradient[0][i] - (double)gradient[1][i], 2);
        norm += pow((double)gradient[0][i], 2);
    }
    assert_true(norm > 0 && sqrt(off / norm) < 1e-5);
    free(data);
    stored_close(&stored.stored);
    device_close(&device);
    model_close(&model);
    unit_remove(folder);
}

/* ---- products beyond one block ---- */

static void check_products(const int rows, const int columns, const int depth)
{
    const size_t left_floats = (size_t)rows * (size_t)depth, right_floats = (size_t)columns * (size_t)depth;
    const size_t floats = (size_t)rows * (size_t)columns, bytes = floats * sizeof(float);
    struct err err = {0};
    struct chance chance = {5};
    float *a = malloc(left_floats * sizeof *a), *b = malloc(right_floats * sizeof *b);
    float *c[3] = {malloc(bytes), malloc(bytes), malloc(bytes)};
    for (size_t i = 0; i < left_floats; i++)
        a[i] = chance_signed(&chance);
    for (size_t i = 0; i < right_floats; i++)
        b[i] = chance_signed(&chance);
    for (int kind = LEARN_ROWS; kind <= LEARN_OUTER; kind++) {
        for (int threads = 1; threads <= 3; threads++) {
            struct device *device = NULL;
            assert_int_equal(device_open(&device, &(struct device_setup){"host", threads, NULL, false}, &err), 0);
            for (size_t i = 0; i < floats; i++)
                c[threads - 1][i] = 1;
            device_learn(device)->product(device_queue(device), &(struct learn_product_args){
                (enum learn_product)kind, device_map(device, a, left_floats * sizeof *a),
                device_map(device, b, right_floats * sizeof *b),
                device_map(device, c[threads - 1], bytes), rows, columns, depth,
                kind == LEARN_OUTER ? rows : depth, kind == LEARN_ROWS ? depth : columns, columns, true});
            device_close(&device);
        }
        for (int i = 0; i < 400; i++) {
            const int r = chance_range(&chance, 0, rows - 1), k = chance_range(&chance, 0, columns - 1);
            double sum = 1;
            for (int d = 0; d < depth; d++)
                sum += (double)a[kind == LEARN_OUTER ? d * rows + r : r * depth + d] *
                       (double)b[kind == LEARN_ROWS ? k * depth + d : d * columns + k];
            assert_true(fabs((double)c[0][r * columns + k] - sum) < 1e-4);
        }
        assert_memory_equal(c[1], c[0], bytes);
        assert_memory_equal(c[2], c[0], bytes);
    }
    for (int i = 0; i < 3; i++)
        free(c[i]);
    free(a);
    free(b);
}

static struct weights *weights_of(const struct model *model, struct device *device)
{
    struct start_options options = start_defaults;
    struct head_reading reading = {0};
    struct weights *weights = NULL;
    struct err err = {0};
    options.heads = 1;
    options.inner = 3;
    assert_int_equal(start_head(&reading, &options, model, &err), 0);
    assert_int_equal(weights_make(&weights, &reading.head, &reading.shape, &err), 0);
    assert_int_equal(weights_place(weights, device, &err), 0);
    head_reading_free(&reading);
    return weights;
}

/* Returns the bytes of device memory that a network allocates. */
static int64_t taken(const struct model *model, struct device *device, struct weights *weights, const struct engine_ends *ends)
{
    struct network *network = NULL;
    struct err err = {0};
    const int64_t before = device_memory_left(device);
    assert_int_equal(network_open(&network, weights, model, ends, &loss_defaults, 8, &err), 0);
    const int64_t after = device_memory_left(device);
    network_close(&network);
    assert_true(device_memory_left(device) == before);
    return before - after;
}

/* A tied model has one matrix, and no further copy if the engine has it. */
static void a_device_has_a_matrix_once(void **state)
{
    struct device *device = NULL;
    (void)state;
    if (device_open(&device, &(struct device_setup){.name = "emu"}, NULL))
        skip();                                 /* a build without an emulator */
    for (int tied = 0; tied < 2; tied++) {
        char *folder = unit_folder();
        struct model *model = model_of(folder, 901, 44, FORMAT_BF16, tied);
        struct weights *weights = weights_of(model, device);
        struct err err = {0};
        const struct tensor *embed = model_tensor(model, &err, "embed");
        struct engine_ends ends = {.scale = 0};
        assert_int_equal(device_alloc(device, embed->bytes, &ends.embed, &err), 0);
        ends.head = ends.embed;
        const int64_t alone = taken(model, device, weights, NULL), beside = taken(model, device, weights, &ends);
        assert_true(alone - beside == (tied ? 1 : 2) * (int64_t)embed->bytes);
        device_free(device, &ends.embed);
        weights_free(&weights);
        model_close(&model);
        unit_remove(folder);
    }
    device_close(&device);
}

/* Divided into small blocks, and into large ones. */
static void products_have_the_same_bytes_with_any_threads(void **state)
{
    (void)state;
    check_products(300, 1100, 33);
    check_products(700, 7400, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_weight_is_the_files), cmocka_unit_test(losses_are_the_same_by_blocks),
        cmocka_unit_test(a_device_has_a_matrix_once), cmocka_unit_test(products_have_the_same_bytes_with_any_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
