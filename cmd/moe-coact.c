/* moe-coact: analyses which experts a text uses, and in which order to keep them.
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
#include "common/report/coact_report.h"
#include "common/report/record_report.h"
#include "common/route/drift.h"
#include "common/route/merge.h"
#include "common/route/neighbours.h"
#include "common/route/ranking.h"
#include "common/route/shortlist.h"
#include "common/route/tallied.h"
#include "common/route/trees.h"
#include "common/route/windows.h"
#include "common/session/settings.h"
#include "common/stream/writer.h"

struct coact_args {
    const struct analysis_class *class;
    struct strings inputs;
    const char *output;
    struct analysis_setup setup;
    bool text, json, csv, svg, trees;
};

/* Orders for coverage: the ranking methods, then each forward's own order. */
enum { BY_ROUTER = RANKING_PAIRS + 1 };
static const char *const coverage_orders[] = { "frequency", "mass", "coverage", "pairs", "router", NULL };

#define ROUTES_OPTIONS \
    OPT_CHOICE(0, "phase", struct coact_args, setup.phases, route_phase_words, \
               "count prompt tokens, decoded tokens or both (all); verify: all verified nodes of drafts, also rejected ones"), \
    OPT_FLAG(0, "text", struct coact_args, text, "write a table; the default on a terminal"), \
    OPT_FLAG(0, "json", struct coact_args, json, "write JSON lines"), \
    OPT_FLAG(0, "csv", struct coact_args, csv, "write CSV")

#define LAYER_OPTION OPT_COUNT('l', "layer", struct coact_args, setup.layer, 0, 65535, "show only layer N; all if not given")

#define COMMON_OPTIONS(args, forced) \
    OPT_OUTPUT('o', "output", args, output, "write to FILE, not standard output"), \
    OPT_FLAG(0, "force", args, forced, "combine streams of models with another tokenizer or vocabulary")

#define ANALYSIS_OPTIONS COMMON_OPTIONS(struct coact_args, setup.force)

#define SVG_OPTION(help) OPT_FLAG(0, "svg", struct coact_args, svg, help)

static const struct opt rank_options[] = {
    OPT_CHOICE('b', "by", struct coact_args, setup.method, ranking_methods,
               "order experts by selections, by routing mass, or by tokens or pairs whose experts are all kept"),
    OPT_STRING('B', "budget", struct coact_args, setup.budget, "B,...", "recommend B experts per layer"),
    OPT_FLOAT(0, "keep", struct coact_args, setup.keep, 0, 1, "SHARE",
              "recommend the fewest experts per layer that keep SHARE of its score"),
    OPT_COUNT(0, "total", struct coact_args, setup.total, 1, 1 << 30,
              "recommend N experts over all layers, distributed so that they keep most of the scores"),
    ROUTES_OPTIONS, ANALYSIS_OPTIONS, OPT_END };

