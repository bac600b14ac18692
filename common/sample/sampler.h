/* Chooses tokens from the target's logits. The choice depends only on the logits, the settings, the prompt and the position.
 * The text of a seed is therefore the same with any drafter and draft length, and in any order of prompts.
 *
 * At temperature 0 the token with the highest logit is chosen, the lowest id among equals. Otherwise kernels/plain/sample.h
 * draws; its key is made from the seed and the XXH3 of the prompt's ids (i32, little-endian), and its counter holds token,
 * position, sample number and the number of equal prompts before. */
#ifndef MOE_SAMPLE_SAMPLER_H
#define MOE_SAMPLE_SAMPLER_H

#include <stdint.h>

#include "common/base/err.h"
#include "kernels/plain/sample.h"

struct sampler;

int sampler_open(struct sampler **out, const struct sample_filter *filter, uint64_t seed, int vocab, struct err *err);
void sampler_close(struct sampler **sampler);

/* Begins the texts of this prompt and counts its repetitions. sample: 0, 1, ... distinguishes samples of one prompt. */
int sampler_begin(struct sampler *sampler, const int32_t *prompt, int count, int sample, struct err *err);
/* Begins a text like sampler_begin, but the sampler `counts` counts the repetitions; its own text continues. */
int sampler_begin_by(struct sampler *sampler, struct sampler *counts, const int32_t *prompt, int count, int sample,
                     struct err *err);
/* Begins the text of a prompt that continues the last one, with the repetition and sample of the last one. */
void sampler_go_on(struct sampler *sampler, const int32_t *prompt, int count);
void sampler_forget(struct sampler *sampler);       /* resets the counts to those of an empty text */

/* Returns the key of this text's draws, without the position. */
const struct sample_draw *sampler_draw(const struct sampler *sampler);

/* Returns the token at `position` of the text (prompt included); -1 with err set if a logit is not finite. */
int32_t sampler_choose(struct sampler *sampler, const float *logits, int position, struct err *err);

#endif
