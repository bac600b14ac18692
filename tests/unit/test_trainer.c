/* Training as a whole, on a tiny model: resuming from a checkpoint gives the same bytes as an uninterrupted run, a value
 * that is not finite ends a run without damage, orders and learning rates are as documented, and heads are read back from
 * their files. */
#include "tests/unit/train.h"

#include <math.h>

#include "common/train/start.h"
#include "common/train/trainer.h"
#include "tests/unit/ranks_pipes.h"
#include "tests/unit/tiny.h"

enum { TEXTS = 7, LENGTH = 12, STEPS = 9, SPOILT = 5 };

struct rig {
    struct model *target;
    struct thread_pool *pool;
    struct device *device;              /* of two threads */
    char *folder;
    int spoilt;                         /* text whose states are not finite; -1: none */
    bool from_the_first;                /* answers include the first tokens */
    float states[3][LENGTH * 80];
    int32_t token[LENGTH];
    uint8_t mask[LENGTH];
    char name[16];
};

static struct rig rig;

/* Makes texts up on demand: tokens and states computed from their number. */
static int read_text(void *self, int64_t index, int longest, struct train_text *out, struct err *err)
{
    struct rig *r = self;
    struct chance chance = {(uint64_t)index + 3};
    const int hidden = model_hparams(r->target)->hidden;
    (void)longest, (void)err;
    for (int i = 0; i < LENGTH; i++) {
        r->token[i] = chance_range(&chance, 0, model_hparams(r->target)->vocab - 1);
        r->mask[i] = i > 3 || (i == 0 && r->from_the_first);
    }
    for (int p = 0; p < 3; p++)
        for (int i = 0; i < LENGTH * hidden; i++)
            r->states[p][i] = index == r->spoilt && i == 100 ? NAN : chance_signed(&chance);
    *out = (struct train_text){LENGTH - (int)(index % 3), r->token, r->mask,
                                {r->states[0], r->states[1], r->states[2]}, r->name};
    snprintf(r->name, sizeof r->name, "made %d", (int)index);
    return 1;
}

static struct device *open_host(int threads)
{
    struct device *device = NULL;
    struct err err = {0};
    must(device_open(&device, &(struct device_setup){"host", threads, NULL, false}, &err), &err);
    return device;
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
    rig.device = open_host(2);
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    thread_pool_free(&rig.pool);
    device_close(&rig.device);
    model_close(&rig.target);
    unit_remove(rig.folder);
    return 0;
}

struct run {
    struct weights *weights;
    struct network *network;
    struct trainer *trainer;
    struct share *share;
    struct train_source source;
    struct train_settings settings;
};

struct asked { int batch, micro, spoilt; struct device *device; struct ranks *ranks; };

static void run_open_as(struct run *run, enum head_kind kind, const struct asked *asked)
{
    struct err err = {0};
    struct start_options options = start_defaults;
    struct head_reading reading = {0};
    struct head_states points;
    *run = (struct run){.source = {.self = &rig, .texts = TEXTS, .read = read_text, .outline = read_text},
                        .settings = {.batch = asked->batch, .micro = asked->micro, .longest = LENGTH, .seed = 9, .noise = 0.1}};
    rig.spoilt = asked->spoilt;
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
    head_states_of(&points, &run->weights->head);
    must(weights_place(run->weights, asked->device, &err), &err);
    must(network_open(&run->network, run->weights, rig.target, NULL, &loss_defaults, LENGTH, &err), &err);
    if (asked->ranks)
        must(share_open(&run->share, asked->ranks, run->weights, &err), &err);
    const struct trainer_setup setup = {run->weights, run->network, &run->source, points, &run->settings, run->share};
    must(trainer_open(&run->trainer, &setup, &err), &err);
    head_reading_free(&reading);
}

static void run_open(struct run *run, enum head_kind kind, int spoilt)
{
    run_open_as(run, kind, &(struct asked){2, 0, spoilt, rig.device});
}

