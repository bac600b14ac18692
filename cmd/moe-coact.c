/* moe-coact: which experts a text uses, and in which order to keep them.
 *
 * Reads:  route streams (files or standard input), a rank stream
 * Writes: rank, coact or merged stream; table, JSON, CSV or SVG on request
 * Exit:   0 done, 2 trouble */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/version.h"
#include "common/cli/command.h"
#include "common/report/route_report.h"
#include "common/route/coverage.h"
#include "common/route/input.h"
#include "common/route/merge.h"
#include "common/route/ranking.h"
#include "common/stream/reader.h"
#include "common/stream/writer.h"

/* What rank-experts and coverage have in common. */
struct routes_args {
    struct strings inputs;
    const char *output, *rank, *budget;
    int by, phase, layer;
    double keep;
    bool text, json, csv, svg, force;
};

#define ROUTES_OPTIONS \
    OPT_CHOICE(0, "phase", struct routes_args, phase, route_phase_words, "count these tokens: of the prompt, decoded, or all"), \
    OPT_FLAG(0, "text", struct routes_args, text, "write a table, as on a terminal"), \
    OPT_FLAG(0, "json", struct routes_args, json, "write JSON lines"), \
    OPT_FLAG(0, "csv", struct routes_args, csv, "write CSV")

#define COMMON_OPTIONS(args) \
    OPT_OUTPUT('o', "output", args, output, "write to FILE, not standard output"), \
    OPT_FLAG(0, "force", args, force, "take streams of models with another tokenizer or vocabulary together")

static const struct opt rank_options[] = {
    OPT_CHOICE('b', "by", struct routes_args, by, ranking_methods, "order experts by how often they were selected, or by the mass "
               "of routing probability that they got"),
    OPT_STRING('B', "budget", struct routes_args, budget, "B,...", "recommend B experts a layer"),
    OPT_FLOAT(0, "keep", struct routes_args, keep, 0, 1, "SHARE", "recommend as few experts a layer as keep SHARE of its score"),
    ROUTES_OPTIONS, COMMON_OPTIONS(struct routes_args), OPT_END };

static const struct opt coverage_options[] = {
    OPT_CHOICE('b', "by", struct routes_args, by, ranking_methods, "keep experts in the order of selections, or of routing mass"),
    OPT_INPUT(0, "rank", struct routes_args, rank, "keep experts in the order of the rank stream FILE, not in these routes' own"),
    OPT_COUNT('l', "layer", struct routes_args, layer, 0, 65535, "only layer N; all if not given"),
    ROUTES_OPTIONS, OPT_FLAG(0, "svg", struct routes_args, svg, "write curves as SVG"), COMMON_OPTIONS(struct routes_args),
    OPT_END };

static const struct operand routes_operands[] = { OPERAND_ANY("ROUTES", struct routes_args, inputs), OPERAND_END };

static const struct routes_args routes_defaults = { .layer = -1, .keep = -1 };

enum form { FORM_STREAM, FORM_TEXT, FORM_JSON, FORM_CSV, FORM_SVG };

static int choose_form(const struct routes_args *args, enum form *form, struct err *err)
{
    if (args->text + args->json + args->csv + args->svg > 1)
        return err_set(err, ERR_INPUT, "--text, --json, --csv and --svg exclude each other; give one");
    bool screen = (!args->output || !strcmp(args->output, "-")) && isatty(STDOUT_FILENO);
    *form = args->json ? FORM_JSON : args->csv ? FORM_CSV : args->svg ? FORM_SVG : args->text || screen ? FORM_TEXT : FORM_STREAM;
    return 0;
}

static const char *output_name(const char *output) { return output ? output : "-"; }

static int write_whole(const char *path, const struct text *body, struct err *err)
{
    struct output *out = NULL;
    if (output_open(&out, output_name(path), err) || output_write(out, body->data, body->length, err)) {
        output_discard(&out);
        return -1;
    }
    return output_commit(&out, err);
}

static void print_notes(const struct console *console, const struct text *note)
{
    const char *end;
    for (const char *at = note->data; at && (end = strchr(at, '\n')); at = end + 1)
        console_note(console, "%.*s", (int)(end - at), at);
}

