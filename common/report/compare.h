/* Decides whether a new measurement is slower than an old one: two streams, paired by setting and prompt.
 *
 * Settings are paired by name; two streams with one setting each are paired whatever the names. The ratio of a pair is its
 * tokens/s now over before, on the common prompts (summary.h), with intervals (stats.h).
 *
 * DRIFT. Intervals over prompts cannot show what slowed down a whole run. But the settings of a run are interleaved. If both
 * streams contain a setting's reference (the same model and options, without drafts), the reference's own ratio measures the
 * drift of the machine, and the setting is judged BESIDE it: by its ratio divided by the reference's. How strongly the drift
 * affects another setting is not known exactly; between half and one and a half times the reference's drift is allowed for.
 *
 *   holds     the lower end of the 95 % interval, after that allowance, is not below 1 - limit
 *   slower    the upper end of the interval of all settings together is below 1 - limit, both after that allowance and as
 *             measured (that only the reference became faster slows nothing down). With n settings each interval has an
 *             error of 5 % / n, so that a suite of many settings has no more false alarms than one of few
 *   unclear   neither; or fewer than COMPARE_PROMPTS common prompts
 *
 * A setting without such a reference, and the reference itself, can hold, but is never slower: its loss may be the machine's
 * (interleaved.h is for that case). If the read bandwidth of memory changed by more than the limit and more than 2 %, a
 * setting holds only if this cannot be the reason. With another device, instruction set or number of threads there is no
 * verdict. Other differences (model, options, texts) are reported.
 *
 * The total verdict is slower if one setting is, holds if all do and both streams have the same settings, and unclear
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
    int base, now;                      /* indices in measurements.settings */
    size_t prompts;                     /* number of common prompts */
    size_t compared, identical;         /* samples of common prompts, and those whose token ids and text are unchanged */
    double base_tokens_per_s, tokens_per_s;
    struct stats_ratio ratio;           /* ratio with the 95 % interval */
    double high_together;               /* upper end of the interval that is valid for all settings together */
    int reference;                      /* number of the setting that serves as reference; -1: none */
    struct stats_ratio beside;          /* with a reference: the ratio divided by that of the reference; else equal to
                                         * `ratio` */
    double beside_high_together;
    double drift;                       /* with a reference: the reference's ratio on these prompts; else 1 */
    int verdict;                        /* enum compare_verdict */
};

struct comparison {
    double limit;
    struct compare_row *rows;           /* in the order of the first stream */
    size_t count, room;
    int alone;                          /* number of settings in only one of the streams */
    int first_alone;                    /* one of these settings, index in measurements.settings; -1: none */
    bool other_machine;                 /* device, instruction set or threads differ */
    double memory;                      /* read bandwidth now over before; NaN: not measured in both */
    bool machine_changed;               /* other_machine, or memory differs by more than the limit */
    int verdict;                        /* enum compare_verdict; with no row it is unclear */
};

/* Returns the verdict from an interval and the upper end of the interval for all settings together. */
enum compare_verdict compare_judge(const struct stats_ratio *ratio, double high_together, size_t prompts, double limit);

/* Compares the two streams in `all`, the base first; they must be arranged. 0 <= limit < 1. */
int comparison_make(struct comparison *out, const struct measurements *all, double limit, struct err *err);
void comparison_free(struct comparison *comparison);            /* *comparison is {0} afterwards */

/* Appends a table of the settings with the total verdict, or JSON lines. */
int comparison_text(struct text *out, const struct measurements *all, const struct comparison *comparison, struct err *err);
int comparison_json(struct text *out, const struct measurements *all, const struct comparison *comparison, struct err *err);

/* Returns 0 if all settings hold; otherwise sets err to the verdict: slower or unclear. */
int comparison_answer(const struct measurements *all, const struct comparison *comparison, struct err *err);

#endif
