/* What guesses the tokens to come. One file a drafter, one line in the table of drafter.c.
 *
 * A drafter follows one text: reset, commit(the prompt), then in turn propose (any number of times) and commit(what was
 * emitted). It is asked to extend a draft tree below a leaf, and may add fewer nodes than it was asked for, or none.
 * Whatever it proposes, the text does not change: only how soon it is there. */
#ifndef MOE_DRAFT_DRAFTER_H
#define MOE_DRAFT_DRAFTER_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/cli/spec.h"
#include "common/draft/tree.h"

struct drafter_setup {
    int vocab;                  /* proposals are below */
    int positions;              /* longest text */
    int number;                 /* its place among the drafters in use: what it writes into tree->drafter */
};

struct drafter {                /* what all drafters begin with */
    const struct drafter_class *class;
    int number;
};

struct drafter_class {
    const char *name, *summary;
    const char *settings;               /* what may stand behind the colon: "n=N,min=N"; NULL: nothing */
    int (*open)(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err);
    /* Extends `tree` below `leaf` (-1: the root) by up to `tokens` levels, with up to `siblings` children a node. Returns
     * the number of nodes added, or -1 on failure. */
    int (*propose)(struct drafter *drafter, struct draft_tree *tree, int leaf, int tokens, int siblings, struct err *err);
    /* The text has grown by these tokens; the last one is the root of the next draft. */
    int (*commit)(struct drafter *drafter, const int32_t *token, int count, struct err *err);
    void (*reset)(struct drafter *drafter);             /* forgets the text */
    void (*free)(struct drafter *drafter);
};

extern const struct drafter_class drafter_ngram;

/* All drafters, NULL behind the last. `none` is not among them: it means that there is none. */
extern const struct drafter_class *const drafter_classes[];

/* Opens the drafter that `text` ("ngram:n=4") names; "none": *out is NULL. */
int drafter_open(struct drafter **out, const char *text, const struct drafter_setup *setup, struct err *err);
void drafter_close(struct drafter **drafter);

#endif
