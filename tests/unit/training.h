/* Writes the train stream of an invented training, computed by arithmetic that is identical on every machine. */
#ifndef MOE_TESTS_TRAINING_H
#define MOE_TESTS_TRAINING_H

#include "tests/unit/stream.h"

#include "common/stream/train.h"

enum { TRAINING_DRAFT = 5 };

static inline struct train_step made_step(int seed, int i)
{
    struct train_step step = {.step = i, .epoch = (i + 1) / 64.0, .lr = i < 8 ? 0.004 * i / 8 : 0.004 * (400 - i) / 392,
                              .gradient_norm = 3 - i / 256.0 + seed / 8.0, .clipped = seed == 2 ? -1 : 100 - i % 7,
                              .tokens = 200 + i % 5 * 8 + seed, .seconds = (i + 1) * 0.25};
    const double smooth = 1.0 / (i + 2) + seed / 32.0, cross = 7.5 / (i / 8 + 1) + (i % 3) / 4.0;
    values_real(&step.parts, "smooth_l1", smooth);
    values_real(&step.parts, "cross_entropy", cross);
    step.loss = smooth + 0.1 * cross;
    return step;
}

/* Writes an evaluation of the head after `steps` steps. */
static inline void put_eval(struct writer *writer, int seed, int steps, bool best)
{
    static const int32_t position[TRAINING_DRAFT] = {1, 2, 3, 4, 5};
    double acceptance[TRAINING_DRAFT], conditional[TRAINING_DRAFT];
    struct err err = {0};
    for (int p = 0; p < TRAINING_DRAFT; p++) {
        acceptance[p] = (p ? acceptance[p - 1] : 1) * (0.5 + steps / 1024.0 + seed / 64.0);
        conditional[p] = 0.5 + steps / 1024.0 + seed / 64.0;
    }
    const struct train_eval eval = {
        .step = steps, .texts = 40, .loss = seed == 2 ? NAN : 2 - steps / 256.0, .positions = TRAINING_DRAFT,
        .position = position, .acceptance = acceptance, .conditional = seed == 2 ? NULL : conditional,
        .tokens_per_iteration = 2 + steps / 512.0 + seed / 16.0,
        .tree_tokens_per_iteration = seed == 2 ? NAN : 3 + steps / 512.0, .tokens = -1, .iterations = -1, .tree_iterations = -1,
        .best = best, .seconds = steps * 0.25};
    assert_int_equal(writer_record(writer, &train_eval_kind, &eval, &err), 0);
}

/* Writes a stream with an evaluation every 128 steps and at the end; the last one is not the best. */
static inline void write_training(const char *path, const char *arch, int seed, int steps)
{
    struct header header = {0};
    struct writer *writer = NULL;
    struct err err = {0};
    small_header(&header, STREAM_TRAIN);
    header.seed = (uint64_t)seed;
    assert_int_equal(writer_open(&writer, path, &header, &err), 0);
    const struct train_run run = {arch, 442752, 400, "{\"lr\":0.004}"};
    assert_int_equal(writer_record(writer, &train_run_kind, &run, &err), 0);
    for (int i = 0; i < steps; i++) {
        const struct train_step step = made_step(seed, i);
        assert_int_equal(writer_record(writer, &train_step_kind, &step, &err), 0);
        if ((i + 1) % 128 == 0)
            put_eval(writer, seed, i + 1, true);
    }
    put_eval(writer, seed, steps, steps < 128);
    if (writer_close(&writer, &err))
        fail_msg("%s", err.text);
    header_free(&header);
}

#endif