/* Counts, and for coverage the tokens kept aside. */
struct gathered {
    struct route_counts *counts;
    struct route_spool *spool;
    bool spooled;
};

static int gather_open(void *context, const struct stream_model *model, struct err *err)
{
    struct gathered *g = context;
    const char *folder = getenv("TMPDIR");
    if (route_counts_open(&g->counts, model, err))
        return -1;
    return g->spooled ? route_spool_open(&g->spool, model, folder && *folder ? folder : "/tmp", err) : 0;
}

static int gather_tokens(void *context, const struct route_tokens *record, struct err *err)
{
    struct gathered *g = context;
    return route_counts_add(g->counts, record, err) || (g->spool && route_spool_add(g->spool, record, err)) ? -1 : 0;
}

static int gather(struct gathered *g, const struct routes_args *args, const struct console *console, enum stream_kind kind,
                  struct header *header, struct err *err)
{
    struct progress bar;
    struct text note = {0};
    struct route_input input = { .paths = args->inputs.items, .count = args->inputs.count, .phases = args->phase,
                                 .force = args->force, .bar = &bar };
    struct route_consumer consumer = { .context = g, .open = gather_open, .tokens = gather_tokens };
    console_progress(console, &bar, "tokens", 0);
    int rc = header_init(header, kind, console->program, MOE_VERSION, console->argc, console->argv, err) ||
             route_input_read(&input, &consumer, header, &note, err) ? -1 : 0;
    progress_end(&bar);
    print_notes(console, &note);
    text_free(&note);
    return rc;
}

static int recommend(struct ranking *ranking, const struct routes_args *args, struct err *err)
{
    if (args->budget && args->keep >= 0)
        return err_set(err, ERR_INPUT, "--budget and --keep exclude each other; give one");
    if (args->budget && budget_parse(ranking->budget, args->budget, ranking->moe_layers, ranking->experts, err))
        return err_at(err, "--budget");
    if (args->keep >= 0)
        ranking_recommend(ranking, args->keep);
    return 0;
}

static int rank_experts(const void *arguments, const struct console *console, struct err *err)
{
    const struct routes_args *args = arguments;
    struct gathered g = {0};
    struct header header = {0};
    struct ranking *ranking = NULL;
    struct writer *out = NULL;
    struct text body = {0};
    enum form form;
    int rc = -1;
    if (choose_form(args, &form, err) || gather(&g, args, console, STREAM_RANK, &header, err) ||
        ranking_make(&ranking, g.counts, (enum ranking_method)args->by, err) || recommend(ranking, args, err))
        goto done;
    if (form == FORM_STREAM)
        rc = writer_open(&out, output_name(args->output), &header, err) || ranking_write(ranking, out, err) ||
             writer_close(&out, err) ? -1 : 0;
    else
        rc = (form == FORM_JSON ? ranking_json(&body, ranking, err) : form == FORM_CSV ? ranking_csv(&body, ranking, err)
                                : ranking_text(&body, ranking, g.counts->tokens, err)) ||
             write_whole(args->output, &body, err) ? -1 : 0;
done:
    writer_abort(&out, err);
    ranking_free(&ranking);
    route_counts_free(&g.counts);
    header_free(&header);
    text_free(&body);
    return rc;
}

/* The order that coverage keeps experts in: of a rank stream, or what these routes themselves would give. */
static int coverage_ranking(struct ranking **out, const struct routes_args *args, const struct route_counts *counts,
                            struct header *header, const struct console *console, struct err *err)
{
    if (!args->rank)
        return ranking_make(out, counts, (enum ranking_method)args->by, err);
    struct reader *in = NULL;
    struct text note = {0};
    int rc = -1;
    if (reader_open(&in, args->rank, STREAM_RANK, NULL, err) ||
        header_same_model(&reader_header(in)->model, &header->model, reader_name(in), args->force, &note, err) ||
        ranking_read(out, in, err) || header_derive(header, reader_header(in), err) ||
        (note.length && text_putc(&note, '\n', err)))
        goto done;
    print_notes(console, &note);
    rc = 0;
done:
    reader_close(&in);
    text_free(&note);
    return rc;
}