static void run_close(struct run *run)
{
    trainer_close(&run->trainer);
    share_close(&run->share);
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
        must(trainer_save(part.trainer, path, "a recipe", &err), &err);
        run_close(&part);
        run_open(&part, (enum head_kind)kind, -1);
        assert_int_equal(trainer_resume(part.trainer, path, "another recipe", &err), -1);
        err_clear(&err);
        must(trainer_resume(part.trainer, path, "a recipe", &err), &err);
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
    assert_non_null(strstr(err.text, "text made 5: the loss is not a finite number"));
    const int made = (int)trainer_steps(run.trainer);
    run_open(&other, HEAD_EAGLE1, -1);
    make_steps(&other, made);
    assert_memory_equal(run.weights->data, other.weights->data, run.weights->floats * sizeof(float));
    assert_memory_equal(run.weights->first, other.weights->first, run.weights->floats * sizeof(float));
    run_close(&run);
    run_close(&other);
}

/* Returns the distance between two runs, as a share of the distance that the first has moved from the common start. */
static double apart(const struct run *one, const struct run *other, enum head_kind kind)
{
    struct run begin;
    double apart = 0, way = 0;
    run_open(&begin, kind, -1);
    for (size_t i = 0; i < one->weights->floats; i++) {
        apart += pow((double)one->weights->data[i] - (double)other->weights->data[i], 2);
        way += pow((double)one->weights->data[i] - (double)begin.weights->data[i], 2);
    }
    run_close(&begin);
    assert_true(way > 0);
    return sqrt(apart / way);
}

/* A step made of smaller batches equals the whole step, with any remainder in the last of them, and has the same bytes with
 * any number of threads; also the last step of the epoch, with two texts. Adam's first steps take the sign of gradients that
 * are nearly 0, so gradients are compared by Adam's moments. */
static void a_step_in_parts_is_the_step(void **state)
{
    struct err err = {0};
    (void)state;
    for (int kind = HEAD_EAGLE1; kind < HEAD_KINDS; kind++) {
        struct run whole, part, again;
        struct device *three = open_host(3);
        run_open_as(&whole, (enum head_kind)kind, &(struct asked){5, 0, -1, rig.device});
        run_open_as(&part, (enum head_kind)kind, &(struct asked){5, 2, -1, rig.device});
        run_open_as(&again, (enum head_kind)kind, &(struct asked){5, 2, -1, three});
        for (int step = 0; step < 4; step++) {
            struct train_report a, b;
            assert_int_equal(trainer_step(whole.trainer, &a, &err), 1);
            assert_int_equal(trainer_step(part.trainer, &b, &err), 1);
            assert_int_equal(a.tokens, b.tokens);
            assert_int_equal(a.losses.count, b.losses.count);
            assert_true(fabs(a.losses.total - b.losses.total) <= 1e-5 * a.losses.total);
            for (int i = 0; i < a.losses.count; i++)
                assert_true(fabs(a.losses.part[i].value - b.losses.part[i].value) <= 1e-5 * fabs(a.losses.part[i].value));
            assert_true(fabs(a.optimiser.norm - b.optimiser.norm) <= 1e-5 * a.optimiser.norm);
        }
        make_steps(&again, 4);
        assert_memory_equal(part.weights->data, again.weights->data, part.weights->floats * sizeof(float));
        assert_true(apart(&whole, &part, (enum head_kind)kind) < 1e-3);
        run_close(&whole);
        run_close(&part);
        run_close(&again);
        device_close(&three);
    }
}

