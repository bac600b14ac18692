/* What guesses the tokens to come. One file a drafter, one line in the table of drafter.c.
 *
 * A drafter follows one text: begin, commit(the prompt), then in turn propose (any number of times, or not at all) and
 * commit(what was emitted). It is asked to extend a draft tree below some leaves, all in one call so that it can work on
 * them at once, and may add fewer nodes than it was asked for, or none. Whatever it proposes, under coupled acceptance the
 * text does not change: only how soon it is there.
 *
 * How a drafter with probabilities picks the children of a node: DRAFT_BEST takes the likeliest tokens. DRAFT_COUPLED takes
 * the ones most likely to be the target's choice, knowing the random numbers that the target will use there: the tokens of
 * the largest logit / T + g, after the target's filter (kernels/plain/sample.h). So a drafter that knows the target's logits
 * guesses all of its choices. Each child of a node is thus drawn from the drafter's distribution without the earlier ones.
 * DRAFT_DRAWN draws them so with random numbers of their own, new for each node of each draft: no decision that rests on what
 * was seen before can know them. With `proposals` the distribution is in tree->proposal, for acceptance by rejection: then a
 * drafter gives every token that it drew. DRAFT_BRANCHES draws from both branches of a head as Jakiro*'s program does, and
 * tree->proposal has what kernels/plain/branches.h writes down. At temperature 0 all are one.
 *
 * Several drafters may be in use, each with its number; a tree tells who added a node (tree->drafter) and who reviewed it.
 * A drafter goes on below nodes of others as it does below its own.
 *
 * A drafter that works with what the target computes says which of it (`features`) and is shown it (`see`): each piece of the
 * prompt, then each verification with the rows that were kept. It stays on the device. A drafter may run parts of the target
 * itself on the target's own KV cache (draft_text.target): what it appends there is pending, and gone when the target verifies;
 * only of one that stops the target's own forward on its way (engine.h) the rows are gone on from. */
#ifndef MOE_DRAFT_DRAFTER_H
#define MOE_DRAFT_DRAFTER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cli/spec.h"
#include "common/draft/share.h"
#include "common/draft/tree.h"
#include "common/engine/feature.h"
#include "kernels/plain/sample.h"

struct engine;
struct expert_plan;
struct forward;
struct loop_rules;
struct sequence;

enum draft_choice { DRAFT_COUPLED, DRAFT_BEST, DRAFT_DRAWN, DRAFT_BRANCHES };

enum { RIDERS_MAX = 128 };

/* What a drafter that has probabilities writes in place of the tokens that its own are highest for, and which it computes as
 * ever. */
struct draft_script {
    /* Up to `count` children, best first, of the node to which `way`, `depth` tokens, leads from the root, which is token
     * `position` of the text; with their log-probabilities (NaN: not known). *ends: nothing comes below the first of them.
     * Returns how many, or -1. */
    int (*children)(const struct draft_script *script, int drafter, int position, const int32_t *way, int depth, int count,
                    int32_t *token, float *log_probability, bool *ends, struct err *err);
};

struct drafter_setup {
    int vocab;                          /* proposals are below */
    int positions;                      /* longest text */
    int number;                         /* its own among the drafters in use: what it writes into tree->drafter */
    struct engine *target;              /* whose device a drafter with a model of its own shares, and of which another one runs
                                         * parts; open as long as the drafter */
    const struct expert_plan *plan;     /* for forwards of the drafter's own; NULL: none */
    enum draft_choice choice;
    bool proposals;                     /* the distributions that children were drawn from are wanted */
    bool probabilities;                 /* are looked at; a drafter that can give them only with effort may leave them NaN */
    struct sample_filter filter;        /* the target's */
    const struct draft_script *script;  /* for drafters that draw; NULL: they write tokens of their own. Not with proposals */
};

/* A forward of the target that has been read. Valid during the call; all arrays but features are the host's. */
struct target_view {
    const struct forward *forward;      /* with logits, where it is a verification, and features */
    const struct feature_request *features;     /* those of all drafters: layers ascending, which forward->features has */
    int position;                       /* of row 0 */
    const int32_t *token;               /* [forward->rows] */
    const int32_t *kept;                /* [kept_rows] rows that are part of the text now, in its order */
    int kept_rows;
    bool prompt;                        /* a piece of it: all rows are kept */
};

/* Rows that a drafter adds to a verification for itself (Lookahead's window): read with it, their logits given back, never
 * accepted. */
struct rider_rows {
    int rows;
    const int32_t *token;               /* [rows] */
    const int32_t *parent;              /* [rows] 0: the root, 1 + i: node i, 1 + nodes + j: its own earlier row j */
};

struct drafter {                        /* what all drafters begin with */
    const struct drafter_class *class;
    int number;
    struct feature_request features;    /* set by open */
    int riders;                         /* rows that it adds to a verification, at most, of RIDERS_MAX; set by open */
    bool learns;                        /* its drafts follow from those before, too, not from the text alone; set by open */
    const char *ends;                   /* a draft's last levels are not what they are in a longer one; the setting without
                                         * which they would be. NULL: they are. Set by open */
    char detail[128];                   /* what opening it took, for -v; "": nothing. Set by open */
    /* Count up, and whoever looks sets them back: weights and KV read, nominal; tokens of the text that a drafter with a state
     * of its own had to read before it could draft, and how long that took. */
    int64_t bytes;
    int read;
    double read_s;
};

