/* What a forward of M tokens costs beside one of one token: what decides whether drafts pay.
 *
 * After a prompt of random tokens, forwards of each of the row counts take turns, each time with new random tokens, so that
 * where one token is routed says little about the next: the worst case, independent routing. A forward's nodes are a chain
 * whose logits are computed, all or the last one's; then it is dropped. */
#ifndef MOE_BENCH_SWEEP_H
#define MOE_BENCH_SWEEP_H

#include "common/base/text.h"
#include "common/bench/roofline.h"
#include "common/session/session.h"

enum { SWEEP_POINTS = 32 };

struct sweep_setup {
    const int *rows;                    /* [points] 1, then ascending, up to what the session's engine takes */
    int points;
    int prefix;                         /* tokens in front */
    int rounds_min;                     /* at least so many forwards of each, then more until the time is over */
    bool last_logits;                   /* compute those of a forward's last token alone */
    double seconds;
    uint64_t seed;
};

/* Medians over rounds, but for `experts`, a mean; ratios are of two forwards of one round. Times in seconds, bytes nominal. */
struct sweep_point {
    int rows;
    double seconds, low, high;          /* low, high: quartiles */
    double experts;                     /* distinct ones a layer with experts, NaN without any */
    double bytes;
    double cost, bytes_ratio;           /* over those of one row */
    double excess;                      /* cost / bytes_ratio */
    double share;                       /* bytes / seconds / read bandwidth; NaN: not measured */
};

struct sweep {
    struct roofline machine;
    int rounds, points, prefix;
    struct sweep_point point[SWEEP_POINTS];
};

int sweep_run(struct sweep *out, const struct session *session, const struct sweep_setup *setup, struct err *err);

/* A table; one JSON object with what moe-bench replay takes as a cost table. `label`: "synthetic" and the like, or NULL. */
int sweep_text(struct text *out, const struct sweep *sweep, const char *label, struct err *err);
int sweep_json(struct text *out, const struct sweep *sweep, const char *label, struct err *err);

#endif
