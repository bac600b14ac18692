/* Reports on training: figures compared with those from which the streams were made, and inconsistent streams.
 * tests/cli/training.bats reports the same golden streams, and another program recomputes them. */
#include "tests/unit/training.h"

#include "common/report/training.h"

static const struct { const char *name, *arch; int seed, steps; } made[] = {
    {"train.moes", "eagle1", 1, 230}, {"train-2.moes", "eagle1", 2, 201}, {"train-jakiro.moes", "jakiro", 3, 11},
};
enum { RUNS = sizeof made / sizeof *made };

static void streams_are_the_golden_ones(void **state)
{
    (void)state;
    char *folder = unit_folder(), golden[1200];
    for (int i = 0; i < RUNS; i++) {
        struct text seen = {0}, want = {0};
        struct err err = {0};
        const char *path = unit_path(folder, made[i].name);
        write_training(path, made[i].arch, made[i].seed, made[i].steps);
        snprintf(golden, sizeof golden, "%s/../golden/train/%s", unit_models(), made[i].name);
        assert_int_equal(file_read(&seen, path, 1 << 20, &err), 0);
        assert_int_equal(file_read(&want, golden, 1 << 20, &err), 0);
        assert_int_equal(seen.length, want.length);
        assert_memory_equal(seen.data, want.data, want.length);
        text_free(&seen);
        text_free(&want);
    }
    unit_remove(folder);
}

static void near(double a, double b) { assert_true(fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b))); }

static const struct figure_row *row_of(const struct figure *report, const char *type, const char *a, const char *b,
                                       const char *c)
{
    for (int t = 0; t < report->tables; t++)
        for (size_t i = 0; i < report->table[t].count && !strcmp(report->table[t].type, type); i++) {
            const struct figure_row *row = &report->table[t].rows[i];
            if (strstr(row->text[0], a) && !strcmp(row->text[1], b) && (!c || !strcmp(row->text[2], c)))
                return row;
        }
    fail_msg("no row %s %s %s %s", type, a, b, c ? c : "");
    return NULL;
}

static double value_of(const struct figure *report, const char *type, const struct figure_row *row, const char *key)
{
    for (int t = 0; t < report->tables; t++)
        if (!strcmp(report->table[t].type, type))
            for (int c = 0, v = 0; report->table[t].columns[c].key; c++)
                if (report->table[t].columns[c].decimals != FIGURE_WORD) {
                    if (!strcmp(report->table[t].columns[c].key, key))
                        return row->value[v];
                    v++;
                }
    fail_msg("no column %s", key);
    return NAN;
}

/* Two streams of one kind of head, and one of another. */
static void read_all(struct trainings *all, const char *folder)
{
    for (int i = 0; i < RUNS; i++) {
        struct reader *in = NULL;
        struct err err = {0};
        const char *path = unit_path(folder, made[i].name);
        write_training(path, made[i].arch, made[i].seed, made[i].steps);
        assert_int_equal(reader_open(&in, path, STREAM_TRAIN, NULL, &err), 0);
        if (trainings_read(all, in, &err))
            fail_msg("%s", err.text);
        reader_close(&in);
    }
}

