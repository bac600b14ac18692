#include "cmd/bench-grade.h"

#include <stdlib.h>

#include "cmd/bench-judge.h"
#include "common/base/file.h"
#include "common/bench/grading.h"
#include "common/report/grade.h"

const struct opt grade_options[] = {
    OPT_STRINGS('p', "prompts", struct grade_args, prompts, "FILE",
                "read the right answers from FILE; may be given several times"),
    OPT_STRINGS(0, "rule", struct grade_args, rules, "[TASK=]RULE",
                "grade the answers of TASK, or all, by " GRADE_RULE_WORDS),
    OPT_STRINGS(0, "command", struct grade_args, commands, "TASK=COMMAND",
                "run COMMAND to judge whether an answer of TASK is right"),
    OPT_FLOAT(0, "seconds", struct grade_args, seconds, 0.01, 3600, "S", "stop a command that takes longer than S seconds"),
    OPT_OUTPUT(0, "stream", struct grade_args, stream, "write the bench stream to FILE, with these grades instead of its own"),
    OPT_FLAG(0, "json", struct grade_args, json, "write JSON lines: each answer, then the counts"),
    OPT_OUTPUT('o', "output", struct grade_args, output, "write to FILE, not standard output"),
    OPT_END };

const struct operand grade_operands[] = { OPERAND_ONE("STREAM", struct grade_args, input), OPERAND_END };

const struct grade_args grade_defaults = { .output = "-", .seconds = 10 };

int bench_grade_texts(const void *arguments, const struct console *console, struct err *err)
{
    const struct grade_args *args = arguments;
    const char *folder = getenv("TMPDIR");
    struct references references = {0};
    struct grading grading = {0};
    struct text body = {0};
    int rc = -1;
    (void)console;
    if (!args->prompts.count)
        return err_set(err, ERR_INPUT, "--prompts FILE is missing; name the files of prompts that contain the right answers");
    if (references_read(&references, args->prompts.items, args->prompts.count, err))
        goto done;
    const struct grading_options options = { .references = &references, .rules = args->rules.items,
                                             .rule_count = args->rules.count, .commands = args->commands.items,
                                             .command_count = args->commands.count, .seconds = args->seconds,
                                             .folder = folder && *folder ? folder : "/tmp", .stream = args->stream,
                                             .lines = args->json };
    if (grading_run(&grading, args->input, &options, &body, err) ||
        (args->json ? grading_json(&body, &grading, err) : grading_text(&body, &grading, err)) ||
        output_whole(args->output, &body, err))
        goto done;
    rc = 0;
done:
    text_free(&body);
    grading_free(&grading);
    references_free(&references);
    return rc;
}
