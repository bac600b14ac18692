/* Acceptance rules: how much of a draft is accepted, and which token follows. One file per rule, one line in the table of
 * acceptance.c.
 *
 *     coupled     accepts the nodes that equal the tokens the target would choose without a draft
 *     rejection   accepts at random such that the text has the target's distribution (kernels/plain/reject.h)
 *     typical     accepts likely tokens; faster, but not lossless (kernels/plain/typical.h)
 *     jakiro-star    accepts as the program of Jakiro*; not lossless (kernels/plain/branches.h)
 *
 * A rule depends only on the draft, the target's logits and the sampling settings. The draw is keyed by prompt and position, so
 * the result is the same with any number of threads and in any order of prompts. At temperature 0 all rules give the text of
 * decoding without a draft.
 *
 * An acceptance owns scratch memory: one thread at a time. */
#ifndef MOE_VERIFY_ACCEPTANCE_H
#define MOE_VERIFY_ACCEPTANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cli/spec.h"
#include "kernels/plain/reject.h"

struct acceptance_setup {
    int vocab;
    int nodes;                          /* maximum nodes of a draft */
    struct sample_filter filter;        /* settings of the target's sampling; temperature 0: greedy */
};

struct acceptance {
    const struct acceptance_class *class;
    struct acceptance_setup setup;
    double epsilon, delta;              /* typical */
    int32_t *kept;                      /* scratch: [vocab] */
    double *probability;                /* [vocab] */
    double *score;                      /* [nodes] */
    int32_t *depth;                     /* [nodes] */
};

struct acceptance_class {
    const char *name, *summary;
    const char *settings;               /* settings allowed after the colon; NULL: none */
    bool same_text;                     /* output is byte-identical with and without drafts */
    bool same_distribution;             /* output has the target's distribution */
    bool wants_proposals;               /* requires draft->proposal; other rules do not */
    bool wants_branches;                /* requires a proposal in the form of kernels/plain/branches.h */
    int (*open)(struct acceptance *acceptance, struct spec *spec, struct err *err);        /* NULL: no settings */
    /* Applies the rule. Like reject_walk: returns the number of accepted nodes, or -n if a logit for token n after the root
     * is not finite. */
    int (*accept)(const struct acceptance *acceptance, const struct reject_draft *draft, const float *logits,
                  const struct sample_draw *draw, int32_t *path, int32_t *emitted);
    /* Applies the rule without logits: to the tokens that the target chooses, choice[1 + draft->nodes], -1 if logits are not
     * finite. NULL: the rule needs logits. */
    int (*follow)(const struct reject_draft *draft, const int32_t *choice, int32_t *path, int32_t *emitted);
};

extern const struct acceptance_class acceptance_coupled, acceptance_rejection, acceptance_typical,
                                     acceptance_jakiro_star;

/* All rules, ending with NULL; the first is the default. */
extern const struct acceptance_class *const acceptance_classes[];

/* Opens the rule named by `text` ("typical:epsilon=0.09,delta=0.3"); NULL: the default. */
int acceptance_open(struct acceptance **out, const char *text, const struct acceptance_setup *setup, struct err *err);
void acceptance_close(struct acceptance **acceptance);

/* logits [1 + draft->nodes][vocab]: row 0 is the root's, row i + 1 node i's. draw: the sampler's for this text, with the
 * position of the root; the first emitted token has position + 1. Writes the accepted nodes to path[nodes], their tokens and
 * the token after them to emitted[nodes + 1]. Returns the number of accepted nodes (one less than of emitted tokens), or -1
 * if logits on the path are not finite. */
int acceptance_accept(const struct acceptance *acceptance, const struct reject_draft *draft, const float *logits,
                      const struct sample_draw *draw, int32_t *path, int32_t *emitted, struct err *err);

/* Applies a rule with `follow` to chosen tokens; position: position of the root. */
int acceptance_follow(const struct acceptance *acceptance, const struct reject_draft *draft, const int32_t *choice,
                      int position, int32_t *path, int32_t *emitted, struct err *err);

#endif
