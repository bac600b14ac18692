/* An analysis of routes: it reads streams token by token, and then yields one record per layer. One table of methods for
 * each analysis; reading, writing, printing and drawing are the same for all of them.
 *
 * Single-threaded. The records' arrays are valid during `put` only. */
#ifndef MOE_ROUTE_ANALYSIS_H
#define MOE_ROUTE_ANALYSIS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/progress.h"
#include "common/route/input.h"
#include "common/route/put.h"
#include "common/stream/decode.h"
#include "common/stream/header.h"
#include "common/stream/route.h"

struct analysis_class;

/* The first member of each analysis. */
struct analysis {
    const struct analysis_class *class;
    int64_t counted;                /* number of counted items: tokens, forwards or pairs of tokens */
};

/* The options of all analyses; each reads its own. */
struct analysis_setup {
    int phases;                     /* enum route_phases */
    int layer;                      /* compute this layer only, if that saves time; -1: all */
    int method;                     /* enum ranking_method */
    const char *rank;               /* the rank stream whose order is used; NULL: the method's */
    const char *budget;             /* "12" or "12,8,...": budgets to recommend; NULL: none */
    double keep;                    /* recommend budgets that keep this share of the score; -1: none */
    int total;                      /* recommend budgets that sum to this; 0: none */
    int draft_length;               /* at most WINDOWS_MAX - 1 */
    double acceptance, draft_cost;  /* for reuse; draft_cost in forwards of one token */
    double threshold;               /* for signal: an expert that at least this many tokens select is hot */
    bool force;                     /* accept a rank stream of another model */
    const char *folder;             /* folder of temporary files */
};

struct analysis_class {
    const struct record_kind *kind;         /* kind of the analysis's records */
    const char *empty;                      /* the error when nothing was counted; NULL: route_phase_lacks */
    bool consecutive;                       /* reads consecutive tokens of texts, so rejected nodes are an error */
    int (*open)(struct analysis **out, const struct analysis_setup *setup, const struct stream_model *model, struct err *err);
    /* Methods of route_consumer; NULL: not needed by the analysis. */
    void (*begin)(struct analysis *analysis, const struct route_begin *begin);
    int (*tokens)(struct analysis *analysis, const struct route_tokens *record, struct err *err);
    void (*end)(struct analysis *analysis, int64_t sequence);
    int (*iteration)(struct analysis *analysis, const struct decode_iter *iter, struct err *err);
    /* Called once, after all routes: adds further sources to the header, appends notes to *note, and advances the bar by one
     * per expert. NULL: no further work. */
    int (*finish)(struct analysis *analysis, struct header *header, struct progress *bar, struct text *note, struct err *err);
    /* Passes the records to `put`, in the order of the layers. */
    int (*put)(const struct analysis *analysis, record_put *put, void *context, struct err *err);
    void (*free)(struct analysis *analysis);
};

/* Reads all routes of the input, and adds their headers to *header. *out must be freed on errors, too. Notes, one per line,
 * are appended to *note. Errors: those of the input and of the class; no route was counted. */
int analysis_read(struct analysis **out, const struct analysis_class *class, const struct analysis_setup *setup,
                  const struct route_input *input, struct header *header, struct text *note, struct err *err);

int analysis_open(struct analysis **out, const struct analysis_class *class, const struct analysis_setup *setup,
                  const struct stream_model *model, struct err *err);
int analysis_finish(struct analysis *analysis, struct header *header, struct progress *bar, struct text *note, struct err *err);
void analysis_free(struct analysis **analysis);

#endif
