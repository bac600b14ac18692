/* Describes the page of each analysis. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/report/coact_page.h"
#include "common/route/drift.h"
#include "common/route/neighbours.h"
#include "common/route/shortlist.h"
#include "common/route/tallied.h"
#include "common/route/trees.h"
#include "common/route/windows.h"
#include "common/stream/coact.h"
#include "common/stream/rank.h"

enum { PAIRS_SHOWN = 4, FIRST_EXPERTS = 8 };

/* rank-experts */

static int ranked(struct text *out, const struct gathered *g, const void *record, struct err *err)
{
    int experts = g->header->model.experts;
    return text_printf(out, err, "tokens; experts of each layer by %s, the first %d of %d with their share\n\n"
                       " layer  budget  experts\n", ((const struct rank_layer *)record)->method,
                       experts < FIRST_EXPERTS ? experts : FIRST_EXPERTS, experts);
}

static int ranked_row(struct text *out, const struct gathered *g, const void *record, struct err *err)
{
    const struct rank_layer *of = record;
    int experts = g->header->model.experts;
    double total = 0;
    char budget[16] = "-";
    for (int i = 0; i < experts; i++)
        total += of->score[i];
    if (of->budget > 0)
        snprintf(budget, sizeof budget, "%d", of->budget);
    if (text_printf(out, err, "%6d  %6s ", of->layer, budget))
        return -1;
    for (int i = 0; i < experts && i < FIRST_EXPERTS; i++)
        if (text_printf(out, err, " %3d %4.1f%%", of->order[i], total > 0 ? 100 * of->score[i] / total : 0))
            return -1;
    return text_putc(out, '\n', err);
}

/* coverage */

static int covered(struct text *out, const struct gathered *g, const void *record, struct err *err)
{
    const char *method = ((const struct coact_coverage *)record)->method;
    bool router = !strcmp(method, "router");
    return text_printf(out, err, "%s, %d experts of which %d serve a token, kept in the order %s%s\n",
                       router ? "nodes of forwards" : "tokens", g->header->model.experts, g->header->model.top_k,
                       router ? "of each forward's own " : "of their ", method);
}

static int covered_note(struct text *out, const struct gathered *g, const void *record, struct err *err)
{
    return text_printf(out, err, "tokens, %d experts of which %d serve a token, ranked by %s", g->header->model.experts,
                       g->header->model.top_k, ((const struct coact_coverage *)record)->method);
}

/* Returns the shares that any B experts keep if all are used equally: B / E of the mass, and (B choose k) / (E choose k) of
 * the tokens. */
static double mass_alike(const struct stream_model *model, double budget) { return budget / model->experts; }

static double served_alike(const struct stream_model *model, double budget)
{
    double share = 1;
    for (int k = 0; k < model->top_k; k++)
        share *= budget > k ? (budget - k) / (model->experts - k) : 0;
    return share;
}

/* matrix */

struct pair {
    int32_t first, second;
    int64_t count;
    double lift;
};

static bool before(const struct pair *a, const struct pair *b)
{
    return a->count != b->count ? a->count > b->count : a->first != b->first ? a->first < b->first : a->second < b->second;
}

/* Finds the most frequent pairs in descending order; of equal ones those with lower numbers come first. Returns
 * their number. */
static int frequent_pairs(struct pair best[PAIRS_SHOWN], const struct coact_matrix *matrix)
{
    int held = 0;
    for (int i = 0; i < matrix->points; i++) {
        const struct pair of = { matrix->first[i], matrix->second[i], matrix->count[i], matrix->lift[i] };
        int at = held;
        if (of.first >= of.second || !of.count)
            continue;
        while (at > 0 && before(&of, &best[at - 1]))
            at--;
        if (at == PAIRS_SHOWN)
            continue;
        held += held < PAIRS_SHOWN;
        memmove(best + at + 1, best + at, (size_t)(held - 1 - at) * sizeof *best);
        best[at] = of;
    }
    return held;
}

/* Computes the concentration (MoE-Spec eq. 9). NaN: each token selects one expert only. */
static double concentration(const struct stream_model *model, const struct coact_matrix *matrix, const struct pair *best,
                            int held)
{
    double pairs = (double)model->top_k * (model->top_k - 1) / ((double)model->experts * (model->experts - 1.0));
    return pairs > 0 ? (held ? (double)best->count : 0) / ((double)matrix->tokens * pairs) : NAN;
}

