#include "cmd/decode-summary.h"

#include <inttypes.h>
#include <math.h>

/* Returns the estimated relative growth of a forward's cost over that of one token: the growth of its bytes, and 5 % per
 * further row. */
static double forward_growth(const struct decode_iteration *iteration)
{
    const struct forward *forward = iteration->forward;
    int64_t more = 0;
    for (int layer = 0; forward->distinct_loaded && layer < forward->moe_layers; layer++)
        more += forward->distinct_loaded[layer] - forward->top_k;
    const double bytes = (double)(more > 0 ? more * forward->expert_bytes : 0);
    return bytes / fmax(1, (double)forward->bytes - bytes) + 0.05 * (iteration->record.nodes - 1);
}

void decode_summary_iteration(struct decode_summary *summary, const struct decode_iteration *iteration)
{
    const struct decode_iter *record = &iteration->record;
    struct decode_times *times = &summary->times;
    const double seconds = (record->verify_us + record->accept_us + record->other_us - record->probe_us) / 1e6;
    const double g = forward_growth(iteration);
    summary->all++;
    summary->without += iteration->tree->nodes == 0;
    for (int i = 0; i < iteration->drafters; i++) {
        summary->verified[i] += iteration->share[i].verified;
        summary->kept_of[i] += iteration->share[i].accepted;
        summary->draft_s[i] += iteration->share[i].seconds;
    }
    if (!iteration->number)                     /* the first iteration of a text is slower, with drafts and without */
        return;
    times->iterations++;
    times->emitted += record->emitted;
    times->draft_s += record->draft_us / 1e6;
    times->seconds += seconds;
    times->growth += g;
    times->growth_squared += g * g;
    times->growth_seconds += g * seconds;
}

/* Estimates the ratio of the speeds with and without drafts. Model: seconds of a forward = plain (1 + steepness growth), by
 * least squares over the iterations and PRIOR more in which the steepness is 1, the value if only bytes cost time. 0: not
 * known. */
static double speed(const struct decode_times *times)
{
    enum { PRIOR = 4 };
    const double n = times->iterations + PRIOR, g = times->growth - PRIOR, square = times->growth_squared + PRIOR;
    const double plain = (times->seconds * square - g * times->growth_seconds) / (n * square - g * g);
    const double spent = times->seconds + times->draft_s;
    return plain > 0 && spent > 0 ? (double)times->emitted * plain / spent : 0;
}

void decode_summary_add(struct decode_summary *summary, int prompt_tokens, const struct decode_result *result)
{
    summary->prompt_tokens += prompt_tokens;
    summary->kept += result->kept;
    summary->tokens += result->tokens;
    if (!result->tokens)
        return;
    summary->texts++;
    summary->later += result->tokens - 1;
    summary->iterations += result->iterations;
    summary->drafts += result->drafts;
    summary->accepted += result->accepted_tokens;
    summary->first_s += result->prefill_s;
    summary->later_s += result->total_s - result->prefill_s;
}

static int put_time(struct text *out, double seconds, struct err *err)
{
    return seconds < 1 ? text_printf(out, err, "%.3g ms", 1e3 * seconds) : text_printf(out, err, "%.3g s", seconds);
}

static int put_drafts(const struct decode_summary *summary, struct text *out, struct err *err)
{
    if (!summary->drafts)
        return text_puts(out, "; nothing was drafted", err);
    double length = 1 + (double)summary->accepted / (double)summary->drafts;
    double saved = 100 * (1 - (double)summary->iterations / (double)summary->later);
    double ratio = speed(&summary->times);
    const bool lost = ratio < 0.995;                    /* a ratio that is printed as 1.00 is no loss */
    if (text_printf(out, err, "; acceptance length %.2f", length) ||
        (!lost && text_printf(out, err, ", %.1f %% of forwards saved", saved)))
        return -1;
    return ratio > 0 ? text_printf(out, err, "; about %.2fx the tokens/s of no drafts%s", ratio,
                                   lost ? ": they cost time here" : "") : 0;
}

int decode_summary_put(const struct decode_summary *summary, bool drafting, struct text *out, struct err *err)
{
    if (!summary->prompt_tokens)
        return 0;
    if (text_printf(out, err, "%" PRId64 " prompt tokens", summary->prompt_tokens) ||
        (summary->kept && text_printf(out, err, " (%" PRId64 " kept)", summary->kept)) ||
        text_printf(out, err, ", %" PRId64 " new tokens", summary->tokens))
        return -1;
    if (summary->texts && (text_puts(out, summary->texts > 1 ? "; first token after (mean) " : "; first token after ", err) ||
                           put_time(out, summary->first_s / summary->texts, err)))
        return -1;
    if (summary->later && summary->later_s > 0 &&
        text_printf(out, err, ", then %.1f tokens/s", (double)summary->later / summary->later_s))
        return -1;
    return drafting && summary->later ? put_drafts(summary, out, err) : 0;
}

int decode_summary_choice(const struct decode_summary *summary, const struct strings *names, const char *policy,
                          struct text *out, struct err *err)
{
    if (text_printf(out, err, "--draft auto: --policy %s verified drafts in %" PRId64 " of %" PRId64 " iterations", policy,
                    summary->all - summary->without, summary->all))
        return -1;
    for (int i = 0; i < names->count && i < DRAFTERS_MAX; i++)
        if (text_printf(out, err, "; %s: %" PRId64 " of %" PRId64 " tokens accepted, drafting took ", names->items[i],
                        summary->kept_of[i], summary->verified[i]) ||
            put_time(out, summary->draft_s[i], err))
            return -1;
    return 0;
}