/* Steps on the device and on the host; a checkpoint after two of them. */
static void follow_the_host(enum head_kind kind, struct device *device, const char *path)
{
    struct err err = {0};
    struct run host, there;
    run_open_as(&host, kind, &(struct asked){5, 3, -1, rig.device, NULL});
    run_open_as(&there, kind, &(struct asked){5, 3, -1, device, NULL});
    for (int step = 0; step < 4; step++) {
        struct train_report a, b;
        assert_int_equal(trainer_step(host.trainer, &a, &err), 1);
        if (trainer_step(there.trainer, &b, &err) != 1)
            fail_msg("%s", err.text);
        for (int i = 0; i < a.losses.count; i++)
            assert_true(fabs(a.losses.part[i].value - b.losses.part[i].value) <= 1e-4 * fabs(a.losses.part[i].value));
        assert_true(fabs(a.losses.total - b.losses.total) <= 1e-4 * a.losses.total);
        assert_true(fabs(a.optimiser.norm - b.optimiser.norm) <= 1e-4 * a.optimiser.norm);
        if (step == 1)
            must(trainer_save(there.trainer, path, "a recipe", &err), &err);
    }
    must(weights_fetch_all(there.weights, &err), &err);
    assert_true(apart(&host, &there, kind) < 1e-3);
    run_close(&host);
    struct run again;
    run_open_as(&again, kind, &(struct asked){5, 3, -1, device, NULL});
    must(trainer_resume(again.trainer, path, "a recipe", &err), &err);
    make_steps(&again, 2);
    must(weights_fetch_all(again.weights, &err), &err);
    assert_memory_equal(again.weights->data, there.weights->data, again.weights->floats * sizeof(float));
    assert_memory_equal(again.weights->second, there.weights->second, again.weights->floats * sizeof(float));
    run_close(&there);
    run_close(&again);
}

static void other_devices_learn_as_the_host(void **state)
{
    static const char *const names[] = {"ref", "emu"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct device *device = NULL;
        if (device_open(&device, &(struct device_setup){.name = names[i]}, NULL))
            continue;                           /* a build without an emulator */
        const bool all = getenv("MOE_LONG") || (!i && !unit_brief());
        for (int kind = HEAD_EAGLE1; kind < HEAD_KINDS; kind++)
            if (all || kind == HEAD_EAGLE1 || kind == HEAD_EAGLE3 || kind == HEAD_JAKIRO)
                follow_the_host((enum head_kind)kind, device, unit_path(rig.folder, "there"));
        device_close(&device);
    }
}

/* The order in which a head's states are listed does not matter if the matrix that joins them has its columns in the same
 * order. */
static void states_may_be_listed_in_any_order(void **state)
{
    struct run run[2];
    struct losses losses[2];
    (void)state;
    for (int order = 0; order < 2; order++) {
        struct err err = {0};
        struct train_report report;
        run_open(&run[order], HEAD_EAGLE3, -1);
        const struct weight *joint = weights_find(run[order].weights, ROLE_JOINT, WEIGHT_WHOLE, -1, 0);
        const size_t half = (size_t)joint->value.width / 2;
        assert_int_equal(run[order].weights->head.states, 2);
        for (size_t row = 0; order && row < (size_t)joint->value.rows; row++)
            for (size_t i = 0; i < half; i++) {
                const float kept = joint->data[2 * row * half + i];
                joint->data[2 * row * half + i] = joint->data[(2 * row + 1) * half + i];
                joint->data[(2 * row + 1) * half + i] = kept;
            }
        if (order) {
            run[order].weights->head.state[0] = 1;
            run[order].weights->head.state[1] = 0;
        }
        run[order].settings.noise = 0;
        assert_int_equal(trainer_step(run[order].trainer, &report, &err), 1);
        losses[order] = report.losses;
    }
    assert_true(fabs(losses[0].total - losses[1].total) < 1e-6 * losses[0].total);
    run_close(&run[0]);
    run_close(&run[1]);
}

static void the_text_is_named_in_whatever_part_it_is(void **state)
{
    (void)state;
    for (int micro = 1; micro <= 5; micro++) {
        struct err err = {0};
        struct train_report report = {0};
        struct run run;
        int rc;
        run_open_as(&run, HEAD_JAKIRO, &(struct asked){5, micro, SPOILT, rig.device});
        while ((rc = trainer_step(run.trainer, &report, &err)) == 1)
            assert_true(trainer_steps(run.trainer) <= STEPS);
        assert_int_equal(rc, -1);
        assert_non_null(strstr(err.text, "text made 5: "));
        for (size_t i = 0; i < run.weights->floats; i++)
            assert_true(run.weights->gradient[i] == 0);
        run_close(&run);
    }
}

