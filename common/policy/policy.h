/* A policy decides how a draft grows. Each policy has its own file and a line in the table of policy.c. A policy uses neither
 * tensors nor a clock: it turns measurements into decisions, so that a saved stream can be replayed through it without a model.
 *
 * Every token drawn at random must be verified: acceptance by rejection preserves the target's distribution only if the
 * decision to draft a token was made before the token was drawn. A policy may use the whole view and its own state to decide
 * what is drawn next. A policy that drops nodes declares it (`drops`); under acceptance by rejection its drafts are then not
 * drawn at random. Dropping a drawn node is an error of the loop (decode/grow.h).
 *
 * The loop calls next() until it returns STEP_STOP: a static K takes one step, a cascade of drafters or a growing tree many.
 * observe() receives the outcome of the iteration; state() returns, for the iteration's record, the values on which the
 * decisions were based. Each policy's file names its source by paper section. */
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

enum { DRAFT_LENGTH_AUTO = -1, DRAFT_LENGTH_NONE = -2 };       /* DRAFT_LENGTH_AUTO: -K auto; DRAFT_LENGTH_NONE: not given */

struct policy_drafter {         /* properties of a drafter, known before decoding */
    const char *name;           /* as given by --draft: "self:skip=0.6" */
    bool reviews;               /* STEP_REVIEW is possible */
    bool looks_up;              /* the drafter looks tokens up in text, at almost no cost; else a model computes them */
};

struct policy_setup {
    int drafters;               /* number of drafters; 0: none */
    const struct policy_drafter *drafter;       /* [drafters] best first; must outlive the policy */
    int draft_length;           /* -K: the length of `static`, the maximum of others; or one of the above */
    int max_length;             /* the largest K */
    struct shape *shape;        /* shape of the draft (shape.h); must outlive the policy */
    bool sampled;               /* temperature above 0 */
    bool chains;                /* recordings contain chains only: no node may have two children */
    int experts, top_k;         /* experts of a layer; experts per token; 0: a dense model */
    /* A policy with the same settings for another text of the run; NULL: none. If it has learned estimates, the new policy
     * shares them, so that concurrent texts learn together. */
    const struct policy *like;
};

struct policy_text {            /* the text to be decoded; pointers are valid during the call */
    int64_t sequence;           /* number of the text in the run */
    const char *task;           /* NULL: unknown */
    const int32_t *prompt;      /* [prompt_tokens] */
    int prompt_tokens;
};

struct draft_view {
    const struct draft_tree *tree;
    int steps;                  /* earlier calls of next() in this iteration */
    int added;                  /* nodes added by the previous step; 0 at first */
    int agreed;                 /* nodes that the previous step, a review, kept: a chain below its leaf */
    int room;                   /* tokens left until the answer's limit: the maximum depth of a draft */
};

/* EXTEND: a drafter adds nodes. KEEP: all other nodes are dropped. REVIEW: in one forward a drafter reads all nodes below one
 * leaf, follows its own choices through them, drops the nodes off that path, and adds its own token at the end (the vertical
 * cascade of CS-Drafting, arXiv 2312.11462). KEEP and REVIEW renumber the remaining nodes. */
enum step_kind { STEP_STOP, STEP_EXTEND, STEP_KEEP, STEP_REVIEW };

/* The policy owns the arrays; they are valid until its next call. */
struct step {
    enum step_kind kind;
    int drafter, tokens;                /* EXTEND: see draft/drafter.h; REVIEW: the drafter */
    int levels;                         /* EXTEND: levels that the draft will still get, this step's included, if there is
                                         * room; 0: undecided */
    const struct draft_leaf *leaf;      /* [leaves]; REVIEW: one leaf */
    int leaves;
    const int32_t *keep;                /* KEEP: the nodes to keep, ascending, with all their ancestors */
    int kept;
};

struct outcome {
    int drafted, accepted;      /* tokens verified; tokens accepted, without the bonus token */
    int emitted;                /* tokens emitted: with the bonus token, cut at the answer's end */
    const int32_t *token;       /* [emitted] */
    const int32_t *expert;      /* [emitted][moe_layers][top_k] of the root and the accepted tokens, -1: dropped. NULL:
                                 * a dense model, or the draft was no chain and the policy does not
                                 * have learns_experts */
    int moe_layers, top_k;
    /* Seconds: exactly the microseconds of the iteration's record / 1e6, so that replay passes the same values. */
    double draft_s, verify_s, iteration_s;
    int experts_loaded;         /* distinct (layer, expert) pairs */
    int64_t bytes;              /* weights, keys and values read by the target */
    int64_t draft_bytes;        /* weights, keys and values read by drafters */
    /* A forward that texts share: their number, their rows, the seconds of the forward that are not in verify_s, the experts
     * loaded for all texts, and those of experts_loaded that no other text needed. shared_texts below 2: not shared. */
    int shared_texts, shared_rows, shared_experts, shared_only;
    double shared_s;
    const struct draft_tree *tree;              /* the verified draft */
    const uint8_t *kept;                        /* [1 + tree->nodes], root first; 1: the root, and accepted nodes */
    const struct draft_share *share;            /* [drafters] */
};

