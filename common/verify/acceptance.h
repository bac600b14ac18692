/* Acceptance rules: how much of a draft is kept, and which token comes after it. One file a rule, one line in the table of
 * acceptance.c.
 *
 *     coupled     the target chooses as if it decoded alone; the draft is followed as far as it guessed that
 *     rejection   tokens are kept at random so that the text is distributed as the target's (kernels/plain/reject.h)
 *     typical     likely tokens are kept: faster, another text (kernels/plain/typical.h)
 *     jakiro-star    as the program of Jakiro* keeps them: another text (kernels/plain/branches.h)
 *
 * A rule looks at the draft, the target's logits and the settings of sampling, and at nothing else: the draw names the prompt
 * and the position, so the result is the same on any number of threads and in any order of prompts. At temperature 0 all
 * rules give the text of decoding without a draft.
 *
 * An acceptance holds scratch: one thread at a time. */
#ifndef MOE_VERIFY_ACCEPTANCE_H
#define MOE_VERIFY_ACCEPTANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cli/spec.h"
#include "kernels/plain/reject.h"

struct acceptance_setup {
    int vocab;
    int nodes;                          /* of the largest draft */
    struct sample_filter filter;        /* of the target's sampling; temperature 0: the best token */
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
    const char *settings;               /* what may follow the colon; NULL: nothing */
    bool same_text;                     /* byte for byte what decoding without a draft gives */
    bool same_distribution;             /* distributed as that is */
    bool wants_proposals;               /* reads draft->proposal; others take a draft without */
    bool wants_branches;                /* reads there what kernels/plain/branches.h writes down; a draft has nothing else */
    int (*open)(struct acceptance *acceptance, struct spec *spec, struct err *err);        /* NULL: no settings */
    /* As reject_walk: the number of accepted nodes, or -n when the logits for the n-th token after the root are bad. */
    int (*accept)(const struct acceptance *acceptance, const struct reject_draft *draft, const float *logits,
                  const struct sample_draw *draw, int32_t *path, int32_t *emitted);
};

extern const struct acceptance_class acceptance_coupled, acceptance_rejection, acceptance_typical,
                                     acceptance_jakiro_star;

/* All rules, NULL after the last; the first is the default. */
extern const struct acceptance_class *const acceptance_classes[];

/* Opens the rule that `text` ("typical:epsilon=0.09,delta=0.3") names; NULL: the default. */
int acceptance_open(struct acceptance **out, const char *text, const struct acceptance_setup *setup, struct err *err);
void acceptance_close(struct acceptance **acceptance);

/* logits [1 + draft->nodes][vocab]: row 0 is the root's, row i + 1 node i's. draw: the sampler's for this text, its position
 * that of the root; the first token emitted is the one at position + 1. Writes the accepted nodes to path[nodes], their
 * tokens and the one after them to emitted[nodes + 1]. Returns the number of accepted nodes (one less than of tokens
 * emitted), or -1 when logits on the way are not finite. */
int acceptance_accept(const struct acceptance *acceptance, const struct reject_draft *draft, const float *logits,
                      const struct sample_draw *draw, int32_t *path, int32_t *emitted, struct err *err);

#endif
