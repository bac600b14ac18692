/* The shape of a draft: a chain, a tree of ranks from a file, or a tree that grows where its drafter is most certain. One
 * file a shape, one line in the table of shape.c. Pure, like the policy that asks it: it sees the tree and answers steps.
 *
 * A shape is asked level by level, so that a drafter can work on all leaves of a level at once. Nothing it keeps outlives an
 * iteration. */
#ifndef MOE_POLICY_SHAPE_H
#define MOE_POLICY_SHAPE_H

#include <stdbool.h>

#include "common/policy/policy.h"

enum { SHAPE_DEPTH_MAX = 64, SHAPE_NODES_MAX = 511, SHAPE_SIBLINGS_MAX = 64 };

struct shape_class;

struct shape {                          /* what all shapes begin with */
    const struct shape_class *class;
    int depth;                          /* levels, when no draft length is given */
    int nodes;                          /* of a draft when it is done, at most */
    int room;                           /* and in between: what a tree must hold */
    int added;                          /* in all, with those that are dropped again */
    bool trims;                         /* there are such: for what they are, so what is drafted cannot be drawn */
    int drafters;                       /* in use; of shape_next, which of them is asked, and since which step */
    int drafter, since;
};

struct shape_class {
    const char *name, *summary;
    const char *settings;               /* what must or may follow the colon; NULL: nothing */
    int (*open)(struct shape **out, struct spec *spec, struct err *err);
    struct step (*next)(struct shape *shape, const struct draft_view *view, int depth);    /* depth: levels, at most */
    void (*state)(const struct shape *shape, struct values *out);       /* NULL: the name says it all */
    void (*free)(struct shape *shape);
};

extern const struct shape_class shape_chain, shape_static, shape_dynamic, shape_own;

extern const struct shape_class *const shape_classes[];         /* all, NULL after the last; the first is the default */

/* Opens the shape that `text` ("dynamic:total=60") names; NULL: a chain. */
int shape_open(struct shape **out, const char *text, struct err *err);
void shape_close(struct shape **shape);

/* The shape's next step, by the first drafter that proposes anything: one that adds nothing to an empty draft hands it to the
 * one after it. */
struct step shape_next(struct shape *shape, const struct draft_view *view, int depth);

#endif
