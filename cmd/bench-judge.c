#include "cmd/bench-judge.h"

#include "common/base/file.h"
#include "common/bench/gate.h"
#include "common/bench/suite.h"
#include "common/cli/number.h"
#include "common/report/compare.h"
#include "common/report/summary.h"
#include "common/stream/reader.h"

int bench_gather_any(struct measurements *all, struct trainings *trainings, const struct strings *inputs, struct err *err)
{
    static const char *standard_input = "-";
    const char *const *paths = inputs->count ? inputs->items : &standard_input;
    for (int i = 0; i < (inputs->count ? inputs->count : 1); i++) {
        struct reader *in = NULL;
        int rc = reader_open(&in, paths[i], STREAM_ANY, NULL, err);
        bool training = !rc && trainings && reader_header(in)->kind == STREAM_TRAIN;
        if (!rc && i && training != (trainings && trainings->count > 0))
            rc = err_set(err, ERR_INPUT, "%s: %s; report train streams and other streams by separate commands", paths[i],
                         training ? "is a train stream, but earlier inputs are not" : "is not a train stream, but earlier "
                         "inputs are");
        if (!rc)
            rc = training ? trainings_read(trainings, in, err) : measurements_read(all, in, err);
        reader_close(&in);
        if (rc)
            return -1;
    }
    return trainings && trainings->count ? 0 : measurements_arrange(all, err);
}

int bench_gather(struct measurements *all, const struct strings *inputs, struct err *err)
{
    return bench_gather_any(all, NULL, inputs, err);
}

const struct opt compare_options[] = {
    OPT_STRING(0, "limit", struct compare_args, limit, "SHARE", "tolerate a slowdown of up to this share"),
    OPT_FLAG(0, "json", struct compare_args, json, "write JSON lines with all figures"),
    OPT_OUTPUT('o', "output", struct compare_args, output, "write to FILE, not standard output"),
    OPT_END };

const struct operand compare_operands[] = {
    OPERAND_ONE("BASE", struct compare_args, base), OPERAND_ONE("NOW", struct compare_args, now), OPERAND_END };

const struct compare_args compare_defaults = { .limit = "2%", .output = "-" };

int bench_compare(const void *arguments, const struct console *console, struct err *err)
{
    const struct compare_args *args = arguments;
    const char *paths[] = { args->base, args->now };
    const struct strings inputs = { paths, 2 };
    struct measurements all = {0};
    struct comparison comparison = {0};
    struct text body = {0};
    double limit;
    int rc = -1;
    (void)console;
    if (number_share(args->limit, &limit, err))
        return err_at(err, "--limit");
    if (bench_gather(&all, &inputs, err) || comparison_make(&comparison, &all, limit, err) ||
        (args->json ? comparison_json(&body, &all, &comparison, err) : comparison_text(&body, &all, &comparison, err)) ||
        output_whole(args->output, &body, err) || comparison_answer(&all, &comparison, err))
        goto done;
    rc = 0;
done:
    text_free(&body);
    comparison_free(&comparison);
    measurements_free(&all);
    return rc;
}

const struct opt gate_options[] = {
    OPT_OUTPUT(0, "junit", struct gate_args, junit, "also write JUnit XML to FILE"),
    OPT_OUTPUT('o', "output", struct gate_args, output, "write to FILE, not standard output"),
    OPT_END };

const struct operand gate_operands[] = {
    OPERAND_ONE("SUITE", struct gate_args, suite), OPERAND_ANY("STREAM", struct gate_args, inputs), OPERAND_END };

const struct gate_args gate_defaults = { .output = "-" };

int bench_gate(const void *arguments, const struct console *console, struct err *err)
{
    const struct gate_args *args = arguments;
    struct suite *suite = NULL;
    struct measurements all = {0};
    struct summary summary = {0};
    struct gates gates = {0};
    struct text body = {0}, junit = {0};
    int rc = -1;
    (void)console;
    if (suite_read(&suite, args->suite, err))
        return -1;
    if (bench_gather(&all, &args->inputs, err) || summary_make(&summary, &all, err) ||
        gates_make(&gates, suite, &all, &summary, err) || gates_text(&body, &gates, err) || gates_junit(&junit, &gates, err) ||
        (args->junit && output_whole(args->junit, &junit, err)) || output_whole(args->output, &body, err) ||
        gates_answer(&gates, err))
        goto done;
    rc = 0;
done:
    text_free(&body);
    text_free(&junit);
    gates_free(&gates);
    summary_free(&summary);
    measurements_free(&all);
    suite_free(&suite);
    return rc;
}
