/* Selection of tokens from the logits of a forward, for loops that run on the device. sample_token of kernels/plain/sample.h is
 * the specification. */
#ifndef MOE_KERNELS_CHOOSE_H
#define MOE_KERNELS_CHOOSE_H

#include "kernels/buffer.h"
#include "kernels/plain/sample.h"

enum { CHOOSE_VOCAB_MAX = 1 << 20 };

/* choice[r] = sample_token(logits[r], filter, {key, position[r], ordinal, sample}); -1 if the logits are not finite.
 *
 * logits   [rows][vocab] f32;  position [rows] i32;  choice [rows] i32;  vocab at most CHOOSE_VOCAB_MAX
 *
 * A row's choice depends on that row only. At temperature 0 it equals the specification's. Above 0, the device uses its own exp
 * and log, and adds the mass of top-p in steps of 2^-40 of the best token's probability. So a decision may differ from the
 * specification's if the token is about 1e-12 away from the top-p limit or from the winner. */
struct choose_args {
    struct buffer logits, position, choice;
    struct sample_filter filter;
    uint64_t key;
    uint32_t ordinal, sample;
    int rows, vocab;
};

#endif
