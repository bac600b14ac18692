#include "common/report/summary.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/report/best.h"
#include "common/report/stats.h"

/* Rows of the table: a member that a function computes; a quotient of sums; a quotient of sums that is also a member. */
#define COLUMN(name, text) {.key = #name, .meaning = text, .offset = offsetof(struct summary_row, name)}
#define QUOTIENT(name, text, ...) {.key = #name, .meaning = text, .quotient = {__VA_ARGS__}}
#define MEMBER_QUOTIENT(name, text, ...) \
    {.key = #name, .meaning = text, .offset = offsetof(struct summary_row, name), .quotient = {__VA_ARGS__}}

/* Sums over the iterations of some samples: those of enum step_sum, and those of other members of struct measured_step. */
enum {
    SUM_US = STEP_SUMS, SUM_WALL_US, SUM_FORWARDS, SUM_ALL_EXPERTS, SUM_BYTES, SUM_EMITTED, SUM_DRAFTS, SUM_DRAFT_TOKENS,
    SUM_ACCEPTED, SUM_STEPS,
    TOTALS
};
struct totals {
    double sum[TOTALS];
};

const struct summary_column summary_columns[] = {
    COLUMN(prompts, "prompts that ran under the setting"),
    COLUMN(samples, "runs: prompts times repetitions"),
    MEMBER_QUOTIENT(tokens, "tokens that iterations emitted, without the first token after the prompt", SUM_EMITTED),
    MEMBER_QUOTIENT(steps, "iterations: forwards of the target after the prompt", SUM_STEPS),
    COLUMN(tokens_per_s, "tokens per second of iterations; the median speed of a prompt's repetitions counts"),
    COLUMN(ratio, "tokens_per_s divided by that of the reference, both on the prompts that they have in common"),
    COLUMN(ratio_low, "lower bound of the ratio's 95 % interval (paired bootstrap over prompts)"),
    COLUMN(ratio_high, "upper bound of the ratio's 95 % interval"),
    COLUMN(ratio_median, "median over prompts of each prompt's own ratio"),
    COLUMN(best_ratio, "tokens_per_s divided by that of the best static setting, both on the prompts that they have in common"),
    COLUMN(best_ratio_low, "lower bound of best_ratio's 95 % interval (paired bootstrap over prompts)"),
    COLUMN(best_ratio_high, "upper bound of best_ratio's 95 % interval"),
    COLUMN(ceiling, "ratio that bytes alone allow: bytes per token of the reference divided by bytes per token of the setting"),
    COLUMN(acceptance_length, "1 + accepted_tokens / drafts: tokens per iteration with a draft, including the bonus token"),
    QUOTIENT(acceptance_rate, "accepted_tokens / draft_tokens", SUM_ACCEPTED, {SUM_DRAFT_TOKENS}),
    MEMBER_QUOTIENT(tokens_per_step, "tokens / steps, including iterations without a draft", SUM_EMITTED, {SUM_STEPS}),
    MEMBER_QUOTIENT(drafts, "iterations that had a draft", SUM_DRAFTS),
    MEMBER_QUOTIENT(draft_tokens, "drafted tokens that were verified", SUM_DRAFT_TOKENS),
    MEMBER_QUOTIENT(accepted_tokens, "drafted tokens that were accepted and emitted: min(accepted, emitted) of each iteration",
                    SUM_ACCEPTED),
    COLUMN(trials, "drafted tokens that were tried and whose overlap with the target was recorded"),
    COLUMN(trials_kept, "share of the trials that was kept"),
    COLUMN(bound, "upper bound of trials_kept for rules that keep the target's distribution: mean of 1 - total variation"),
    COLUMN(bound_common_noise,
           "lower bound of trials_kept with common random numbers: mean of (1 - total variation) / (1 + total variation)"),
    COLUMN(stated, "drafted tokens after tokens of the text for which the drafter stated a probability"),
    COLUMN(stated_brier, "Brier score of stated probabilities: mean of (probability - kept)^2"),
    COLUMN(stated_error,
           "expected calibration error of stated probabilities: |mean probability - share kept| in each tenth, mean by tokens"),
    COLUMN(stated_noise, "calibration error that correct probabilities would show by chance in a sample of this size"),
    COLUMN(estimated, "drafted tokens after tokens of the text for which the policy estimated an acceptance probability"),
    COLUMN(estimated_brier, "Brier score of estimated probabilities"),
    COLUMN(estimated_error, "expected calibration error of estimated probabilities"),
    COLUMN(estimated_noise, "calibration error of estimated probabilities by chance, as in stated_noise"),
    COLUMN(ttft_ms_mean, "milliseconds from a prompt's start to its first token, mean over samples"),
    COLUMN(ttft_ms_median, "milliseconds from a prompt's start to its first token, median over samples"),
    COLUMN(ttft_ms_p99, "milliseconds from a prompt's start to its first token, 99th percentile"),
    COLUMN(tpot_ms_mean, "milliseconds of iterations per token, mean over samples"),
    COLUMN(tpot_ms_median, "milliseconds of iterations per token, median over samples"),
    COLUMN(tpot_ms_p99, "milliseconds of iterations per token, 99th percentile"),
    COLUMN(itl_ms_mean, "milliseconds of an iteration, which is the time until further text appears, mean over iterations"),
    COLUMN(itl_ms_median, "milliseconds of an iteration, median over iterations"),
    COLUMN(itl_ms_p99, "milliseconds of an iteration, 99th percentile"),
    MEMBER_QUOTIENT(texts_per_forward, "texts that share a forward, mean over the forwards after prompts",
                    SUM_STEPS, {SUM_FORWARDS}),
    MEMBER_QUOTIENT(experts_per_forward, "distinct experts of all texts of a forward, per layer",
                    SUM_ALL_EXPERTS, {SUM_FORWARDS}),
    COLUMN(texts_per_s, "samples per second of prompts and iterations"),
    COLUMN(goodput, "samples within --max-ttft and --max-tpot per second of prompts and iterations"),
    QUOTIENT(experts_wanted_per_step, "distinct experts that routers chose in an iteration, summed over layers",
             SUM_experts_wanted, {SUM_STEPS}),
    QUOTIENT(experts_loaded_per_step, "distinct experts computed in an iteration, summed over layers",
             SUM_experts_loaded, {SUM_STEPS}),
    COLUMN(experts_per_layer, "experts_loaded_per_step for each layer"),
    MEMBER_QUOTIENT(bytes_per_step,
                    "nominal bytes of an iteration: distinct experts, dense weights, KV cache, and the bytes that drafting "
                    "read", SUM_BYTES, {SUM_STEPS}),
    QUOTIENT(bytes_per_token, "nominal bytes per emitted token", SUM_BYTES, {SUM_EMITTED}),
    COLUMN(bandwidth, "nominal bytes per second of iterations"),
    COLUMN(bandwidth_share, "bandwidth divided by the highest read bandwidth measured in the stream"),
    QUOTIENT(split_host, "share of the pairs of token and expert that the host computed while a device computed the others",
             SUM_split_host_pairs, {SUM_split_host_pairs, SUM_split_device_pairs}),
    QUOTIENT(split_wait, "share of iteration time in which a device's queue got no work because the host was still computing",
             SUM_split_wait_us, {SUM_US}, {SUM_split_host_pairs, SUM_split_device_pairs}),
    QUOTIENT(cache_hits, "share of the requested experts that were in the memory where they are computed, or in flight to it",
             SUM_cache_hits, {SUM_cache_hits, SUM_cache_misses}),
    QUOTIENT(cache_read_per_token, "bytes read from the model file for the cache, per emitted token",
             SUM_cache_read_bytes, {SUM_EMITTED}, {SUM_cache_hits, SUM_cache_misses}),
    QUOTIENT(cache_stall, "share of iteration time in which nothing could be computed because experts were in flight",
             SUM_cache_stall_us, {SUM_US}, {SUM_cache_hits, SUM_cache_misses}),
    QUOTIENT(cache_prefetched, "share of the bytes read that were prefetched",
             SUM_cache_prefetched_bytes, {SUM_cache_read_bytes}),
    QUOTIENT(cache_wasted, "share of the prefetched bytes that were evicted before a request",
             SUM_cache_wasted_bytes, {SUM_cache_prefetched_bytes}),
    QUOTIENT(cache_host_hits,
             "share of the requested experts that were not on the device, but in a host slot or in flight to one",
             SUM_cache_host_hits, {SUM_cache_hits, SUM_cache_misses}, {SUM_cache_copied_bytes}),
    QUOTIENT(cache_copied_per_token, "bytes copied from the host to the device, per emitted token",
             SUM_cache_copied_bytes, {SUM_EMITTED}, {SUM_cache_copied_bytes}),
    QUOTIENT(cache_copied_early, "share of the bytes copied that were copied before a request",
             SUM_cache_copied_early_bytes, {SUM_cache_copied_bytes}),
    QUOTIENT(cache_copied_wasted, "share of the bytes copied early that were evicted before a request",
             SUM_cache_copied_wasted_bytes, {SUM_cache_copied_early_bytes}),
    QUOTIENT(cache_stall_copies, "share of iteration time in which no read was in flight and the host waited for a copy",
             SUM_cache_stall_copies_us, {SUM_US}, {SUM_cache_copied_bytes}),
    QUOTIENT(cache_recall, "share of the experts requested by verifications that had been forecast",
             SUM_cache_right, {SUM_cache_scored}),
    QUOTIENT(cache_right, "share of the experts forecast for verifications that the verifications requested",
             SUM_cache_right, {SUM_cache_named}),
    COLUMN(identical, "samples whose token ids and text equal those of the reference"),
    COLUMN(compared, "samples that could be compared"),
    COLUMN(correct, "prompts answered correctly in their first repetition"),
    COLUMN(graded, "prompts whose answer was graded as correct or wrong"),
    COLUMN(correct_share, "share of the graded answers that are correct, mean over repetitions"),
    COLUMN(correct_deviation, "standard deviation of correct_share over repetitions, which differ if draws are fresh"),
    COLUMN(scored, "prompts whose answer was graded by a score: ROUGE-L F1 of summaries"),
    COLUMN(score, "mean of the scores over prompts, mean over repetitions"),
    COLUMN(score_deviation, "standard deviation of score over repetitions"),
    COLUMN(divergence, "KL(reference || model) in nats, mean over the emitted tokens that were compared"),
    COLUMN(divergence_low, "lower bound of divergence's 95 % interval (bootstrap over prompts)"),
    COLUMN(divergence_high, "upper bound of divergence's 95 % interval"),
    COLUMN(flips, "share of the compared tokens for which the reference's most probable token is another token"),
    COLUMN(flips_low, "lower bound of flips' 95 % interval (bootstrap over prompts)"),
    COLUMN(flips_high, "upper bound of flips' 95 % interval"),
    MEMBER_QUOTIENT(reconstruction,
                    "squared error of the experts' sum under the budget divided by the squared sum without it, mean over "
                    "layers and iterations", SUM_reconstruction, {SUM_REBUILT}),
    {.key = NULL},
};
_Static_assert(sizeof summary_columns / sizeof *summary_columns <= SUMMARY_COLUMNS, "figures of a row");

/* Returns the offset of a column's value in struct summary_row. */
static size_t value_offset(const struct summary_column *column)
{
    return column->offset ? column->offset
                          : offsetof(struct summary_row, figure) + (size_t)(column - summary_columns) * sizeof(double);
}

double summary_value(const struct summary_row *row, const struct summary_column *column)
{
    double value;
    memcpy(&value, (const char *)row + value_offset(column), sizeof value);
    return value;
}

static void add_step(struct totals *totals, const struct measured_step *step)
{
    for (int i = 0; i < STEP_SUMS; i++)
        totals->sum[i] += step->sum[i];
    totals->sum[SUM_US] += step->us;
    totals->sum[SUM_WALL_US] += step->wall_us;
    totals->sum[SUM_FORWARDS] += 1.0 / step->texts;
    totals->sum[SUM_ALL_EXPERTS] += (double)step->all_experts / step->texts;
    totals->sum[SUM_BYTES] += (double)step->bytes;
    totals->sum[SUM_EMITTED] += step->emitted;
    totals->sum[SUM_DRAFTS] += step->nodes > 1;
    totals->sum[SUM_DRAFT_TOKENS] += step->nodes - 1;
    totals->sum[SUM_ACCEPTED] += step->accepted;
    totals->sum[SUM_STEPS] += 1;
}

static struct totals sample_totals(const struct measurements *all, const struct measured_sample *sample)
{
    struct totals totals = {{0}};
    for (size_t i = 0; i < sample->steps; i++)
        add_step(&totals, &all->steps[sample->first_step + i]);
    return totals;
}

/* The samples [begin, end) of one prompt under one setting; begin == end: it did not run. */
struct run {
    const struct measured_sample *begin, *end;
};

static struct run find_run(const struct measured_sample *begin, const struct measured_sample *end, int setting)
{
    while (begin < end && begin->setting != setting)
        begin++;
    struct run run = {begin, begin};
    while (run.end < end && run.end->setting == setting)
        run.end++;
    return run;
}

/* Returns the tokens of the first repetition, and the seconds they take at the median speed of all repetitions. */
static int run_speed(const struct measurements *all, struct run run, double *tokens, double *seconds, struct err *err)
{
    size_t count = 0;
    *tokens = *seconds = 0;
    if (run.begin == run.end)
        return 0;
    double *speeds = mem_alloc((size_t)(run.end - run.begin), sizeof *speeds, err);
    if (!speeds)
        return -1;
    for (const struct measured_sample *sample = run.begin; sample < run.end; sample++) {
        const struct totals of = sample_totals(all, sample);
        if (of.sum[SUM_EMITTED] > 0 && of.sum[SUM_US] > 0)
            speeds[count++] = 1e-6 * of.sum[SUM_US] / of.sum[SUM_EMITTED];
        if (sample == run.begin)
            *tokens = of.sum[SUM_EMITTED];
    }
    if (count)
        *seconds = *tokens * stats_quantile(speeds, count, 0.5);
    mem_free(&speeds);
    return 0;
}

/* The data of one row. */
struct work {
    const struct measurements *all;
    int task;                                           /* -1: all */
    const struct measured_sample *begin, *end;          /* samples of the task, sorted by prompt */
    int setting, reference;
    struct stats_pair *pairs;                           /* one pair per prompt */
    int *prompts;                                       /* indices of these prompts; NULL: not requested */
    double *values;                                     /* scratch: one value per step or sample */
};

static const struct measured_sample *prompt_end(const struct work *work, const struct measured_sample *at)
{
    int prompt = at->prompt;
    while (at < work->end && at->prompt == prompt)
        at++;
    return at;
}

/* Collects pairs of the prompts that ran under both settings; *tokens and *seconds are of all prompts under the setting. */
static int collect_pairs(const struct work *work, size_t *pairs, double *tokens, double *seconds, struct err *err)
{
    *pairs = 0;
    *tokens = *seconds = 0;
    for (const struct measured_sample *at = work->begin, *next; at < work->end; at = next) {
        struct stats_pair pair = {0};
        next = prompt_end(work, at);
        if (run_speed(work->all, find_run(at, next, work->setting), &pair.tokens, &pair.seconds, err))
            return -1;
        *tokens += pair.tokens;
        *seconds += pair.seconds;
        if (work->reference < 0 || pair.seconds <= 0)
            continue;
        if (run_speed(work->all, find_run(at, next, work->reference), &pair.base_tokens, &pair.base_seconds, err))
            return -1;
        if (pair.base_seconds > 0) {
            if (work->prompts)
                work->prompts[*pairs] = at->prompt;
            work->pairs[(*pairs)++] = pair;
        }
    }
    return 0;
}

int summary_pairs(const struct measurements *all, int setting, int reference, struct stats_pair *pairs, int *prompts,
                  size_t *count, struct err *err)
{
    const struct work work = {.all = all, .begin = all->samples, .end = all->samples + all->sample_count, .setting = setting,
                              .reference = reference, .pairs = pairs, .prompts = prompts};
    double tokens, seconds;
    return collect_pairs(&work, count, &tokens, &seconds, err);
}

static int compare_speed(const struct work *work, struct summary_row *row, struct err *err)
{
    size_t pairs = 0;
    double tokens = 0, seconds = 0;
    struct stats_ratio ratio = {NAN, NAN, NAN};
    if (collect_pairs(work, &pairs, &tokens, &seconds, err))
        return -1;
    row->tokens_per_s = seconds > 0 ? tokens / seconds : NAN;
    if (stats_ratio(work->pairs, pairs, 0.05, &ratio, err))
        return -1;
    row->ratio = ratio.ratio;
    row->ratio_low = ratio.low;
    row->ratio_high = ratio.high;
    for (size_t i = 0; i < pairs; i++) {
        const struct stats_pair *pair = &work->pairs[i];
        work->values[i] = pair->tokens / pair->seconds / (pair->base_tokens / pair->base_seconds);
    }
    row->ratio_median = stats_quantile(work->values, pairs, 0.5);
    return 0;
}

static bool same_output(const struct measured_sample *sample, const struct run *base)
{
    const struct measured_sample *other = base->begin;
    while (other < base->end && other->repeat != sample->repeat)
        other++;
    other = other == base->end ? base->begin : other;
    return sample->output.low == other->output.low && sample->output.high == other->output.high;
}

void summary_outputs(const struct measurements *all, int setting, int reference, size_t *compared, size_t *identical)
{
    const struct work work = {.all = all, .begin = all->samples, .end = all->samples + all->sample_count};
    *compared = *identical = 0;
    for (const struct measured_sample *at = work.begin, *next; at < work.end; at = next) {
        next = prompt_end(&work, at);
        struct run run = find_run(at, next, setting), base = find_run(at, next, reference);
        for (const struct measured_sample *sample = run.begin; base.begin < base.end && sample < run.end; sample++) {
            ++*compared;
            *identical += same_output(sample, &base);
        }
    }
}

static void compare_outputs(const struct work *work, struct summary_row *row)
{
    for (const struct measured_sample *at = work->begin, *next; at < work->end; at = next) {
        next = prompt_end(work, at);
        struct run run = find_run(at, next, work->setting), base = find_run(at, next, work->reference);
        row->prompts += run.begin < run.end;
        if (run.begin < run.end) {
            row->graded += run.begin->graded;
            if (run.begin->graded || !isnan(run.begin->score))
                row->rules |= 1u << run.begin->rule;
            row->correct += run.begin->correct;
            row->scored += !isnan(run.begin->score);
        }
        if (work->reference < 0)
            continue;
        for (const struct measured_sample *sample = run.begin; base.begin < base.end && sample < run.end; sample++) {
            row->compared++;
            row->identical += same_output(sample, &base);
        }
    }
}

/* Computes the mean of value(sample) for each repetition (NaN: not counted), then mean and standard deviation of these. */
static void over_repetitions(const struct work *work, double (*value)(const struct measured_sample *), double *mean,
                             double *deviation)
{
    size_t means = 0;
    bool any = true;
    double square = 0;
    for (int repeat = 0; any; repeat++) {
        double count = 0, sum = 0;
        any = false;
        for (const struct measured_sample *sample = work->begin; sample < work->end; sample++) {
            if (sample->setting != work->setting || sample->repeat < repeat)
                continue;
            any = true;
            if (sample->repeat > repeat || isnan(value(sample)))
                continue;
            count++;
            sum += value(sample);
        }
        if (count > 0)
            work->values[means++] = sum / count;
    }
    *mean = stats_mean(work->values, means);
    for (size_t i = 0; i < means; i++)
        square += (work->values[i] - *mean) * (work->values[i] - *mean);
    *deviation = means > 1 ? sqrt(square / (double)(means - 1)) : NAN;
}

static double sample_correct(const struct measured_sample *sample) { return sample->graded ? sample->correct : NAN; }
static double sample_score(const struct measured_sample *sample) { return sample->score; }

static void summarise_grades(const struct work *work, struct summary_row *row)
{
    over_repetitions(work, sample_correct, &row->correct_share, &row->correct_deviation);
    over_repetitions(work, sample_score, &row->score, &row->score_deviation);
}

static struct totals row_totals(const struct work *work)
{
    struct totals totals = {{0}};
    struct step_cursor at = {0};
    for (const struct measured_step *step; (step = measurements_step(work->all, work->task, work->setting, &at));)
        add_step(&totals, step);
    return totals;
}

static void spread(double *values, size_t count, double *mean, double *median, double *p99)
{
    *mean = stats_mean(values, count);
    *median = stats_quantile(values, count, 0.5);
    *p99 = stats_quantile(values, count, 0.99);
}

static void summarise_times(const struct work *work, struct summary_row *row)
{
    size_t first = 0, token = 0, step = 0;
    struct step_cursor at = {0};
    for (const struct measured_sample *sample = work->begin; sample < work->end; sample++)
        if (sample->setting == work->setting)
            work->values[first++] = 1e-3 * sample->prefill_us;
    row->samples = (double)first;
    spread(work->values, first, &row->ttft_ms_mean, &row->ttft_ms_median, &row->ttft_ms_p99);
    for (const struct measured_sample *sample = work->begin; sample < work->end; sample++) {
        const struct totals of = sample_totals(work->all, sample);
        if (sample->setting == work->setting && of.sum[SUM_EMITTED] > 0)
            work->values[token++] = 1e-3 * of.sum[SUM_WALL_US] / of.sum[SUM_EMITTED];
    }
    spread(work->values, token, &row->tpot_ms_mean, &row->tpot_ms_median, &row->tpot_ms_p99);
    for (const struct measured_step *one; (one = measurements_step(work->all, work->task, work->setting, &at));)
        work->values[step++] = 1e-3 * one->wall_us;
    spread(work->values, step, &row->itl_ms_mean, &row->itl_ms_median, &row->itl_ms_p99);
}

static double quotient(double a, double b) { return b > 0 ? a / b : NAN; }

/* Counts samples, and those within the limits of goodput, by the seconds that all prompts and iterations took. */
static void summarise_load(const struct work *work, struct summary_row *row)
{
    const double max_ttft = work->all->max_ttft_ms, max_tpot = work->all->max_tpot_ms;
    double seconds = 0, good = 0;
    for (const struct measured_sample *sample = work->begin; sample < work->end; sample++) {
        const struct totals of = sample_totals(work->all, sample);
        if (sample->setting != work->setting)
            continue;
        const double tpot = of.sum[SUM_EMITTED] > 0 ? 1e-3 * of.sum[SUM_WALL_US] / of.sum[SUM_EMITTED] : 0;
        seconds += 1e-6 * (sample->prefill_us + of.sum[SUM_US]);
        good += (!max_ttft || 1e-3 * sample->prefill_us <= max_ttft) && (!max_tpot || tpot <= max_tpot);
    }
    row->texts_per_s = quotient(row->samples, seconds);
    row->goodput = max_ttft || max_tpot ? quotient(good, seconds) : NAN;
}

static double best_bandwidth(const struct measurements *all, int setting)
{
    const double *measured = all->streams[all->settings[setting].stream].read_bandwidth;
    return fmax(measured[0], measured[1]);          /* fmax of a number and NaN is the number */
}

static void summarise_sums(const struct work *work, struct summary_row *row)
{
    const struct totals totals = row_totals(work);
    const struct measured_setting *setting = &work->all->settings[work->setting];
    for (const struct summary_column *column = summary_columns; column->key; column++) {
        const struct summary_quotient *of = &column->quotient;
        if (!of->numerator)
            continue;
        const double below = totals.sum[of->below[0]] + totals.sum[of->below[1]];
        const bool known = !of->needs[0] || totals.sum[of->needs[0]] + totals.sum[of->needs[1]] > 0;
        const double value = !of->below[0] ? totals.sum[of->numerator]
                                           : known ? quotient(totals.sum[of->numerator], below) : NAN;
        memcpy((char *)row + value_offset(column), &value, sizeof value);
    }
    row->acceptance_length = 1 + quotient(row->accepted_tokens, row->drafts);
    row->experts_per_layer = quotient(quotient(totals.sum[SUM_experts_loaded], totals.sum[SUM_STEPS]), setting->moe_layers);
    row->experts_per_forward = quotient(row->experts_per_forward, setting->moe_layers);
    row->bandwidth = quotient(totals.sum[SUM_BYTES], 1e-6 * totals.sum[SUM_US]);
    row->bandwidth_share = row->bandwidth / best_bandwidth(work->all, work->setting);
    row->ceiling = NAN;
    if (work->reference >= 0) {
        struct work reference = *work;
        reference.setting = work->reference;
        const struct totals base = row_totals(&reference);
        row->ceiling = quotient(base.sum[SUM_BYTES], base.sum[SUM_EMITTED]) /
                       quotient(totals.sum[SUM_BYTES], totals.sum[SUM_EMITTED]);
    }
}

static void summarise_positions(const struct work *work, struct summary_row *row)
{
    struct step_cursor at = {0};
    double counts[SUMMARY_POSITIONS] = {0};
    int deepest = 0;
    for (const struct measured_step *step; (step = measurements_step(work->all, work->task, work->setting, &at));) {
        int accepted = step->accepted < SUMMARY_POSITIONS ? step->accepted : SUMMARY_POSITIONS;
        int drafted = step->levels < SUMMARY_POSITIONS ? step->levels : SUMMARY_POSITIONS;
        deepest = drafted > deepest ? drafted : deepest;
        for (int p = 0; p < accepted; p++)
            counts[p]++;
    }
    row->positions = deepest;
    for (int p = 0; p < deepest; p++)
        row->accepted_per_pos[p] = counts[p] / row->drafts;
}

static void summarise_drafters(const struct work *work, struct summary_row *row)
{
    struct step_cursor at = {0};
    double verified[DECODE_DRAFTERS_MAX] = {0}, accepted[DECODE_DRAFTERS_MAX] = {0}, us[DECODE_DRAFTERS_MAX] = {0}, all = 0;
    row->drafters = 0;
    for (const struct measured_step *step; (step = measurements_step(work->all, work->task, work->setting, &at));) {
        row->drafters = step->drafters > row->drafters ? step->drafters : row->drafters;
        for (int d = 0; d < step->drafters; d++) {
            const struct measured_share *share = &work->all->shares[step->first_share + (size_t)d];
            row->drafter_steps[d] += share->steps;
            verified[d] += share->verified;
            accepted[d] += share->accepted;
            us[d] += share->us;
            all += share->accepted;
        }
    }
    for (int d = 0; d < row->drafters; d++) {
        row->drafter_share[d] = quotient(accepted[d], all);
        row->drafter_acceptance[d] = quotient(accepted[d], verified[d]);
        row->drafter_us_per_step[d] = quotient(us[d], row->drafter_steps[d]);
    }
}

/* Summarises tried tokens and their bounds. With bound = 1 - TV (total variation), bound / (2 - bound) = (1 - TV) / (1 +
 * TV), the minimum acceptance rate with common noise. */
static void summarise_trials(const struct work *work, struct summary_row *row)
{
    struct step_cursor at = {0};
    double bound = 0, common = 0, kept = 0;
    row->trials = 0;
    for (const struct measured_step *step; (step = measurements_step(work->all, work->task, work->setting, &at));) {
        for (int t = 0; t < step->trials; t++) {
            const struct measured_trial *trial = &work->all->trials[step->first_trial + (size_t)t];
            int p = trial->position - 1;
            row->trials++;
            kept += trial->kept;
            bound += (double)trial->bound;
            common += (double)trial->bound / (2 - (double)trial->bound);
            if (p < row->positions) {
                row->trials_per_pos[p]++;
                row->kept_per_pos[p] += trial->kept;
                row->bound_per_pos[p] += (double)trial->bound;
            }
        }
    }
    row->trials_kept = quotient(kept, row->trials);
    row->bound = quotient(bound, row->trials);
    row->bound_common_noise = quotient(common, row->trials);
    for (int p = 0; p < row->positions; p++) {
        row->kept_per_pos[p] = quotient(row->kept_per_pos[p], row->trials_per_pos[p]);
        row->bound_per_pos[p] = quotient(row->bound_per_pos[p], row->trials_per_pos[p]);
    }
}

struct reliability {
    double tokens[SUMMARY_BINS], predicted[SUMMARY_BINS], kept[SUMMARY_BINS], variance[SUMMARY_BINS], all, squares;
};

static void judge(struct reliability *out, double probability, bool kept)
{
    if (isnan(probability))
        return;
    const int bin = probability < 1 ? (int)(SUMMARY_BINS * probability) : SUMMARY_BINS - 1;
    out->tokens[bin]++;
    out->predicted[bin] += probability;
    out->kept[bin] += kept;
    out->variance[bin] += fmax(0, probability * (1 - probability));
    out->all++;
    out->squares += (probability - kept) * (probability - kept);
}

static double calibration_error(const struct reliability *judged)
{
    double sum = 0;
    for (int bin = 0; bin < SUMMARY_BINS; bin++)
        sum += fabs(judged->predicted[bin] - judged->kept[bin]);
    return quotient(sum, judged->all);
}

/* Returns the calibration error expected if all probabilities are right: predicted - kept of a bin is then about normal, and
 * the mean of its magnitude is sqrt(2 variance / pi). */
static double calibration_noise(const struct reliability *judged)
{
    double sum = 0;
    for (int bin = 0; bin < SUMMARY_BINS; bin++)
        sum += sqrt(judged->variance[bin] / acos(0));                   /* acos(0): pi / 2 */
    return quotient(sum, judged->all);
}

static void summarise_estimates(const struct work *work, struct summary_row *row)
{
    struct step_cursor at = {0};
    struct reliability stated = {.all = 0}, estimated = {.all = 0};
    for (const struct measured_step *step; (step = measurements_step(work->all, work->task, work->setting, &at));) {
        for (int t = 0; t < step->estimates; t++) {
            const struct measured_estimate *one = &work->all->estimates[step->first_estimate + (size_t)t];
            judge(&stated, one->stated, one->kept);
            judge(&estimated, one->estimated, one->kept);
        }
    }
    row->stated = stated.all;
    row->stated_brier = quotient(stated.squares, stated.all);
    row->stated_error = calibration_error(&stated);
    row->stated_noise = calibration_noise(&stated);
    row->estimated = estimated.all;
    row->estimated_brier = quotient(estimated.squares, estimated.all);
    row->estimated_error = calibration_error(&estimated);
    row->estimated_noise = calibration_noise(&estimated);
    const struct reliability *shown = estimated.all > 0 ? &estimated : &stated;
    for (int bin = 0; bin < SUMMARY_BINS; bin++) {
        row->reliability_tokens[bin] = shown->tokens[bin];
        row->reliability_predicted[bin] = quotient(shown->predicted[bin], shown->tokens[bin]);
        row->reliability_kept[bin] = quotient(shown->kept[bin], shown->tokens[bin]);
    }
}

/* Computes the mean over compared tokens of the sums value(step), with its interval; a prompt's samples are resampled
 * together. */
static int mean_change(const struct work *work, double (*value)(const struct measured_step *), struct stats_ratio *out,
                       struct err *err)
{
    size_t pairs = 0;
    for (const struct measured_sample *at = work->begin, *next; at < work->end; at = next) {
        struct stats_pair pair = {0, 0, 1, 1};
        next = prompt_end(work, at);
        struct run run = find_run(at, next, work->setting);
        for (const struct measured_sample *sample = run.begin; sample < run.end; sample++)
            for (size_t i = 0; i < sample->steps; i++) {
                const struct measured_step *step = &work->all->steps[sample->first_step + i];
                pair.tokens += value(step);
                pair.seconds += step->compared;
            }
        if (pair.seconds > 0)
            work->pairs[pairs++] = pair;
    }
    return stats_ratio(work->pairs, pairs, 0.05, out, err);
}

static double step_divergence(const struct measured_step *step) { return step->divergence; }
static double step_flips(const struct measured_step *step) { return step->flips; }

static int summarise_changes(const struct work *work, struct summary_row *row, struct err *err)
{
    struct stats_ratio divergence = {NAN, NAN, NAN}, flips = {NAN, NAN, NAN};
    if (mean_change(work, step_divergence, &divergence, err) || mean_change(work, step_flips, &flips, err))
        return -1;
    row->divergence = divergence.ratio;
    row->divergence_low = divergence.low;
    row->divergence_high = divergence.high;
    row->flips = flips.ratio;
    row->flips_low = flips.low;
    row->flips_high = flips.high;
    return 0;
}

static bool same_text(const char *a, const char *b) { return !strcmp(a ? a : "", b ? b : ""); }

static bool same_model(const struct measured_setting *a, const struct measured_setting *b)
{
    return *a->index_sha256 && *b->index_sha256 ? !strcmp(a->index_sha256, b->index_sha256) : !strcmp(a->model, b->model);
}

/* Returns whether some prompt ran under both settings. */
static bool share_a_prompt(const struct work *work, int one, int other)
{
    for (const struct measured_sample *at = work->begin, *next; at < work->end; at = next) {
        next = prompt_end(work, at);
        struct run run = find_run(at, next, one), base = find_run(at, next, other);
        if (run.begin < run.end && base.begin < base.end)
            return true;
    }
    return false;
}

/* Returns whether a setting may be compared with a candidate: within a stream if the model is the same. A decode stream has
 * one setting only; it is compared with settings of other streams with the same model on the same machine that decoded one
 * of its prompts. */
static bool comparable(const struct work *work, int setting, int candidate)
{
    const struct measured_setting *mine = &work->all->settings[setting], *other = &work->all->settings[candidate];
    const struct measured_stream *own = &work->all->streams[mine->stream], *its = &work->all->streams[other->stream];
    if (!same_model(mine, other))
        return false;
    return mine->stream == other->stream ||
           (own->decode && same_text(own->device, its->device) && same_text(own->isa, its->isa) &&
            own->threads == its->threads && share_a_prompt(work, setting, candidate));
}

/* Returns the fastest static and lossless setting among the rows of one task; of equal ones the first. */
static int best_static(const struct work *work, const struct summary_row *rows, size_t count, int setting)
{
    int best = -1;
    double speed = 0;
    for (size_t i = 0; i < count; i++)
        if (rows[i].tokens_per_s > speed && options_are_static(work->all->settings[rows[i].setting].options) &&
            comparable(work, setting, rows[i].setting)) {
            best = rows[i].setting;
            speed = rows[i].tokens_per_s;
        }
    return best;
}

static int compare_with_best(struct work *work, struct summary_row *rows, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        struct stats_ratio ratio = {NAN, NAN, NAN};
        size_t pairs = 0;
        double tokens, seconds;
        work->setting = rows[i].setting;
        work->reference = rows[i].best_static = best_static(work, rows, count, rows[i].setting);
        if (collect_pairs(work, &pairs, &tokens, &seconds, err) || stats_ratio(work->pairs, pairs, 0.05, &ratio, err))
            return -1;
        rows[i].best_ratio = ratio.ratio;
        rows[i].best_ratio_low = ratio.low;
        rows[i].best_ratio_high = ratio.high;
    }
    return 0;
}