struct draft_text {
    struct sequence *target;            /* the target's KV cache: committed, at any time, all of the text but its last token */
    int tokens;                         /* the most it will have */
    struct sample_draw draw;            /* the target's, but for the position */
};

/* The methods of a drafter. All are called from the one thread that decodes, in this order for a text:
 *
 *     begin, commit(prompt)                                   before the target has read the prompt
 *     see                                                     each piece of the prompt, as it is read
 *     commit(the first token)
 *     each iteration:  propose or review, any number of times (decode/grow.c, as the policy asks)
 *                      ride, then rode after the forward      (decode/riders.c)
 *                      see                                    the verification, with the rows kept
 *                      commit(what was emitted)
 *
 * Those that return int return -1 with *err set on failure, which ends the run; otherwise 0, or what is said below. A method
 * that may be NULL says so; all others must be there. */
struct drafter_class {
    const char *name, *summary;
    const char *settings;               /* what may follow the colon: "n=N,min=N"; NULL: nothing */
    bool plans;                         /* follows setup.plan; else there must be none */
    bool draws;                         /* but under DRAFT_BEST children are drawn; else they are what they are, noise or not.
                                         * Follows setup.script */
    bool branches;                      /* can draw under DRAFT_BRANCHES, or says why not; others are refused */
    bool looks_up;                      /* its tokens come from text, at next to no cost; else from a model */
    bool own_trees;                     /* can give a leaf a tree of its own (DRAFT_OWN) */
    bool pends;                         /* appends nodes to draft_text.target: at most one for the root and each node of a tree,
                                         * or what there is room for */

    /* Called by drafter_open, before any text. Reads its settings from `spec`, which ends with the call, up to spec_end; sets
     * *out on success only, and in its struct drafter: features, riders, learns, detail. `setup` ends with the call, but what
     * it points to stays. */
    int (*open)(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err);

    /* Called by draft_grow, once a STEP_EXTEND, after commit. Gives each leaf up to leaf->siblings children, best first, and
     * goes on below each of these with one child a node down to `tokens` levels. DRAFT_OWN siblings: a tree as the drafter has
     * it, of as many levels at most. It may assume that leaves are nodes of the tree, or -1, each once; nodes may be another
     * drafter's. Returns the number of nodes added; fewer than asked for, or none, is no failure. */
    int (*propose)(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves, int tokens,
                   struct err *err);

    /* Called by draft_grow, once a STEP_REVIEW. Follows its own choice through the nodes below `leaf` (-1: the root), which it
     * reads in one forward: the child that carries its token is gone on to, what else is below the leaf is dropped, and where
     * there is none its token is added. Nodes that it kept carry its number as reviewer, its log-probability and, with
     * `proposals`, what it drew them from: they are drawn as if it had drafted them. *agreed: how many. Returns the nodes
     * added, 0 or 1. NULL: it cannot review. */
    int (*review)(struct drafter *drafter, struct draft_tree *tree, int leaf, int *agreed, struct err *err);

    /* Called when the draft is complete, before its verification: the rows that it adds to that, up to drafter->riders; *out's
     * arrays are its own and stay until rode. NULL: it never adds any. */
    int (*ride)(struct drafter *drafter, const struct draft_tree *tree, struct rider_rows *out, struct err *err);
    /* Called after the forward, before see and commit, if ride gave rows: their logits [rows][vocab], valid during the call. */
    int (*rode)(struct drafter *drafter, const float *logits, struct err *err);

    /* Called after each forward of the target, pieces of the prompt included, before the commit of the tokens that it emitted;
     * `view` ends with the call. NULL: it does not look. */
    int (*see)(struct drafter *drafter, const struct target_view *view, struct err *err);

    /* Called with the prompt, with the first token after it, and after each iteration with what was emitted: the text has grown
     * by these tokens; the last one is the root of the next draft. Also for iterations in which it was not asked. */
    int (*commit)(struct drafter *drafter, const int32_t *token, int count, struct err *err);

    /* Called before a text, which is still empty: forgets the one before. `text` ends with the call, what it points to stays
     * until the next begin. */
    int (*begin)(struct drafter *drafter, const struct draft_text *text, struct err *err);

    /* Called once a text by decode/device_loop.c: writes into the rules of a loop on a device (kernels/plain/loop.h) how it
     * drafts. False: a device cannot draft so, and the host does. NULL: never. */
    bool (*device)(const struct drafter *drafter, struct loop_rules *rules);

    /* Called by drafter_close with what open made, also amid a text. */
    void (*free)(struct drafter *drafter);
};

extern const struct drafter_class drafter_ngram, drafter_pld, drafter_suffix, drafter_lookahead, drafter_model, drafter_self,
                                  drafter_head, drafter_mtp;

/* All drafters, NULL after the last. `none` is not among them: it means that there is none. */
extern const struct drafter_class *const drafter_classes[];

/* Opens the drafter that `text` ("ngram:n=4") names; "none": *out is NULL. */
int drafter_open(struct drafter **out, const char *text, const struct drafter_setup *setup, struct err *err);
void drafter_close(struct drafter **drafter);

/* The class of the drafter that `text` names, known before it is opened; NULL: none, or drafter_open would refuse the name. */
const struct drafter_class *drafter_find(const char *text);

#endif