/* ---- several processes ---- */

/* Instructions for the processes and their results, in shared memory. */
struct job {
    enum head_kind kind;
    struct asked asked;
    const char *device;                 /* NULL: the host */
    int begin, end;                     /* number of steps; begin > 0: resumes from a checkpoint of that step */
    struct losses losses[PIPES_MAX][STEPS];
    int tokens[STEPS];
    double norm[PIPES_MAX][STEPS];
    struct err err[PIPES_MAX];
    float weights[PIPES_MAX][1 << 16], moments[1 << 17];       /* moments: final values of process 0 */
};

static int follow(struct ranks *ranks, void *argument)
{
    struct job *job = argument;
    struct err err = {0};
    struct run run;
    struct asked asked = job->asked;
    const int rank = ranks_rank(ranks);
    const char *path = unit_path(rig.folder, "shared");
    if (job->device)
        must(device_open(&asked.device, &(struct device_setup){.name = job->device, .turn = ranks_here(ranks)}, &err), &err);
    else
        asked.device = open_host(1);                           /* threads created before the fork do not exist here */
    asked.ranks = ranks;
    run_open_as(&run, job->kind, &asked);
    const size_t floats = run.weights->floats;
    assert_true(floats <= 1 << 16);
    int rc = job->begin && !rank ? trainer_resume(run.trainer, path, "a recipe", &err) : 0;
    rc = rc || (job->begin && trainer_scatter(run.trainer, &err));
    for (int64_t step; !rc && (step = trainer_steps(run.trainer)) < job->end;) {
        struct train_report report;
        if (!(rc = trainer_step(run.trainer, &report, &err) != 1)) {
            job->losses[rank][step] = report.losses;
            job->norm[rank][step] = report.optimiser.norm;
            job->tokens[step] = report.tokens;
        }
    }
    rc = rc || trainer_gather(run.trainer, &err) || (!rank && trainer_save(run.trainer, path, "a recipe", &err));
    if (rc)
        ranks_leave(ranks, &err);
    job->err[rank] = err;
    must(weights_fetch_all(run.weights, &err), &err);
    memcpy(job->weights[rank], run.weights->data, floats * sizeof(float));
    if (!rank) {
        memcpy(job->moments, run.weights->first, floats * sizeof(float));
        memcpy(job->moments + floats, run.weights->second, floats * sizeof(float));
    }
    run_close(&run);
    device_close(&asked.device);
    return 0;
}

static struct job *run_job_on(const char *device, int size, enum head_kind kind, int micro, int begin, int end, int spoilt)
{
    struct job *job = pipes_memory(sizeof *job);
    job->device = device;
    job->kind = kind;
    job->asked = (struct asked){5, micro, spoilt, NULL, NULL};
    job->begin = begin;
    job->end = end;
    assert_int_equal(pipes_run(size, follow, job), 0);
    return job;
}

static struct job *run_job(int size, enum head_kind kind, int micro, int begin, int end, int spoilt)
{
    return run_job_on(NULL, size, kind, micro, begin, end, spoilt);
}

static void end_job(struct job *job) { munmap(job, sizeof *job); }

static bool same_end(const struct job *one, const struct job *other)
{
    return !memcmp(one->weights[0], other->weights[0], sizeof one->weights[0]) &&
           !memcmp(one->moments, other->moments, sizeof one->moments) &&
           !memcmp(one->losses[0], other->losses[0], sizeof one->losses[0]);
}

/* All have the losses, norms and tokens of one process that computes the batch at once, up to rounding of sums, and all have
 * the same weights. */
