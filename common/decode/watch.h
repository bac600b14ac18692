/* Watches: callbacks at fixed points of the decoding loop. They measure iterations, or change what a forward computes. One
 * file each; a decoder attaches those that its settings request, and the loop calls them in that order. A watch reads the
 * iteration's record as far as it is filled by then, and adds its own fields.
 *
 * Functions that are NULL are left out; a failure ends the run. Watches belong to whoever opened them. */
#ifndef MOE_DECODE_WATCH_H
#define MOE_DECODE_WATCH_H

#include "common/base/err.h"
#include "common/decode/decode.h"
#include "common/engine/engine.h"

struct watch {                          /* what all watches begin with */
    const struct watch_class *class;
};

struct watch_class {
    /* A new text; it gets at most `limit` tokens after its prompt. */
    int (*begin)(struct watch *watch, const struct decode_prompt *prompt, int limit, struct err *err);
    /* An iteration begins, of which nothing is known but its root. */
    int (*start)(struct watch *watch, int32_t root, struct err *err);
    /* A draft is to be verified: `batch` is what the forward will be, and may be changed. The sequence may have pending
     * nodes of drafters, and keeps them. */
    int (*before)(struct watch *watch, struct sequence *sequence, struct batch *batch, struct decode_iteration *iteration,
                  struct err *err);
    /* Tokens were chosen, as far as path and accepted of the iteration say, and none is emitted yet. May put other logits into
     * the forward's place (*changed; valid until the iteration is over): then tokens are chosen anew, and it is called again if
     * that leads to rows that it has not seen. Part of the iteration's other time. */
    int (*check)(struct watch *watch, struct decode_iteration *iteration, struct forward *forward, bool *changed,
                 struct err *err);
    /* Tokens were emitted. `after` is part of the iteration's time; for `after_untimed` the clock is stopped. */
    int (*after)(struct watch *watch, struct decode_iteration *iteration, struct err *err);
    int (*after_untimed)(struct watch *watch, struct decode_iteration *iteration, struct err *err);
};

enum { WATCHES_MAX = 6 };

struct watches {
    struct watch *item[WATCHES_MAX];
    int count;
};

static inline void watches_add(struct watches *all, struct watch *watch)
{
    all->item[all->count++] = watch;
}

#endif
