/* A run whose routes, or whose text and drafts, are those of a recording: so that what a method costs on this engine can be
 * asked of a model whose weights say nothing (random ones, of a large shape) with the behaviour of one whose weights do.
 *
 * Recordings are decode streams with drafts (policy/recording.h). The text of a prompt is found by the prompt's tokens.
 *
 *   routes   after the prompt each token goes to the experts that the recorded model chose at that position of its answer: the
 *            root, the nodes of a draft and riders to those of the drafted tokens there, all alike by depth; weights are equal.
 *            The recorded model must have as many expert layers, experts and experts a token. After the recorded answer its
 *            positions begin again.
 *   accept   the answer is the recorded one, at its length; a draft is kept as far as it is a way through that text. Without
 *            a drafter drafts are the recorded ones, which cost nothing; none is longer than what is left of the answer.
 *            Drafters that look text up do so in that text. Each that has probabilities writes what the drafter of its number
 *            is recorded to have written (drafter.h, draft_script): below a way that its recorded draft has, that draft; after
 *            tokens that the text has, its draft at the position where they end; elsewhere, where no later token is accepted,
 *            what it drafted as many tokens on. It must have been asked there for as many children, so trees must be recorded
 *            for trees.
 *
 * All else is computed as in any other run, at its full cost. */
#ifndef MOE_DECODE_FORCED_H
#define MOE_DECODE_FORCED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/decode/watch.h"
#include "common/draft/drafters.h"
#include "common/model/hparams.h"

struct forced;

/* routes, accept: names of recordings, or NULL; drafts: the drafts of `accept` replace all drafters (forced_drafter). like: an
 * object opened with the same arguments and closed later, whose recordings are shared; NULL: reads the recordings. */
int forced_open(struct forced **out, const char *routes, const char *accept, bool drafts, const struct hparams *shape,
                const struct forced *like, struct err *err);
void forced_close(struct forced **forced);

/* The next text is the answer to this prompt. */
int forced_begin(struct forced *forced, const int32_t *prompt, int count, struct err *err);

/* Tokens of the recorded answer; -1: the text is not forced. */
int forced_tokens(const struct forced *forced);
const int32_t *forced_text(const struct forced *forced);

/* Accepts the draft's tokens that agree with the forced text, as coupled acceptance accepts those that agree with the
 * target's choices. at: number of tokens of the forced text that were emitted before. path, emitted and the result are those
 * of acceptance_accept. */
int forced_accept(const struct forced *forced, int at, const struct draft_tree *tree, int32_t *path, int32_t *emitted);

/* Puts the forced routes into each forward; NULL: routes are not forced. */
struct watch *forced_watch(struct forced *forced);

/* For drafters' setups; NULL: the text is not forced. Forced stays open longer. */
const struct draft_script *forced_script(const struct forced *forced);

/* Fails if the recordings have no answer to the prompt. */
int forced_find(const struct forced *forced, const int32_t *prompt, int count, struct err *err);

/* Fails unless the drafts that these drafters will make are recorded. chains: drafts will be chains. */
int forced_check(const struct forced *forced, const struct drafters *drafters, const struct drafter_setup *setup, bool chains,
                 struct err *err);

/* The recorded drafts as a drafter; forced stays open longer. */
int forced_drafter(struct forced *forced, struct drafter **out, struct err *err);

#endif