static const struct opt coverage_options[] = {
    OPT_CHOICE('b', "by", struct coact_args, setup.method, coverage_orders,
               "keep experts in this order (see rank-experts); router: in the order of each forward's own router"),
    OPT_INPUT(0, "rank", struct coact_args, setup.rank,
              "keep experts in the order of the rank stream FILE, not in the order computed from these routes"),
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write curves as SVG"), ANALYSIS_OPTIONS, OPT_END };

static const struct opt union_options[] = {
    OPT_FLAG(0, "trees", struct coact_args, trees,
             "measure whole verified drafts, with rejected nodes; also reads decode streams"),
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write curves as SVG"), ANALYSIS_OPTIONS, OPT_END };

static const struct opt locality_options[] = {
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write curves as SVG"), ANALYSIS_OPTIONS, OPT_END };

static const struct opt matrix_options[] = {
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write a heat map per layer as SVG"), ANALYSIS_OPTIONS, OPT_END };

static const struct opt stats_options[] = { LAYER_OPTION, ROUTES_OPTIONS, ANALYSIS_OPTIONS, OPT_END };

#define DRAFT_LENGTH_OPTION \
    OPT_COUNT('K', "draft-length", struct coact_args, setup.draft_length, 1, WINDOWS_MAX - 1, \
              "consider drafts of up to N tokens per verification")

static const struct opt reuse_options[] = {
    DRAFT_LENGTH_OPTION,
    OPT_FLOAT(0, "acceptance", struct coact_args, setup.acceptance, 0, 1, "SHARE",
              "probability that a drafted token is accepted"),
    OPT_FLOAT(0, "draft-cost", struct coact_args, setup.draft_cost, 0, 1e6, "C",
              "assume that drafting a token costs C times a forward of one token"),
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write curves as SVG"), ANALYSIS_OPTIONS, OPT_END };

static const struct opt signal_options[] = {
    DRAFT_LENGTH_OPTION,
    OPT_FLOAT(0, "threshold", struct coact_args, setup.threshold, 0, WINDOWS_MAX, "F",
              "count an expert as hot if at least F tokens of a verification use it"),
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write heat maps of experts and verifications as SVG"),
    ANALYSIS_OPTIONS, OPT_END };

static const struct opt drift_options[] = {
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write curves as SVG"), ANALYSIS_OPTIONS, OPT_END };

static const struct operand routes_operands[] = { OPERAND_ANY("ROUTES", struct coact_args, inputs), OPERAND_END };

static const struct opt_rule routes_rules[] = {
    {OPT_EXCLUSIVE, "text|json|csv|svg", NULL, NULL}, {OPT_EXCLUSIVE, "budget|keep|total", NULL, NULL}, OPT_RULES_END };

enum form { FORM_STREAM, FORM_TEXT, FORM_JSON, FORM_CSV, FORM_SVG };

static const char *output_of(const char *output) { return output ? output : "-"; }

static int choose_form(const struct coact_args *args, enum form *form, struct err *err)
{
    bool screen = !strcmp(output_of(args->output), "-") && isatty(STDOUT_FILENO);
    *form = args->json ? FORM_JSON : args->csv ? FORM_CSV : args->svg ? FORM_SVG : FORM_STREAM;
    if (*form == FORM_STREAM && (args->text || screen))
        *form = FORM_TEXT;
    if (*form == FORM_STREAM && args->setup.layer >= 0)
        return err_set(err, ERR_INPUT, "--layer: a stream always contains all layers; choose another output with --text, "
                       "--json or --csv");
    return 0;
}

static int put_writer(void *writer, const struct record_kind *kind, const void *body, struct err *err)
{
    return writer_record(writer, kind, body, err);
}

static int write_stream(const struct analysis *analysis, const struct header *header, const char *path, struct err *err)
{
    struct writer *out = NULL;
    int rc = writer_open(&out, path, header, err) || analysis->class->put(analysis, put_writer, out, err) ||
             writer_close(&out, err) ? -1 : 0;
    writer_abort(&out, err);
    return rc;
}

static int write_records(const struct analysis *analysis, const struct header *header, int layer, const char *path,
                         enum show_form form, struct err *err)
{
    struct record_report report = { .header = header, .layer = layer };
    int rc = show_open(&report.show, path, form, err) || analysis->class->put(analysis, record_report_put, &report, err) ||
             show_close(&report.show, err) ? -1 : 0;
    show_discard(&report.show);
    return rc;
}

static int write_page(const struct analysis *analysis, const struct header *header, int layer, const char *path, bool svg,
                      struct err *err)
{
    struct text page = {0};
    int rc = (svg ? coact_svg : coact_text)(&page, analysis, header, layer, err) || output_whole(path, &page, err) ? -1 : 0;
    text_free(&page);
    return rc;
}

static int write_analysis(enum form form, const struct analysis *analysis, const struct header *header,
                          const struct coact_args *args, struct err *err)
{
    const char *path = output_of(args->output);
    int layer = args->setup.layer;
    switch (form) {
    case FORM_STREAM: return write_stream(analysis, header, path, err);
    case FORM_JSON: return write_records(analysis, header, layer, path, SHOW_JSON, err);
    case FORM_CSV: return write_records(analysis, header, layer, path, SHOW_CSV, err);
    default: return write_page(analysis, header, layer, path, form == FORM_SVG, err);
    }
}

/* Selects the analysis class: coverage --by router and union --trees read routes in another way than the others. */
static int choose_class(const struct analysis_class **class, const struct coact_args *args, struct err *err)
{
    *class = args->trees ? &trees_analysis : args->setup.method == BY_ROUTER ? &shortlist_analysis : args->class;
    if (*class == &shortlist_analysis && args->setup.rank)
        return err_set(err, ERR_INPUT, "--rank and --by router exclude each other; give one");
    return 0;
}

static int analyse(struct analysis **out, const struct coact_args *args, const struct console *console, struct header *header,
                   struct err *err)
{
    const struct analysis_class *class;
    struct analysis_setup setup = args->setup;
    struct progress bar;
    struct text note = {0};
    const struct route_input input = { .paths = args->inputs.items, .count = args->inputs.count, .phases = setup.phases,
                                       .force = setup.force, .bar = &bar };
    const char *folder = getenv("TMPDIR");
    setup.folder = folder && *folder ? folder : "/tmp";
    if (choose_class(&class, args, err) ||
        header_init(header, class == &rank_analysis ? STREAM_RANK : STREAM_COACT, console->program, MOE_VERSION, console->argc,
                    console->argv, err))
        return -1;
    console_progress(console, &bar, "tokens", 0);
    int rc = analysis_read(out, class, &setup, &input, header, &note, err);
    progress_end(&bar);
    if (!rc && setup.layer >= header->model.moe_layers)
        rc = err_set(err, ERR_INPUT, "--layer %d: no such layer; the model has %d layers with experts, numbered from 0",
                     setup.layer,
                     header->model.moe_layers);
    if (!rc) {
        console_progress(console, &bar, "experts", (uint64_t)header->model.experts);
        rc = analysis_finish(*out, header, &bar, &note, err);
        progress_end(&bar);
    }
    console_notes(console, &note);
    text_free(&note);
    return rc;
}

static int run_analysis(const void *arguments, const struct console *console, struct err *err)
{
    const struct coact_args *args = arguments;
    struct analysis *analysis = NULL;
    struct header header = {0};
    enum form form;
    int rc = choose_form(args, &form, err) || analyse(&analysis, args, console, &header, err) ||
             write_analysis(form, analysis, &header, args, err) ? -1 : 0;
    analysis_free(&analysis);
    header_free(&header);
    return rc;
}

struct merge_args {
    struct strings inputs;
    const char *output;
    bool force;
};

static const struct opt merge_options[] = { COMMON_OPTIONS(struct merge_args, force), OPT_END };
static const struct operand merge_operands[] = { OPERAND_SOME("STREAM", struct merge_args, inputs), OPERAND_END };

static int merge(const void *arguments, const struct console *console, struct err *err)
{
    const struct merge_args *args = arguments;
    struct text note = {0};
    struct merge merge = { .paths = args->inputs.items, .count = args->inputs.count, .output = output_of(args->output),
                           .force = args->force, .settings = decode_settings_options,
                           .tool = console->program, .version = MOE_VERSION, .argc = console->argc,
                           .argv = console->argv };
    int rc = streams_merge(&merge, &note, err);
    console_notes(console, &note);
    text_free(&note);
    return rc;
}

/* phase: matrix and stats count verified drafts by default, as in MoE-Spec appendix D. */
#define DEFAULTS(analysis, phase) \
    &(const struct coact_args){ .class = &analysis, .setup = { .phases = phase, .layer = -1, .method = RANKING_MASS, \
        .keep = -1, .draft_length = 8, .acceptance = 0.8, .threshold = 2 } }

#define ANALYSIS(word, about, table, class, phase) \
    { .name = word, .summary = about, .options = table, .rules = routes_rules, .operands = routes_operands, \
      .console = CONSOLE_QUIET | CONSOLE_PROGRESS, .args_bytes = sizeof(struct coact_args), \
      .defaults = DEFAULTS(class, phase), .run = run_analysis }

static const struct subcommand subcommands[] = {
    ANALYSIS("rank-experts", "rank each layer's experts for a budget", rank_options, rank_analysis, ROUTE_ALL),
    ANALYSIS("coverage", "measure what a budget of B experts per layer keeps", coverage_options, coverage_analysis,
             ROUTE_ALL),
    ANALYSIS("matrix", "count how often a token selects two experts together", matrix_options, matrix_analysis,
             ROUTE_VERIFY),
    ANALYSIS("union", "count the distinct experts of tokens that are verified together", union_options, union_analysis,
             ROUTE_ALL),
    ANALYSIS("locality", "count the experts that neighbouring tokens share", locality_options, locality_analysis,
             ROUTE_ALL),
    ANALYSIS("stats", "measure how unevenly each layer uses its experts", stats_options, stats_analysis, ROUTE_VERIFY),
    ANALYSIS("reuse", "compute the savings of drafts whose tokens share experts", reuse_options, reuse_analysis, ROUTE_ALL),
    ANALYSIS("signal", "measure how well a verification predicts the next one's experts", signal_options, signal_analysis,
             ROUTE_ALL),
    ANALYSIS("drift", "measure how far states and router scores move from token to token", drift_options, drift_analysis,
             ROUTE_ALL),
    { .name = "merge", .summary = "make one stream of several of one kind and one model", .options = merge_options,
      .operands = merge_operands, .console = CONSOLE_QUIET, .args_bytes = sizeof(struct merge_args), .run = merge },
    { .run = NULL },
};

static const struct command moe_coact = { "moe-coact", "analyse which experts a text uses", subcommands };

int main(int argc, char **argv) { return cli_main(argc, argv, &moe_coact); }
