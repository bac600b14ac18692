/* What moe-decode says in the end: how many tokens, how fast, and whether drafts made it faster. */
#ifndef MOE_CMD_DECODE_SUMMARY_H
#define MOE_CMD_DECODE_SUMMARY_H

#include <stdbool.h>

#include "common/base/text.h"
#include "common/cli/opt.h"
#include "common/decode/decode.h"

/* Sums over iterations: seconds are without drafting; growth: what a forward costs more than one over a single token. */
struct decode_times {
    int64_t iterations, emitted;
    double draft_s, seconds, growth, growth_squared, growth_seconds;
};

struct decode_summary {
    int texts;                          /* with a first token; only those count for the times */
    int64_t prompt_tokens, kept, tokens;                /* kept: tokens of prompts that were in the KV cache already */
    int64_t iterations, drafts, accepted, later;        /* later: tokens that iterations emitted */
    double first_s, later_s;
    struct decode_times times;
    int64_t all, without;               /* iterations; those that verified no draft */
    int64_t verified[DRAFTERS_MAX], kept_of[DRAFTERS_MAX];      /* drafted tokens of each drafter */
    double draft_s[DRAFTERS_MAX];
};

void decode_summary_iteration(struct decode_summary *summary, const struct decode_iteration *iteration);

void decode_summary_add(struct decode_summary *summary, int prompt_tokens, const struct decode_result *result);

/* One line without a newline; drafting: drafts were asked for. Nothing is put where nothing was decoded. */
int decode_summary_put(const struct decode_summary *summary, bool drafting, struct text *out, struct err *err);

/* One line without a newline on the choice among several drafters: what each had verified and accepted, and what its drafting
 * cost. names: [count], as in --draft. */
int decode_summary_choice(const struct decode_summary *summary, const struct strings *names, const char *policy,
                          struct text *out, struct err *err);

#endif
