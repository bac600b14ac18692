/* moe-coact: which experts a text uses, and in which order to keep them.
 *
 * Reads:  route streams (files or standard input), a rank stream
 * Writes: rank, coact or merged stream; table, JSON, CSV or SVG on request
 * Exit:   0 done, 2 trouble */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/coact-analysis.h"
#include "cmd/coact-speculation.h"
#include "common/base/version.h"
#include "common/cli/command.h"
#include "common/report/coact_report.h"
#include "common/report/route_report.h"
#include "common/route/coverage.h"
#include "common/route/elimination.h"
#include "common/route/input.h"
#include "common/route/matrix.h"
#include "common/route/merge.h"
#include "common/route/neighbours.h"
#include "common/route/ranking.h"
#include "common/route/shortlist.h"
#include "common/route/skew.h"
#include "common/route/trees.h"
#include "common/route/windows.h"
#include "common/stream/reader.h"

/* Orders for coverage: the ranking methods, and after them each forward's own order. */
enum { BY_ROUTER = RANKING_PAIRS + 1 };
static const char *const coverage_orders[] = { "frequency", "mass", "coverage", "pairs", "router", NULL };

#define ROUTES_OPTIONS \
    OPT_CHOICE(0, "phase", struct coact_args, phase, route_phase_words, \
               "count these tokens: of the prompt, decoded, both; or verify: all nodes of drafts, rejected ones, too"), \
    OPT_FLAG(0, "text", struct coact_args, text, "write a table, as on a terminal"), \
    OPT_FLAG(0, "json", struct coact_args, json, "write JSON lines"), \
    OPT_FLAG(0, "csv", struct coact_args, csv, "write CSV")

#define LAYER_OPTION OPT_COUNT('l', "layer", struct coact_args, layer, 0, 65535, "only layer N; all if not given")

#define COMMON_OPTIONS(args) \
    OPT_OUTPUT('o', "output", args, output, "write to FILE, not standard output"), \
    OPT_FLAG(0, "force", args, force, "take streams of models with another tokenizer or vocabulary together")

#define SVG_OPTION(help) OPT_FLAG(0, "svg", struct coact_args, svg, help)

static const struct opt rank_options[] = {
    OPT_CHOICE('b', "by", struct coact_args, by, ranking_methods,
               "order experts by selections, by routing mass, by tokens or by pairs of experts served in full"),
    OPT_STRING('B', "budget", struct coact_args, budget, "B,...", "recommend B experts a layer"),
    OPT_FLOAT(0, "keep", struct coact_args, keep, 0, 1, "SHARE",
              "recommend as few experts a layer as keep SHARE of its score"),
    OPT_COUNT(0, "total", struct coact_args, total, 1, 1 << 30,
              "recommend budgets that sum to N over the layers, where they keep most of the scores"),
    ROUTES_OPTIONS, COMMON_OPTIONS(struct coact_args), OPT_END };