static void figures_are_those_of_the_steps(void **state)
{
    (void)state;
    char *folder = unit_folder();
    struct trainings all = {0};
    struct figure report = {0};
    struct err err = {0};
    read_all(&all, folder);
    assert_int_equal(training_report(&report, &all, &err), 0);
    double first = 0, last = 0, tokens = 0, smooth = 0, norm = 0, clipped = 0;
    for (int i = 0; i < 230; i++) {
        const struct train_step step = made_step(1, i);
        tokens += (double)step.tokens;
        norm += step.gradient_norm / 230;
        clipped += (double)step.clipped / 230;
        first += i < 100 ? step.loss / 100 : 0;
        last += i >= 130 ? step.loss / 100 : 0;
        smooth += i >= 130 ? values_number(&step.parts, "smooth_l1", 0) / 100 : 0;
    }
    const struct figure_row *run = row_of(&report, "run", "train.moes", "eagle1", NULL);
    near(value_of(&report, "run", run, "parameters"), 442752);
    near(value_of(&report, "run", run, "steps"), 230);
    near(value_of(&report, "run", run, "planned"), 400);
    near(value_of(&report, "run", run, "epochs"), 230 / 64.0);
    near(value_of(&report, "run", run, "tokens"), tokens);
    near(value_of(&report, "run", run, "seconds"), 57.5);
    near(value_of(&report, "run", run, "tokens_per_s"), tokens / 57.5);
    near(value_of(&report, "run", run, "loss_first"), first);
    near(value_of(&report, "run", run, "loss_last"), last);
    near(value_of(&report, "run", run, "gradient_norm"), norm);
    near(value_of(&report, "run", run, "clipped"), clipped);
    near(value_of(&report, "part", row_of(&report, "part", "train.moes", "eagle1", "smooth_l1"), "loss_last"), smooth);
    assert_true(isnan(value_of(&report, "run", row_of(&report, "run", "train-2.moes", "eagle1", NULL), "clipped")));
    /* eleven steps: two halves of six, which share one */
    const double loss = value_of(&report, "run", row_of(&report, "run", "train-jakiro.moes", "jakiro", NULL), "loss_last");
    double half = 0;
    for (int i = 5; i < 11; i++)
        half += made_step(3, i).loss / 6;
    near(loss, half);
    /* heads trained twice, at their best evaluation: after 128 steps, not at the end */
    const struct figure_row *spread = row_of(&report, "spread", "eagle1", "accepted_1", NULL);
    near(value_of(&report, "spread", spread, "runs"), 2);
    near(value_of(&report, "spread", spread, "least"), 0.5 + 0.125 + 1 / 64.0);
    near(value_of(&report, "spread", spread, "greatest"), 0.5 + 0.125 + 2 / 64.0);
    near(value_of(&report, "spread", spread, "mean"), 0.625 + 1.5 / 64);
    /* the curve of 230 steps has one point per two steps */
    size_t points = 0;
    for (size_t i = 0; i < report.table[4].count; i++)
        points += strstr(report.table[4].rows[i].text[0], "train.moes") && !strcmp(report.table[4].rows[i].text[2], "loss");
    assert_int_equal(points, 115);
    near(row_of(&report, "curve", "train.moes", "eagle1", "loss")->value[1], (made_step(1, 0).loss + made_step(1, 1).loss) / 2);
    figure_free(&report);
    trainings_free(&all);
    unit_remove(folder);
}

static void streams_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct train_run run = {"eagle1", 1, 10, NULL};
    const struct train_step step = made_step(1, 4);
    static const char *const words[] = {"a record precedes the begin record", "a second training begins", "step 4 follows "
                                        "step 4", "no training step"};
    for (int i = 0; i < 4; i++) {
        char *folder = unit_folder();
        const char *path = unit_path(folder, "t.moes");
        struct header header = {0};
        struct writer *writer = NULL;
        struct reader *in = NULL;
        struct trainings all = {0};
        struct err err = {0};
        small_header(&header, STREAM_TRAIN);
        assert_int_equal(writer_open(&writer, path, &header, &err), 0);
        for (int n = 0; n < (i == 0 ? 0 : i == 1 ? 2 : 1); n++)
            assert_int_equal(writer_record(writer, &train_run_kind, &run, &err), 0);
        for (int n = 0; n < (i == 3 ? 0 : 2); n++)
            assert_int_equal(writer_record(writer, &train_step_kind, &step, &err), 0);
        assert_int_equal(writer_close(&writer, &err), 0);
        header_free(&header);
        assert_int_equal(reader_open(&in, path, STREAM_TRAIN, NULL, &err), 0);
        assert_int_equal(trainings_read(&all, in, &err), -1);
        if (!strstr(err.text, words[i]) || !strstr(err.text, "t.moes"))
            fail_msg("\"%s\" does not say: %s", err.text, words[i]);
        reader_close(&in);
        trainings_free(&all);
        unit_remove(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_the_golden_ones), cmocka_unit_test(figures_are_those_of_the_steps),
        cmocka_unit_test(streams_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