static int paired_row(struct text *out, const struct gathered *g, const void *record, struct err *err)
{
    const struct coact_matrix *of = record;
    struct pair best[PAIRS_SHOWN];
    int held = frequent_pairs(best, of);
    double first = concentration(&g->header->model, of, best, held);
    if (isnan(first) ? text_printf(out, err, "%6d  %13s ", of->layer, "-")
                     : text_printf(out, err, "%6d  %13.1f ", of->layer, first))
        return -1;
    for (int i = 0; i < held; i++)
        if (text_printf(out, err, " %3d+%-3d %4.1f%% x%-5.2f", best[i].first, best[i].second,
                        100 * (double)best[i].count / (double)of->tokens, best[i].lift))
            return -1;
    return text_putc(out, '\n', err);
}

struct heat_maps {
    const struct header *header;
    int layer, count;
    struct svg_heat *maps;          /* [moe_layers]; the values and ids are owned */
    char (*titles)[80];
};

/* Shades are square roots of each pair's count divided by the layer's highest: most pairs are rare, and linear shades would be
 * white. */
static int add_heat_map(void *context, const struct record_kind *kind, const void *record, struct err *err)
{
    struct heat_maps *h = context;
    const struct coact_matrix *of = record;
    struct pair best[PAIRS_SHOWN];
    int held = frequent_pairs(best, of), side = h->header->model.experts;
    double first = concentration(&h->header->model, of, best, held), max = held ? (double)best->count : 1;
    char *title = h->titles[h->count];
    (void)kind;
    if (h->layer >= 0 && of->layer != h->layer)
        return 0;
    double *value = mem_alloc((size_t)of->points, sizeof *value, err);
    int32_t *id = mem_copy(of->second, (size_t)side * sizeof *id, err);
    h->maps[h->count++] = (struct svg_heat){ .title = title, .side = side, .value = value, .id = id };
    if (!value || !id)
        return -1;
    for (int i = 0; i < of->points; i++)
        value[i] = of->first[i] == of->second[i] ? NAN : sqrt((double)of->count[i] / max);
    int used = snprintf(title, sizeof h->titles[0], "layer %d", of->layer);
    if (!isnan(first))
        snprintf(title + used, sizeof h->titles[0] - (size_t)used, ": %.1f\xc3\x97; 100 %% is %.1f %% of tokens", first,
                 held ? 100 * (double)best->count / (double)of->tokens : 0);
    return 0;
}

static int draw_matrix(struct text *out, const struct analysis *analysis, const struct header *header, int layer,
                       struct err *err)
{
    size_t layers = (size_t)header->model.moe_layers;
    struct heat_maps h = { .header = header, .layer = layer };
    struct text title = {0}, note = {0};
    int rc = !(h.maps = mem_alloc(layers, sizeof *h.maps, err)) || !(h.titles = mem_alloc(layers, sizeof *h.titles, err)) ||
             analysis->class->put(analysis, add_heat_map, &h, err) ||
             text_printf(&title, err, "Experts selected by the same token: %s", model_name(header)) ||
             text_printf(&note, err, "%lld tokens, %d experts in the order of a clustering; beside each layer its most "
                         "frequent pair over equally likely ones", (long long)analysis->counted, header->model.experts) ||
             svg_heat_maps(out, title.data, note.data, "never together", "as often as the layer's most frequent pair", true,
                           h.maps, h.count, err) ? -1 : 0;
    for (int i = 0; i < h.count; i++) {
        double *value = (double *)(uintptr_t)h.maps[i].value;
        int32_t *id = (int32_t *)(uintptr_t)h.maps[i].id;
        mem_free(&value);
        mem_free(&id);
    }
    mem_free(&h.maps);
    mem_free(&h.titles);
    text_free(&title);
    text_free(&note);
    return rc;
}

/* reuse and signal */

static int reused(struct text *out, const struct gathered *g, const void *record, struct err *err)
{
    const struct coact_reuse *of = record;
    (void)g;
    return text_printf(out, err, "tokens; experts of as many tokens as are drafted, over those of one (a/b), and of one more,\n"
                       "as a verification has it; tokens of an iteration at an acceptance of %g; gain: how much faster drafts\n"
                       "make it where experts are all that takes time, and a drafted token %g of a forward\n\n",
                       of->acceptance, of->draft_cost);
}

static int reused_note(struct text *out, const struct gathered *g, const void *record, struct err *err)
{
    (void)g;
    return text_printf(out, err, "tokens, acceptance %g", ((const struct coact_reuse *)record)->acceptance);
}