static const struct opt coverage_options[] = {
    OPT_CHOICE('b', "by", struct coact_args, by, coverage_orders,
               "keep experts in this order, as of rank-experts; router: those that each forward's own router ranks first"),
    OPT_INPUT(0, "rank", struct coact_args, rank,
              "keep experts in the order of the rank stream FILE, not in these routes' own"),
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write curves as SVG"), COMMON_OPTIONS(struct coact_args), OPT_END };

static const struct opt union_options[] = {
    OPT_FLAG(0, "trees", struct coact_args, trees,
             "measure verified drafts as a whole, rejected nodes included; takes decode streams, too"),
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write curves as SVG"), COMMON_OPTIONS(struct coact_args), OPT_END };

static const struct opt locality_options[] = {
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write curves as SVG"), COMMON_OPTIONS(struct coact_args), OPT_END };

static const struct opt matrix_options[] = {
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write a heat map a layer as SVG"), COMMON_OPTIONS(struct coact_args), OPT_END };

static const struct opt stats_options[] = { LAYER_OPTION, ROUTES_OPTIONS, COMMON_OPTIONS(struct coact_args), OPT_END };

#define DRAFT_LENGTH_OPTION \
    OPT_COUNT('K', "draft-length", struct coact_args, draft_length, 1, WINDOWS_MAX - 1, \
              "look at drafts of up to N tokens, which verifications have besides the text's last one")

static const struct opt reuse_options[] = {
    DRAFT_LENGTH_OPTION,
    OPT_FLOAT(0, "acceptance", struct coact_args, acceptance, 0, 1, "SHARE", "take this chance that a drafted token is kept"),
    OPT_FLOAT(0, "draft-cost", struct coact_args, draft_cost, 0, 1e6, "C",
              "let a drafted token take C times as long as a forward of one token"),
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write curves as SVG"), COMMON_OPTIONS(struct coact_args), OPT_END };

static const struct opt signal_options[] = {
    DRAFT_LENGTH_OPTION,
    OPT_FLOAT(0, "threshold", struct coact_args, threshold, 0, WINDOWS_MAX, "F",
              "call an expert hot that F tokens of a verification want"),
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write heat maps of experts and verifications as SVG"),
    COMMON_OPTIONS(struct coact_args), OPT_END };

static const struct opt drift_options[] = {
    LAYER_OPTION, ROUTES_OPTIONS, SVG_OPTION("write curves as SVG"), COMMON_OPTIONS(struct coact_args), OPT_END };

static const struct operand routes_operands[] = { OPERAND_ANY("ROUTES", struct coact_args, inputs), OPERAND_END };

static const struct opt_rule routes_rules[] = {
    {OPT_EXCLUSIVE, "text|json|csv|svg", NULL, NULL}, {OPT_EXCLUSIVE, "budget|keep|total", NULL, NULL}, OPT_RULES_END };

static const struct coact_args routes_defaults = { .by = RANKING_MASS, .layer = -1, .keep = -1,
                                                    .draft_length = 8, .acceptance = 0.8, .threshold = 2 };
static const struct coact_args pairs_defaults = { .phase = ROUTE_VERIFY, .layer = -1 };     /* as in MoE-Spec appendix D */

/* The counts, and for coverage the spooled tokens. */
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
    return g->spooled ? route_spool_open(&g->spool, model, SPOOL_MEMORY, folder && *folder ? folder : "/tmp", err) : 0;
}

static int gather_tokens(void *context, const struct route_tokens *record, struct err *err)
{
    struct gathered *g = context;
    return route_counts_add(g->counts, record, err) || (g->spool && route_spool_add(g->spool, record, err)) ? -1 : 0;
}

static int gather_routes(struct gathered *g, const struct coact_args *args, const struct console *console,
                         enum stream_kind kind, struct header *header, struct err *err)
{
    const struct route_consumer consumer = { .context = g, .open = gather_open, .tokens = gather_tokens };
    if (coact_read(&consumer, args, console, kind, header, err))
        return -1;
    return g->counts->tokens || args->phase != ROUTE_VERIFY ? 0 : route_phase_lacks(args->phase, err);
}

static void gather_close(struct gathered *g)
{
    route_counts_free(&g->counts);
    route_spool_close(&g->spool);
}

static int recommend(struct ranking *ranking, const struct coact_args *args, struct err *err)
{
    if (args->budget && budget_parse(ranking->budget, args->budget, ranking->moe_layers, ranking->experts, NULL, err))
        return err_at(err, "--budget");
    if (args->total && ranking_spread(ranking, args->total, err))
        return err_at(err, "--total");
    if (args->keep >= 0)
        ranking_recommend(ranking, args->keep);
    return 0;
}

static int make_ranking(struct ranking **out, const struct gathered *g, int by, const struct console *console,
                        struct err *err)
{
    struct progress bar;
    int rc;
    if (by == RANKING_PAIRS)
        return ranking_by_pairs(out, g->counts, g->spool, err);
    if (by != RANKING_COVERAGE)
        return ranking_make(out, g->counts, (enum ranking_method)by, err);
    console_progress(console, &bar, "experts", (uint64_t)g->counts->experts);
    rc = ranking_by_coverage(out, g->counts, g->spool, &bar, err);
    progress_end(&bar);
    return rc;
}

static int rank_put(const struct coact_finding *f, record_put *put, void *context, struct err *err)
{
    return ranking_put(f->what, put, context, err);
}

static int rank_text(const struct coact_finding *f, struct text *out, struct err *err)
{
    return ranking_text(out, f->what, f->tokens, err);
}

static int rank_experts(const void *arguments, const struct console *console, struct err *err)
{
    const struct coact_args *args = arguments;
    struct gathered g = { .spooled = args->by == RANKING_COVERAGE || args->by == RANKING_PAIRS };
    struct header header = {0};
    struct ranking *ranking = NULL;
    int rc = -1;
    if (gather_routes(&g, args, console, STREAM_RANK, &header, err) ||
        make_ranking(&ranking, &g, args->by, console, err) || recommend(ranking, args, err))
        goto done;
    const struct coact_finding found = { .what = ranking, .layers = ranking->moe_layers, .layer = -1,
                                        .tokens = g.counts->tokens,
                                   .header = &header, .put = rank_put, .text = rank_text };
    rc = coact_emit(&found, args, err);
done:
    ranking_free(&ranking);
    gather_close(&g);
    header_free(&header);
    return rc;
}

/* Opens the ranking for coverage: from a rank stream, or made from these routes. */
static int coverage_ranking(struct ranking **out, const struct coact_args *args, const struct gathered *g,
                            struct header *header, const struct console *console, struct err *err)
{
    if (!args->rank)
        return make_ranking(out, g, args->by, console, err);
    struct reader *in = NULL;
    struct text note = {0};
    int rc = -1;
    if (reader_open(&in, args->rank, STREAM_RANK, NULL, err) ||
        ranking_check_model(in, &header->model, args->force, &note, err) ||
        ranking_read(out, in, err) || header_derive(header, reader_header(in), err) ||
        (note.length && text_putc(&note, '\n', err)))
        goto done;
    console_notes(console, &note);
    rc = 0;
done:
    reader_close(&in);
    text_free(&note);
    return rc;
}

static int covered_put(const struct coact_finding *f, record_put *put, void *context, struct err *err)
{
    return coverage_put(f->what, put, context, err);
}

static int covered_text(const struct coact_finding *f, struct text *out, struct err *err)
{
    return coverage_text(out, f->what, f->layer, err);
}

static int covered_svg(const struct coact_finding *f, struct text *out, struct err *err)
{
    return coverage_svg(out, f->what, f->layer, f->header->model.name, err);
}

static int emit_coverage(const struct coverage *covered, const struct coact_args *args, const struct header *header,
                         struct err *err)
{
    const struct coact_finding found = { .what = covered, .layers = covered->moe_layers, .layer = args->layer, .header = header,
                                   .put = covered_put, .text = covered_text, .svg = covered_svg };
    return coact_emit(&found, args, err);
}

static int open_shortlist(void *context, const struct stream_model *model, struct err *err)
{
    return shortlist_open(context, model, err);
}

static void begin_shortlist(void *context, const struct route_begin *begin)
{
    shortlist_begin(*(struct shortlist **)context, begin);
}

static int add_to_shortlist(void *context, const struct route_tokens *record, struct err *err)
{
    return shortlist_add(*(struct shortlist **)context, record, err);
}

static int coverage_by_router(const struct coact_args *args, const struct console *console, struct err *err)
{
    struct shortlist *shortlist = NULL;
    struct route_consumer consumer = { .context = &shortlist, .open = open_shortlist, .begin = begin_shortlist,
                                       .tokens = add_to_shortlist };
    struct header header = {0};
    struct coverage *covered = NULL;
    int rc = args->rank ? err_set(err, ERR_INPUT, "--rank and --by router exclude each other; give one")
                        : coact_read(&consumer, args, console, STREAM_COACT, &header, err) ||
                          shortlist_coverage(&covered, shortlist, err) || emit_coverage(covered, args, &header, err) ? -1 : 0;
    coverage_free(&covered);
    shortlist_free(&shortlist);
    header_free(&header);
    return rc;
}

static int coverage(const void *arguments, const struct console *console, struct err *err)
{
    const struct coact_args *args = arguments;
    if (args->by == BY_ROUTER)
        return coverage_by_router(args, console, err);
    struct gathered g = { .spooled = true };
    struct header header = {0};
    struct ranking *ranking = NULL;
    struct coverage *covered = NULL;
    int rc = -1;
    if (gather_routes(&g, args, console, STREAM_COACT, &header, err) ||
        coverage_ranking(&ranking, args, &g, &header, console, err) ||
        coverage_make(&covered, g.counts, g.spool, ranking, err))
        goto done;
    rc = emit_coverage(covered, args, &header, err);
done:
    coverage_free(&covered);
    ranking_free(&ranking);
    gather_close(&g);
    header_free(&header);
    return rc;
}

static int open_neighbours(void *context, const struct stream_model *model, struct err *err)
{
    return neighbours_open(context, model, err);
}

static int add_neighbours(void *context, const struct route_tokens *record, struct err *err)
{
    return neighbours_add(*(struct neighbours **)context, record, err);
}

static int end_neighbours(void *context, int64_t sequence, struct err *err)
{
    (void)err;
    neighbours_end(*(struct neighbours **)context, sequence);
    return 0;
}

/* Reads forwards that verify, for union --trees. */
static int open_trees(void *context, const struct stream_model *model, struct err *err)
{
    return trees_open(context, model, err);
}

static int add_tree(void *context, const struct route_tokens *record, struct err *err)
{
    return trees_add(*(struct trees **)context, record, err);
}

static int add_iteration(void *context, const struct decode_iter *iter, struct err *err)
{
    return trees_add_iteration(*(struct trees **)context, iter, err);
}

/* union and locality print different columns of the same measurement. */
static int measure_neighbours(const struct coact_args *args, const struct console *console, struct coact_finding found,
                              struct err *err)
{
    struct neighbours *neighbours = NULL;
    struct route_consumer consumer = { .context = &neighbours, .open = open_neighbours, .tokens = add_neighbours,
                                       .end = end_neighbours };
    struct header header = {0};
    int rc = -1;
    if (coact_texts_alone(args, err))
        return -1;
    if (coact_read(&consumer, args, console, STREAM_COACT, &header, err))
        goto done;
    if (!neighbours_tokens(neighbours)) {
        route_phase_lacks(args->phase, err);
        goto done;
    }
    found.what = neighbours;
    found.layers = neighbours_layers(neighbours);
    found.layer = args->layer;
    found.header = &header;
    rc = coact_emit(&found, args, err);
done:
    neighbours_free(&neighbours);
    header_free(&header);
    return rc;
}

static int put_union(const struct coact_finding *f, record_put *put, void *context, struct err *err)
{
    return neighbours_put_union(f->what, put, context, err);
}

static int text_union(const struct coact_finding *f, struct text *out, struct err *err)
{
    return union_text(out, f->what, f->layer, err);
}

static int svg_union(const struct coact_finding *f, struct text *out, struct err *err)
{
    return union_svg(out, f->what, f->layer, f->header->model.name, err);
}

static int put_trees(const struct coact_finding *f, record_put *put, void *context, struct err *err)
{
    return trees_put_union(f->what, put, context, err);
}

static int text_trees(const struct coact_finding *f, struct text *out, struct err *err)
{
    return trees_text(out, f->what, f->layer, err);
}

static int svg_trees(const struct coact_finding *f, struct text *out, struct err *err)
{
    return trees_svg(out, f->what, f->layer, f->header->model.name, err);
}

static int unions_of_trees(const struct coact_args *args, const struct console *console, struct err *err)
{
    struct trees *trees = NULL;
    struct route_consumer consumer = { .context = &trees, .open = open_trees, .tokens = add_tree, .iteration = add_iteration };
    struct header header = {0};
    int rc = -1;
    if (coact_read(&consumer, args, console, STREAM_COACT, &header, err))
        goto done;
    if (!trees_count(trees)) {
        err_set(err, ERR_INPUT, "the streams have no forwards that decode or verify; profile answers with -n, and drafts with "
                "--draft");
        goto done;
    }
    const struct coact_finding found = { .what = trees, .layers = trees_layers(trees), .layer = args->layer, .header = &header,
                                   .put = put_trees, .text = text_trees, .svg = svg_trees };
    rc = coact_emit(&found, args, err);
done:
    trees_free(&trees);
    header_free(&header);
    return rc;
}

static int unions(const void *arguments, const struct console *console, struct err *err)
{
    const struct coact_args *args = arguments;
    if (args->trees)
        return unions_of_trees(args, console, err);
    return measure_neighbours(args, console, (struct coact_finding){ .put = put_union, .text = text_union, .svg = svg_union },
                              err);
}

static int put_locality(const struct coact_finding *f, record_put *put, void *context, struct err *err)
{
    return neighbours_put_locality(f->what, put, context, err);
}

static int text_locality(const struct coact_finding *f, struct text *out, struct err *err)
{
    return locality_text(out, f->what, f->layer, err);
}

static int svg_locality(const struct coact_finding *f, struct text *out, struct err *err)
{
    return locality_svg(out, f->what, f->layer, f->header->model.name, err);
}

static int locality(const void *args, const struct console *console, struct err *err)
{
    return measure_neighbours(args, console, (struct coact_finding){ .put = put_locality, .text = text_locality,
                                                               .svg = svg_locality }, err);
}

static int put_matrix(const struct coact_finding *f, record_put *put, void *context, struct err *err)
{
    return matrix_put(f->what, put, context, err);
}

static int text_matrix(const struct coact_finding *f, struct text *out, struct err *err)
{
    return matrix_text(out, f->what, f->layer, err);
}

static int svg_matrix(const struct coact_finding *f, struct text *out, struct err *err)
{
    return matrix_svg(out, f->what, f->layer, f->header->model.name, err);
}

static int put_stats(const struct coact_finding *f, record_put *put, void *context, struct err *err)
{
    return skew_put(f->what, put, context, err);
}

static int text_stats(const struct coact_finding *f, struct text *out, struct err *err)
{
    return stats_text(out, f->what, f->layer, err);
}

/* Counts pairs, and prints them as a matrix, or prints statistics of pairs and experts. */
static int measure_pairs(const struct coact_args *args, const struct console *console, bool whole, struct err *err)
{
    struct gathered g = { .spooled = true };
    struct header header = {0};
    struct matrix *matrix = NULL;
    struct skew *skew = NULL;
    int rc = -1;
    if (gather_routes(&g, args, console, STREAM_COACT, &header, err) ||
        (whole ? matrix_make(&matrix, g.counts, g.spool, args->layer, err) : skew_make(&skew, g.counts, g.spool, err)))
        goto done;
    struct coact_finding found = { .layers = g.counts->moe_layers, .layer = args->layer, .header = &header };
    if (whole) {
        found.what = matrix;
        found.put = put_matrix;
        found.text = text_matrix;
        found.svg = svg_matrix;
    } else {
        found.what = skew;
        found.put = put_stats;
        found.text = text_stats;
    }
    rc = coact_emit(&found, args, err);
done:
    matrix_free(&matrix);
    skew_free(&skew);
    gather_close(&g);
    header_free(&header);
    return rc;
}

static int matrix(const void *args, const struct console *console, struct err *err)
{
    return measure_pairs(args, console, true, err);
}

static int stats(const void *args, const struct console *console, struct err *err)
{
    return measure_pairs(args, console, false, err);
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
    struct merge merge = { .paths = args->inputs.items, .count = args->inputs.count, .output = coact_output(args->output),
                           .force = args->force, .tool = console->program, .version = MOE_VERSION, .argc = console->argc,
                           .argv = console->argv };
    int rc = streams_merge(&merge, &note, err);
    console_notes(console, &note);
    text_free(&note);
    return rc;
}

#define ANALYSIS_BUT(word, about, table, function, values) \
    { .name = word, .summary = about, .options = table, .rules = routes_rules, .operands = routes_operands, \
      .console = CONSOLE_QUIET | CONSOLE_PROGRESS, .args_bytes = sizeof(struct coact_args), \
      .defaults = values, .run = function }
#define ANALYSIS(word, about, table, function) ANALYSIS_BUT(word, about, table, function, &routes_defaults)

static const struct subcommand subcommands[] = {
    ANALYSIS("rank-experts", "say in which order to keep each layer's experts", rank_options, rank_experts),
    ANALYSIS("coverage", "say what is kept when only B experts a layer may be loaded", coverage_options, coverage),
    ANALYSIS_BUT("matrix", "say how often two experts are selected by the same token", matrix_options, matrix,
                 &pairs_defaults),
    ANALYSIS("union", "say how many distinct experts tokens need that are verified together", union_options, unions),
    ANALYSIS("locality", "say how many experts tokens near each other have in common", locality_options, locality),
    ANALYSIS_BUT("stats", "say how unevenly each layer uses its experts", stats_options, stats, &pairs_defaults),
    ANALYSIS("reuse", "say what drafts save where verified tokens share experts", reuse_options, coact_reuse),
    ANALYSIS("signal", "say what a verification tells of the experts of the next", signal_options, coact_signal),
    ANALYSIS("drift", "say how far states and router move from a token to the next", drift_options, coact_drift),
    { .name = "merge", .summary = "make one stream of several of one kind and one model", .options = merge_options,
      .operands = merge_operands, .console = CONSOLE_QUIET, .args_bytes = sizeof(struct merge_args), .run = merge },
    { .run = NULL },
};

static const struct command moe_coact = { "moe-coact", "analyse which experts a text uses", subcommands };

int main(int argc, char **argv) { return cli_main(argc, argv, &moe_coact); }
