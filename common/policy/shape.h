/* The shape of a draft: a chain, a tree of ranks from a file, or a tree that grows at its most probable nodes. Each shape has
 * its own file and a line in the table of shape.c. Pure, like the policy that calls it: it receives the tree and returns steps.
 *
 * A shape grows level by level, so that a drafter can extend all leaves of a level in one forward. It keeps no state between
 * iterations. */
#ifndef MOE_POLICY_SHAPE_H
#define MOE_POLICY_SHAPE_H

#include <stdbool.h>

#include "common/policy/policy.h"

enum { SHAPE_DEPTH_MAX = 64, SHAPE_NODES_MAX = 511, SHAPE_SIBLINGS_MAX = 64 };

struct shape_class;

struct shape {                          /* the first member of every shape */
    const struct shape_class *class;
    int depth;                          /* levels, if no draft length is given */
    int nodes;                          /* max nodes of a finished draft */
    int room;                           /* max nodes while the draft grows: the required capacity of the tree */
    int added;                          /* max nodes added in all, dropped ones included */
    bool trims;                         /* the shape drops nodes depending on their tokens, so tokens cannot be drawn at
                                         * random */
    int drafters;                       /* number of drafters; the drafter that shape_next asks, and since which step */
    int drafter, since;
};

struct shape_class {
    const char *name, *summary;
    const char *settings;               /* settings after the colon; NULL: none */
    int (*open)(struct shape **out, struct spec *spec, struct err *err);
    struct step (*next)(struct shape *shape, const struct draft_view *view, int depth);    /* depth: max levels */
    void (*state)(const struct shape *shape, struct values *out);       /* NULL: no settings to record */
    void (*free)(struct shape *shape);
};

extern const struct shape_class shape_chain, shape_static, shape_dynamic, shape_own;

extern const struct shape_class *const shape_classes[];         /* ends with NULL; the first is the default */

/* Opens the shape that `text` ("dynamic:total=60") names; NULL: a chain. */
int shape_open(struct shape **out, const char *text, struct err *err);
void shape_close(struct shape **shape);

/* Returns the shape's next step, for the first drafter that proposes anything: if a drafter adds nothing to an empty draft, the
 * next drafter is tried. */
struct step shape_next(struct shape *shape, const struct draft_view *view, int depth);

#endif
