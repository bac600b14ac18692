#include "cmd/bench-ab.h"

#include <stdlib.h>

#include "cmd/bench-judge.h"
#include "common/base/file.h"
#include "common/bench/ab.h"
#include "common/cli/number.h"

const struct opt ab_options[] = {
    OPT_STRINGS(0, "build", struct ab_args, builds, "PATH",
                "compare this moe-bench, or the one in this folder; given twice, first the old build, then the new one"),
    OPT_STRING(0, "limit", struct ab_args, limit, "SHARE", "tolerate a slowdown of up to this share"),
    OPT_COUNT(0, "rounds", struct ab_args, rounds, 1, INTERLEAVED_ROUNDS_MAX, "run each build at most N times"),
    OPT_DEVICE(struct ab_args, device),
    OPT_THREADS(struct ab_args, threads),
    OPT_ISA(struct ab_args, isa),
    OPT_STRING(0, "cache-experts", struct ab_args, cache_experts, "SIZE|N%|auto|none",
               "keep this many routed experts in memory"),
    OPT_STRING(0, "keep", struct ab_args, keep, "FOLDER", "keep the streams of all rounds in FOLDER"),
    OPT_FLAG(0, "json", struct ab_args, json, "write JSON lines with all figures"),
    OPT_OUTPUT('o', "output", struct ab_args, output, "write to FILE, not standard output"),
    OPT_END };

const struct operand ab_operands[] = { OPERAND_ONE("SUITE", struct ab_args, suite), OPERAND_END };

const struct ab_args ab_defaults = { .limit = "5%", .rounds = 120, .output = "-" };

int bench_ab(const void *arguments, const struct console *console, struct err *err)
{
    const struct ab_args *args = arguments;
    const char *folder = getenv("TMPDIR");
    struct interleaved *interleaved = NULL;
    struct text body = {0};
    double limit;
    int rc = -1;
    if (args->builds.count != 2)
        return err_set(err, ERR_INPUT, "--build: expected two builds, got %d; give --build OLD --build NEW",
                       args->builds.count);
    if (number_share(args->limit, &limit, err))
        return err_at(err, "--limit");
    if (output_check_folder(args->output, err))
        return -1;
    const struct ab_setup setup = { .build = { args->builds.items[0], args->builds.items[1] }, .suite = args->suite,
                                    .device = args->device, .isa = args->isa, .cache_experts = args->cache_experts,
                                    .threads = args->threads, .limit = limit, .rounds = args->rounds,
                                    .folder = folder && *folder ? folder : "/tmp", .keep = args->keep,
                                    .console = console };
    if (ab_run(&interleaved, &setup, err) ||
        (args->json ? interleaved_json(&body, interleaved, err) : interleaved_text(&body, interleaved, err)) ||
        output_whole(args->output, &body, err) || interleaved_answer(interleaved, err))
        goto done;
    rc = 0;
done:
    text_free(&body);
    interleaved_close(&interleaved);
    return rc;
}