/* Computes f over the window's tokens as shades; columns after the end of the text are blank. */
static double *frequencies(const struct analysis *analysis, int layer, int width, int experts, struct err *err)
{
    int count;
    const uint8_t *map = windows_map(analysis, layer, width, &count);
    double *value = mem_alloc((size_t)experts * (size_t)experts, sizeof *value, err);
    for (int i = 0; value && i < experts * experts; i++)
        value[i] = i % experts < count ? (double)map[i] / width : NAN;
    return value;
}

static int draw_signal(struct text *out, const struct analysis *analysis, const struct header *header, int layer,
                       struct err *err)
{
    int l = layer < 0 ? 0 : layer, max = windows_max(analysis), experts = header->model.experts;
    double *drafted = frequencies(analysis, l, max, experts, err), *alone = frequencies(analysis, l, 1, experts, err);
    struct text title = {0}, note = {0};
    char titles[2][80];
    int rc = -1;
    snprintf(titles[0], sizeof titles[0], "layer %d, verifications of %d tokens", l, max);
    snprintf(titles[1], sizeof titles[1], "layer %d, token by token", l);
    const struct svg_heat maps[] = {{.title = titles[0], .side = experts, .value = drafted},
                                    {.title = titles[1], .side = experts, .value = alone}};
    if (drafted && alone && !text_printf(&title, err, "How often experts are wanted: %s", model_name(header)) &&
        !text_printf(&note, err, "the first text's first %d windows from left to right, experts from top to bottom", experts))
        rc = svg_heat_maps(out, title.data, note.data, "by none", "by all of a window's tokens", false, maps, 2, err);
    mem_free(&drafted);
    mem_free(&alone);
    text_free(&title);
    text_free(&note);
    return rc;
}

#define COVERAGE_PAGE(of) { \
    .class = &of, .layout = PAGE_GRID, .about_record = covered, .note_record = covered_note, .multiples = true, \
    .x_title = "budget", .x = "budget", \
    .columns = { { "share of the routing mass that falls on the experts kept", "mass", 3 }, \
                 { "share of tokens whose selected experts are all among those kept", "served", 3 }, \
                 { .compute = mass_alike }, { .compute = served_alike } }, \
    .heading = "What a budget of B experts a layer keeps", \
    .panels = { { "Routing mass kept", "B, experts kept", "share of mass", 0, { { "all experts alike", 2, SVG_DASHED } }, 1, \
                  true }, \
                { "Tokens fully served", "B, experts kept", "share of tokens", 1, { { "all experts alike", 3, SVG_DASHED } }, \
                  1, true } }, \
    .panel_count = 2 }

/* A page of one column, beside its value if tokens chose their experts independently. */
#define INDEPENDENT_PAGE(of, key, decimals) \
    .class = &of, .layout = PAGE_GRID, .columns = { { "", key, decimals }, { NULL, "independent" }, { NULL, "alike" } }, \
    .log2 = true, .panel_count = 1
#define INDEPENDENT { { "independent", 1, SVG_DASHED }, { "all alike", 2, SVG_DOTTED } }, 2

