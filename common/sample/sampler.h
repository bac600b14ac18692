/* Chooses tokens from the target's logits. The choice depends on the logits, the settings, the prompt and the position, and
 * on nothing else: so text for a seed is the same whatever drafter or draft length, and in whatever order prompts come.
 *
 * At temperature 0 the best token is taken, the lowest id of equals; otherwise kernels/plain/sample.h draws, under a key made
 * from the seed and XXH3 of the prompt's ids (i32, little-endian), and a counter that holds token, position, sample number
 * and how many equal prompts came before. */
#ifndef MOE_SAMPLE_SAMPLER_H
#define MOE_SAMPLE_SAMPLER_H

#include <stdint.h>

#include "common/base/err.h"
#include "kernels/plain/sample.h"

struct sampling {
    double temperature;             /* 0: take the best */
    int top_k;                      /* 0: all */
    double top_p, min_p;            /* 1, 0: off */
    uint64_t seed;
};

struct sampler;

int sampler_open(struct sampler **out, const struct sampling *sampling, int vocab, struct err *err);
void sampler_close(struct sampler **sampler);

/* The texts to come belong to this prompt; counts how often it came. sample: 0, 1, ... tells samples of one prompt apart. */
int sampler_begin(struct sampler *sampler, const int32_t *prompt, int count, int sample, struct err *err);
void sampler_forget(struct sampler *sampler);       /* the counts of prompts begin anew */

/* What names the draws of this text, but for the position. */
const struct sample_draw *sampler_draw(const struct sampler *sampler);

/* The token at `position` of the text (prompt included); -1 with err set when the logits are not finite numbers. */
int32_t sampler_choose(struct sampler *sampler, const float *logits, int position, struct err *err);

#endif
