/* Is what was measured now slower than what was measured before? Two streams, paired by setting and prompt.
 *
 * Settings are paired by name; a stream with one setting each pairs with the other, whatever the names. Of a pair of settings
 * the ratio is tokens a second now over before, on the prompts they have in common (summary.h), with intervals (stats.h).
 *
 * DRIFT. Intervals over prompts cannot see what slowed down a whole run. But settings took turns in it, and where both streams
 * have a setting's reference (the same model and options, without drafts), the reference's own ratio is the drift of the
 * machine, and the setting is judged BESIDE it: by its ratio over that of the reference. How much another setting feels of what
 * the reference felt is not known exactly; half as much and half as much again are both allowed for.
 *
 *   holds     the lower end of the 95 % interval, after that allowance, is not below 1 - limit
 *   slower    the upper end of the interval of all settings together is below 1 - limit, after that allowance, and as measured:
 *             that the reference alone became faster slows nothing down. With n settings each interval has an error of 5 % / n,
 *             so that a suite of many does not cry wolf more often than one of few
 *   unclear   neither; or fewer than COMPARE_PROMPTS prompts in common
 *
 * A setting without such a reference, and the reference itself, can hold, but is never slower: its loss may be the machine's
 * (interleaved.h is for that). Where memory has another read bandwidth than before, by more than the limit and 2 %, it holds
 * only if that cannot be the reason. On another device, instruction set or number of threads nothing is judged. What else
 * differs, of model, options and texts, is said.
 *
 * Altogether it is slower when one setting is, holds when all do and both streams have the same settings, and is unclear
 * otherwise. */
#ifndef MOE_REPORT_COMPARE_H
#define MOE_REPORT_COMPARE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/report/measurements.h"
#include "common/report/stats.h"

enum { COMPARE_PROMPTS = 6 };

enum compare_verdict { COMPARE_HOLDS, COMPARE_SLOWER, COMPARE_UNCLEAR };

struct compare_row {
    int base, now;                      /* of measurements.settings */
    size_t prompts;                     /* in common */
    size_t compared, identical;         /* samples of these, and those whose token ids and text are as before */
    double base_tokens_per_s, tokens_per_s;
    struct stats_ratio ratio;           /* with the 95 % interval */
    double high_together;               /* upper end of the interval of all settings together */
    int reference;                      /* the base's, which it is judged beside; -1: by itself */
    struct stats_ratio beside;          /* with reference: the ratio over that of the reference; else as `ratio` */
    double beside_high_together;
    double drift;                       /* with reference: its ratio on these prompts; else 1 */
    int verdict;                        /* enum compare_verdict */
};

struct comparison {
    double limit;
    struct compare_row *rows;           /* in the order of the first stream */
    size_t count, room;
    int alone;                          /* settings that only one of the streams has */
    int first_alone;                    /* one of them, of measurements.settings; -1: none */
    bool other_machine;                 /* device, instruction set or threads differ */
    double memory;                      /* read bandwidth now over before; NaN: not measured in both */
    bool machine_changed;               /* other_machine, or memory differs by more than the limit */
    int verdict;                        /* enum compare_verdict; with no row it is unclear */
};

/* The verdict from an interval and its upper end among all settings together. */
enum compare_verdict compare_judge(const struct stats_ratio *ratio, double high_together, size_t prompts, double limit);

/* `all` holds two streams, the base first, arranged. 0 <= limit < 1. */
int comparison_make(struct comparison *out, const struct measurements *all, double limit, struct err *err);
void comparison_free(struct comparison *comparison);            /* and back to {0} */

int comparison_text(struct text *out, const struct measurements *all, const struct comparison *comparison, struct err *err);
int comparison_json(struct text *out, const struct measurements *all, const struct comparison *comparison, struct err *err);

/* 0 when it holds; otherwise err is set to the answer: no, or that there is none. */
int comparison_answer(const struct measurements *all, const struct comparison *comparison, struct err *err);

#endif