static void several_processes_make_the_step_of_one(void **state)
{
    (void)state;
    for (int kind = HEAD_EAGLE1; kind < HEAD_KINDS; kind++) {
        struct err err = {0};
        struct train_report a[STEPS];
        struct run whole;
        run_open_as(&whole, (enum head_kind)kind, &(struct asked){5, 0, -1, rig.device, NULL});
        for (int step = 0; step < 2; step++)
            assert_int_equal(trainer_step(whole.trainer, &a[step], &err), 1);
        for (int size = 2; size <= (kind == HEAD_JAKIRO ? 3 : 2); size++) {
            struct job *job = run_job(size, (enum head_kind)kind, 0, 0, 2, -1);
            for (int step = 0; step < 2; step++) {
                const struct losses *l = &job->losses[0][step];
                assert_int_equal(job->tokens[step], a[step].tokens);
                assert_int_equal(l->count, a[step].losses.count);
                assert_true(fabs(l->total - a[step].losses.total) <= 1e-5 * a[step].losses.total);
                for (int i = 0; i < l->count; i++)
                    assert_true(fabs(l->part[i].value - a[step].losses.part[i].value) <= 1e-5 * fabs(l->part[i].value));
                assert_true(fabs(job->norm[0][step] - a[step].optimiser.norm) <= 1e-5 * a[step].optimiser.norm);
            }
            for (int rank = 1; rank < size; rank++) {
                assert_memory_equal(job->losses[0], job->losses[rank], sizeof job->losses[0]);
                assert_memory_equal(job->norm[0], job->norm[rank], sizeof job->norm[0]);
                assert_memory_equal(job->weights[0], job->weights[rank], sizeof job->weights[0]);
            }
            end_job(job);
        }
        run_close(&whole);
    }
}

/* The same parts give the same bytes, on any number of processes, and from a checkpoint made by another number. */
static void parts_give_the_same_bytes_on_any_number(void **state)
{
    static const struct { enum head_kind kind; int micro, size; } cases[] = {
        {HEAD_EAGLE1, 1, 2}, {HEAD_EAGLE1, 2, 2}, {HEAD_EAGLE1, 1, 3}, {HEAD_EAGLE3, 2, 4}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct job *one = run_job(1, cases[c].kind, cases[c].micro, 0, 5, -1);
        struct job *several = run_job(cases[c].size, cases[c].kind, cases[c].micro, 0, 5, -1);
        assert_true(same_end(one, several));
        end_job(several);
        end_job(one);
    }
    struct job *one = run_job(1, HEAD_EAGLE1, 1, 0, 4, -1);
    end_job(run_job(3, HEAD_EAGLE1, 1, 0, 2, -1));
    struct job *rest = run_job(2, HEAD_EAGLE1, 1, 2, 4, -1);
    memcpy(rest->losses[0], one->losses[0], 2 * sizeof one->losses[0][0]);
    assert_true(same_end(one, rest));
    end_job(rest);
    end_job(one);
}

/* The same if gradients are added up on the host, and weights return from it: each process has a device of its own. */
static void parts_give_the_same_bytes_on_other_devices(void **state)
{
    static const char *const names[] = {"ref", "emu"};
    struct job *host = run_job(1, HEAD_EAGLE1, 2, 0, 3, -1);
    (void)state;
    for (size_t i = !getenv("MOE_LONG"); i < sizeof names / sizeof *names; i++) {
        struct device *device = NULL;
        if (device_open(&device, &(struct device_setup){.name = names[i]}, NULL))
            continue;                           /* a build without an emulator */
        device_close(&device);
        struct job *one = run_job_on(names[i], 1, HEAD_EAGLE1, 2, 0, 3, -1);
        end_job(run_job_on(names[i], 3, HEAD_EAGLE1, 2, 0, 2, -1));
        struct job *rest = run_job_on(names[i], 2, HEAD_EAGLE1, 2, 2, 3, -1);
        for (int step = 0; step < 3; step++)
            assert_true(fabs(one->losses[0][step].total - host->losses[0][step].total) <= 1e-5 * host->losses[0][step].total);
        assert_true(one->norm[0][2] > 0 && one->norm[0][2] == rest->norm[1][2]);
        memcpy(rest->losses[0], one->losses[0], 2 * sizeof one->losses[0][0]);
        assert_true(same_end(one, rest));
        assert_memory_equal(rest->weights[0], rest->weights[1], sizeof rest->weights[0]);
        end_job(rest);
        end_job(one);
    }
    end_job(host);
}

