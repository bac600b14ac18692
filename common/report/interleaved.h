/* Is one program slower than another? Decided from rounds: in each, both run the same suite one after the other, in an order
 * drawn by a fair coin. What disturbs a machine that does other things, too, lasts shorter or longer than a run; a comparison
 * of two streams (compare.h) sees only the first of these.
 *
 * BLOCKS. An iteration of a text does the same work in every round, so its least time in several rounds is the time that the
 * machine disturbed least. A block is as many rounds as give each iteration INTERLEAVED_RUNS runs (repetitions of the suite
 * count), and what it says of a setting is the sum of these least times, before over now. A text that is not cut into the same
 * iterations by both programs counts as a whole: its least seconds a token.
 *
 * BOUNDS. If the programs are equally fast, exchanging them in a round changes nothing, so the sign of a block's logarithm is
 * that of a fair coin, whatever the machine did: the bounds of signed_rank.h over blocks then hold exactly. If one is slower
 * they hold as far as it is so by one factor, under load as without. The same is done over rounds of the ratio of tokens a
 * second as measured, in which all disturbances are: a loss that strikes now and then escapes the least times, not this.
 *
 * LOOKS. After INTERLEAVED_LOOK blocks, and whenever there are half as many again, and at the end, a setting
 *
 *   holds     when the bound below its ratio is at least 1 - limit
 *   is slower when a bound above it, of blocks or as measured, is less than 1 - limit
 *
 * and the verdict remains. The bounds of look k miss with probability INTERLEAVED_ERROR / (k (k + 1)), which sums to
 * INTERLEAVED_ERROR over all looks, and that of `slower` is divided by the number of settings and by the two ratios. So of 100
 * comparisons in which no setting lost more than the limit at most 5 say that one did, however often they look; and a setting
 * that lost more is said to hold in at most 5. */
#ifndef MOE_REPORT_INTERLEAVED_H
#define MOE_REPORT_INTERLEAVED_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/report/measurements.h"
#include "common/report/signed_rank.h"

enum { INTERLEAVED_RUNS = 4, INTERLEAVED_LOOK = 8, INTERLEAVED_ROUNDS_MAX = SIGNED_RANK_MAX };

#define INTERLEAVED_ERROR 0.05

struct interleaved;

/* rounds: how many there will be at most; INTERLEAVED_ROUNDS_MAX at most. repetitions: those of the suite. */
int interleaved_open(struct interleaved **out, double limit, int repetitions, int rounds, struct err *err);
void interleaved_close(struct interleaved **interleaved);

/* Adds a round: two streams, that of the program before first, arranged. now_first: the other one ran first. */
int interleaved_add(struct interleaved *interleaved, const struct measurements *all, bool now_first, struct err *err);

/* All settings have a verdict, or one of them is slower: no further round is wanted. */
bool interleaved_decided(const struct interleaved *interleaved);

int interleaved_text(struct text *out, const struct interleaved *interleaved, struct err *err);
int interleaved_json(struct text *out, const struct interleaved *interleaved, struct err *err);

/* 0 when all settings hold; otherwise err is set to the answer: no, or that there is none, with the rounds that it takes. */
int interleaved_answer(const struct interleaved *interleaved, struct err *err);

#endif
