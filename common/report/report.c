#include "common/report/report.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/numeral.h"
#include "common/report/grade.h"
#include "common/report/svg.h"
#include "common/report/table.h"

static const char *task_name(const struct measurements *all, const struct summary_row *row)
{
    return row->task < 0 ? "all" : all->tasks[row->task];
}

static int share_cell(struct table *table, double part, double whole, struct err *err)
{
    return whole > 0 ? table_cell(table, err, "%.0f/%.0f", part, whole) : table_cell(table, err, "%s", "");
}

/* Adds a cell with right and graded answers, or with the mean of answers that only have a score. */
static int answer_cell(struct table *table, const struct summary_row *row, struct err *err)
{
    return row->graded > 0 || !(row->scored > 0) ? share_cell(table, row->correct, row->graded, err)
                                                 : table_number(table, row->score, 3, err);
}

/* One table of the report: heading, filter of rows (NULL: all), and columns after task and setting. A table without rows is
 * left out. */
struct section {
    const char *titles[20], *align, *heading;
    bool (*has)(const struct summary_row *row);
    int (*cells)(struct table *table, const struct measurements *all, const struct summary_row *row, struct err *err);
};

static int main_cells(struct table *table, const struct measurements *all, const struct summary_row *row, struct err *err)
{
    bool interval = !isnan(row->ratio_low) && all->settings[row->setting].reference != row->setting;
    if (table_number(table, row->tokens_per_s, 1, err) || table_number(table, row->ratio, 2, err) ||
        (interval ? table_cell(table, err, "%.2f-%.2f", row->ratio_low, row->ratio_high) : table_cell(table, err, "%s", "")))
        return -1;
    if (table_number(table, row->ceiling, 2, err) || table_number(table, row->best_ratio, 2, err) ||
        table_number(table, row->acceptance_length, 2, err) ||
        table_number(table, row->tokens_per_step, 2, err) || table_number(table, row->experts_per_layer, 1, err) ||
        table_number(table, 1e-6 * row->bytes_per_step, 1, err))
        return -1;
    if (isnan(row->bandwidth_share) ? table_cell(table, err, "%s", "")
                                    : table_cell(table, err, "%.0f %%", 100 * row->bandwidth_share))
        return -1;
    return share_cell(table, row->identical, row->compared, err) || answer_cell(table, row, err) ||
           grade_rules_cell(table, row->rules, err) ? -1 : 0;
}

/* Adds the latencies that a user sees. */
static int time_cells(struct table *table, const struct measurements *all, const struct summary_row *row, struct err *err)
{
    const double times[] = {row->ttft_ms_mean, row->ttft_ms_median, row->ttft_ms_p99, row->tpot_ms_mean, row->tpot_ms_median,
                            row->tpot_ms_p99, row->itl_ms_mean, row->itl_ms_median, row->itl_ms_p99};
    (void)all;
    for (size_t t = 0; t < sizeof times / sizeof *times; t++)
        if (table_number(table, times[t], times[t] < 10 ? 3 : 1, err))
            return -1;
    return 0;
}

static int load_cells(struct table *table, const struct measurements *all, const struct summary_row *row, struct err *err)
{
    (void)all;
    return table_number(table, row->texts_per_forward, 2, err) || table_number(table, row->experts_per_forward, 1, err) ||
           table_number(table, row->tokens_per_s, 1, err) || table_number(table, row->texts_per_s, 3, err) ||
           table_number(table, row->goodput, 3, err) ? -1 : 0;
}

enum { ACCEPT_POSITIONS = 8, TRIAL_POSITIONS = 4 };

static bool has_load(const struct summary_row *row) { return row->texts_per_forward > 1 || !isnan(row->goodput); }
static bool has_drafts(const struct summary_row *row) { return row->drafts > 0; }
static bool has_trials(const struct summary_row *row) { return row->trials > 0; }
static bool has_estimates(const struct summary_row *row) { return row->stated > 0 || row->estimated > 0; }
static bool has_drafters(const struct summary_row *row) { return row->drafters > 1; }
static bool has_changes(const struct summary_row *row) { return !isnan(row->divergence) || !isnan(row->reconstruction); }