static void a_fault_in_a_part_ends_all(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++) {
        struct job *job = run_job(size, HEAD_EAGLE1, 1, 0, STEPS, SPOILT);
        assert_int_equal(job->err[0].code, ERR_INPUT);
        assert_non_null(strstr(job->err[0].text, "text made 5: the loss is not a finite number"));
        for (int rank = 1; rank < size; rank++) {
            assert_int_equal(job->err[rank].code, ERR_REPORTED);
            assert_memory_equal(job->weights[0], job->weights[rank], sizeof job->weights[0]);
        }
        end_job(job);
    }
}

static void parts_are_about_equal(void **state)
{
    const int32_t tokens[7] = {5, 100, 40, 60, 1, 50, 100};
    int64_t load[4];
    int part[7];
    (void)state;
    share_balance(tokens, 7, 1, load, part);
    for (int i = 0; i < 7; i++)
        assert_int_equal(part[i], 0);
    share_balance(tokens, 7, 3, load, part);
    assert_true(load[0] == 140 && load[1] == 106 && load[2] == 110);
    assert_true(part[1] == 0 && part[2] == 0 && part[6] == 1 && part[0] == 1 && part[4] == 1 && part[3] == 2 && part[5] == 2);
}

/* ---- how heads begin ---- */

/* The matrix that a bias belongs to; a matrix belongs to itself. */
static const struct weight *matrix_of(struct weights *w, const struct weight *of)
{
    static const struct { enum tensor_role bias, matrix; } pairs[] = {
        {ROLE_JOINT_BIAS, ROLE_JOINT}, {ROLE_BLOCK_BIAS, ROLE_BLOCK}, {ROLE_RESIDUAL_BIAS, ROLE_RESIDUAL},
        {ROLE_OUTPUT_BIAS, ROLE_OUTPUT}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (of->tensor->role == pairs[i].bias)
            return weights_find(w, pairs[i].matrix, WEIGHT_WHOLE, of->tensor->layer,
                                of->tensor->role == ROLE_OUTPUT_BIAS ? w->head.blocks : of->tensor->stage);
    return of;
}

/* Checks mean and variance of uniform numbers in +-bound, within five standard deviations. */
static void check_drawn(const struct weight *weight, size_t count, double bound)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++) {
        assert_true(fabs((double)weight->data[i]) <= bound);
        sum += (double)weight->data[i] / bound;
        squares += pow((double)weight->data[i] / bound, 2);
    }
    assert_true(fabs(sum) <= 5 * sqrt((double)count / 3));
    assert_true(fabs(squares - (double)count / 3) <= 5 * sqrt((double)count * 4 / 45));
}

