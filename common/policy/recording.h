/* A decode stream with drafts (moe-decode --record drafts) as plain arrays: for each position of each text, the results of a
 * draft of any length, and of the live iteration that began there, if any. Drafts are all chains or all trees. A position of
 * trees has all drafted nodes in the order of drafting, and element k refers to the first k nodes.
 *
 * A position is the root of a possible iteration: each token of the text but the last one, in order. A stream with a missing
 * position, or with drafts that contradict the text, is rejected. */
#ifndef MOE_POLICY_RECORDING_H
#define MOE_POLICY_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/draft/share.h"
#include "common/stream/header.h"

/* One drafter's draft at a position, of 0 .. n - 1 tokens. Arrays are the recording's; element k is for k drafted tokens. */
struct recorded_draft {
    int n, accepted;
    size_t row;                         /* first row in the recording's arrays */
};

/* n, accepted and row are those of the first drafter. */
struct recorded_position {
    int n, accepted, left, room;
    size_t row;
    int nodes;                          /* nodes verified by the live iteration here, with the root; 0: none began here */
    int K, drafted, experts_loaded;
    double draft_us, verify_us, iteration_us, catch_up_us;
    int64_t bytes, draft_bytes;
    int catch_up;
    uint64_t tree;                      /* recording_tree of the verified draft */
    int kept;                           /* number of drafted tokens that the live iteration accepted */
    uint64_t makers;                    /* digest of the draft's drafters and reviewers, if several drafted; 0: unknown */
    size_t share;                       /* 1 + index of the iteration's shares [drafters]; 0: unknown */
    int64_t expert_bytes;               /* bytes of one expert; 0: unknown */
};

struct recorded_text {
    int64_t sequence;
    char *id, *task;                    /* NULL: none */
    int32_t *prompt;                    /* [prompt_tokens] */
    int prompt_tokens;
    int32_t *token;                     /* [tokens] the answer */
    int tokens;
    size_t position;                    /* index of the text's first position; a text has tokens - 1 positions */
    int iterations;                     /* of the live run */
};

struct recording {
    struct header header;
    int drafters;                       /* each has a draft at each position */
    char *named;                        /* names of the drafters, a JSON list; NULL: unknown */
    bool sampled;                       /* temperature above 0; false if unknown */
    struct recorded_draft *draft;       /* [positions][drafters] */
    size_t drafts, draft_room;
    struct recorded_text *text;
    struct recorded_position *position;
    size_t texts, positions, rows, text_room, position_room;
    int length;                         /* the largest draft length requested */
    size_t width;                       /* moe_layers x top_k */
    int32_t *token;                     /* [rows] */
    bool trees;
    int32_t *parent, *asked, *path;     /* [rows] of trees, as in decode_draft; NULL: chains */
    float *log_probability;             /* [rows] */
    int32_t *match;                     /* [rows] */
    double *draft_us, *verify_us;       /* [rows] */
    int64_t *draft_bytes, *bytes;       /* [rows] */
    int32_t *experts_loaded;            /* [rows] */
    int32_t *expert;                    /* [rows][width] or NULL */
    size_t row_room[12];
    struct draft_share *share;          /* shares of iterations with several drafters */
    size_t shares, share_room;
};

int recording_read(struct recording **out, const char *path, struct err *err);

/* Refuses a recording of trees, and with `one` a recording of several drafters. */
int recording_read_chains(struct recording **out, const char *path, bool one, struct err *err);
/* Returns a digest of a tree, root first; never 0. */
uint64_t recording_tree(const int32_t *token, const int32_t *parent, int rows);

void recording_free(struct recording **recording);

#endif
