/* Drafters propose the next tokens of a text. One file per drafter, one line in the table of drafter.c.
 *
 * A drafter follows one text: begin, commit(the prompt), then alternately propose (any number of times) and commit(the emitted
 * tokens). One call of propose extends a draft tree below several leaves, so that the drafter can process them together; it
 * may add fewer nodes than requested, or none. Under coupled acceptance a proposal never changes the text, only the speed.
 *
 * A drafter with probabilities picks the children of a node in one of four ways. DRAFT_BEST: the most likely tokens.
 * DRAFT_COUPLED: the tokens with the largest logit / T + g after the target's filter, where g is the noise that the target will
 * use at this position (kernels/plain/sample.h); a drafter with the target's logits then predicts all its choices. This draws
 * the children from the drafter's distribution without replacement. DRAFT_DRAWN: the same with fresh noise for each node of
 * each draft, which earlier decisions cannot depend on. With `proposals` the distribution is stored in tree->proposal, for
 * acceptance by rejection; the drafter must then add every token that it drew. DRAFT_BRANCHES: draws from both branches of a
 * head as Jakiro*'s program; tree->proposal is in the form of kernels/plain/branches.h. At temperature 0 all four are equal.
 *
 * Several drafters may be in use, each with a number. The tree records which drafter added a node (tree->drafter) and which one
 * reviewed it. A drafter extends nodes of other drafters like its own.
 *
 * A drafter that reads hidden states of the target names them in `features` and receives them in `observe`: for each piece of
 * the prompt, then for each verification with the kept rows. They stay on the device. A drafter may run parts of the target on
 * the target's own KV cache (draft_text.target): rows that it appends are pending and are dropped when the target verifies,
 * except after an early exit, whose rows the verification resumes (engine.h). */
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

/* Prescribes the tokens of a drafter with probabilities in place of its own choices, which it still computes. */
struct draft_script {
    /* Returns up to `count` children, best first, of the node reached from the root by `way` (`depth` tokens), with their
     * log-probabilities (NaN: unknown). The root is token `position` of the text. *ends: nothing follows below the first
     * child. The result is the number of children, or -1. */
    int (*children)(const struct draft_script *script, int drafter, int position, const int32_t *way, int depth, int count,
                    int32_t *token, float *log_probability, bool *ends, struct err *err);
};

struct drafter_setup {
    int vocab;                          /* proposed tokens are less than this */
    int positions;                      /* longest text */
    int number;                         /* number of the drafter among those in use, written to tree->drafter */
    struct engine *target;              /* the target; a drafter with a model of its own uses the target's device, others run
                                         * parts of the target. It must stay open as long as the drafter */
    const struct expert_plan *plan;     /* expert budget for the drafter's own forwards; NULL: none */
    enum draft_choice choice;
    bool proposals;                     /* store the distributions that children were drawn from */
    bool probabilities;                 /* record log-probabilities; a drafter that could compute them only at extra cost may
                                         * leave them NaN */
    struct sample_filter filter;        /* filter of the target */
    const struct draft_script *script;  /* for drafters that draw; NULL: they choose their own tokens. Must be NULL with
                                         * proposals */
};

/* A completed forward of the target. Valid during the call; all arrays except features are in host memory. */
struct target_view {
    const struct forward *forward;      /* with features; in a verification also with logits */
    const struct feature_request *features;     /* layers of forward->features, for all drafters, ascending */
    int position;                       /* position of row 0 */
    const int32_t *token;               /* [forward->rows] */
    const int32_t *kept;                /* [kept_rows] rows that are now part of the text, in order */
    int kept_rows;
    bool prompt;                        /* a piece of a prompt; all rows are kept */
};

/* Rows that a drafter adds to a verification for its own use (Lookahead's window). The forward computes them and returns their
 * logits; they are never accepted. */
struct rider_rows {
    int rows;
    const int32_t *token;               /* [rows] */
    const int32_t *parent;              /* [rows] 0: the root, 1 + i: node i, 1 + nodes + j: row j of this array, which must
                                         * be earlier */
};

struct drafter {                        /* base of all drafters */
    const struct drafter_class *class;
    int number;
    struct feature_request features;    /* set by open */
    int riders;                         /* maximum rows that the drafter adds to a verification, at most RIDERS_MAX; set by
                                         * open */
    bool learns;                        /* drafts depend on earlier drafts, not only on the text; set by open */
    const char *ends;                   /* the setting with which the last levels of a draft equal the same levels of a
                                         * longer draft; NULL: they are equal with any settings. Set by open */
    char detail[128];                   /* cost of opening the drafter, for -v; "": none. Set by open */
    /* Counters, reset by the caller that reads them: nominal bytes of weights and KV read; tokens of the text that a drafter
     * with a state of its own had to read before drafting, and the seconds this took. */
    int64_t bytes;
    int read;
    double read_s;
};

struct draft_text {
    struct sequence *target;            /* the target's KV cache, which always contains the text except its last token */
    int tokens;                         /* maximum length of the text */
    struct sample_draw draw;            /* draw of the target, without the position */
};