static void heads_begin_as_their_authors_begin_them(void **state)
{
    (void)state;
    for (int kind = HEAD_EAGLE1; kind < HEAD_KINDS; kind++) {
        struct err err = {0};
        struct run run;
        float last = 2, row[80];
        const float *at = &last;
        run_open(&run, (enum head_kind)kind, -1);
        struct weights *w = run.weights;
        for (int i = 0; i < w->count; i++) {
            const struct weight *weight = &w->list[i];
            const enum tensor_role role = weight->tensor->role;
            const size_t count = (size_t)weight->value.rows * (size_t)weight->value.width;
            const bool copied = role == ROLE_OUTPUT || role == ROLE_EMBED, drawn = count > 80 && !copied && role != ROLE_BLOCK;
            const struct tensor *from = model_tensor(rig.target, &err, role == ROLE_EMBED || model_hparams(rig.target)->tied
                                                     ? "embed" : "head");
            for (size_t k = 0; k < count && !drawn; k++) {
                if (copied && k % (size_t)from->inputs == 0)
                    tensor_row(rig.target, from, (int)k / from->inputs, row);
                if (copied || role == ROLE_BLOCK)
                    assert_true(weight->data[k] == (copied ? row[k % (size_t)from->inputs] : 0));
                else if (matrix_of(w, weight) == weight)
                    assert_true(weight->data[k] == 1);          /* a norm */
            }
            if (drawn || matrix_of(w, weight) != weight) {
                check_drawn(weight, count, 1 / sqrt((double)matrix_of(w, weight)->value.width));
                assert_true(weight->data[0] != last);           /* each has random numbers of its own */
                last = *(at = weight->data);
            }
        }
        must(weights_start(w, rig.target, 6, &err), &err);
        assert_true(*at != last);
        run_close(&run);
    }
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

/* The first moment is a share of the clipped gradient; the weights themselves hardly show the clipping. */
static void gradients_are_cut_as_asked(void **state)
{
    const double norm = sqrt(2 * (0.01 * 0.01 + 0.02 * 0.02 + 0.03 * 0.03) / 7);
    (void)state;
    for (int by_norm = 0; by_norm < 2; by_norm++) {
        const struct optimiser_settings s = {.rate = 0.1, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8,
                                             .schedule = SCHEDULE_CONSTANT, .clipping = by_norm ? CLIP_NORM : CLIP_ELEMENT,
                                             .bound = by_norm ? 0.1 : 0.015};
        struct optimiser_report report;
        struct err err = {0};
        struct run run;
        run_open(&run, HEAD_EAGLE1, -1);
        struct weights *w = run.weights;
        const size_t count = w->floats / 7 * 7;
        must(weights_fetch(w, WEIGHTS_GRADIENT, 0, w->floats, &err), &err);
        for (size_t i = 0; i < w->floats; i++)
            w->gradient[i] = i < count ? 0.01f * (float)((int)(i % 7) - 3) : 0;
        must(weights_send(w, WEIGHTS_GRADIENT, 0, w->floats, &err), &err);
        must(optimiser_step(&s, w, 0, &report, &err), &err);
        must(weights_fetch_all(w, &err), &err);
        assert_true(fabs(report.norm / (norm * sqrt((double)count)) - 1) < 1e-5);
        assert_int_equal(report.clipped, by_norm ? w->floats : count / 7 * 4);
        for (size_t i = 0; i < count; i++) {
            const double g = 0.01 * ((int)(i % 7) - 3), cut = g > s.bound ? s.bound : g < -s.bound ? -s.bound : g;
            const double wanted = 0.1 * (by_norm ? g * s.bound / (report.norm + 1e-6) : cut);
            if (!(fabs((double)w->first[i] - wanted) <= 1e-5 * fabs(wanted)))
                fail_msg("moment %zu is %.9g, not %.9g", i, (double)w->first[i], wanted);
        }
        run_close(&run);
    }
}

static void of_equal_experts_the_lower_is_chosen(void **state)
{
    float score[2][4] = {{1, 3, 3, 3}, {2, 2, 1, 2}};
    static const int32_t wanted[2][2] = {{1, 2}, {0, 1}};
    struct tape *tape = NULL;
    struct err err = {0};
    (void)state;
    must(tape_new(&tape, rig.device, &err), &err);
    tape_begin(tape);
    struct variable *router = op_constant(tape, 2, 4, tape_constant(tape, score, 8, sizeof score[0][0]));
    const struct mix_choice *choice = mix_choose(tape, router, 4, 2);
    assert_non_null(choice);
    assert_memory_equal(tape_download(tape, choice->expert, 4, sizeof wanted[0][0]), wanted, sizeof wanted);
    tape_free(&tape);
}

/* In a text of three tokens only the first guess can be judged. */
static int read_short(void *self, int64_t index, int longest, struct train_text *out, struct err *err)
{
    struct rig *r = self;
    const int rc = read_text(self, index, longest, out, err);
    out->tokens = 3;
    r->mask[2] = 1;
    return rc;
}

static void guesses_beyond_a_text_are_left_out(void **state)
{
    struct train_report report;
    struct err err = {0};
    struct run run;
    (void)state;
    run_open(&run, HEAD_MEDUSA, -1);
    run.source.read = run.source.outline = read_short;
    for (int step = 0; step < 2; step++) {
        must(trainer_step(run.trainer, &report, &err) == 1 ? 0 : -1, &err);
        assert_true(report.losses.count > 1 && report.losses.part[0].value > 0);
        for (int i = 1; i < report.losses.count; i++)
            assert_true(report.losses.part[i].value == 0);
    }
    run_close(&run);
}

static double part_of(const struct losses *losses, const char *name)
{
    for (int i = 0; i < losses->count; i++)
        if (!strcmp(losses->part[i].name, name))
            return losses->part[i].value;
    fail_msg("no part %s", name);
    return 0;
}

/* No row of the second branch is judged by a text's first token, so that token does not count. (Sums of logits may have
 * another order, because more rows are judged together.) */
static void first_tokens_count_for_the_next_token_alone(void **state)
{
    struct train_report report[2];
    struct err err = {0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct run run;
        rig.from_the_first = i;
        run_open(&run, HEAD_JAKIRO, -1);
        if (trainer_step(run.trainer, &report[i], &err) < 0)
            fail_msg("%s", err.text);
        run_close(&run);
    }
    rig.from_the_first = false;
    assert_true(fabs(part_of(&report[0].losses, "feature") - part_of(&report[1].losses, "feature")) > 1e-6);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "token_const" : "feature_const";
        const double was = part_of(&report[0].losses, name), is = part_of(&report[1].losses, name);
        if (fabs(was - is) > 1e-5 * fabs(was))
            fail_msg("%s is %.17g, not %.17g", name, is, was);
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
    for (int kind = HEAD_EAGLE1; kind < HEAD_KINDS; kind++) {
        optimiser_defaults(&s, (enum head_kind)kind);
        assert_int_equal(s.schedule, kind == HEAD_MEDUSA || kind == HEAD_HYDRA || kind == HEAD_JAKIRO ? SCHEDULE_COSINE
                                                                                                     : SCHEDULE_LINEAR);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(going_on_gives_the_same_bytes), cmocka_unit_test(what_is_no_number_ends_a_run_without_harm),
        cmocka_unit_test(states_may_be_listed_in_any_order), cmocka_unit_test(other_devices_learn_as_the_host),
        cmocka_unit_test(a_step_in_parts_is_the_step), cmocka_unit_test(the_text_is_named_in_whatever_part_it_is),
        cmocka_unit_test(several_processes_make_the_step_of_one), cmocka_unit_test(parts_give_the_same_bytes_on_any_number),
        cmocka_unit_test(parts_give_the_same_bytes_on_other_devices),
        cmocka_unit_test(a_fault_in_a_part_ends_all), cmocka_unit_test(parts_are_about_equal),
        cmocka_unit_test(heads_come_back_from_their_files), cmocka_unit_test(an_epoch_has_every_text_once),
        cmocka_unit_test(first_tokens_count_for_the_next_token_alone), cmocka_unit_test(rates_rise_and_fall),
        cmocka_unit_test(gradients_are_cut_as_asked),
        cmocka_unit_test(heads_begin_as_their_authors_begin_them),
        cmocka_unit_test(of_equal_experts_the_lower_is_chosen), cmocka_unit_test(guesses_beyond_a_text_are_left_out),
    };
    return cmocka_run_group_tests(tests, open_rig, close_rig);
}
