#include "common/report/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/numeral.h"
#include "common/report/summary.h"
#include "common/report/table.h"

static const char *const verdicts[] = {"holds", "slower", "unclear"};

enum compare_verdict compare_judge(const struct stats_ratio *ratio, double high_together, size_t prompts, double limit)
{
    if (prompts < COMPARE_PROMPTS)
        return COMPARE_UNCLEAR;
    if (ratio->low >= 1 - limit)
        return COMPARE_HOLDS;
    return high_together < 1 - limit ? COMPARE_SLOWER : COMPARE_UNCLEAR;
}

static int settings_of(const struct measurements *all, int stream)
{
    int count = 0;
    for (size_t i = 0; i < all->setting_count; i++)
        count += all->settings[i].stream == stream;
    return count;
}

/* Returns the other stream's setting that corresponds to this one; -1: none. */
static int partner_of(const struct measurements *all, size_t setting)
{
    const struct measured_setting *mine = &all->settings[setting];
    bool lone = settings_of(all, 0) == 1 && settings_of(all, 1) == 1;
    for (size_t i = 0; i < all->setting_count; i++)
        if (all->settings[i].stream != mine->stream && (lone || !strcmp(all->settings[i].name, mine->name)))
            return (int)i;
    return -1;
}

static int pair_settings(struct comparison *out, const struct measurements *all, struct err *err)
{
    for (size_t i = 0; i < all->setting_count; i++) {
        int partner = partner_of(all, i);
        if (partner < 0 && !out->alone++)
            out->first_alone = (int)i;
        if (partner < 0 || all->settings[i].stream == 1)
            continue;
        if (mem_grow(&out->rows, &out->room, out->count + 1, sizeof *out->rows, err))
            return -1;
        out->rows[out->count++] = (struct compare_row){.base = (int)i, .now = partner};
    }
    return 0;
}

static double highest_bandwidth(const struct measured_stream *stream)
{
    return fmax(stream->read_bandwidth[0], stream->read_bandwidth[1]);      /* fmax of a number and NaN is the number */
}

static bool memory_changed(const struct comparison *comparison)
{
    return fabs(comparison->memory - 1) > fmax(comparison->limit, 0.02);        /* false if NaN */
}

static void compare_machines(struct comparison *out, const struct measurements *all)
{
    const struct measured_stream *base = &all->streams[0], *now = &all->streams[1];
    out->other_machine = base->device && now->device && (strcmp(base->device, now->device) || strcmp(base->isa, now->isa) ||
                                                         base->threads != now->threads);
    out->memory = highest_bandwidth(now) / highest_bandwidth(base);
    out->machine_changed = out->other_machine || memory_changed(out);
}

/* Judges a row by itself: a loss may be the machine's; and if memory is faster now, a gain may hide a loss. */
static enum compare_verdict judge_alone(const struct comparison *comparison, const struct compare_row *row)
{
    double limit = comparison->limit, gained = memory_changed(comparison) ? fmax(1, comparison->memory) : 1;
    bool holds = compare_judge(&row->ratio, row->high_together, row->prompts, limit) == COMPARE_HOLDS &&
                 row->ratio.low >= (1 - limit) * gained;
    return holds ? COMPARE_HOLDS : COMPARE_UNCLEAR;
}

/* Judges a row beside its reference, allowing that the setting felt only half of the reference's drift, or one and a half
 * times of it. */
static enum compare_verdict judge_beside(const struct comparison *comparison, const struct compare_row *row)
{
    double felt = fabs(log(row->drift)) / 2, high = row->beside_high_together * exp(felt);
    const struct stats_ratio allowed = {row->beside.ratio, row->beside.low * exp(-felt), row->beside.high * exp(felt)};
    return compare_judge(&allowed, fmax(high, row->high_together), row->prompts, comparison->limit);
}

/* Returns the base's reference, if the partner's reference corresponds to it and ran the same model with the same options;
 * -1: none. */
static int reference_of(const struct measurements *all, const struct compare_row *row)
{
    int base = all->settings[row->base].reference, now = all->settings[row->now].reference;
    if (base < 0 || now < 0 || base == row->base || now == row->now)
        return -1;
    const struct measured_setting *before = &all->settings[base], *after = &all->settings[now];
    bool same = before->stream == 0 && after->stream == 1 && !strcmp(before->name, after->name) &&
                !strcmp(before->options, after->options) && !strcmp(before->index_sha256, after->index_sha256);
    return same ? base : -1;
}

struct pairs {
    struct stats_pair *pair;
    int *prompt;
    size_t count;
};

static int pairs_open(struct pairs *pairs, int prompts, struct err *err)
{
    return (pairs->pair = mem_alloc((size_t)prompts, sizeof *pairs->pair, err)) &&
           (pairs->prompt = mem_alloc((size_t)prompts, sizeof *pairs->prompt, err)) ? 0 : -1;
}

