#include "cmd/bench-replay.h"

#include <string.h>

#include "cmd/bench-judge.h"
#include "common/base/file.h"
#include "common/bench/replay.h"
#include "common/session/settings.h"

const struct opt replay_options[] = {
    OPT_STRINGS(0, "policy", struct replay_args, policies, "KIND[:file=FILE,...]",
                "replay this policy; may be given several times"),
    OPT_COUNT_AUTO('K', "draft-length", struct replay_args, draft_length, 0, DRAFT_LENGTH_MAX,
                   "draft up to N tokens in sequence; as many as the policy chooses if not given"),
    OPT_STRING(0, "tree", struct replay_args, tree, "KIND[:file=FILE,...]", "recorded trees: draft in this shape"),
    OPT_STRING(0, "cost", struct replay_args, cost, "time|bytes|FILE",
               "charge iterations their measured time, their bytes, or the cost from a table"),
    OPT_FLAG(0, "json", struct replay_args, json, "write JSON lines with all figures"),
    OPT_FLAG(0, "iterations", struct replay_args, iterations, "write each iteration as a JSON line, for one policy"),
    OPT_OUTPUT('o', "output", struct replay_args, output, "write to FILE, not standard output"),
    OPT_END };

const struct operand replay_operands[] = { OPERAND_ONE("STREAM", struct replay_args, stream), OPERAND_END };

const struct replay_args replay_defaults = { .output = "-", .cost = "time", .draft_length = DRAFT_LENGTH_NONE };

static int put_iteration(void *context, const struct replay_iteration *iteration, struct err *err)
{
    return replay_iteration_json(context, iteration, err);
}

static int replay_one(struct text *body, const struct replay_setup *setup, struct err *err)
{
    struct replay_result result = {0};
    int rc = replay_run(&result, setup, put_iteration, body, err);
    replay_result_free(&result);
    return rc;
}

static int replay_all(struct text *body, const struct replay_setup *setup, const struct replay_args *args,
                      const struct strings *policies, struct err *err)
{
    struct replay_table table = {0};
    int rc = replay_compare(&table, setup, policies->items, policies->count, err) ||
             (args->json ? replay_json(body, &table, err) : replay_text(body, &table, err)) ? -1 : 0;
    replay_table_free(&table);
    return rc;
}

int bench_replay(const void *arguments, const struct console *console, struct err *err)
{
    static const char *adaptive = "cascade";
    const struct replay_args *args = arguments;
    const struct strings policies = args->policies.count ? args->policies : (struct strings){ &adaptive, 1 };
    struct recording *recording = NULL;
    struct cost_table table;
    struct text body = {0};
    int rc = -1;
    (void)console;
    struct replay_setup setup = { .policy = policies.items[0], .tree = args->tree, .draft_length = args->draft_length,
                                  .table = &table };
    setup.cost = !strcmp(args->cost, "time") ? REPLAY_TIME : !strcmp(args->cost, "bytes") ? REPLAY_BYTES : REPLAY_TABLE;
    if (args->iterations && policies.count > 1)
        return err_set(err, ERR_INPUT, "--iterations: prints the iterations of one policy only; give --policy once");
    if (setup.cost == REPLAY_TABLE && cost_table_read(&table, args->cost, err))
        return err_at(err, "--cost");
    if (recording_read(&recording, args->stream, err))
        return -1;
    setup.recording = recording;
    if ((args->iterations ? replay_one(&body, &setup, err) : replay_all(&body, &setup, args, &policies, err)) ||
        output_whole(args->output, &body, err))
        goto done;
    rc = 0;
done:
    text_free(&body);
    recording_free(&recording);
    return rc;
}