struct policy {                 /* the first member of every policy */
    const struct policy_class *class;
};

/* The methods of a policy. Decoding (decode/iteration.c, decode/grow.c) and replay (bench/replay.c) call them in the same way,
 * from one thread, and for each text in this order:
 *
 *     begin                                        once
 *     each iteration:  next, until it returns STEP_STOP;  length and state, for the record;  observe
 *
 * Only open can fail. Arguments are valid during the call; results are valid until the policy is called again. */
struct policy_class {
    const char *name, *summary;
    const char *settings;               /* settings allowed after the colon: "K=N"; NULL: none */
    bool needs_probabilities;           /* decisions use the drafters' probabilities of their tokens */
    bool drops;                         /* the policy drops drafted nodes depending on their tokens (STEP_KEEP) */
    bool trees;                         /* drafts may be trees, of any shape */
    bool learns_experts;                /* the policy receives outcome.expert for trees, too */

    /* Called by policy_open, after the drafters were opened and before any text. Reads its settings from `spec` up to spec_end;
     * sets *out on success only. Returns 0, or -1 with *err set. `setup` ends with the call; its drafters and shape stay. */
    int (*open)(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err);

    /* Called before each text, before its prompt is read. The policy may keep what it learned from earlier texts. NULL: nothing
     * to do. */
    void (*begin)(struct policy *policy, const struct policy_text *text);

    /* Returns the next step of a draft. Called first with an empty tree, then with the tree after each step. The previous step
     * has been carried out, but the drafter may have added fewer nodes than requested (view->added). Not called again in an
     * iteration after STEP_STOP, nor after DRAFT_STEPS_MAX steps (decode/grow.h). */
    struct step (*next)(struct policy *policy, const struct draft_view *view);

    /* Returns the K in force, for the iteration's record. Called after the last next of an iteration. */
    int (*length)(const struct policy *policy);

    /* Receives the outcome. Called once per iteration, after acceptance. NULL: the policy ignores outcomes. */
    void (*observe)(struct policy *policy, const struct outcome *outcome);

    /* Adds to `out` the values on which this iteration's decisions were based, if any. Called between the last next and
     * observe. */
    void (*state)(const struct policy *policy, struct values *out);

    /* Writes to out[nodes] each node's acceptance probability given its parent, as used by the decisions; NaN: none. Called
     * between the last next and observe. NULL: the policy estimates none. */
    void (*chances)(const struct policy *policy, int nodes, float *out);

    /* Returns the policy's present estimator for tokens of the drafter, or NULL. NULL method: the policy has no estimators. */
    struct estimator *(*estimator)(struct policy *policy, int drafter);

    /* Writes the policy's decision rule into the rules of a loop on a device (kernels/plain/loop.h). Called once per text by
     * decode/device_loop.c. Returns false if a device cannot apply the rule; the host then decides. NULL: always the host. */
    bool (*device)(const struct policy *policy, struct loop_rules *rules);

    /* Frees the policy. Called by policy_close. */
    void (*free)(struct policy *policy);
};

extern const struct policy_class policy_static, policy_cascade, policy_cascade_cost, policy_tiers, policy_table,
                                 policy_off, policy_oracle, policy_vertical, policy_horizontal, policy_cs_drafting,
                                 policy_tr, policy_dytc, policy_dytc_verify, policy_evict, policy_evict_experts,
                                 policy_bastion, policy_threshold;

extern const struct policy_class *const policy_classes[];       /* ends with NULL */

/* Opens the policy that `text` ("tiers:max=4") names. With text NULL opens static, or cascade-cost for a draft length of auto.
 * */
int policy_open(struct policy **out, const char *text, const struct policy_setup *setup, struct err *err);
void policy_close(struct policy **policy);

/* Returns the class of the policy that `text` names, for use before the drafters, and thus the policy, are open. Returns NULL
 * if policy_open would reject the name. */
const struct policy_class *policy_find(const char *text, int draft_length);

#endif
