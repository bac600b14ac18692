/* Cuts texts into consecutive windows of 1, 2, ... tokens, each of which represents a verification with all drafted tokens
 * accepted. Computes for each expert the number of a window's tokens that select it (its activation frequency f), and how well
 * the previous window predicts f.
 *
 * Only tokens of the text count, in its order; an incomplete window at a text's end is dropped. Sequences may interleave.
 * Memory: two bytes for each width, layer and expert of each open text, and 8 x (width + 1) bytes for each width, layer and
 * expert. */
#ifndef MOE_ROUTE_WINDOWS_H
#define MOE_ROUTE_WINDOWS_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/route/put.h"
#include "common/stream/route.h"

enum { WINDOWS_MAX = 17 };

struct windows;

/* max: the largest width, at most WINDOWS_MAX. */
int windows_open(struct windows **out, const struct stream_model *model, int max, struct err *err);
void windows_free(struct windows **windows);

/* Adds a record, whose experts must be in range. windows_end ends a text; the incomplete windows of open texts do not count. */
int windows_add(struct windows *windows, const struct route_tokens *record, struct err *err);
void windows_end(struct windows *windows, int64_t sequence);

int64_t windows_tokens(const struct windows *windows);
int windows_layers(const struct windows *windows);
int windows_experts(const struct windows *windows);
int windows_max(const struct windows *windows);

/* The figures of one layer and width. Means are over experts, and NaN if no expert qualifies. */
struct window_facts {
    int64_t windows, pairs;             /* pairs: consecutive windows */
    double distinct;                    /* distinct experts per window */
    double entropy, entropy_binomial;   /* entropy of f in bits; the same for independent tokens */
    double snr, snr_binomial;           /* mean of f divided by its standard deviation, of experts whose f varies */
    double correlation;                 /* of f in a window and in the next one, over all experts */
    double change;                      /* sum of |next f - f| divided by the sum of f: 0 no change, 2 all experts change */
};
void windows_layer(const struct windows *windows, int layer, int width, struct window_facts *out);

/* Judges the previous window's f as the estimate of f, for decisions by a threshold. Shares of all experts and pairs of
 * windows. */
struct window_faults {
    double wrong;                       /* the estimate differs from f */
    double margin;                      /* mean of |f - threshold| */
    double within;                      /* the estimate is wrong by at most the margin */
    double faults;                      /* estimate and f lead to different decisions */
    double contradicted;                /* a fault although within the margin (contradicts eq. 22) */
};
void windows_faults(const struct windows *windows, int layer, int width, double threshold, struct window_faults *out);

/* Returns f of the first text's first windows, at most `experts` of them: [experts][experts], one row for each expert; *count:
 * the number of windows. Only widths 1 and max are kept. */
const uint8_t *windows_map(const struct windows *windows, int layer, int width, int *count);

struct reuse_setup { double acceptance, draft_cost; };          /* draft_cost: in forwards of one token */

/* Writes one `reuse` record a layer: MoE-SpAc eq. 13 to 18, for drafts of 1 to max - 1 tokens. */
int windows_put_reuse(const struct windows *windows, const struct reuse_setup *setup, record_put *put, void *context,
                      struct err *err);
/* Writes one `signal` record a layer: eq. 19 to 22. Windows of one token use the threshold 0.5, as in the paper. */
int windows_put_signal(const struct windows *windows, double threshold, record_put *put, void *context, struct err *err);

#endif
