/* Watches: callbacks at fixed points of the decoding loop. They measure iterations, or change what a forward computes. Each
 * is one file; a decoder attaches those that its settings request, and the loop calls them in that order. A watch reads
 * those members of the iteration's record that are set by then, and sets its own.
 *
 * NULL functions are skipped; a failure ends the run. The code that opens a watch also closes it. */
#ifndef MOE_DECODE_WATCH_H
#define MOE_DECODE_WATCH_H

#include "common/base/err.h"
#include "common/decode/decode.h"
#include "common/engine/engine.h"

struct watch {                          /* the first member of every watch */
    const struct watch_class *class;
    bool reads_logits;                  /* reads logits of iterations; false: the device may choose tokens instead */
};

struct watch_class {
    /* Starts a text of at most `limit` tokens after its prompt. */
    int (*begin)(struct watch *watch, const struct decode_prompt *prompt, int limit, struct err *err);
    /* Starts an iteration; only its root is known. */
    int (*start)(struct watch *watch, int32_t root, struct err *err);
    /* Called before the forward that verifies a draft; may change the batch. The sequence may have pending nodes of drafters,
     * which must stay. */
    int (*before)(struct watch *watch, struct sequence *sequence, struct batch *batch, struct decode_iteration *iteration,
                  struct err *err);
    /* Called after acceptance, before tokens are emitted; path and accepted of the iteration are set. May replace the forward's
     * logits (sets *changed; valid until the end of the iteration): then tokens are chosen again, and it is called again if
     * the new path has further rows. Counts as other time of the iteration. */
    int (*check)(struct watch *watch, struct decode_iteration *iteration, struct forward *forward, bool *changed,
                 struct err *err);
    /* Called after tokens were emitted. `after` counts as time of the iteration; `after_untimed` does not. */
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
