#include "cmd/bench-tune.h"

#include "cmd/bench-judge.h"
#include "common/base/file.h"
#include "common/bench/tune.h"

const struct opt tune_options[] = {
    SESSION_OPTIONS(struct tune_args, session),
    OPT_GROUP("Options of tune"),
    OPT_COUNT('n', "max-tokens", struct tune_args, max_tokens, 2, 1 << 24, "generate at most N tokens per prompt"),
    OPT_COUNT(0, "prompts", struct tune_args, prompts, 1, 1 << 30, "use the first N prompts; all if not given"),
    OPT_FLOAT(0, "curve-seconds", struct tune_args, seconds, 0, 600, "S", "measure the cost of forwards for S seconds"),
    OPT_GROUP("Other options"),
    OPT_OUTPUT('o', "output", struct tune_args, output, "write to FILE, not standard output"),
    OPT_END };
const struct operand tune_operands[] = { OPERAND_SOME("PROMPTS", struct tune_args, files), OPERAND_END };
const struct tune_args tune_defaults = { .output = "-", .max_tokens = 64, .seconds = 3 };

int bench_tune(const void *arguments, const struct console *console, struct err *err)
{
    const struct tune_args *args = arguments;
    const struct tune_setup setup = { .session = args->session, .prompts = args->files, .max_tokens = args->max_tokens,
                                      .prompts_max = args->prompts, .seconds = args->seconds, .console = console };
    struct text body = {0};
    int rc = output_check_folder(args->output, err) || session_check_model(&args->session, &args->files, err) ||
             tune_run(&setup, &body, err) ||
             output_whole(args->output, &body, err) ? -1 : 0;
    text_free(&body);
    return rc;
}
