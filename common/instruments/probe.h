/* What drafts of every length would have done at every position of a text: the material for replay, which is possible because
 * under coupled acceptance the text does not depend on drafts.
 *
 * Runs when the text is complete, so that decoding is as it would be without. At each position that could have been the root of
 * an iteration another drafter like the decoder's own drafts, and the target reads the root and what was drafted; of several
 * drafters each does so by itself, in order:
 *
 *   a chain    of 0, 1, ... tokens, each length drafted and read by itself. A drafter with a model of its own goes on where a
 *              shorter draft ended: its times and bytes are sums.
 *   a tree     as the settings' shape grows it with all its levels, once. What the shape drops on the way stays in the record,
 *              so that every smaller tree of that shape is part of it. Times of drafting are those of levels; forwards are
 *              timed for some sizes, over the first so many nodes, and in between times lie on a line; experts and bytes are
 *              exact for each. */
#ifndef MOE_INSTRUMENTS_PROBE_H
#define MOE_INSTRUMENTS_PROBE_H

#include "common/base/err.h"
#include "common/decode/decode.h"
#include "common/stream/decode.h"

enum { PROBE_LENGTH_DEFAULT = 8 };

struct probe;

/* length: of the longest chains. Where the text depends on drafts that is an error. The decoder, which was opened for drafts
 * (want_drafts), stays open as long as the probe. */
int probe_open(struct probe **out, struct decoder *decoder, const struct decoder_setup *setup, int length, struct err *err);
void probe_close(struct probe **probe);

/* Looks at the text that the decoder has just made; put sees each position, with sequence 0. Less than 0 from put stops. */
typedef int probe_function(void *context, const struct decode_draft *draft, struct err *err);
int probe_run(struct probe *probe, const struct decode_prompt *prompt, const struct decode_result *result, probe_function *put,
              void *context, struct err *err);

#endif
