/* Decides from rounds whether one program is slower than another: in each round both run the same suite one after the other,
 * in random order. Disturbances of a machine that does other work, too, last shorter or longer than a run; a comparison of
 * two streams (compare.h) detects only the shorter ones.
 *
 * BLOCKS. An iteration of a text does the same work in every round, so its minimum time over several rounds is the time with
 * the least disturbance. A block is as many rounds as give each iteration INTERLEAVED_RUNS runs (including repetitions of
 * the suite); its result for a setting is the ratio of the sums of these minima, before over now. A text that the two
 * programs divide into different iterations counts as a whole, with its minimum seconds per token.
 *
 * BOUNDS. If the programs are equally fast, exchanging them within a round changes nothing, so the sign of a block's
 * logarithm is a fair coin whatever the machine did: the bounds of signed_rank.h over blocks are then exact. If one is
 * slower, they are valid as far as it is slower by one factor, with and without load. The same is done over rounds for the
 * ratio of measured tokens/s, which includes all disturbances: an occasional loss does not show in the minima, but does
 * here.
 *
 * LOOKS. After INTERLEAVED_LOOK blocks, then whenever there are half as many again, and at the end, a setting
 *
 *   holds     if the lower bound of its ratio is at least 1 - limit
 *   is slower if an upper bound, of blocks or of measured ratios, is less than 1 - limit
 *
 * and this verdict is final. The bounds of look k fail with probability e / (k (k + 1)), which sums to e over all looks: e is
 * INTERLEAVED_HOLDS_ERROR of a lower bound and INTERLEAVED_SLOWER_ERROR of an upper one. The latter is also divided by the
 * number of settings, and the measured ratios have INTERLEAVED_MEASURED_SHARE of it: they have more samples than blocks do,
 * and one heavy load can shift many of them. So of 1000 comparisons in which no setting lost more than the limit at most 10
 * report one as slower, 1 of them from measured ratios alone, however often they look; and a setting that lost more is
 * reported to hold in at most 50. A wrong `slower` is rarer because it stops a correct change, while a test that is too
 * strict only takes more rounds. */
#ifndef MOE_REPORT_INTERLEAVED_H
#define MOE_REPORT_INTERLEAVED_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/report/measurements.h"
#include "common/report/signed_rank.h"

enum { INTERLEAVED_RUNS = 4, INTERLEAVED_LOOK = 8, INTERLEAVED_ROUNDS_MAX = SIGNED_RANK_MAX };

#define INTERLEAVED_HOLDS_ERROR 0.05
#define INTERLEAVED_SLOWER_ERROR 0.01
#define INTERLEAVED_MEASURED_SHARE 0.1

struct interleaved;

/* Opens a comparison. rounds: the maximum, at most INTERLEAVED_ROUNDS_MAX. repetitions: those of the suite. */
int interleaved_open(struct interleaved **out, double limit, int repetitions, int rounds, struct err *err);
void interleaved_close(struct interleaved **interleaved);

/* Adds a round: two arranged streams, first that of the program before. now_first: the other program ran first. */
int interleaved_add(struct interleaved *interleaved, const struct measurements *all, bool now_first, struct err *err);

/* Returns whether no further round is needed: all settings have a verdict, or one of them is slower. */
bool interleaved_decided(const struct interleaved *interleaved);

/* Appends a table of the settings with their verdicts, or JSON lines. */
int interleaved_text(struct text *out, const struct interleaved *interleaved, struct err *err);
int interleaved_json(struct text *out, const struct interleaved *interleaved, struct err *err);

/* Returns 0 if all settings hold; otherwise sets err to the verdict: slower or unclear, with the number of rounds needed. */
int interleaved_answer(const struct interleaved *interleaved, struct err *err);

#endif
