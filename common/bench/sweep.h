/* Measures the cost of a forward of M tokens relative to one of one token, which decides whether drafts pay.
 *
 * After a prompt of random tokens, forwards of the row counts are interleaved, each with new random tokens, so that the
 * routes of one token say little about the next: independent routing, the worst case. The nodes of a forward are a chain or
 * a binary tree; the logits of all of them or of the last one are computed; then the nodes are dropped. */
#ifndef MOE_BENCH_SWEEP_H
#define MOE_BENCH_SWEEP_H

#include "common/base/text.h"
#include "common/bench/roofline.h"
#include "common/session/session.h"

enum { SWEEP_POINTS = 32 };

struct sweep_setup {
    const int *rows;                    /* [points] 1, then ascending, at most the rows of the session's engine */
    int points;
    int prefix;                         /* tokens of the prompt */
    int rounds_min;                     /* minimum forwards per row count; more are run until the time is used up */
    bool tree;                          /* the parent of node i is node (i - 1) / 2, not i - 1 */
    bool last_logits;                   /* compute only the logits of a forward's last token */
    double seconds;
    uint64_t seed;
};

/* Medians over rounds, except for `experts`, a mean; ratios are between two forwards of the same round. Times are in
 * seconds, bytes nominal. */
struct sweep_point {
    int rows;
    double seconds, low, high;          /* low, high: quartiles */
    double experts;                     /* distinct experts per MoE layer, NaN without experts */
    double bytes;
    double cost, bytes_ratio;           /* relative to one row */
    double excess;                      /* cost / bytes_ratio */
    double share;                       /* bytes / seconds / read bandwidth; NaN: not measured */
};

struct sweep {
    struct roofline machine;
    int rounds, points, prefix;
    bool tree;
    struct sweep_point point[SWEEP_POINTS];
};

/* Runs the sweep, and measures the read bandwidth before and after it. */
int sweep_run(struct sweep *out, const struct session *session, const struct sweep_setup *setup, struct err *err);

/* Append a table, or one JSON object that moe-bench replay reads as a cost table. label: remark on the model ("synthetic"),
 * or NULL. */
int sweep_text(struct text *out, const struct sweep *sweep, const char *label, struct err *err);
int sweep_json(struct text *out, const struct sweep *sweep, const char *label, struct err *err);

#endif
