/* Interleaved rounds: bounds compared with an enumeration of all signs, how often a program seems slower than itself on a
 * busy machine, and that a real loss is detected, also one that occurs now and then. */
#include "tests/unit/run_times.h"

#include "common/base/mem.h"
#include "common/report/interleaved.h"

enum { COUNT_MAX = 9, COMPARISONS = 400, TEXTS = 2, STEPS = 5, ROUNDS = 72 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Returns the share of all choices of signs in which fewer than `outside` means of two are positive. */
static double share_below(const double *size, int count, size_t outside)
{
    int below = 0;
    for (int signs = 0; signs < 1 << count; signs++) {
        size_t positive = 0;
        for (int i = 0; i < count; i++)
            for (int k = i; k < count; k++)
                positive += (signs >> i & 1 ? size[i] : -size[i]) + (signs >> k & 1 ? size[k] : -size[k]) > 0;
        below += positive < outside;
    }
    return (double)below / (1 << count);
}

static void bounds_are_those_of_all_signs(void **state)
{
    static const double errors[] = {0.001, 0.01, 0.05, 0.2};
    uint32_t counter = 0;
    (void)state;
    for (int count = 1; count <= COUNT_MAX; count++)
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
            double value[COUNT_MAX], size[COUNT_MAX], mean[COUNT_MAX * COUNT_MAX];
            struct signed_rank found;
            size_t means = 0, outside = 0;
            for (int i = 0; i < count; i++)
                size[i] = fabs(value[i] = normal(&counter));
            for (int i = 0; i < count; i++)
                for (int k = i; k < count; k++)
                    mean[means++] = (value[i] + value[k]) / 2;
            qsort(mean, means, sizeof *mean, ascending);
            while (outside < means && share_below(size, count, outside + 1) <= errors[e])
                outside++;
            assert_int_equal(signed_rank(value, (size_t)count, errors[e], errors[e], &found, NULL), 0);
            assert_true(found.low == (outside ? mean[outside - 1] : -INFINITY));
            assert_true(found.high == (outside ? mean[means - outside] : INFINITY));
            assert_float_equal(found.middle, (mean[(means - 1) / 2] + mean[means / 2]) / 2, 1e-12);
        }
}

/* A round: two streams with one setting, TEXTS answers of STEPS iterations each. */
struct made {
    struct measured_stream streams[2];
    struct measured_setting settings[2];
    struct measured_sample samples[2 * TEXTS];
    struct measured_step steps[2 * TEXTS * STEPS];
    struct measurements all;
};

static void make_round(struct made *out)
{
    static char name[] = "s", none[] = "";
    *out = (struct made){0};
    for (int i = 0; i < 2; i++) {
        out->streams[i].name = name;
        out->settings[i] = (struct measured_setting){.name = name, .model = none, .options = none, .label = none,
                                                     .index_sha256 = none, .reference = -1, .stream = i};
    }
    for (int i = 0; i < 2 * TEXTS; i++)
        out->samples[i] = (struct measured_sample){.setting = i % 2, .stream = i % 2, .id = none, .prompt = i / 2,
                                                   .first_step = (size_t)i * STEPS, .steps = STEPS, .done = true,
                                                   .score = NAN};
    for (int i = 0; i < 2 * TEXTS * STEPS; i++)
        out->steps[i] = (struct measured_step){.sample = (size_t)i / STEPS, .nodes = 1, .emitted = 1};
    out->all = (struct measurements){.streams = out->streams, .settings = out->settings, .samples = out->samples,
                                     .steps = out->steps, .stream_count = 2, .setting_count = 2, .sample_count = 2 * TEXTS,
                                     .step_count = 2 * TEXTS * STEPS, .prompts = TEXTS};
}

/* A machine that drifts from run to run, is slower for several runs in a row, and sometimes interrupts the program. */
struct machine {
    uint32_t counter;
    double busy;
    int runs;
};

static void time_run(struct made *made, int side, double factor, double strikes, struct machine *machine)
{
    double drift = exp(0.01 * machine->runs++);
    machine->busy = 0.8 * machine->busy + 0.1 * normal(&machine->counter);
    for (int i = 0; i < 2 * TEXTS * STEPS; i++) {
        double taken = uniform(&machine->counter) < 0.3 ? 20 * uniform(&machine->counter) : 0;
        double struck = uniform(&machine->counter) < strikes ? 10 : 1;
        if ((i / STEPS) % 2 == side)
            made->steps[i].us = 100 * factor * struck * drift * exp(machine->busy) * (1 + taken);
    }
}

/* Returns the verdict on a program that takes `factor` times as long, and ten times that in a share `strikes` of the
 * iterations. *as_measured: slower as measured, though perhaps not in its minima. */
static enum err_code compare(double limit, double factor, double strikes, struct machine *machine, bool *as_measured)
{
    struct interleaved *of = NULL;
    struct err err = {0};
    struct made made;
    make_round(&made);
    assert_int_equal(interleaved_open(&of, limit, 1, ROUNDS, NULL), 0);
    for (int round = 0; round < ROUNDS && !interleaved_decided(of); round++) {
        bool now_first = uniform(&machine->counter) < 0.5;
        for (int run = 0; run < 2; run++) {
            int side = run ? !now_first : now_first;
            time_run(&made, side, side ? factor : 1, side ? strikes : 0, machine);
        }
        if (interleaved_add(of, &made.all, now_first, &err))
            fail_msg("%s", err.text);
    }
    int rc = interleaved_answer(of, &err);
    interleaved_close(&of);
    *as_measured = rc && err.code == ERR_ANSWER_NO && strstr(err.text, " as measured");
    return rc ? err.code : ERR_NONE;
}

