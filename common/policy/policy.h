/* Decides how a draft grows. One file a policy, one line in the table of policy.c. No tensor, no clock: measurements in,
 * decisions out, so that a saved stream can be replayed through a policy without a model.
 *
 * What is drawn is verified: acceptance by rejection keeps the target's distribution only if whether a token is drafted was
 * settled before it was drawn. So a policy may look at all that it is shown, and at what it remembers, to decide what is
 * drawn next; but one that drops nodes says so (`drops`), and its drafts are then not drawn where that matters. A drawn node
 * that is dropped all the same is an error of the loop (decode/grow.h).
 *
 * next() is asked until it says stop: static K answers once, a cascade of drafters or a growing tree many times. observe()
 * gets what really happened; state() shows what the decisions of this iteration rested on, for the iteration's
 * record. Sources are named in each policy's file by paper section. */
#ifndef MOE_POLICY_POLICY_H
#define MOE_POLICY_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cli/spec.h"
#include "common/draft/share.h"
#include "common/draft/tree.h"
#include "common/stream/values.h"

struct loop_rules;
struct shape;

enum { DRAFT_LENGTH_AUTO = -1, DRAFT_LENGTH_NONE = -2 };       /* -K auto; not given */

struct policy_drafter {         /* what is known of a drafter beforehand */
    const char *name;           /* as it was asked for: "self:skip=0.6" */
    bool reviews;               /* STEP_REVIEW is possible */
    bool looks_up;              /* its tokens come from text, at next to no cost; else from a model */
};

struct policy_setup {
    int drafters;               /* in use; 0: there is nothing to draft with */
    const struct policy_drafter *drafter;       /* [drafters] best first; they stay as long as the policy */
    int draft_length;           /* -K: static's own, others' cap; or one of the above */
    int max_length;             /* the largest K */
    struct shape *shape;        /* of the draft (shape.h); stays open as long as the policy */
    bool sampled;               /* at a temperature above 0 */
    bool chains;                /* only those are recorded, or will be: no node may have two children */
    int experts, top_k;         /* of a layer, and of a token there; 0: the model has none */
};

struct policy_text {            /* what is about to be decoded; pointers hold during the call */
    int64_t sequence;           /* its number in the run */
    const char *task;           /* NULL: none is known */
    const int32_t *prompt;      /* [prompt_tokens] */
    int prompt_tokens;
};

struct draft_view {
    const struct draft_tree *tree;
    int steps;                  /* next() was asked so often in this iteration */
    int added;                  /* nodes that the step before has added; 0 at the first one */
    int agreed;                 /* nodes that it reviewed and kept; they and its own follow one another below its leaf */
    int room;                   /* tokens that could still be of use: a draft reaches no deeper */
};

/* EXTEND: a drafter adds to the tree. KEEP: nodes are dropped. REVIEW: a drafter reads all that is below one leaf, in one
 * forward, follows its own choice through it, drops what is not on that way and adds its own token at the end (CS-Drafting,
 * arXiv 2312.11462, the vertical cascade). What is left of a tree is numbered anew, as by KEEP. */
enum step_kind { STEP_STOP, STEP_EXTEND, STEP_KEEP, STEP_REVIEW };

/* Arrays are the policy's and stay until it is asked again. */
struct step {
    enum step_kind kind;
    int drafter, tokens;                /* EXTEND: see drafter.h; REVIEW: the drafter */
    int levels;                         /* EXTEND: that the draft gets from here on, with those of this step, be there room or
                                         * not; 0: not settled */
    const struct draft_leaf *leaf;      /* [leaves]; REVIEW: one */
    int leaves;
    const int32_t *keep;                /* KEEP: these nodes, ascending, with the parents of all; the others are dropped */
    int kept;
};

struct outcome {
    int drafted, accepted;      /* tokens verified; accepted leaves the bonus token out */
    int emitted;                /* with it, and after the cut at an end */
    const int32_t *token;       /* [emitted] */
    const int32_t *expert;      /* [emitted][moe_layers][top_k] of the root and the tokens kept, in layers with experts; -1:
                                 * dropped. NULL: there are none, or the draft was no chain and the
                                 * policy does not want them of trees (learns_experts) */
    int moe_layers, top_k;
    /* Seconds, measured by the loop: a millionth of what is in the iteration's record, so that replay has the same. */
    double draft_s, verify_s, iteration_s;
    int experts_loaded;         /* distinct (layer, expert) pairs */
    int64_t bytes;              /* weights and KV read by the target */
    int64_t draft_bytes;        /* and by drafters */
    const struct draft_tree *tree;              /* what was verified */
    const uint8_t *kept;                        /* [1 + tree->nodes] 1: the root, and nodes accepted */
    const struct draft_share *share;            /* [drafters] */
};

