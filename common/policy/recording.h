/* A decode stream with drafts (moe-decode --record drafts) as plain arrays: for each position of each text what a draft of any
 * length would have done there, and what the iteration that really began there did. Drafts are chains everywhere, or trees
 * everywhere: then a position has all nodes that were drafted, in that order, and element k is for the first k of them.
 *
 * A position is the root of an iteration that could have been: the text's tokens but the last one, in order. A stream in which
 * a position is missing, or in which drafts and text contradict each other, is refused. */
#ifndef MOE_POLICY_RECORDING_H
#define MOE_POLICY_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/draft/share.h"
#include "common/stream/header.h"

/* What one drafter drafts at a position: 0 .. n - 1 tokens; arrays are the recording's, element k for k drafted tokens. */
struct recorded_draft {
    int n, accepted;
    size_t row;                         /* of the arrays by row */
};

/* n, accepted and row are the first drafter's. */
struct recorded_position {
    int n, accepted, left, room;
    size_t row;
    int nodes;                          /* what was verified in the iteration that began here, with the root; 0: none did */
    int K, drafted, experts_loaded;
    double draft_us, verify_us, iteration_us, catch_up_us;
    int64_t bytes, draft_bytes;
    int catch_up;
    uint64_t tree;                      /* recording_tree of what was verified */
    int kept;                           /* drafted tokens that were accepted then */
    uint64_t makers;                    /* the same of its drafters and reviewers, with several drafters; 0: not known */
    size_t share;                       /* one more than where its shares [drafters] begin; 0: not known */
    int64_t expert_bytes;               /* of one expert; 0: not known */
};

struct recorded_text {
    int64_t sequence;
    char *id, *task;                    /* NULL: none */
    int32_t *prompt;                    /* [prompt_tokens] */
    int prompt_tokens;
    int32_t *token;                     /* [tokens] of the answer */
    int tokens;
    size_t position;                    /* the first of tokens - 1 */
    int iterations;                     /* of the live run */
};

struct recording {
    struct header header;
    int drafters;                       /* each with a draft at each position */
    char *named;                        /* their names, a list in JSON; NULL: not known */
    bool sampled;                       /* at a temperature above 0, as far as is known */
    struct recorded_draft *draft;       /* [positions][drafters] */
    size_t drafts, draft_room;
    struct recorded_text *text;
    struct recorded_position *position;
    size_t texts, positions, rows, text_room, position_room;
    int length;                         /* longest draft that was asked for, everywhere */
    size_t width;                       /* moe_layers x top_k */
    int32_t *token;                     /* [rows] */
    bool trees;
    int32_t *parent, *asked, *path;     /* [rows] of trees: as in decode_draft; NULL: chains */
    float *log_probability;             /* [rows] */
    int32_t *match;                     /* [rows] */
    double *draft_us, *verify_us;       /* [rows] */
    int64_t *draft_bytes, *bytes;       /* [rows] */
    int32_t *experts_loaded;            /* [rows] */
    int32_t *expert;                    /* [rows][width] or NULL */
    size_t row_room[12];
    struct draft_share *share;          /* of iterations of several drafters */
    size_t shares, share_room;
};

int recording_read(struct recording **out, const char *path, struct err *err);

/* For who can make no use of trees; one: nor of several drafters. */
int recording_read_chains(struct recording **out, const char *path, bool one, struct err *err);
/* A digest of a tree, root first; never 0. */
uint64_t recording_tree(const int32_t *token, const int32_t *parent, int rows);

void recording_free(struct recording **recording);

#endif
