/* Forces a run to use recorded routes, or recorded text and drafts. So the cost of a method on this engine can be measured
 * with a model whose weights mean nothing (random weights in a large shape) and the behaviour of a model whose weights do.
 *
 * Recordings are decode streams with drafts (policy/recording.h). The text of a prompt is found by the prompt's tokens.
 *
 *   routes   after the prompt, each token uses the experts that the recorded model chose at that position of its answer:
 *            the root, the nodes of a draft and riders use those of the drafted tokens recorded there, by depth alone;
 *            weights are equal. The recorded model must have the same number of expert layers, of experts, and of experts
 *            per token. After the end of the recorded answer its positions begin again.
 *   accept   the answer is the recorded one, of the same length; a draft is accepted as far as it is a path through it.
 *            Without a drafter the drafts are the recorded ones, which cost nothing, cut to what is left of the answer.
 *            Drafters that look up text search in that text. A drafter with probabilities writes what the drafter with
 *            the same number wrote in the recording (drafter.h, draft_script): below a path that its recorded draft
 *            contains, that draft; after tokens that equal the text, its draft at the position where they end; elsewhere,
 *            where no later token is accepted, its draft that many tokens later. The recording must have requested as many
 *            children there, so trees must be recorded for trees.
 *
 * Everything else is computed as in any other run, at its full cost. */
#ifndef MOE_DECODE_FORCED_H
#define MOE_DECODE_FORCED_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/decode/watch.h"
#include "common/draft/drafters.h"
#include "common/model/hparams.h"

struct forced;

/* Opens recordings. routes, accept: their names, or NULL. drafts: the drafts of `accept` replace all drafters
 * (forced_drafter). like: an object opened with the same arguments and closed later, whose recordings are shared; NULL: the
 * recordings are read. */
int forced_open(struct forced **out, const char *routes, const char *accept, bool drafts, const struct hparams *shape,
                const struct forced *like, struct err *err);
void forced_close(struct forced **forced);

/* Begins the answer to this prompt. */
int forced_begin(struct forced *forced, const int32_t *prompt, int count, struct err *err);

/* Returns the number of tokens of the recorded answer; -1: the text is not forced. forced_text returns these tokens. */
int forced_tokens(const struct forced *forced);
const int32_t *forced_text(const struct forced *forced);

/* Accepts the tokens of a draft that agree with the forced text, as coupled acceptance accepts tokens that agree with the
 * target's choices. at: number of tokens of the forced text that were emitted before. path, emitted and the result are as in
 * acceptance_accept. */
int forced_accept(const struct forced *forced, int at, const struct draft_tree *tree, int32_t *path, int32_t *emitted);

/* Returns the watch that puts the forced routes into each forward; NULL: routes are not forced. */
struct watch *forced_watch(struct forced *forced);

/* Returns the script for drafters' setups; NULL: the text is not forced. `forced` must outlive it. */
const struct draft_script *forced_script(const struct forced *forced);

/* Fails if the recordings have no answer to the prompt. */
int forced_find(const struct forced *forced, const int32_t *prompt, int count, struct err *err);

/* Fails unless the recordings contain the drafts that these drafters will make. chains: all drafts will be chains. */
int forced_check(const struct forced *forced, const struct drafters *drafters, const struct drafter_setup *setup, bool chains,
                 struct err *err);

/* Opens a drafter that returns the recorded drafts. `forced` must outlive it. */
int forced_drafter(struct forced *forced, struct drafter **out, struct err *err);

#endif