/* The methods of a drafter. All are called from the one thread that decodes, in this order for a text:
 *
 *     begin, commit(prompt)                                   before the target has read the prompt
 *     observe                                                 each piece of the prompt, as it is read
 *     commit(the first token)
 *     each iteration:  propose or review, any number of times (decode/grow.c, as the policy asks)
 *                      request_riders, then return_riders after the forward      (decode/riders.c)
 *                      observe                                the verification, with the rows kept
 *                      commit(what was emitted)
 *
 * Methods that return int return -1 with *err set on failure, which ends the run; otherwise 0, or the value stated below. A
 * method is required unless its comment says that it may be NULL. */
struct drafter_class {
    const char *name, *summary;
    const char *settings;               /* settings allowed after the colon: "n=N,min=N"; NULL: none */
    bool plans;                         /* supports setup.plan; otherwise it must be NULL */
    bool draws;                         /* children are drawn (except under DRAFT_BEST); else they do not depend on noise.
                                         * Follows setup.script */
    bool branches;                      /* supports DRAFT_BRANCHES, or open fails with the reason; others are refused */
    bool looks_up;                      /* tokens are copied from a text, at almost no cost; else a model computes them */
    bool own_trees;                     /* can give a leaf a tree of its own (DRAFT_OWN) */
    bool pends;                         /* appends nodes to draft_text.target: at most one for the root and each node of a
                                         * tree, limited by the capacity */

    /* Called by drafter_open, before any text. Reads its settings from `spec`, up to spec_end; sets *out on success
     * only, and in its struct drafter: features, riders, learns, detail. `spec` and `setup` are valid during the call; objects
     * that `setup` points to outlive the drafter. */
    int (*open)(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err);

    /* Called by draft_grow, once per STEP_EXTEND, after commit. Adds up to leaf->siblings children to each leaf, best first,
     * and continues below each child with one node per level down to `tokens` levels. DRAFT_OWN siblings: a tree of the
     * drafter's own shape with at most that many levels. Leaves are distinct nodes of the tree, or -1; nodes may belong to
     * other drafters. Returns the number of nodes added; fewer than requested, or none, is not a failure. */
    int (*propose)(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves, int tokens,
                   struct err *err);

    /* Called by draft_grow, once per STEP_REVIEW. Follows its own choices through the nodes below `leaf` (-1: the root),
     * which it reads in one forward: it steps to the child that carries its token, drops all other nodes below the leaf, and
     * adds its token where no child has it. Kept nodes get its number as reviewer, its log-probability and, with
     * `proposals`, the distribution it drew them from, as if it had drafted them. *agreed: number of kept nodes. Returns the
     * nodes added, 0 or 1. NULL: it cannot review. */
    int (*review)(struct drafter *drafter, struct draft_tree *tree, int leaf, int *agreed, struct err *err);

    /* Called when the draft is complete, before its verification. Sets *out to the rows that the drafter adds, at most
     * drafter->riders; the drafter owns the arrays, valid until return_riders. NULL: the drafter never adds rows. */
    int (*request_riders)(struct drafter *drafter, const struct draft_tree *tree, struct rider_rows *out, struct err *err);
    /* Called after the forward, before observe and commit, if request_riders added rows. Logits [rows][vocab] are valid during
     * the call. */
    int (*return_riders)(struct drafter *drafter, const float *logits, struct err *err);

    /* Called after each forward of the target, pieces of the prompt included, before the commit of the tokens that it
     * emitted; `view` is valid during the call. NULL: the drafter reads no states. */
    int (*observe)(struct drafter *drafter, const struct target_view *view, struct err *err);

    /* Called with the prompt, with the first token after it, and after each iteration with the emitted tokens: the text
     * grows by these tokens; the last one is the root of the next draft. Called also for iterations in which this drafter
     * drafted nothing. */
    int (*commit)(struct drafter *drafter, const int32_t *token, int count, struct err *err);

    /* Called before a text, which is still empty: discards the previous one. `text` is valid during the call; objects that it
     * points to are valid until the next begin. */
    int (*begin)(struct drafter *drafter, const struct draft_text *text, struct err *err);

    /* Called once per text by decode/device_loop.c: sets the drafting rule of a loop on a device (kernels/plain/loop.h).
     * Returns false if a device cannot draft this way; the host does then. NULL: never supported. */
    bool (*device)(const struct drafter *drafter, struct loop_rules *rules);

    /* Called by drafter_close to free the result of open, possibly within a text. */
    void (*free)(struct drafter *drafter);
};

extern const struct drafter_class drafter_ngram, drafter_pld, drafter_suffix, drafter_lookahead, drafter_model, drafter_self,
                                  drafter_head, drafter_mtp;

/* All drafters, ending with NULL. `none` is not one of them: it means no drafter. */
extern const struct drafter_class *const drafter_classes[];

/* Opens the drafter named by `text` ("ngram:n=4"); "none": *out is NULL. */
int drafter_open(struct drafter **out, const char *text, const struct drafter_setup *setup, struct err *err);
void drafter_close(struct drafter **drafter);

/* Returns the class of the drafter named by `text` without opening it; NULL if "none" or unknown. */
const struct drafter_class *drafter_find(const char *text);

#endif
