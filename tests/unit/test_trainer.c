/* Training as a whole, on a tiny model: going on from a checkpoint gives the same bytes as never having stopped, what is no
 * number ends a run without harm, orders and rates are what they are said to be, and heads come back from their files. */
#include "tests/unit/train.h"

#include <math.h>

#include "common/train/start.h"
#include "common/train/trainer.h"
#include "tests/unit/tiny.h"

enum { TEXTS = 7, LENGTH = 12, STEPS = 9, SPOILT = 5 };

struct rig {
    struct model *target;
    struct thread_pool *pool;
    char *folder;
    int spoilt;                         /* this text has states that are no numbers; -1: none */
    float states[3][LENGTH * 80];
    int32_t token[LENGTH];
    uint8_t mask[LENGTH];
};

static struct rig rig;

static void must(int rc, const struct err *err) { train_must(rc, err); }

/* Texts made up on the spot: tokens and states of a number each. */
static int read_text(void *self, int64_t index, int longest, struct train_text *out, struct err *err)
{
    struct rig *r = self;
    struct chance chance = {(uint64_t)index + 3};
    const int hidden = model_hparams(r->target)->hidden;
    (void)longest, (void)err;
    for (int i = 0; i < LENGTH; i++) {
        r->token[i] = chance_range(&chance, 0, model_hparams(r->target)->vocab - 1);
        r->mask[i] = i > 3;
    }
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < LENGTH * hidden; i++)
            r->states[p][i] = index == r->spoilt && i == 100 ? NAN : chance_signed(&chance);
    *out = (struct train_text){LENGTH - (int)(index % 3), r->token, r->mask,
                                {r->states[0], r->states[1], r->states[2]}, "made"};
    return 1;
}

static int open_rig(void **state)
{
    struct err err = {0};
    struct chance chance = {4};
    struct hparams shape;
    (void)state;
    do
        shape = tiny_shape(&chance);
    while (shape.hidden % (2 * shape.attention.heads) || shape.layers < 3 || shape.hidden > 80);
    rig.folder = unit_folder();
    must(tiny_write(unit_path(rig.folder, "m.moe"), &shape, FORMAT_F32, 1, &err), &err);
    must(model_open(&rig.target, unit_path(rig.folder, "m.moe"), &err), &err);
    must(thread_pool_new(&rig.pool, 2, &err), &err);
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    thread_pool_free(&rig.pool);
    model_close(&rig.target);
    unit_remove(rig.folder);
    return 0;
}

struct run {
    struct weights *weights;
    struct network *network;
    struct trainer *trainer;
    struct train_source source;
    struct train_settings settings;
};

static void run_open(struct run *run, enum head_kind kind, int spoilt)
{
    struct err err = {0};
    struct start_options options = start_defaults;
    struct head_reading reading = {0};
    struct train_points points;
    *run = (struct run){.source = {&rig, TEXTS, read_text, NULL},
                        .settings = {.batch = 2, .longest = LENGTH, .seed = 9, .noise = 0.1}};
    rig.spoilt = spoilt;
    options.kind = kind;
    options.inner = 7;
    options.exit_layer = 1;
    options.layer_count = 2;
    options.layers[1] = 1;
    options.draft_vocab = 11;
    must(start_head(&reading, &options, rig.target, &err), &err);
    must(weights_make(&run->weights, &reading.head, &reading.shape, &err), &err);
    must(weights_start(run->weights, rig.target, 5, &err), &err);
    optimiser_defaults(&run->settings.optimiser, kind);
    run->settings.optimiser.rate = 0.01;
    run->settings.optimiser.steps = STEPS;
    run->settings.optimiser.warmup = 2;
    train_points_of(&points, &run->weights->head);
    must(network_open(&run->network, run->weights, rig.target, &loss_defaults, LENGTH, rig.pool, &err), &err);
    const struct trainer_setup setup = {run->weights, run->network, &run->source, points, &run->settings, rig.pool};
    must(trainer_open(&run->trainer, &setup, &err), &err);
    head_reading_free(&reading);
}

static void run_close(struct run *run)
{
    trainer_close(&run->trainer);
    network_close(&run->network);
    weights_free(&run->weights);
}

static void make_steps(struct run *run, int steps)
{
    struct err err = {0};
    struct train_report report;
    for (int i = 0; i < steps; i++)
        if (trainer_step(run->trainer, &report, &err) != 1)
            fail_msg("%s", err.text);
}