static const struct coact_page pages[] = {
    { .class = &rank_analysis, .about_record = ranked, .row = ranked_row },
    COVERAGE_PAGE(coverage_analysis),
    COVERAGE_PAGE(shortlist_analysis),
    { INDEPENDENT_PAGE(union_analysis, "distinct", 2), .x_title = "tokens", .x = "width",
      .about = "tokens; distinct experts of consecutive tokens, and if they chose independently (each expert as\n"
               "often as here, or all alike)\n",
      .note = "tokens", .heading = "Distinct experts",
      .panels = { { "Experts that consecutive tokens select together", "tokens", "experts a layer", 0, INDEPENDENT } } },
    { INDEPENDENT_PAGE(trees_analysis, "distinct", 2), .x_title = "nodes", .x = "width", .windows_title = "forwards",
      .about = "forwards; distinct experts of all nodes that one verifies, rejected ones included, and if they chose\n"
               "independently (each expert as often as here, or all alike)\n",
      .note = "forwards, rejected nodes included", .heading = "Distinct experts of verified drafts",
      .panels = { { "Experts that a draft's nodes select together", "nodes verified", "experts a layer", 0, INDEPENDENT } } },
    { INDEPENDENT_PAGE(locality_analysis, "common", 3), .x_title = "tokens apart", .x = "distance",
      .about = "tokens; share of experts that two tokens of a text have in common, and if they chose\nindependently (each "
               "expert as often as here, or all alike)\n",
      .note = "tokens", .heading = "Experts in common",
      .panels = { { "Experts that an earlier token selected, too", "tokens apart", "share of experts", 0, INDEPENDENT,
                    true } } },
    { .class = &matrix_analysis, .row = paired_row, .draw = draw_matrix,
      .about = "tokens; the most frequent pairs of experts, with the share of tokens that select both and their lift\n"
               "over independent choices; concentration is the first pair over equally likely ones\n\n"
               " layer  concentration  pairs\n" },
    { .class = &stats_analysis, .layout = PAGE_LAYERS, .x_title = "layer",
      .about = "tokens; how evenly each layer uses its experts, and the two experts that most tokens select together\n\n",
      .columns = { { "used", "used" }, { "effective", "effective", 1 }, { "half", "half" }, { "busiest", "busiest" },
                   { "of tokens", "busiest_share", 1, true }, { "dropped", "dropped", 1, true }, { "expert", "pair_first" },
                   { "and expert", "pair_second" }, { "of tokens", "pair_tokens", 1, true, "tokens" },
                   { "concentration", "concentration", 1 } } },
    { .class = &reuse_analysis, .layout = PAGE_POINTS, .about_record = reused, .note_record = reused_note,
      .x_title = "drafts", .x = "drafts",
      .columns = { { "experts", "distinct", 2 }, { "a/b", "ratio", 3 }, { "with the root", "verified", 3 },
                   { "tokens", "emitted", 3 }, { "gain", "gain", 3 }, { "with the root", "gain_verified", 3 } },
      .heading = "Reuse of experts",
      .panels = { { "Drafts save where a/b is below the tokens of an iteration", "draft length", "times those of one token", -1,
                    { { "tokens of an iteration", 3, SVG_BOLD }, { "a/b: experts of the drafts", 1, SVG_DASHED },
                      { "with the text's last token", 2, SVG_DOTTED } }, 3 } },
      .panel_count = 1 },
    { .class = &signal_analysis, .layout = PAGE_POINTS, .x_title = "tokens", .x = "width", .draw = draw_signal,
      .about = "tokens in windows, one after the other; of an expert's frequency, the tokens of a window that want it:\n"
               "bits and mean over deviation, and if tokens chose independently; what it has to do with the window before,\n"
               "and if that is the estimate: shares that are wrong, by no more than the margin, and wrong of hot or cold\n\n",
      .columns = { { "bits", "entropy", 3 }, { "independent", "entropy_binomial", 3 }, { "SNR", "snr", 2 },
                   { "independent", "snr_binomial", 2 }, { "correlation", "correlation", 3 }, { "change", "change", 2 },
                   { "hot from", "threshold", 1 }, { "margin", "margin", 2 }, { "wrong", "wrong", 1, true },
                   { "within", "within", 1, true }, { "faults", "faults", 1, true },
                   { "contradicted", "contradicted", 1, true } } },
    { .class = &drift_analysis, .layout = PAGE_LAYERS, .x_title = "layer", .note = "pairs of neighbouring tokens",
      .about = "pairs of neighbouring tokens; mean distance of their states after a layer, over that of the layer before,\n"
               "and of the router's scores; bound: theorem 1 with the largest quotients seen\n\n",
      .columns = { { "states", "state", 3 }, { "growth", "growth_mean", 3 }, { "largest", "growth_max", 3 },
                   { "scores", "score_mean", 3 }, { "largest", "score_max", 3 }, { "over states", "norm_max", 3 },
                   { "bound", "bound", 2 }, { "over scores", "bound", 1, false, "score_mean" } },
      .heading = "Drift of states and scores",
      .panels = { { "States after a layer", "layer", "distance of neighbours", -1, { { NULL, 0, SVG_BOLD, true } }, 1 },
                  { "The router's scores", "layer", "distance of neighbours", -1,
                    { { "seen, mean", 3, SVG_BOLD, true }, { "bound by the largest quotients", 6, SVG_DASHED } }, 2 } },
      .panel_count = 2 },
};

const struct coact_page *coact_page_of(const struct analysis_class *class)
{
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (pages[i].class == class)
            return &pages[i];
    return NULL;                                /* an analysis without a page, which is a fault of the program */
}