static bool ran(const struct work *work)
{
    for (const struct measured_sample *sample = work->begin; sample < work->end; sample++)
        if (sample->setting == work->setting)
            return true;
    return false;
}

static int add_rows(struct summary *out, struct work *work, struct err *err)
{
    size_t first = out->count;
    for (size_t s = 0; s < work->all->setting_count; s++) {
        work->setting = (int)s;
        work->reference = work->all->settings[s].reference;
        if (!ran(work))
            continue;
        if (mem_grow(&out->rows, &out->room, out->count + 1, sizeof *out->rows, err))
            return -1;
        struct summary_row *row = &out->rows[out->count++];
        *row = (struct summary_row){.task = work->task, .setting = (int)s};
        if (compare_speed(work, row, err) || summarise_changes(work, row, err))
            return -1;
        compare_outputs(work, row);
        summarise_grades(work, row);
        summarise_times(work, row);
        summarise_sums(work, row);
        summarise_load(work, row);
        summarise_positions(work, row);
        summarise_drafters(work, row);
        summarise_trials(work, row);
        summarise_estimates(work, row);
    }
    return compare_with_best(work, out->rows + first, out->count - first, err);
}

int summary_make(struct summary *out, const struct measurements *all, struct err *err)
{
    struct summary made = {0};
    struct work work = {.all = all};
    const struct measured_sample *end = all->samples + all->sample_count;
    size_t values = all->step_count > all->sample_count ? all->step_count : all->sample_count;
    int tasks = 0, rc = -1;
    if (!(work.pairs = mem_alloc((size_t)all->prompts, sizeof *work.pairs, err)) ||
        !(work.values = mem_alloc(values, sizeof *work.values, err)))
        goto done;
    for (work.begin = all->samples; work.begin < end; work.begin = work.end, tasks++) {
        work.task = work.begin->task;
        for (work.end = work.begin; work.end < end && work.end->task == work.task;)
            work.end++;
        if (add_rows(&made, &work, err))
            goto done;
    }
    work.task = -1;
    work.begin = all->samples;
    work.end = end;
    if (tasks > 1 && add_rows(&made, &work, err))
        goto done;
    *out = made;
    made = (struct summary){0};
    rc = 0;
done:
    summary_free(&made);
    mem_free(&work.pairs);
    mem_free(&work.values);
    return rc;
}

void summary_free(struct summary *summary)
{
    mem_free(&summary->rows);
    *summary = (struct summary){0};
}