/* The limit is the true loss, so both `slower` and `holds` are wrong: of 800 comparisons at most 8 on average are slower,
 * 0.8 as measured only, and 40 hold. More than 20, 4 and 65 have a probability below 0.001 each. */
static void a_program_is_seldom_slower_than_itself(void **state)
{
    static const struct { double limit, factor; } cases[] = {{0, 1}, {0.2, 1.25}};
    int slower = 0, holds = 0, measured = 0;
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct machine machine = {0};
        for (int i = 0; i < COMPARISONS; i++) {
            bool as_measured;
            enum err_code answer = compare(cases[c].limit, cases[c].factor, 0, &machine, &as_measured);
            machine.runs = 0;
            slower += answer == ERR_ANSWER_NO;
            measured += as_measured;
            holds += answer == ERR_NONE;
        }
    }
    printf("# of %d: %d seem slower, %d only as measured, %d to hold\n", 2 * COMPARISONS, slower, measured, holds);
    if (slower > 20 || measured > 4 || holds > 65 || slower + holds < 8)
        fail_msg("of %d: %d seem slower, %d as measured, %d to hold", 2 * COMPARISONS, slower, measured, holds);
}

static void what_is_so_is_found(void **state)
{
    struct machine machine = {0};
    int holds = 0, slower = 0, struck = 0, as_measured = 0;
    (void)state;
    for (int i = 0; i < 50; i++) {
        bool measured;
        holds += compare(0.2, 1, 0, &machine, &measured) == ERR_NONE;
        slower += compare(0.2, 1.6, 0, &machine, &measured) == ERR_ANSWER_NO;
        struck += compare(0.05, 1, 0.4, &machine, &measured) == ERR_ANSWER_NO;
        as_measured += measured;
        machine.runs = 0;
    }
    printf("# of 50: %d hold, %d are slower, %d now and then, %d of these as measured\n", holds, slower, struck, as_measured);
    assert_in_range(holds, 45, 50);
    assert_in_range(slower, 45, 50);
    assert_in_range(struck, 45, 50);
    assert_in_range(as_measured, 30, 50);
}

/* A quiet machine, so that all results are exact. */
static void answers_say_how_many_rounds_are_missing(void **state)
{
    struct interleaved *of = NULL;
    struct made made;
    struct err err = {0};
    (void)state;
    make_round(&made);
    for (int i = 0; i < 2 * TEXTS * STEPS; i++)
        made.steps[i].us = (i / STEPS) % 2 ? 105 : 100;
    assert_int_equal(interleaved_open(&of, 0.05, 1, 8, NULL), 0);
    for (int round = 0; round < 8; round++)
        assert_int_equal(interleaved_add(of, &made.all, false, NULL), 0);
    assert_int_equal(interleaved_answer(of, &err), -1);
    assert_int_equal(err.code, ERR_NO_ANSWER);
    assert_string_equal(err.text, "undecided after 8 rounds: 's' runs at 0.952 times the earlier speed; about 24 more rounds "
                        "are needed for a verdict within 5 %: give --rounds 32");
    interleaved_close(&of);
    assert_int_equal(interleaved_open(&of, 0.05, 1, 40, NULL), 0);
    int rounds = 0;
    for (; !interleaved_decided(of); rounds++)
        assert_int_equal(interleaved_add(of, &made.all, false, NULL), 0);
    assert_int_equal(rounds, 4 * INTERLEAVED_LOOK);
    assert_int_equal(interleaved_answer(of, &err), 0);
    interleaved_close(&of);
    /* Repetitions of the suite make blocks of fewer rounds. */
    assert_int_equal(interleaved_open(&of, 0.05, 4, 40, NULL), 0);
    for (rounds = 0; !interleaved_decided(of); rounds++)
        assert_int_equal(interleaved_add(of, &made.all, false, NULL), 0);
    assert_int_equal(rounds, INTERLEAVED_LOOK);
    interleaved_close(&of);
}

/* Answers with different iterations are compared as a whole. */
static void other_iterations_count_as_a_whole(void **state)
{
    struct interleaved *of = NULL;
    struct made made;
    struct err err = {0};
    struct text json = {0};
    (void)state;
    make_round(&made);
    for (int i = 0; i < 2 * TEXTS * STEPS; i++)
        made.steps[i].us = 100;
    made.samples[1].steps = 2;                  /* now the first text has 10 tokens in 2 iterations */
    made.steps[STEPS].emitted = made.steps[STEPS + 1].emitted = 5;
    assert_int_equal(interleaved_open(&of, 0.05, 4, 8, NULL), 0);
    for (int round = 0; round < 8; round++)
        assert_int_equal(interleaved_add(of, &made.all, false, NULL), 0);
    assert_int_equal(interleaved_answer(of, NULL), 0);
    assert_int_equal(interleaved_json(&json, of, &err), 0);
    /* The 10 tokens took 1000 us before; now 5 of them take 5 * 20 us, and 5 take 500 us. */
    assert_non_null(strstr(json.data, "\"type\":\"block\",\"setting\":\"s\",\"number\":8,\"first\":null,\"base_tokens\":10.0,"
                                      "\"base_seconds\":0.001,\"tokens\":10.0,\"seconds\":0.0006"));
    text_free(&json);
    interleaved_close(&of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_are_those_of_all_signs), cmocka_unit_test(a_program_is_seldom_slower_than_itself),
        cmocka_unit_test(what_is_so_is_found), cmocka_unit_test(answers_say_how_many_rounds_are_missing),
        cmocka_unit_test(other_iterations_count_as_a_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
