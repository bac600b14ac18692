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

/* The other stream's setting that pairs with this one; -1: none. */
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
    return fmax(stream->read_bandwidth[0], stream->read_bandwidth[1]);      /* of a number and NaN: the number */
}

static bool memory_changed(const struct comparison *comparison)
{
    return fabs(comparison->memory - 1) > fmax(comparison->limit, 0.02);        /* false of NaN */
}

static void compare_machines(struct comparison *out, const struct measurements *all)
{
    const struct measured_stream *base = &all->streams[0], *now = &all->streams[1];
    out->other_machine = base->device && now->device && (strcmp(base->device, now->device) || strcmp(base->isa, now->isa) ||
                                                         base->threads != now->threads);
    out->memory = highest_bandwidth(now) / highest_bandwidth(base);
    out->machine_changed = out->other_machine || memory_changed(out);
}

/* The verdict on one machine, as far as it is one on a machine that changed. */
static enum compare_verdict judge_across(const struct comparison *comparison, const struct stats_ratio *ratio,
                                         enum compare_verdict verdict)
{
    if (!comparison->machine_changed)
        return verdict;
    bool holds = verdict == COMPARE_HOLDS && !comparison->other_machine &&
                 ratio->low >= (1 - comparison->limit) * fmax(1, comparison->memory);
    return holds ? COMPARE_HOLDS : COMPARE_UNCLEAR;
}

static int fill_row(struct compare_row *row, const struct comparison *comparison, const struct measurements *all,
                    struct stats_pair *pairs, struct err *err)
{
    size_t together = comparison->count;
    struct stats_ratio wide;
    struct stats_pair sum = {0};
    if (summary_pairs(all, row->now, row->base, pairs, &row->prompts, err) ||
        stats_ratio(pairs, row->prompts, 0.05, &row->ratio, err) ||
        stats_ratio(pairs, row->prompts, 0.05 / (double)together, &wide, err))
        return -1;
    for (size_t i = 0; i < row->prompts; i++) {
        sum.tokens += pairs[i].tokens;
        sum.seconds += pairs[i].seconds;
        sum.base_tokens += pairs[i].base_tokens;
        sum.base_seconds += pairs[i].base_seconds;
    }
    row->tokens_per_s = row->prompts ? sum.tokens / sum.seconds : NAN;
    row->base_tokens_per_s = row->prompts ? sum.base_tokens / sum.base_seconds : NAN;
    row->high_together = wide.high;
    summary_outputs(all, row->now, row->base, &row->compared, &row->identical);
    row->verdict = judge_across(comparison, &row->ratio,
                                compare_judge(&row->ratio, row->high_together, row->prompts, comparison->limit));
    return 0;
}

int comparison_make(struct comparison *out, const struct measurements *all, double limit, struct err *err)
{
    struct comparison made = {.limit = limit, .verdict = COMPARE_UNCLEAR, .first_alone = -1};
    struct stats_pair *pairs = NULL;
    size_t holds = 0;
    int rc = -1;
    if (all->stream_count != 2)
        return err_set(err, ERR_INPUT, "%zu streams; give two, what was measured before and what was measured now",
                       all->stream_count);
    if (pair_settings(&made, all, err) || !(pairs = mem_alloc((size_t)all->prompts, sizeof *pairs, err)))
        goto done;
    compare_machines(&made, all);
    for (size_t i = 0; i < made.count; i++) {
        if (fill_row(&made.rows[i], &made, all, pairs, err))
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
    mem_free(&pairs);
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
        table_number(table, row->ratio.ratio, 3, err))
        return -1;
    if (isnan(row->ratio.low) ? table_cell(table, err, "%s", "")
                              : table_cell(table, err, "%.3f-%.3f", row->ratio.low, row->ratio.high))
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

/* What makes the two hard to compare. */
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
    static const char *const titles[] = {"setting", "prompts", "before", "now", "ratio", "95 %", "verdict"};
    struct table table;
    int rc = -1;
    table_start(&table, titles, "lrrrrrl");
    for (size_t i = 0; i < comparison->count; i++)
        if (row_cells(&table, all, &comparison->rows[i], err))
            goto done;
    if (table_write(&table, TABLE_TEXT, out, err) || put_differences(out, all, comparison, err))
        goto done;
    text_make_printable(out);
    rc = text_printf(out, err, "before, now: tokens a second; ratio: now over before; limit: %.4g %%\n",
                     100 * comparison->limit);
done:
    table_free(&table);
    return rc;
}

int comparison_json(struct text *out, const struct measurements *all, const struct comparison *comparison, struct err *err)
{
    for (size_t i = 0; i < comparison->count; i++) {
        const struct compare_row *row = &comparison->rows[i];
        json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "type", "row",
                                   "setting", all->settings[row->base].name, "prompts", (json_int_t)row->prompts, "compared",
                                   (json_int_t)row->compared, "identical", (json_int_t)row->identical, "base_tokens_per_s",
                                   json_finite(row->base_tokens_per_s), "tokens_per_s", json_finite(row->tokens_per_s), "ratio",
                                   json_finite(row->ratio.ratio), "ratio_low", json_finite(row->ratio.low), "ratio_high",
                                   json_finite(row->ratio.high), "ratio_high_together", json_finite(row->high_together),
                                   "verdict", verdicts[row->verdict]);
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

/* Why nothing can be said where enough prompts were measured. */
static int refuse_to_judge(const struct measurements *all, const struct comparison *comparison, struct err *err)
{
    size_t holds = 0;
    for (size_t i = 0; i < comparison->count; i++)
        holds += comparison->rows[i].verdict == COMPARE_HOLDS;
    if (holds == comparison->count) {
        const struct measured_setting *alone = &all->settings[comparison->first_alone];
        return err_set(err, ERR_NO_ANSWER, "%d setting%s without a partner, the first is '%s' of the stream measured %s; what "
                       "both have holds", comparison->alone, comparison->alone == 1 ? " is" : "s are", alone->name,
                       alone->stream ? "now" : "before");
    }
    if (comparison->other_machine)
        return err_set(err, ERR_NO_ANSWER, "the machines differ, so a difference in speed may be theirs; measure both on one "
                       "machine");
    if (comparison->machine_changed)
        return err_set(err, ERR_NO_ANSWER, "memory is read at %.2f times the speed before, so a difference may be the "
                       "machine's; measure before and now in a row, on a quiet machine", comparison->memory);
    return err_set(err, ERR_NO_ANSWER, "too noisy to say whether the speed holds within %.4g %%; take more prompts or "
                   "repetitions, or a quieter machine", 100 * comparison->limit);
}

int comparison_answer(const struct measurements *all, const struct comparison *comparison, struct err *err)
{
    size_t max = 0;
    if (comparison->verdict == COMPARE_HOLDS)
        return 0;
    if (!comparison->count)
        return err_set(err, ERR_NO_ANSWER, "the streams have no setting in common, so nothing can be judged");
    for (size_t i = 0; i < comparison->count; i++) {
        const struct compare_row *row = &comparison->rows[i];
        max = row->prompts > max ? row->prompts : max;
        if (comparison->verdict == COMPARE_SLOWER && row->verdict == COMPARE_SLOWER)
            return err_set(err, ERR_ANSWER_NO, "setting '%s' is slower: %.3f of the speed before, at most %.3f",
                           all->settings[row->base].name, row->ratio.ratio, row->high_together);
    }
    if (max < COMPARE_PROMPTS)
        return err_set(err, ERR_NO_ANSWER, "settings have at most %zu prompts in common; it takes %d to judge", max,
                       COMPARE_PROMPTS);
    return refuse_to_judge(all, comparison, err);
}
