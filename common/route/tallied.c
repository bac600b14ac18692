#include "common/route/tallied.h"

#include "common/base/mem.h"
#include "common/route/coverage.h"
#include "common/route/elimination.h"
#include "common/route/matrix.h"
#include "common/route/ranking.h"
#include "common/route/skew.h"
#include "common/route/spool.h"
#include "common/stream/coact.h"
#include "common/stream/rank.h"
#include "common/stream/reader.h"

struct tallied {
    struct analysis base;
    struct analysis_setup setup;
    struct route_counts *counts;
    struct route_spool *spool;          /* NULL: the counts suffice */
    /* The result: one of these. */
    struct ranking *ranking;
    struct coverage *coverage;
    struct matrix *matrix;
    struct skew *skew;
};

static void free_tallied(struct analysis *analysis)
{
    struct tallied *t = (struct tallied *)analysis;
    route_counts_free(&t->counts);
    route_spool_close(&t->spool);
    ranking_free(&t->ranking);
    coverage_free(&t->coverage);
    matrix_free(&t->matrix);
    skew_free(&t->skew);
    mem_free(&t);
}

static int open_counts(struct analysis **out, const struct analysis_setup *setup, const struct stream_model *model,
                       struct err *err)
{
    struct tallied *t = mem_alloc(1, sizeof *t, err);
    if (!t)
        return -1;
    t->setup = *setup;
    if (route_counts_open(&t->counts, model, err)) {
        free_tallied(&t->base);
        return -1;
    }
    *out = &t->base;
    return 0;
}

static int open_spooled(struct analysis **out, const struct analysis_setup *setup, const struct stream_model *model,
                        struct err *err)
{
    if (open_counts(out, setup, model, err))
        return -1;
    struct tallied *t = (struct tallied *)*out;
    if (!route_spool_open(&t->spool, model, SPOOL_MEMORY, setup->folder, err))
        return 0;
    free_tallied(*out);
    *out = NULL;
    return -1;
}

/* Frequency and mass need only the counts. */
static int open_ranking(struct analysis **out, const struct analysis_setup *setup, const struct stream_model *model,
                        struct err *err)
{
    return (setup->method == RANKING_COVERAGE || setup->method == RANKING_PAIRS ? open_spooled : open_counts)(out, setup, model,
                                                                                                             err);
}

static int add_tokens(struct analysis *analysis, const struct route_tokens *record, struct err *err)
{
    struct tallied *t = (struct tallied *)analysis;
    if (route_counts_add(t->counts, record, err) || (t->spool && route_spool_add(t->spool, record, err)))
        return -1;
    analysis->counted = t->counts->tokens;
    return 0;
}

static int make_ranking(struct tallied *t, struct progress *bar, struct err *err)
{
    switch (t->setup.method) {
    case RANKING_PAIRS: return ranking_by_pairs(&t->ranking, t->counts, t->spool, err);
    case RANKING_COVERAGE: return ranking_by_coverage(&t->ranking, t->counts, t->spool, bar, err);
    default: return ranking_make(&t->ranking, t->counts, (enum ranking_method)t->setup.method, err);
    }
}

static int finish_ranking(struct analysis *analysis, struct header *header, struct progress *bar, struct text *note,
                          struct err *err)
{
    struct tallied *t = (struct tallied *)analysis;
    const struct analysis_setup *setup = &t->setup;
    (void)header;
    if (make_ranking(t, bar, err))
        return -1;
    if (setup->budget &&
        budget_parse(t->ranking->budget, setup->budget, t->ranking->moe_layers, t->ranking->experts, note, err))
        return err_at(err, "--budget");
    if (setup->total && ranking_spread(t->ranking, setup->total, err))
        return err_at(err, "--total");
    if (setup->keep >= 0)
        ranking_recommend(t->ranking, setup->keep);
    return 0;
}

/* Reads the ranking of a rank stream, which becomes a source of the results. */
static int read_ranking(struct tallied *t, struct header *header, struct text *note, struct err *err)
{
    struct reader *in = NULL;
    int rc = reader_open(&in, t->setup.rank, STREAM_RANK, NULL, err) ||
             ranking_check_model(in, &header->model, t->setup.force, note, err) || ranking_read(&t->ranking, in, err) ||
             header_derive(header, reader_header(in), err) || (note->length && text_putc(note, '\n', err)) ? -1 : 0;
    reader_close(&in);
    return rc;
}

static int finish_coverage(struct analysis *analysis, struct header *header, struct progress *bar, struct text *note,
                           struct err *err)
{
    struct tallied *t = (struct tallied *)analysis;
    return (t->setup.rank ? read_ranking(t, header, note, err) : make_ranking(t, bar, err)) ||
           coverage_make(&t->coverage, t->counts, t->spool, t->ranking, err) ? -1 : 0;
}

static int finish_matrix(struct analysis *analysis, struct header *header, struct progress *bar, struct text *note,
                         struct err *err)
{
    struct tallied *t = (struct tallied *)analysis;
    (void)header;
    (void)bar;
    (void)note;
    return matrix_make(&t->matrix, t->counts, t->spool, t->setup.layer, err);
}

static int finish_stats(struct analysis *analysis, struct header *header, struct progress *bar, struct text *note,
                        struct err *err)
{
    struct tallied *t = (struct tallied *)analysis;
    (void)header;
    (void)bar;
    (void)note;
    return skew_make(&t->skew, t->counts, t->spool, err);
}

static int put_result(const struct analysis *analysis, record_put *put, void *context, struct err *err)
{
    const struct tallied *t = (const struct tallied *)analysis;
    return t->coverage ? coverage_put(t->coverage, put, context, err)
         : t->ranking ? ranking_put(t->ranking, put, context, err)
         : t->matrix ? matrix_put(t->matrix, put, context, err) : skew_put(t->skew, put, context, err);
}

const struct analysis_class rank_analysis = { .kind = &rank_layer_kind, .open = open_ranking, .tokens = add_tokens,
    .finish = finish_ranking, .put = put_result, .free = free_tallied };
const struct analysis_class coverage_analysis = { .kind = &coact_coverage_kind, .open = open_spooled, .tokens = add_tokens,
    .finish = finish_coverage, .put = put_result, .free = free_tallied };
const struct analysis_class matrix_analysis = { .kind = &coact_matrix_kind, .open = open_spooled, .tokens = add_tokens,
    .finish = finish_matrix, .put = put_result, .free = free_tallied };
const struct analysis_class stats_analysis = { .kind = &coact_stats_kind, .open = open_spooled, .tokens = add_tokens,
    .finish = finish_stats, .put = put_result, .free = free_tallied };
