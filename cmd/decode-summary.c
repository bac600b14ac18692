#include "cmd/decode-summary.h"

#include <inttypes.h>

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
    return text_printf(out, err, "; acceptance length %.2f, %.1f %% of forwards saved", length, saved);
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