static void pairs_free(struct pairs *pairs)
{
    mem_free(&pairs->pair);
    mem_free(&pairs->prompt);
}

/* Reduces both lists to their common prompts. */
static void keep_common(struct pairs *a, struct pairs *b)
{
    size_t i = 0, k = 0, count = 0;
    while (i < a->count && k < b->count) {
        if (a->prompt[i] == b->prompt[k]) {
            a->pair[count] = a->pair[i];
            b->pair[count++] = b->pair[k];
        }
        bool ahead = a->prompt[i] > b->prompt[k], same = a->prompt[i] == b->prompt[k];
        i += same || !ahead;
        k += same || ahead;
    }
    a->count = b->count = count;
}

static int both_intervals(const struct pairs *pairs, const struct stats_pair *beside, size_t together,
                          struct stats_ratio *ratio, double *high_together, struct err *err)
{
    struct stats_ratio wide;
    if (stats_ratio_beside(pairs->pair, beside, pairs->count, 0.05, ratio, err) ||
        stats_ratio_beside(pairs->pair, beside, pairs->count, 0.05 / (double)together, &wide, err))
        return -1;
    *high_together = wide.high;
    return 0;
}

static struct stats_pair sum_of(const struct pairs *pairs)
{
    struct stats_pair sum = {0};
    for (size_t i = 0; i < pairs->count; i++) {
        sum.tokens += pairs->pair[i].tokens;
        sum.seconds += pairs->pair[i].seconds;
        sum.base_tokens += pairs->pair[i].base_tokens;
        sum.base_seconds += pairs->pair[i].base_seconds;
    }
    return sum;
}

static int judge_against_reference(struct compare_row *row, const struct comparison *comparison, const struct measurements *all,
                                   struct pairs *pairs, struct pairs *beside, struct err *err)
{
    int now = all->settings[row->now].reference;
    if (summary_pairs(all, now, row->reference, beside->pair, beside->prompt, &beside->count, err))
        return -1;
    keep_common(pairs, beside);
    struct stats_pair sum = sum_of(beside);
    row->drift = sum.tokens / sum.seconds / (sum.base_tokens / sum.base_seconds);
    return both_intervals(pairs, beside->pair, comparison->count, &row->beside, &row->beside_high_together, err);
}

static int fill_row(struct compare_row *row, const struct comparison *comparison, const struct measurements *all,
                    struct pairs *pairs, struct pairs *beside, struct err *err)
{
    if (summary_pairs(all, row->now, row->base, pairs->pair, pairs->prompt, &pairs->count, err))
        return -1;
    row->reference = reference_of(all, row);
    row->drift = 1;
    if (row->reference >= 0 && judge_against_reference(row, comparison, all, pairs, beside, err))
        return -1;
    row->prompts = pairs->count;
    struct stats_pair sum = sum_of(pairs);
    row->tokens_per_s = row->prompts ? sum.tokens / sum.seconds : NAN;
    row->base_tokens_per_s = row->prompts ? sum.base_tokens / sum.base_seconds : NAN;
    if (both_intervals(pairs, NULL, comparison->count, &row->ratio, &row->high_together, err))
        return -1;
    if (row->reference < 0) {
        row->beside = row->ratio;
        row->beside_high_together = row->high_together;
    }
    summary_outputs(all, row->now, row->base, &row->compared, &row->identical);
    row->verdict = comparison->other_machine ? COMPARE_UNCLEAR
                 : row->reference >= 0 ? judge_beside(comparison, row) : judge_alone(comparison, row);
    return 0;
}

int comparison_make(struct comparison *out, const struct measurements *all, double limit, struct err *err)
{
    struct comparison made = {.limit = limit, .verdict = COMPARE_UNCLEAR, .first_alone = -1};
    struct pairs pairs = {0}, beside = {0};
    size_t holds = 0;
    int rc = -1;
    if (all->stream_count != 2)
        return err_set(err, ERR_INPUT, "%zu streams are given, but two are compared; give the earlier measurement and the "
                       "later one",
                       all->stream_count);
    if (pair_settings(&made, all, err) || pairs_open(&pairs, all->prompts, err) || pairs_open(&beside, all->prompts, err))
        goto done;
    compare_machines(&made, all);
    for (size_t i = 0; i < made.count; i++) {
        if (fill_row(&made.rows[i], &made, all, &pairs, &beside, err))
            goto done;
        holds += made.rows[i].verdict == COMPARE_HOLDS;
        if (made.rows[i].verdict == COMPARE_SLOWER)
            made.verdict = COMPARE_SLOWER;
    }
    if (made.count && holds == made.count && !made.alone)
        made.verdict = COMPARE_HOLDS;
    *out = made;
    made = (struct comparison){0};
    rc = 0;
done:
    pairs_free(&pairs);
    pairs_free(&beside);
    comparison_free(&made);
    return rc;
}

