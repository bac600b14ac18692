/* The tokens that a forward's logits choose: for loops that run on the device.
 *
 * The specification is sample_token of kernels/plain/sample.h. */
#ifndef MOE_KERNELS_CHOOSE_H
#define MOE_KERNELS_CHOOSE_H

#include "kernels/buffer.h"
#include "kernels/plain/sample.h"

enum { CHOOSE_VOCAB_MAX = 1 << 20 };

/* choice[r] = sample_token(logits[r], filter, {key, position[r], ordinal, sample}); -1 where logits are not finite.
 *
 * logits   [rows][vocab] f32;  position [rows] i32;  choice [rows] i32;  vocab at most CHOOSE_VOCAB_MAX
 *
 * A row's choice depends on that row alone. At temperature 0 it is the specification's. Above, exp and log are the device's
 * own, and the mass of top-p is added in steps of 2^-40 of the best token's: so that a token may be kept or not, or drawn or
 * not, whose distance to the limit or to the winner is of the order of 1e-12. */
struct choose_args {
    struct buffer logits, position, choice;
    struct sample_filter filter;
    uint64_t key;
    uint32_t ordinal, sample;
    int rows, vocab;
};

#endif