/* Adds the share of drafts with at least this many accepted tokens, by position. */
static int position_cells(struct table *table, const struct measurements *all, const struct summary_row *row, struct err *err)
{
    (void)all;
    if (table_number(table, row->drafts, 0, err) || table_number(table, row->draft_tokens / row->drafts, 1, err))
        return -1;
    for (int p = 0; p < ACCEPT_POSITIONS; p++)
        if (table_number(table, p < row->positions ? row->accepted_per_pos[p] : NAN, 3, err))
            return -1;
    return 0;
}

static void fraction(double value, int decimals, char *out, size_t bytes)
{
    if (isnan(value))
        snprintf(out, bytes, "-");
    else
        snprintf(out, bytes, "%.*f", decimals, value);
}

/* Adds tokens and costs of each of several drafters. */
static int drafter_cells(struct table *table, const struct measurements *all, const struct summary_row *row, struct err *err)
{
    (void)all;
    for (int i = 0; i < DECODE_DRAFTERS_MAX; i++) {
        char share[32], acceptance[32], us[32];
        fraction(row->drafter_share[i], 2, share, sizeof share);
        fraction(row->drafter_acceptance[i], 2, acceptance, sizeof acceptance);
        fraction(row->drafter_us_per_step[i], 1, us, sizeof us);
        if (i < row->drafters ? table_cell(table, err, "%s/%s/%s", share, acceptance, us) : table_cell(table, err, "%s", ""))
            return -1;
    }
    return 0;
}

/* Adds acceptance beside its bound. */
static int trial_cells(struct table *table, const struct measurements *all, const struct summary_row *row, struct err *err)
{
    (void)all;
    if (table_number(table, row->trials, 0, err) || table_number(table, row->trials_kept, 3, err) ||
        table_number(table, row->bound, 3, err) || table_number(table, row->bound_common_noise, 3, err))
        return -1;
    for (int p = 0; p < TRIAL_POSITIONS; p++)
        if (p < row->positions && row->trials_per_pos[p] > 0
                ? table_cell(table, err, "%.2f/%.2f", row->kept_per_pos[p], row->bound_per_pos[p])
                : table_cell(table, err, "%s", ""))
            return -1;
    return 0;
}

/* Adds the calibration of acceptance probabilities. */
static int estimate_cells(struct table *table, const struct measurements *all, const struct summary_row *row, struct err *err)
{
    (void)all;
    if (table_number(table, row->stated > 0 ? row->stated : NAN, 0, err) || table_number(table, row->stated_brier, 3, err) ||
        table_number(table, row->stated_error, 3, err) || table_number(table, row->stated_noise, 3, err) ||
        table_number(table, row->estimated > 0 ? row->estimated : NAN, 0, err) ||
        table_number(table, row->estimated_brier, 3, err) || table_number(table, row->estimated_error, 3, err) ||
        table_number(table, row->estimated_noise, 3, err))
        return -1;
    for (int bin = 0; bin < SUMMARY_BINS; bin++)
        if (table_number(table, row->reliability_kept[bin], 2, err))
            return -1;
    return 0;
}

/* Adds the share of right answers, or the mean score, in percent, with its deviation over repetitions. */
static int grade_cell(struct table *table, const struct summary_row *row, struct err *err)
{
    bool scored = isnan(row->correct_share);
    double mean = scored ? row->score : row->correct_share, deviation = scored ? row->score_deviation : row->correct_deviation;
    if (isnan(deviation))
        return table_number(table, 100 * mean, 1, err);
    return table_cell(table, err, "%.1f+-%.1f", 100 * mean, 100 * deviation);
}

/* Adds the effects of budgets. */
static int change_cells(struct table *table, const struct measurements *all, const struct summary_row *row, struct err *err)
{
    (void)all;
    return table_number(table, row->divergence, 4, err) ||
           (isnan(row->divergence_low) ? table_cell(table, err, "%s", "")
                : table_cell(table, err, "%.4f-%.4f", row->divergence_low, row->divergence_high)) ||
           table_number(table, 100 * row->flips, 2, err) ||
           (isnan(row->flips_low) ? table_cell(table, err, "%s", "")
                : table_cell(table, err, "%.2f-%.2f", 100 * row->flips_low, 100 * row->flips_high)) ||
           table_number(table, 100 * row->reconstruction, 2, err) || grade_cell(table, row, err) ? -1 : 0;
}

