/* A source computes the rows of a draft (rows.h): an engine over a sequence, or a draft head. The rows computed since the last
 * commit or drop are its NODES, numbered in the order in which they were passed. */
#ifndef MOE_DRAFT_SOURCE_H
#define MOE_DRAFT_SOURCE_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/engine/engine.h"

enum { DRAFT_ASKED_MAX = 64, DRAFT_BRANCHES_MAX = 2 };

/* Logits [branches][source->logits] of a requested row; `which` counts such rows. Valid during the call only. */
typedef int draft_take_function(void *context, int which, const float *const *logits, struct err *err);

/* The most likely tokens of a row, one list of `count` per branch, ordered and terminated as in kernels/top.h. */
struct draft_best {
    const int32_t *token;
    const float *log_probability;
};

typedef int draft_take_best_function(void *context, int which, const struct draft_best *branch, int count, struct err *err);

struct draft_reading {
    int rows;
    const int32_t *token;               /* [rows] */
    const int32_t *parent;              /* [rows] node, rows of this reading among them, or -1: the end of what is committed */
    const int32_t *logit_row;           /* [logit_rows] ascending */
    int logit_rows;
    int branches;                       /* of logits that are wanted: 1, or more that the source has */
    draft_take_function *take;
    int best;                           /* so many of the likeliest tokens are wanted, not logits, of a source that ranks;
                                         * 0: logits */
    draft_take_best_function *take_best;
    void *context;
};

struct draft_source {
    const char *path;                   /* of its file, for people */
    const char *fault;                  /* why logits may not be finite, for people */
    int vocab;                          /* tokens that it can read are below */
    int logits;                         /* how many it answers, and of which token each is; NULL: of the same number */
    const int32_t *target_id;
    int branches;                       /* distributions of a row: of the token after it, and of the one after that, whatever
                                         * comes between (Jakiro) */
    bool second_next;                   /* the second is of the token after the row, too */
    bool beside;                        /* so it is, and children are drawn from both (DRAFT_BRANCHES) */
    int max_rows, max_logit_rows;       /* of one reading; at most DRAFT_ASKED_MAX rows have logits */
    int positions;                      /* longest text, a draft included */
    int ranks;                          /* how many of the likeliest tokens it can answer by itself; 0: it answers logits */
    int levels;                         /* of a draft, of which no more can be had; 0: any number */
    int (*nodes)(const struct draft_source *source);
    int (*room)(const struct draft_source *source);             /* for further nodes */
    /* Adds rows as nodes; *bytes: weights and KV read, nominal. */
    int (*read)(struct draft_source *source, const struct draft_reading *reading, int64_t *bytes, struct err *err);
};

/* A whole model, or a part of it. */
struct engine_source {
    struct draft_source base;
    struct engine *engine;
    struct sequence *sequence;          /* of this text */
    const struct forward_part *part;    /* what its forwards leave out; NULL: nothing */
    const struct expert_plan *plan;     /* NULL: none */
};

void engine_source_init(struct engine_source *source, struct engine *engine);

#endif