void comparison_free(struct comparison *comparison)
{
    mem_free(&comparison->rows);
    *comparison = (struct comparison){0};
}

static int row_cells(struct table *table, const struct measurements *all, const struct compare_row *row, struct err *err)
{
    if (table_cell(table, err, "%s", all->settings[row->base].name) || table_cell(table, err, "%zu", row->prompts) ||
        table_number(table, row->base_tokens_per_s, 1, err) || table_number(table, row->tokens_per_s, 1, err) ||
        table_number(table, row->ratio.ratio, 3, err) ||
        table_number(table, row->reference >= 0 ? row->beside.ratio : NAN, 3, err))
        return -1;
    if (isnan(row->beside.low) ? table_cell(table, err, "%s", "")
                               : table_cell(table, err, "%.3f-%.3f", row->beside.low, row->beside.high))
        return -1;
    return table_cell(table, err, "%s", verdicts[row->verdict]);
}

static int put_row_differences(struct text *out, const struct measurements *all, const struct compare_row *row,
                               struct err *err)
{
    const struct measured_setting *base = &all->settings[row->base], *now = &all->settings[row->now];
    if (strcmp(base->options, now->options) &&
        text_printf(out, err, "%s: the options differ: %s before, %s now\n", base->name, base->options, now->options))
        return -1;
    if (*base->index_sha256 && *now->index_sha256 && strcmp(base->index_sha256, now->index_sha256) &&
        text_printf(out, err, "%s: the model files differ: %s (%.12s) before, %s (%.12s) now\n", base->name, base->model,
                    base->index_sha256, now->model, now->index_sha256))
        return -1;
    return row->identical < row->compared ? text_printf(out, err, "%s: %zu of %zu texts differ\n", base->name,
                                                        row->compared - row->identical, row->compared) : 0;
}

/* Lists the differences that make the two streams hard to compare. */
static int put_differences(struct text *out, const struct measurements *all, const struct comparison *comparison,
                           struct err *err)
{
    const struct measured_stream *base = &all->streams[0], *now = &all->streams[1];
    if (comparison->other_machine &&
        text_printf(out, err, "the machines differ: %s %s with %d thread%s before, %s %s with %d now\n", base->device,
                    base->isa, base->threads, numeral_plural(base->threads), now->device, now->isa, now->threads))
        return -1;
    if (memory_changed(comparison) &&
        text_printf(out, err, "memory read %.1f GB/s before and %.1f now: the machine itself has changed\n",
                    1e-9 * highest_bandwidth(base), 1e-9 * highest_bandwidth(now)))
        return -1;
    for (size_t i = 0; i < comparison->count; i++)
        if (put_row_differences(out, all, &comparison->rows[i], err))
            return -1;
    return comparison->alone ? text_printf(out, err, "%d setting%s only one of the two\n", comparison->alone,
                                           comparison->alone == 1 ? " is in" : "s are in") : 0;
}

int comparison_text(struct text *out, const struct measurements *all, const struct comparison *comparison, struct err *err)
{
    static const char *const titles[] = {"setting", "prompts", "before", "now", "ratio", "beside", "95 %", "verdict"};
    struct table table;
    int rc = -1;
    table_start(&table, titles, "lrrrrrrl");
    for (size_t i = 0; i < comparison->count; i++)
        if (row_cells(&table, all, &comparison->rows[i], err))
            goto done;
    if (table_write(&table, TABLE_TEXT, out, err) || put_differences(out, all, comparison, err))
        goto done;
    text_make_printable(out);
    rc = text_printf(out, err, "before, now: tokens a second; ratio: now over before; beside: that over the ratio of the "
                     "reference; limit: %.4g %%\n", 100 * comparison->limit);
done:
    table_free(&table);
    return rc;
}

