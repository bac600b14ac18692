/* Makes a suite from command-line options. Options are those of moe-decode; many accept lists, and each combination of their
 * values is a setting.
 *
 *     moe-bench run -m pocket.moe -d ngram,pld -K 0,2,4 --temperature 0,1 prompts.jsonl
 *
 * A comma begins the next value of a list, unless key=value follows, which belongs to the value before:
 * "ngram:n=3,min=2,pld" means ngram:n=3,min=2 and pld. A comma after a backslash is part of its value. Drafters given by
 * several -d are used together, as in moe-decode, in every combination. If nothing is drafted (drafter none, or length 0),
 * drafting options have no effect, and all such combinations are one setting. */
#ifndef MOE_BENCH_SUITE_OPTIONS_H
#define MOE_BENCH_SUITE_OPTIONS_H

#include <jansson.h>

#include "common/base/err.h"
#include "common/cli/opt.h"
#include "common/session/settings.h"

#define SUITE_FIELD(letter, name, args, field, ...) field
#define SUITE_COUNTS(letter, name, args, field, min, max, help) OPT_STRING(letter, name, args, field, "N,...", help)
#define SUITE_FLOATS(letter, name, args, field, min, max, argument, help) \
    OPT_STRING(letter, name, args, field, argument ",...", help)

struct suite_options {
    struct strings models, draft, stop;
    const char *draft_length, *tree, *policy, *accept, *budget, *rank, *budget_mode, *max_tokens, *seed,
               SAMPLING_OPTIONS(SUITE_FIELD, SUITE_FIELD, , *);
    const char *budget_phase, *reference, *field, *chat_template;       /* one value each */
    bool ignore_eos, overlap, reconstruction, forecasts, chat;
    int repetitions, warm_up, prompts_per_task;                         /* not given: 0, -1, 0 */
    double measure_seconds;                                             /* -1: not given */
};

#define SUITE_OPTIONS_DEFAULTS {.warm_up = -1, .measure_seconds = -1}

/* A placeholder that ends with ",..." marks an option that takes a list. */
#define SUITE_OPTIONS(args, made) \
    OPT_GROUP("Settings from options"), \
    OPT_STRINGS('m', "model", args, made.models, "FILE", \
                "run settings defined by options, not a suite, on the model FILE (.moe); may be given several times"), \
    OPT_STRINGS('d', "draft", args, made.draft, "KIND,...", "guess tokens ahead, by each of these; -d none for no drafts"), \
    OPT_STRING('K', "draft-length", args, made.draft_length, "N|auto,...", "draft up to N tokens in sequence"), \
    OPT_STRING(0, "tree", args, made.tree, "KIND,...", "draft in each of these shapes"), \
    OPT_STRING(0, "policy", args, made.policy, "KIND,...", "choose the draft length by each of these policies"), \
    OPT_STRING(0, "accept", args, made.accept, "KIND,...", "accept drafted tokens by each of these rules"), \
    OPT_STRING('B', "budget", args, made.budget, "B|rank|auto,...", "load at most B experts per layer in a forward"), \
    OPT_STRING(0, "rank", args, made.rank, "FILE|WORD,...", "keep the experts that each of these rankings ranks highest"), \
    OPT_STRING(0, "budget-mode", args, made.budget_mode, "substitute|truncate,...", \
               "replace or drop experts outside the budget"), \
    OPT_STRING(0, "budget-phase", args, made.budget_phase, "WORDS", "apply the budget in these forwards"), \
    OPT_STRING('n', "max-tokens", args, made.max_tokens, "N,...", "generate at most N tokens per prompt"), \
    SAMPLING_OPTIONS(SUITE_COUNTS, SUITE_FLOATS, args, made.), \
    OPT_STRING(0, "seed", args, made.seed, "N,...", "use N as the seed of the random numbers"), \
    ENDING_OPTIONS(args, made), \
    MEASURE_OPTIONS(args, made), \
    OPT_FLAG(0, "chat", args, made.chat, "wrap each text in the chat template, as a user's message"), \
    OPT_STRING(0, "field", args, made.field, "NAME", "read the text of a prompt from the field NAME"), \
    OPT_INPUT(0, "chat-template", args, made.chat_template, "use the chat template in FILE, not the model's"), \
    OPT_COUNT(0, "repetitions", args, made.repetitions, 1, 10000, "repeat each prompt N times under each setting; 1 if not " \
              "given"), \
    OPT_COUNT(0, "warm-up", args, made.warm_up, 0, 1000, \
              "start N prompts under each setting as a warm-up, without recording them; 1 if not given"), \
    OPT_COUNT(0, "prompts-per-task", args, made.prompts_per_task, 1, 1 << 30, "use the first N prompts of each task"), \
    OPT_FLOAT(0, "measure-seconds", args, made.measure_seconds, 0, 600, "S", \
              "measure the read bandwidth of memory for S seconds before and after the run; 1 if not given")

/* Returns the first given option that makes a suite; NULL: none. */
const char *suite_options_given(const struct suite_options *options);

/* Makes the suite as JSON in the format of suite.h. File names are relative to the current directory. */
int suite_options_make(json_t **out, const struct suite_options *options, const struct strings *prompts, struct err *err);

#endif
