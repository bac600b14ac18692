#include "cmd/bench-sweep.h"

#include <string.h>

#include "cmd/bench-judge.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/bench/sweep.h"
#include "common/cli/number.h"

enum { LOGITS_ALL, LOGITS_LAST };
static const char *const logit_words[] = { "all", "last", NULL };
enum { NODES_CHAIN, NODES_TREE };
static const char *const node_words[] = { "chain", "tree", NULL };

const struct opt sweep_options[] = {
    SESSION_OPTIONS(struct sweep_args, session),
    OPT_GROUP("Options of machine, roofline and sweep"),
    OPT_STRING(0, "rows", struct sweep_args, rows, "M,M,...", "time forwards of these numbers of tokens; 1 is always included"),
    OPT_COUNT(0, "prefix", struct sweep_args, prefix, 0, 1 << 24, "after N tokens"),
    OPT_CHOICE(0, "logits", struct sweep_args, logits, logit_words, "compute logits of all tokens, or of the last"),
    OPT_CHOICE(0, "nodes", struct sweep_args, nodes, node_words, "time a chain of tokens, or a binary tree"),
    OPT_FLOAT(0, "seconds", struct sweep_args, seconds, 0, 3600, "S", "measure for S seconds"),
    OPT_SEED(struct sweep_args, seed),
    OPT_GROUP("Other options"),
    OPT_FLAG(0, "json", struct sweep_args, json, "write a JSON object, which is a cost table for replay"),
    OPT_OUTPUT('o', "output", struct sweep_args, output, "write to FILE, not standard output"),
    OPT_END };

const struct sweep_args sweep_defaults = { .rows = "1,2,4,8,16,32,64", .prefix = 64, .seconds = 5, .output = "-" };

enum { ROUNDS_MIN = 5 };

/* Parses "2,4,8" into 1, 2, 4, 8: ascending, with 1 added in front. */
static int read_rows(const char *list, int *rows, int *count, struct err *err)
{
    char *words = mem_string(list, err), *rest = words, *word;
    int n = 1, rc = words ? 0 : -1;
    rows[0] = 1;
    while (!rc && (word = strsep(&rest, ","))) {
        int value = 0;
        rc = number_int(word, 1, ENGINE_ROWS_MAX, &value, err);
        if (!rc && value <= rows[n - 1] && value > 1)
            rc = err_set(err, ERR_INPUT, "row count %d follows %d; give row counts in ascending order", value, rows[n - 1]);
        else if (!rc && n == SWEEP_POINTS)
            rc = err_set(err, ERR_INPUT, "more than %d row counts; give fewer with --rows", SWEEP_POINTS - 1);
        else if (!rc && value > 1)
            rows[n++] = value;
    }
    mem_free(&words);
    *count = n;
    return rc ? err_at(err, "--rows") : 0;
}

int bench_sweep(const void *arguments, const struct console *console, struct err *err)
{
    const struct sweep_args *args = arguments;
    struct session *session = NULL;
    struct sweep sweep;
    struct text body = {0};
    int rows[SWEEP_POINTS], points, rc = -1;
    if (output_check_folder(args->output, err) || read_rows(args->rows, rows, &points, err) ||
        session_open(&session, &args->session, 0, rows[points - 1], err))
        goto done;
    session_print(session, console);
    const struct sweep_setup setup = { .rows = rows, .points = points, .prefix = args->prefix, .rounds_min = ROUNDS_MIN,
                                       .tree = args->nodes == NODES_TREE, .last_logits = args->logits == LOGITS_LAST,
                                       .seconds = args->seconds, .seed = args->seed };
    const struct model_identity *identity = model_identity(session->model);
    const char *label = identity->synthetic ? "synthetic" : identity->inflated_from ? "inflated" : NULL;
    if (args->prefix + rows[points - 1] > engine_max_positions(session->engine)) {
        err_set(err, ERR_INPUT, "%d rows after a prefix of %d tokens exceed the model's context of %d; give a smaller "
                "--prefix or --rows",
                rows[points - 1], args->prefix, engine_max_positions(session->engine));
        goto done;
    }
    if (sweep_run(&sweep, session, &setup, err) ||
        (args->json ? sweep_json(&body, &sweep, label, err) : sweep_text(&body, &sweep, label, err)) ||
        output_whole(args->output, &body, err))
        goto done;
    rc = 0;
done:
    text_free(&body);
    session_close(&session);
    return rc;
}