static void going_on_gives_the_same_bytes(void **state)
{
    struct err err = {0};
    (void)state;
    for (int kind = HEAD_EAGLE1; kind < HEAD_KINDS; kind++) {
        const char *path = unit_path(rig.folder, "checkpoint");
        struct run whole, part;
        run_open(&whole, (enum head_kind)kind, -1);
        make_steps(&whole, STEPS);
        run_open(&part, (enum head_kind)kind, -1);
        make_steps(&part, 4);
        must(trainer_save(part.trainer, path, "told", &err), &err);
        run_close(&part);
        run_open(&part, (enum head_kind)kind, -1);
        assert_int_equal(trainer_resume(part.trainer, path, "told otherwise", &err), -1);
        err_clear(&err);
        must(trainer_resume(part.trainer, path, "told", &err), &err);
        assert_int_equal(trainer_steps(part.trainer), 4);
        make_steps(&part, STEPS - 4);
        assert_memory_equal(part.weights->data, whole.weights->data, whole.weights->floats * sizeof(float));
        assert_memory_equal(part.weights->second, whole.weights->second, whole.weights->floats * sizeof(float));
        run_close(&whole);
        run_close(&part);
    }
}

static void what_is_no_number_ends_a_run_without_harm(void **state)
{
    struct err err = {0};
    struct train_report report = {0};
    struct run run, other;
    int rc;
    (void)state;
    run_open(&run, HEAD_EAGLE1, SPOILT);
    while ((rc = trainer_step(run.trainer, &report, &err)) == 1)
        assert_true(trainer_steps(run.trainer) <= STEPS);
    assert_int_equal(rc, -1);
    assert_int_equal(err.code, ERR_INPUT);
    assert_non_null(strstr(err.text, "made"));
    assert_non_null(strstr(err.text, "no finite number"));
    const int made = (int)trainer_steps(run.trainer);
    run_open(&other, HEAD_EAGLE1, -1);
    make_steps(&other, made);
    assert_memory_equal(run.weights->data, other.weights->data, run.weights->floats * sizeof(float));
    assert_memory_equal(run.weights->first, other.weights->first, run.weights->floats * sizeof(float));
    run_close(&run);
    run_close(&other);
}

static void heads_come_back_from_their_files(void **state)
{
    struct err err = {0};
    (void)state;
    for (int kind = HEAD_EAGLE1; kind < HEAD_KINDS; kind++) {
        const char *path = unit_path(rig.folder, "head.moe");
        struct run run, again;
        struct model *file = NULL;
        run_open(&run, (enum head_kind)kind, -1);
        make_steps(&run, 3);
        must(weights_write(run.weights, &(struct weights_file){path, "a head", "test", FORMAT_F32}, rig.pool, &err), &err);
        must(model_open_head(&file, path, &err), &err);
        must(model_verify(file, &err), &err);
        must(head_check_target(model_head(file), model_identity(rig.target), false, &err), &err);
        run_open(&again, (enum head_kind)kind, -1);
        weights_read(again.weights, file);
        assert_memory_equal(again.weights->data, run.weights->data, run.weights->floats * sizeof(float));
        model_close(&file);
        run_close(&run);
        run_close(&again);
    }
}

static void an_epoch_has_every_text_once(void **state)
{
    enum { MANY = 1000 };
    int32_t order[2][MANY];
    int moved = 0;
    (void)state;
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        bool seen[MANY] = {false};
        train_order(order[epoch], MANY, 7, epoch);
        for (int i = 0; i < MANY; i++) {
            assert_false(seen[order[epoch][i]]);
            seen[order[epoch][i]] = true;
        }
    }
    for (int i = 0; i < MANY; i++)
        moved += order[0][i] != order[1][i] && order[0][i] != i;
    assert_true(moved > MANY - 20);
    assert_int_equal(train_epoch_steps(400, 4), 100);
    assert_int_equal(train_epoch_steps(401, 4), 101);
}

static void rates_rise_and_fall(void **state)
{
    struct optimiser_settings s = {.rate = 2, .schedule = SCHEDULE_LINEAR, .warmup = 4, .steps = 12};
    (void)state;
    assert_true(optimiser_rate(&s, 0) == 0);
    assert_true(optimiser_rate(&s, 1) == 0.5);
    assert_true(optimiser_rate(&s, 4) == 2);
    assert_true(optimiser_rate(&s, 8) == 1);
    s.schedule = SCHEDULE_COSINE;
    assert_true(fabs(optimiser_rate(&s, 6) - (1 + sqrt(0.5))) < 1e-12);
    assert_true(fabs(optimiser_rate(&s, 8) - 1) < 1e-12);
    assert_true(optimiser_rate(&s, 12) == 0);
    s.schedule = SCHEDULE_CONSTANT;
    assert_true(optimiser_rate(&s, 11) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(going_on_gives_the_same_bytes), cmocka_unit_test(what_is_no_number_ends_a_run_without_harm),
        cmocka_unit_test(heads_come_back_from_their_files), cmocka_unit_test(an_epoch_has_every_text_once),
        cmocka_unit_test(rates_rise_and_fall),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