int comparison_json(struct text *out, const struct measurements *all, const struct comparison *comparison, struct err *err)
{
    for (size_t i = 0; i < comparison->count; i++) {
        const struct compare_row *row = &comparison->rows[i];
        json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:s?, s:o, s:o, s:o, s:o, s:o, "
                                   "s:s}", "type", "row",
                                   "setting", all->settings[row->base].name, "prompts", (json_int_t)row->prompts, "compared",
                                   (json_int_t)row->compared, "identical", (json_int_t)row->identical, "base_tokens_per_s",
                                   json_finite(row->base_tokens_per_s), "tokens_per_s", json_finite(row->tokens_per_s), "ratio",
                                   json_finite(row->ratio.ratio), "ratio_low", json_finite(row->ratio.low), "ratio_high",
                                   json_finite(row->ratio.high), "ratio_high_together", json_finite(row->high_together),
                                   "reference", row->reference < 0 ? NULL : all->settings[row->reference].name,
                                   "drift", json_finite(row->drift), "beside", json_finite(row->beside.ratio), "beside_low",
                                   json_finite(row->beside.low), "beside_high", json_finite(row->beside.high),
                                   "beside_high_together", json_finite(row->beside_high_together), "verdict",
                                   verdicts[row->verdict]);
        if (json_line(out, object, err))
            return -1;
    }
    struct err answer = {0};
    bool judged = !comparison_answer(all, comparison, &answer);
    return json_line(out, json_pack("{s:s, s:s, s:f, s:i, s:i, s:b, s:o, s:s?}", "type", "verdict", "verdict",
                                   verdicts[comparison->verdict], "limit", comparison->limit, "settings",
                                   (int)comparison->count, "alone", comparison->alone, "machine_changed",
                                   comparison->machine_changed, "memory", json_finite(comparison->memory), "reason",
                                   judged ? NULL : answer.text), err);
}

/* Reports an unclear verdict: either the machine or the program may have become slower, or there are too few runs. */
static int refuse_noise(const struct measurements *all, const struct comparison *comparison, struct err *err)
{
    bool memory = memory_changed(comparison);
    for (size_t i = 0; i < comparison->count; i++) {
        const struct compare_row *row = &comparison->rows[i];
        if (row->verdict == COMPARE_UNCLEAR && row->reference < 0 && memory)
            return err_set(err, ERR_NO_ANSWER, "the memory bandwidth is %.2f times that of the earlier stream, so the machine "
                           "may explain why '%s' differs; compare two builds with moe-bench ab, which alternates them",
                           comparison->memory,
                           all->settings[row->base].name);
        if (row->verdict == COMPARE_UNCLEAR && row->reference < 0 && row->ratio.ratio < 1 - comparison->limit)
            return err_set(err, ERR_NO_ANSWER, "'%s' runs at %.3f times the earlier speed, but either the machine or the "
                           "program may be the cause; compare two builds with moe-bench ab, which alternates them",
                           all->settings[row->base].name,
                           row->ratio.ratio);
    }
    return err_set(err, ERR_NO_ANSWER, "the measurements are too noisy to decide whether the speed is the same within %.4g "
                   "%%; use more prompts or repetitions, or moe-bench ab, which alternates two builds",
                   100 * comparison->limit);
}

/* Reports why no verdict is possible although enough prompts were measured. */
static int refuse_to_judge(const struct measurements *all, const struct comparison *comparison, struct err *err)
{
    size_t holds = 0;
    for (size_t i = 0; i < comparison->count; i++)
        holds += comparison->rows[i].verdict == COMPARE_HOLDS;
    if (holds == comparison->count) {
        const struct measured_setting *alone = &all->settings[comparison->first_alone];
        return err_set(err, ERR_NO_ANSWER, "%d setting%s only in one stream, the first is '%s' of the %s stream; the common "
                       "settings are not slower", comparison->alone, comparison->alone == 1 ? " is" : "s are", alone->name,
                       alone->stream ? "later" : "earlier");
    }
    if (comparison->other_machine)
        return err_set(err, ERR_NO_ANSWER, "the streams were measured on different machines, so their speeds cannot be "
                       "compared; measure both on one machine");
    return refuse_noise(all, comparison, err);
}

int comparison_answer(const struct measurements *all, const struct comparison *comparison, struct err *err)
{
    size_t max = 0;
    if (comparison->verdict == COMPARE_HOLDS)
        return 0;
    if (!comparison->count)
        return err_set(err, ERR_NO_ANSWER, "the streams have no setting in common, so their speeds cannot be compared; "
                       "measure the same settings");
    for (size_t i = 0; i < comparison->count; i++) {
        const struct compare_row *row = &comparison->rows[i];
        max = row->prompts > max ? row->prompts : max;
        if (comparison->verdict == COMPARE_SLOWER && row->verdict == COMPARE_SLOWER)
            return err_set(err, ERR_ANSWER_NO, "setting '%s' is slower: relative to '%s' it runs at %.3f times the earlier "
                           "speed, at most %.3f",
                           all->settings[row->base].name, all->settings[row->reference].name, row->beside.ratio,
                           row->beside_high_together);
    }
    if (max < COMPARE_PROMPTS)
        return err_set(err, ERR_NO_ANSWER, "the settings have at most %zu prompts in common, but a verdict needs %d; measure "
                       "more prompts", max,
                       COMPARE_PROMPTS);
    return refuse_to_judge(all, comparison, err);
}
