/* Texts cut into windows of 1, 2, ... tokens, one after the other, each as a verification whose drafts are all right: by how
 * many of a window's tokens each expert is wanted (its activation frequency f), and what the window before says of that.
 *
 * Tokens are those that are part of the text, in its order; what is left at a text's end is no window. Sequences may
 * interleave. Memory: two bytes for each width, layer and expert of each text that is open, and 8 x (width + 1) for each
 * width, layer and expert. */
#ifndef MOE_ROUTE_WINDOWS_H
#define MOE_ROUTE_WINDOWS_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/route/put.h"
#include "common/stream/route.h"

enum { WINDOWS_MAX = 17 };

struct windows;

/* max: the widest, at most WINDOWS_MAX. */
int windows_open(struct windows **out, const struct stream_model *model, int max, struct err *err);
void windows_free(struct windows **windows);

/* Experts must be in range. A text ends with windows_end; what is still open is left out of its last windows. */
int windows_add(struct windows *windows, const struct route_tokens *record, struct err *err);
void windows_end(struct windows *windows, int64_t sequence);

int64_t windows_tokens(const struct windows *windows);
int windows_layers(const struct windows *windows);
int windows_experts(const struct windows *windows);
int windows_max(const struct windows *windows);

/* Of one layer and width; means are over experts, NaN where there is nothing to take them of. */
struct window_facts {
    int64_t windows, pairs;             /* pairs: of a window and the next one */
    double distinct;                    /* experts of a window */
    double entropy, entropy_binomial;   /* bits of f; and if tokens chose independently, each expert as often as here */
    double snr, snr_binomial;           /* mean f over its standard deviation, of experts of which f changes */
    double correlation;                 /* of f and the next window's, over all experts */
    double change;                      /* sum of |next f - f| over that of f: 0 nothing changes, 2 all does */
};
void windows_layer(const struct windows *windows, int layer, int width, struct window_facts *out);

/* "As often as in the window before" as an estimate of f, against a threshold: shares of all experts and pairs. */
struct window_faults {
    double wrong;                       /* the estimate is not f */
    double margin;                      /* mean of |f - threshold| */
    double within;                      /* wrong, and by no more than the margin */
    double faults;                      /* the decision is another */
    double contradicted;                /* within the margin, and a fault all the same */
};
void windows_faults(const struct windows *windows, int layer, int width, double threshold, struct window_faults *out);

/* f of the first text's first windows, as many as experts: [experts][experts], a row an expert; *count: how many there are.
 * Kept for widths 1 and max alone. */
const uint8_t *windows_map(const struct windows *windows, int layer, int width, int *count);

struct reuse_setup { double acceptance, draft_cost; };          /* draft_cost: a drafted token over a forward of one */

/* A `reuse` record a layer: MoE-SpAc eq. 13 to 18, for drafts of 1 to max - 1. */
int windows_put_reuse(const struct windows *windows, const struct reuse_setup *setup, record_put *put, void *context,
                      struct err *err);
/* A `signal` record a layer: eq. 19 to 22. Windows of one token are decided at 0.5, as the paper has it. */
int windows_put_signal(const struct windows *windows, double threshold, record_put *put, void *context, struct err *err);

#endif
