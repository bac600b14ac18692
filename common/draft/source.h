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
    const int32_t *parent;              /* [rows] a node, which may be a row of this reading, or -1: the end of the committed
                                         * text */
    const int32_t *logit_row;           /* [logit_rows] ascending row indices whose logits are wanted */
    int logit_rows;
    int branches;                       /* number of branches whose logits are wanted; at most the source's */
    draft_take_function *take;
    int best;                           /* number of most likely tokens wanted in place of logits, from a source that ranks;
                                         * 0: logits */
    draft_take_best_function *take_best;
    void *context;
};

struct draft_source {
    const char *path;                   /* path of the source's file, for messages */
    const char *fault;                  /* likely cause of logits that are not finite, for messages */
    int vocab;                          /* the source can read tokens below this id */
    int logits;                         /* number of logits returned; target_id: token of each, NULL: its index */
    const int32_t *target_id;
    int branches;                       /* number of distributions per row: of the next token, and (Jakiro) of the token
                                         * after it, whatever the next one is */
    bool second_next;                   /* the second branch predicts the next token, too */
    bool beside;                        /* the second branch predicts the next token, and children are drawn from both
                                         * (DRAFT_BRANCHES) */
    int max_rows, max_logit_rows;       /* of one reading; max_logit_rows is at most DRAFT_ASKED_MAX */
    int positions;                      /* longest text, including a draft */
    int ranks;                          /* number of most likely tokens that the source can return itself; 0: it returns
                                         * logits */
    int levels;                         /* maximum depth of a draft; 0: any */
    int (*nodes)(const struct draft_source *source);
    int (*room)(const struct draft_source *source);             /* returns how many more nodes fit */
    /* Reads rows and adds them as nodes. *bytes: nominal bytes of weights and KV read. */
    int (*read)(struct draft_source *source, const struct draft_reading *reading, int64_t *bytes, struct err *err);
};

/* The source of a whole model, or of a part of it. */
struct engine_source {
    struct draft_source base;
    struct engine *engine;
    struct sequence *sequence;          /* sequence of the current text */
    const struct forward_part *part;    /* layers and parts that its forwards leave out; NULL: none */
    const struct expert_plan *plan;     /* budget of experts; NULL: none */
};

/* Initialises a source of the whole model of an engine, without a sequence. */
void engine_source_init(struct engine_source *source, struct engine *engine);

#endif