static const struct section sections[] = {
    {{"task", "setting", "tok/s", "ratio", "95 %", "ceiling", "of best", "accept", "tok/step", "experts", "MB/step",
      "bandwidth", "same", "correct", "rule"}, "llrrrrrrrrrrrrl", "", NULL, main_cells},
    {{"task", "setting", "TTFT", "median", "p99", "TPOT", "median", "p99", "ITL", "median", "p99"}, "llrrrrrrrrr",
     "\nMilliseconds, mean, median and 99th percentile: to the first token (TTFT), of iterations a token (TPOT),\n"
     "of an iteration (ITL)\n\n", NULL, time_cells},
    {{"task", "setting", "texts", "experts", "tok/s", "texts/s", "goodput"}, "llrrrrr",
     "\nTexts per forward, and the distinct experts of all of them per layer; tokens per second of iterations; texts per\n"
     "second of prompts and iterations: all texts, and those within --max-ttft and --max-tpot (goodput)\n\n",
     has_load, load_cells},
    {{"task", "setting", "drafts", "drafted", "1st", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th"}, "llrrrrrrrrrr",
     "\nIterations with a draft, tokens in it, and the share of drafts accepted up to each position\n\n", has_drafts,
     position_cells},
    {{"task", "setting", "1st", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th"}, "llrrrrrrrr",
     "\nOf each drafter, the best first: its share of the accepted tokens/share of its own verified tokens that were\n"
     "accepted/microseconds each time that it was asked\n\n", has_drafters, drafter_cells},
    {{"task", "setting", "tried", "kept", "at most", "common noise", "1st", "2nd", "3rd", "4th"}, "llrrrrrrrr",
     "\nDrafted tokens that were kept, and what any rule that keeps the target's distribution keeps at most\n"
     "(1 - total variation), common noise at least; by position kept/at most\n\n", has_trials, trial_cells},
    {{"task", "setting", "stated", "Brier", "ECE", "chance", "estimated", "Brier", "ECE", "chance", "0", ".1", ".2", ".3", ".4",
      ".5", ".6", ".7", ".8", ".9"}, "llrrrrrrrrrrrrrrrrrr",
     "\nAcceptance probabilities that drafters stated and that the policy estimated: tokens judged, Brier score, expected\n"
     "calibration error, and the error that right probabilities would show by chance in a sample of this size; then the share\n"
     "of tokens kept by probability (estimated, or else stated), from each to the next\n\n",
     has_estimates, estimate_cells},
    {{"task", "setting", "KL", "95 %", "flips %", "95 %", "error %", "correct %"}, "llrrrrrr",
     "\nWhat a budget changes: divergence from the reference in nats a token, likeliest tokens that are others,\n"
     "squared error of what experts add\n\n", has_changes, change_cells},
};

/* Appends a text broken into lines of at most `width` columns (0: unchanged); an empty line ends a paragraph. */
static int put_folded(struct text *out, const char *text, int width, struct err *err)
{
    size_t column = 0;
    if (!width)
        return text_puts(out, text, err);
    while (*text) {
        size_t word = strcspn(text, " \n"), gap = strspn(text + word, "\n");
        if (column && column + 1 + word > (size_t)width) {
            if (text_putc(out, '\n', err))
                return -1;
            column = 0;
        }
        if ((column && word && text_putc(out, ' ', err)) || text_put(out, text, word, err))
            return -1;
        column += word ? word + (column > 0) : 0;
        text += word;
        if (gap > 1 || (gap && (!text[gap] || !column))) {
            if (text_put(out, text, gap, err))
                return -1;
            column = 0;
        }
        text += gap ? gap : *text == ' ';
    }
    return 0;
}

static int put_paragraph(struct text *out, const char *text, enum report_form form, int width, struct err *err)
{
    if (form != REPORT_HTML)
        return put_folded(out, text, form == REPORT_TEXT ? width : 0, err);
    return text_puts(out, "<p>", err) || svg_escape(out, text, err) || text_puts(out, "</p>\n", err) ? -1 : 0;
}

static int write_section(const struct section *section, const struct measurements *all, const struct summary *summary,
                         enum report_form form, int width, struct text *out, struct err *err)
{
    struct table table;
    bool any = false;
    int rc = -1;
    table_start(&table, section->titles, section->align);
    for (size_t i = 0; i < summary->count; i++) {
        const struct summary_row *row = &summary->rows[i];
        if (section->has && !section->has(row))
            continue;
        any = true;
        if (table_cell(&table, err, "%s", task_name(all, row)) ||
            table_cell(&table, err, "%s", all->settings[row->setting].name) || section->cells(&table, all, row, err))
            goto done;
    }
    rc = any && ((*section->heading && put_paragraph(out, section->heading, form, width, err)) ||
                 (form == REPORT_TEXT ? table_write_within(&table, width, 2, section->cells == time_cells ? 3 : 1, out, err)
                  : table_write(&table, form == REPORT_HTML ? TABLE_HTML : TABLE_MARKDOWN, out, err))) ? -1 : 0;
done:
    table_free(&table);
    return rc;
}

static int write_csv(const struct measurements *all, const struct summary *summary, struct text *out, struct err *err)
{
    const char *titles[3 + sizeof(struct summary_row) / sizeof(double)] = {"task", "setting"};
    char align[sizeof titles / sizeof *titles + 1] = "ll";
    struct table table;
    int rc = -1, columns = 2;
    for (const struct summary_column *column = summary_columns; column->key; column++, columns++) {
        titles[columns] = column->key;
        align[columns] = 'r';
    }
    titles[columns] = "rules";
    align[columns] = 'l';
    table_start(&table, titles, align);
    for (size_t i = 0; i < summary->count; i++) {
        const struct summary_row *row = &summary->rows[i];
        if (table_cell(&table, err, "%s", task_name(all, row)) ||
            table_cell(&table, err, "%s", all->settings[row->setting].name))
            goto done;
        for (const struct summary_column *column = summary_columns; column->key; column++) {
            if (table_exact(&table, summary_value(row, column), err))
                goto done;
        }
        if (grade_rules_cell(&table, row->rules, err))
            goto done;
    }
    rc = table_write(&table, TABLE_CSV, out, err);
done:
    table_free(&table);
    return rc;
}

/* Returns whether some row of a setting is shown. */
static bool is_shown(const struct summary *summary, size_t setting)
{
    for (size_t i = 0; i < summary->count; i++)
        if (summary->rows[i].setting == (int)setting)
            return true;
    return false;
}

static json_t *machine_json(const struct measured_stream *stream)
{
    return json_pack("{s:s, s:s, s:s?, s:s?, s:i, s:[o, o]}", "type", "machine", "stream", stream->name, "device",
                     stream->device, "isa", stream->isa, "threads", stream->threads, "read_bandwidth",
                     json_finite(stream->read_bandwidth[0]), json_finite(stream->read_bandwidth[1]));
}

static json_t *setting_json(const struct measurements *all, const struct measured_setting *setting)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:s?, s:s}", "type", "setting", "name", setting->name, "model",
                     setting->model, "options", setting->options, "label", setting->label, "moe_layers", setting->moe_layers,
                     "experts", setting->experts, "reference",
                     setting->reference < 0 ? NULL : all->settings[setting->reference].name, "stream",
                     all->streams[setting->stream].name);
}

