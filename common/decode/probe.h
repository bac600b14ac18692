/* What every draft length would have done at every place of a text: the material for replay, which is possible because under
 * coupled acceptance the text does not depend on drafts.
 *
 * Runs when the text is complete, so that decoding is as it would be without. At each place that could have been the root of
 * an iteration another drafter like the decoder's own proposes 0, 1, ... tokens, and the target reads the root and so many of
 * them; each is timed. A drafter with a model of its own goes on where a shorter draft ended: its times and bytes are sums. */
#ifndef MOE_DECODE_PROBE_H
#define MOE_DECODE_PROBE_H

#include "common/base/err.h"
#include "common/decode/decode.h"
#include "common/stream/decode.h"

enum { PROBE_LENGTH_DEFAULT = 8 };

struct probe;

/* length: of the longest drafts. Where the text depends on drafts, or a draft is not a chain, that is an error. The decoder
 * stays open as long as the probe. */
int probe_open(struct probe **out, struct decoder *decoder, const struct decoder_setup *setup, int length, struct err *err);
void probe_close(struct probe **probe);

/* Looks at the text that the decoder has just made; put sees each place, with sequence 0. Less than 0 from put stops. */
typedef int probe_function(void *context, const struct decode_draft *draft, struct err *err);
int probe_run(struct probe *probe, const struct decode_prompt *prompt, const struct decode_result *result, probe_function *put,
              void *context, struct err *err);

#endif
