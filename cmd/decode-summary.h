/* The summary at the end of moe-decode: tokens, speed, and the gain or loss from drafts. */
#ifndef MOE_CMD_DECODE_SUMMARY_H
#define MOE_CMD_DECODE_SUMMARY_H

#include <stdbool.h>

#include "common/base/text.h"
#include "common/cli/opt.h"
#include "common/decode/decode.h"

/* Sums over iterations. seconds: without drafting; growth: excess cost of a forward relative to one over a single token. */
struct decode_times {
    int64_t iterations, emitted;
    double draft_s, seconds, growth, growth_squared, growth_seconds;
};

struct decode_summary {
    int texts;                          /* texts with a first token; only these count for the times */
    int64_t prompt_tokens, kept, tokens;                /* kept: prompt tokens already in the KV cache */
    int64_t iterations, drafts, accepted, later;        /* later: tokens after the first of each text */
    double first_s, later_s;
    struct decode_times times;
    int64_t all, without;               /* all iterations; iterations without a draft */
    int64_t verified[DRAFTERS_MAX], kept_of[DRAFTERS_MAX];      /* drafted tokens of each drafter */
    double draft_s[DRAFTERS_MAX];
};

void decode_summary_iteration(struct decode_summary *summary, const struct decode_iteration *iteration);

void decode_summary_add(struct decode_summary *summary, int prompt_tokens, const struct decode_result *result);

/* Appends one line without a newline; appends nothing if nothing was decoded. drafting: drafts were requested. */
int decode_summary_put(const struct decode_summary *summary, bool drafting, struct text *out, struct err *err);

/* Appends a line without a newline on the choice among several drafters: each drafter's verified and accepted tokens and its
 * drafting time. names: [count], as in --draft. */
int decode_summary_choice(const struct decode_summary *summary, const struct strings *names, const char *policy,
                          struct text *out, struct err *err);

#endif