static json_t *positions_json(const double *values, int count)
{
    json_t *list = json_array();
    for (int p = 0; p < count; p++)
        if (json_array_append_new(list, json_finite(values[p])))
            break;
    if (list && json_array_size(list) == (size_t)count)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *rules_json(unsigned rules)
{
    json_t *list = json_array();
    for (int i = 0; list && grade_rule_names[i]; i++)
        if (rules & 1u << i && json_array_append_new(list, json_string(i == GRADE_NONE ? "command" : grade_rule_names[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *row_json(const struct measurements *all, const struct summary_row *row)
{
    json_t *object = json_pack("{s:s, s:s}", "type", "row", "setting", all->settings[row->setting].name);
    int rc = json_object_set_new(object, "task", row->task < 0 ? json_null() : json_string(all->tasks[row->task]));
    for (const struct summary_column *column = summary_columns; column->key; column++)
        rc |= json_object_set_new(object, column->key, json_finite(summary_value(row, column)));
    rc |= json_object_set_new(object, "best_static", row->best_static < 0 ? json_null()
                                                     : json_string(all->settings[row->best_static].name));
    if (row->rules)
        rc |= json_object_set_new(object, "rules", rules_json(row->rules));
    rc |= json_object_set_new(object, "accepted_per_pos", positions_json(row->accepted_per_pos, row->positions));
    if (row->drafters > 1) {
        rc |= json_object_set_new(object, "drafter_steps", positions_json(row->drafter_steps, row->drafters));
        rc |= json_object_set_new(object, "drafter_share", positions_json(row->drafter_share, row->drafters));
        rc |= json_object_set_new(object, "drafter_acceptance", positions_json(row->drafter_acceptance, row->drafters));
        rc |= json_object_set_new(object, "drafter_us_per_step", positions_json(row->drafter_us_per_step, row->drafters));
    }
    if (has_estimates(row)) {
        rc |= json_object_set_new(object, "reliability_tokens", positions_json(row->reliability_tokens, SUMMARY_BINS));
        rc |= json_object_set_new(object, "reliability_predicted", positions_json(row->reliability_predicted, SUMMARY_BINS));
        rc |= json_object_set_new(object, "reliability_kept", positions_json(row->reliability_kept, SUMMARY_BINS));
    }
    if (row->trials > 0) {
        rc |= json_object_set_new(object, "kept_per_pos", positions_json(row->kept_per_pos, row->positions));
        rc |= json_object_set_new(object, "bound_per_pos", positions_json(row->bound_per_pos, row->positions));
    }
    if (!rc)
        return object;
    json_decref(object);
    return NULL;
}

static int write_json(const struct measurements *all, const struct summary *summary, struct text *out, struct err *err)
{
    for (size_t i = 0; i < all->stream_count; i++)
        if (json_line(out, machine_json(&all->streams[i]), err))
            return -1;
    for (size_t i = 0; i < all->setting_count; i++)
        if (is_shown(summary, i) && json_line(out, setting_json(all, &all->settings[i]), err))
            return -1;
    for (size_t i = 0; i < summary->count; i++)
        if (json_line(out, row_json(all, &summary->rows[i]), err))
            return -1;
    return 0;
}

static int put_bandwidth(const struct measured_stream *stream, struct text *out, struct err *err)
{
    double first = stream->read_bandwidth[0], last = stream->read_bandwidth[1];
    if (isnan(first) && isnan(last))
        return 0;
    if (text_printf(out, err, ", reads %.1f GB/s", 1e-9 * fmax(first, last)))
        return -1;
    return first == last || isnan(first) || isnan(last)
               ? 0 : text_printf(out, err, " (%.1f at the beginning, %.1f at the end)", 1e-9 * first, 1e-9 * last);
}

/* Appends a line of its own, in the requested form. */
static int put_item(struct text *out, enum report_form form, const struct text *line, struct err *err)
{
    if (form != REPORT_HTML)
        return text_printf(out, err, "%s%s\n", form == REPORT_MARKDOWN ? "- " : "", line->data);
    return text_puts(out, "<li>", err) || svg_escape(out, line->data, err) || text_puts(out, "</li>\n", err) ? -1 : 0;
}

static int describe_stream(struct text *line, const struct measured_stream *stream, struct err *err)
{
    return text_printf(line, err, "%s: ", stream->name) ||
           (stream->device ? text_printf(line, err, "%s %s, %d thread%s", stream->device, stream->isa, stream->threads,
                                         numeral_plural(stream->threads))
                           : text_puts(line, "machine not recorded", err)) ||
           put_bandwidth(stream, line, err) ? -1 : 0;
}

static int describe_setting(struct text *line, const struct measured_setting *setting, struct err *err)
{
    const char *slash = strrchr(setting->model, '/'), *model = slash ? slash + 1 : setting->model;
    return text_printf(line, err, "%s: %s, %s%s%s%s", setting->name, model, setting->options, *setting->label ? " [" : "",
                       setting->label, *setting->label ? "]" : "");
}

static int write_preface(const struct measurements *all, const struct summary *summary, enum report_form form,
                         struct text *out, struct err *err)
{
    struct text line = {0};
    int rc = form == REPORT_HTML ? text_puts(out, "<ul>\n", err) : 0;
    for (size_t i = 0; i < all->stream_count && !rc; i++) {
        text_clear(&line);
        rc = describe_stream(&line, &all->streams[i], err) || put_item(out, form, &line, err) ? -1 : 0;
    }
    for (size_t i = 0; i < all->setting_count && !rc; i++) {
        text_clear(&line);
        if (is_shown(summary, i))
            rc = describe_setting(&line, &all->settings[i], err) || put_item(out, form, &line, err) ? -1 : 0;
    }
    text_clear(&line);
    if (!rc && all->dropped)
        rc = text_printf(&line, err, "%zu sample%s not finished, and left out", all->dropped,
                         all->dropped == 1 ? " was" : "s were") || put_item(out, form, &line, err) ? -1 : 0;
    rc = rc || text_puts(out, form == REPORT_HTML ? "</ul>\n" : "\n", err) ? -1 : 0;
    text_free(&line);
    return rc;
}

static int write_legend(const struct measurements *all, const struct summary *summary, struct text *out, struct err *err)
{
    int reference = -1;
    bool several = false, measured = false, scored = false;
    for (size_t i = 0; i < summary->count; i++)
        scored |= summary->rows[i].scored > 0;
    for (size_t i = 0; i < all->stream_count; i++)
        measured |= !isnan(all->streams[i].read_bandwidth[0]);
    for (size_t i = 0; i < all->setting_count; i++) {
        int its = all->settings[i].reference;
        several |= its >= 0 && reference >= 0 && its != reference;
        reference = its >= 0 ? its : reference;
    }
    if (text_printf(out, err, "\naccept: tokens of an iteration that had a draft, bonus token included; tok/step: of all "
                    "iterations.\nexperts: distinct ones a layer in an iteration%s.\n",
                    measured ? "; bandwidth: nominal bytes a second, of what memory gives" : "") ||
        (scored && text_puts(out, "correct: right answers of how many; of summaries the mean ROUGE-L F1, from 0 to 1.\n", err)))
        return -1;
    if (reference < 0)
        return 0;
    return text_printf(out, err, "ratio: tok/s over that of %s on the same prompts, with its 95 %% interval; "
                       "ceiling: what the bytes allow;\nof best: tok/s over that of the task's fastest static, lossless "
                       "setting; same: outputs byte-identical to\nthose of %s.\n",
                       several ? "its reference" : all->settings[reference].name,
                       several ? "its reference" : all->settings[reference].name);
}

/* Notes tasks in which no answer is right, but answers were only compared exactly. */
static int note_exact(const struct measurements *all, const struct summary *summary, struct text *out, struct err *err)
{
    for (size_t i = 0; i < summary->count; i++) {
        const int task = summary->rows[i].task;
        double graded = 0, correct = 0;
        unsigned rules = 0;
        bool seen = task < 0;
        for (size_t j = 0; j < summary->count && !seen; j++) {
            const struct summary_row *row = &summary->rows[j];
            if (row->task != task)
                continue;
            seen = j < i;
            rules |= row->rules;
            graded += row->graded;
            correct += row->correct;
        }
        const char *name = seen ? "" : all->tasks[task];
        if (!seen && graded > 0 && !(correct > 0) && rules == 1u << GRADE_EXACT &&
            text_printf(out, err, "\n%s%s%.0f answer%s graded exactly, and none is right; moe-bench grade --rule %s%sRULE "
                        "grades by another rule.\n", name, *name ? ": " : "", graded, graded > 1 ? "s were" : " was", name,
                        *name ? "=" : ""))
            return -1;
    }
    return 0;
}

int report_write(const struct measurements *all, const struct summary *summary, enum report_form form, int width,
                 struct text *out, struct err *err)
{
    struct text legend = {0};
    if (form == REPORT_JSON)
        return write_json(all, summary, out, err);
    if (form == REPORT_CSV)
        return write_csv(all, summary, out, err);
    if (write_preface(all, summary, form, out, err))
        return -1;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (write_section(&sections[i], all, summary, form, width, out, err))
            return -1;
    text_make_printable(out);
    int rc = write_legend(all, summary, &legend, err) || note_exact(all, summary, &legend, err) ||
             put_paragraph(out, legend.data, form, width, err) ? -1 : 0;
    text_free(&legend);
    return rc;
}
