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
 * drafter gives every token that it drew. At temperature 0 all are one. */
#ifndef MOE_DRAFT_DRAFTER_H
#define MOE_DRAFT_DRAFTER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cli/spec.h"
#include "common/draft/tree.h"
#include "kernels/plain/sample.h"

struct engine;
struct expert_plan;

enum draft_choice { DRAFT_COUPLED, DRAFT_BEST, DRAFT_DRAWN };

struct drafter_setup {
    int vocab;                          /* proposals are below */
    int positions;                      /* longest text */
    int number;                         /* its place among the drafters in use: what it writes into tree->drafter */
    const struct engine *target;        /* whose device a drafter with a model of its own shares; open as long as the drafter */
    const struct expert_plan *plan;     /* for forwards of the drafter's own; NULL: none */
    enum draft_choice choice;
    bool proposals;                     /* the distributions that children were drawn from are wanted */
    bool probabilities;                 /* are looked at; a drafter that can give them only with effort may leave them NaN */
    struct sample_filter filter;        /* the target's */
};

struct drafter {                        /* what all drafters begin with */
    const struct drafter_class *class;
    int number;
    /* Count up, and whoever looks sets them back: weights and KV read, nominal; tokens of the text that a drafter with a state
     * of its own had to read before it could draft, and how long that took. */
    int64_t bytes;
    int read;
    double read_s;
};

struct draft_text {
    int tokens;                         /* the most it will have */
    struct sample_draw draw;            /* the target's, but for the position */
};

struct drafter_class {
    const char *name, *summary;
    const char *settings;               /* what may stand behind the colon: "n=N,min=N"; NULL: nothing */
    bool plans;                         /* follows setup.plan; else there must be none */
    bool draws;                         /* but under DRAFT_BEST children are drawn; else they are what they are, noise or not */
    int (*open)(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err);
    /* Gives each leaf up to leaf->siblings children, best first, and goes on below each of these with one child a node down
     * to `tokens` levels. Returns the number of nodes added, or -1 on failure. */
    int (*propose)(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves, int tokens,
                   struct err *err);
    /* The text has grown by these tokens; the last one is the root of the next draft. */
    int (*commit)(struct drafter *drafter, const int32_t *token, int count, struct err *err);
    int (*begin)(struct drafter *drafter, const struct draft_text *text, struct err *err);     /* a new text, yet empty */
    void (*free)(struct drafter *drafter);
};

extern const struct drafter_class drafter_ngram, drafter_model;

/* All drafters, NULL behind the last. `none` is not among them: it means that there is none. */
extern const struct drafter_class *const drafter_classes[];

/* Opens the drafter that `text` ("ngram:n=4") names; "none": *out is NULL. */
int drafter_open(struct drafter **out, const char *text, const struct drafter_setup *setup, struct err *err);
void drafter_close(struct drafter **drafter);

/* Of drafter_ngram, the lengths of its n-grams, with which a device drafts as it does (kernels/plain/ngram.h); false for
 * others. */
bool drafter_ngram_sizes(const struct drafter *drafter, int *shortest, int *longest);

#endif
