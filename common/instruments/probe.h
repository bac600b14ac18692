/* Records what drafts of every length would have done at every position of a text, as input for replay. This is possible
 * because with coupled acceptance the text does not depend on drafts.
 *
 * The probe runs when the text is complete, so it does not disturb decoding. At each position that could have been the root
 * of an iteration, a drafter like the decoder's own drafts, and the target verifies the root and the draft. Several drafters
 * are probed one after the other:
 *
 *   a chain    of 0, 1, ... tokens; each length is drafted and verified by itself. A drafter with a model of its own
 *              continues where a shorter draft ended, so its times and bytes are sums.
 *   a tree     as the shape in the settings grows it with all its levels, once. Nodes that the shape drops stay in the
 *              record, so that it contains every smaller tree of that shape. Drafting is timed by level. Forwards are timed
 *              for some sizes, over the first nodes, and interpolated linearly between them; experts and bytes are exact for
 *              each size. */
#ifndef MOE_INSTRUMENTS_PROBE_H
#define MOE_INSTRUMENTS_PROBE_H

#include "common/base/err.h"
#include "common/decode/decode.h"
#include "common/stream/decode.h"

enum { PROBE_LENGTH_DEFAULT = 8 };

struct probe;

/* Opens a probe. length: maximum length of chains. It is an error if the text depends on drafts. The decoder must have been
 * opened for drafts (want_drafts). */
int probe_open(struct probe **out, const struct decoder *decoder, const struct decoder_setup *setup, int length,
               struct err *err);
void probe_close(struct probe **probe);

/* Probes the text that a decoder completed last; passes each position to `put`, with sequence 0. A negative result of `put`
 * ends the probe. The decoder must be that of probe_open, or one with the same setup. */
typedef int probe_function(void *context, const struct decode_draft *draft, struct err *err);
int probe_run(struct probe *probe, struct decoder *decoder, const struct decode_prompt *prompt,
              const struct decode_result *result, probe_function *put, void *context, struct err *err);

#endif