struct policy {                 /* what all policies begin with */
    const struct policy_class *class;
};

/* The methods of a policy. Decoding (decode/iteration.c, decode/grow.c) and replay (bench/replay.c) call them alike, from one
 * thread, in this order for a text:
 *
 *     begin                                        once
 *     each iteration:  next, until it says stop;  length and state, for the record;  observe
 *
 * None but open can fail. What a method is given ends with the call; what it returns stays until the policy is called again. */
struct policy_class {
    const char *name, *summary;
    const char *settings;               /* what may follow the colon: "K=N"; NULL: nothing */
    bool needs_probabilities;           /* its decisions read what drafters say of their tokens' probabilities */
    bool drops;                         /* drafted nodes again, for what they hold (STEP_KEEP) */
    bool trees;                         /* its drafts branch, whatever the shape */
    bool learns_experts;                /* it gets outcome.expert of trees, too */

    /* Called by policy_open, after the drafters were opened and before any text. Reads its settings from `spec` up to spec_end;
     * sets *out on success only. Returns 0, or -1 with *err set. `setup` ends with the call; its drafters and shape stay. */
    int (*open)(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err);

    /* Called before each text, before its prompt is read. What was learned from earlier texts may be kept. NULL: all texts
     * are the same to it. */
    void (*begin)(struct policy *policy, const struct policy_text *text);

    /* Called for each step of a draft, first with an empty tree, then with what the step before made of it. It may assume that
     * the step was carried out, though a drafter may have added fewer nodes than asked for (view->added). Returns the step;
     * after STEP_STOP it is not asked again in this iteration, nor after the largest number of steps (STEPS_MAX of
     * decode/grow.c). */
    struct step (*next)(struct policy *policy, const struct draft_view *view);

    /* Called after the last next of an iteration: the K in force, which the iteration's record has. */
    int (*length)(const struct policy *policy);

    /* Called after acceptance, once an iteration, with what really happened. NULL: it does not look. */
    void (*observe)(struct policy *policy, const struct outcome *outcome);

    /* Called between the last next and observe: adds what the decisions of this iteration rested on to `out`,
     * which may be nothing. */
    void (*state)(const struct policy *policy, struct values *out);

    /* Called between the last next and observe: writes to out[nodes] the acceptance probability of each node after its parent
     * that the decisions rested on; NaN: none. NULL: the policy estimates none. */
    void (*chances)(const struct policy *policy, int nodes, float *out);

    /* Returns the estimator that the policy has at present for the tokens of a drafter; NULL: none. NULL: it has none. */
    struct estimator *(*estimator)(struct policy *policy, int drafter);

    /* Called once a text by decode/device_loop.c: writes into the rules of a loop on a device (kernels/plain/loop.h) how it
     * decides. False: a device cannot decide so, and the host does. NULL: never. */
    bool (*device)(const struct policy *policy, struct loop_rules *rules);

    /* Called by policy_close with what open made. */
    void (*free)(struct policy *policy);
};

extern const struct policy_class policy_static, policy_cascade, policy_cascade_cost, policy_tiers, policy_table,
                                 policy_off, policy_oracle, policy_vertical, policy_horizontal, policy_cs_drafting,
                                 policy_tr, policy_dytc, policy_dytc_verify, policy_evict, policy_evict_experts,
                                 policy_bastion, policy_threshold;

extern const struct policy_class *const policy_classes[];       /* all, NULL after the last */

/* Opens the policy that `text` names, for a text that is yet empty; NULL: static, or cascade-cost for a draft length of
 * auto. */
int policy_open(struct policy **out, const char *text, const struct policy_setup *setup, struct err *err);
void policy_close(struct policy **policy);

/* The class of the policy that `text` names, known before it is opened, as drafters are opened first; NULL: policy_open would
 * refuse the name. */
const struct policy_class *policy_find(const char *text, int draft_length);

#endif