static int coverage_print(struct text *body, enum form form, const struct coverage *coverage, const struct routes_args *args,
                          const struct header *header, struct err *err)
{
    if (args->layer >= coverage->moe_layers)
        return err_set(err, ERR_INPUT, "--layer %d: the model has %d layers with experts, numbered from 0", args->layer,
                       coverage->moe_layers);
    switch (form) {
    case FORM_JSON: return coverage_json(body, coverage, args->layer, err);
    case FORM_CSV: return coverage_csv(body, coverage, args->layer, err);
    case FORM_SVG: return coverage_svg(body, coverage, args->layer, header->model.name, err);
    default: return coverage_text(body, coverage, args->layer, err);
    }
}

static int coverage(const void *arguments, const struct console *console, struct err *err)
{
    const struct routes_args *args = arguments;
    struct gathered g = { .spooled = true };
    struct header header = {0};
    struct ranking *ranking = NULL;
    struct coverage *covered = NULL;
    struct writer *out = NULL;
    struct text body = {0};
    enum form form;
    int rc = -1;
    if (choose_form(args, &form, err))
        goto done;
    if (form == FORM_STREAM && args->layer >= 0) {
        err_set(err, ERR_INPUT, "--layer: a stream has all layers; give --text, --json, --csv or --svg, too");
        goto done;
    }
    if (gather(&g, args, console, STREAM_COACT, &header, err) ||
        coverage_ranking(&ranking, args, g.counts, &header, console, err) ||
        coverage_make(&covered, g.counts, g.spool, ranking, err))
        goto done;
    if (form == FORM_STREAM)
        rc = writer_open(&out, output_name(args->output), &header, err) || coverage_write(covered, out, err) ||
             writer_close(&out, err) ? -1 : 0;
    else
        rc = coverage_print(&body, form, covered, args, &header, err) || write_whole(args->output, &body, err) ? -1 : 0;
done:
    writer_abort(&out, err);
    coverage_free(&covered);
    ranking_free(&ranking);
    route_counts_free(&g.counts);
    route_spool_close(&g.spool);
    header_free(&header);
    text_free(&body);
    return rc;
}

struct merge_args {
    struct strings inputs;
    const char *output;
    bool force;
};

static const struct opt merge_options[] = { COMMON_OPTIONS(struct merge_args), OPT_END };
static const struct operand merge_operands[] = { OPERAND_SOME("STREAM", struct merge_args, inputs), OPERAND_END };

static int merge(const void *arguments, const struct console *console, struct err *err)
{
    const struct merge_args *args = arguments;
    struct text note = {0};
    struct merge merge = { .paths = args->inputs.items, .count = args->inputs.count, .output = output_name(args->output),
                           .force = args->force, .tool = console->program, .version = MOE_VERSION, .argc = console->argc,
                           .argv = console->argv };
    int rc = streams_merge(&merge, &note, err);
    print_notes(console, &note);
    text_free(&note);
    return rc;
}

static const struct subcommand subcommands[] = {
    { .name = "rank-experts", .summary = "say in which order to keep each layer's experts", .options = rank_options,
      .operands = routes_operands, .console = CONSOLE_QUIET | CONSOLE_PROGRESS, .args_bytes = sizeof(struct routes_args),
      .defaults = &routes_defaults, .run = rank_experts },
    { .name = "coverage", .summary = "say what is kept when only B experts a layer may be loaded", .options = coverage_options,
      .operands = routes_operands, .console = CONSOLE_QUIET | CONSOLE_PROGRESS, .args_bytes = sizeof(struct routes_args),
      .defaults = &routes_defaults, .run = coverage },
    { .name = "merge", .summary = "make one stream of several of one kind and one model", .options = merge_options,
      .operands = merge_operands, .console = CONSOLE_QUIET, .args_bytes = sizeof(struct merge_args), .run = merge },
    { .run = NULL },
};

static const struct command moe_coact = { "moe-coact", "analyse which experts a text uses", subcommands };

int main(int argc, char **argv) { return cli_main(argc, argv, &moe_coact); }
