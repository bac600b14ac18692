/* Decoding settings shared by moe-decode, moe-profile and the suites of moe-bench: one table of options with one parser.
 *
 * A command puts DECODE_OPTIONS(struct its_args, settings) into its own table, where `settings` is a struct decode_settings
 * in its arguments, and starts from DECODE_DEFAULTS. Strings are borrowed from the parsed source. */
#ifndef MOE_SESSION_SETTINGS_H
#define MOE_SESSION_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/base/err.h"
#include "common/cli/console.h"
#include "common/cli/opt.h"
#include "common/policy/policy.h"
#include "kernels/plain/sample.h"
#include "kernels/route.h"

enum { DECODE_TOKENS_DEFAULT = 256, DRAFT_LENGTH_MAX = 64, DRAFT_LENGTH_DEFAULT = 4 };

struct decode_settings {
    int max_tokens;             /* -1: not given: a prompt's own max_tokens, or DECODE_TOKENS_DEFAULT */
    struct sample_filter filter;
    uint64_t seed;
    struct strings stop;
    bool ignore_eos;
    struct strings draft;       /* "ngram:n=4", ..., best first; count 0: not given */
    int draft_length;           /* or DRAFT_LENGTH_AUTO; DRAFT_LENGTH_NONE: not given */
    const char *tuned;          /* file of settings (tuned.h); NULL: not given */
    const char *tree;           /* shape of drafts; NULL: a chain */
    const char *policy;         /* NULL: not given */
    const char *accept;         /* NULL: coupled */
    bool forecasts;             /* score the sources of forecasts (decode/scoring.h) */
    bool overlap;               /* measure the upper bound of acceptance of each draft (verify/overlap.h) */
    const char *reference;      /* measure the divergence of the answer from this model (decode/divergence.h); NULL: do not */
    const char *force_routes, *force_accept;    /* recordings (decode/forced.h); NULL: not given */
    bool reconstruction;        /* measure the error of a budget in each layer */
    const char *budget, *rank, *budget_phase;   /* see decode/budget.h; NULL: not given */
    int budget_mode;            /* enum budget_mode */
};

/* The options of a command whose default of -n is `tokens`. */
#define DECODE_DEFAULTS_OF(tokens) \
    {.max_tokens = tokens, .filter.top_p = 1, .draft_length = DRAFT_LENGTH_NONE, .budget_mode = BUDGET_SUBSTITUTE}
#define DECODE_DEFAULTS DECODE_DEFAULTS_OF(-1)

extern const char *const budget_mode_words[];

/* Parts of these settings. A title in the tables below names the part of the options after it. */
enum setting_part {
    SETTING_LIMIT = 1,          /* the maximum number of tokens */
    SETTING_SAMPLING = 2,       /* how tokens are drawn from logits */
    SETTING_SEED = 4,
    SETTING_ENDING = 8,         /* where a text ends before its limit */
    SETTING_TEXT = 15,          /* all above: together with the model and the prompt they determine the text */
    SETTING_DRAFT = 16,
    SETTING_BUDGET = 32,
    SETTING_FORCE = 64,
    SETTING_MEASURE = 128,      /* measurements and additional records */
    SETTING_ALL = 255,
};

/* Rules between these options. */
#define DECODE_RULES \
    {OPT_NEEDS, "rank|budget-phase|budget-mode", "budget", "says which experts are kept, but not how many"}, \
    {OPT_NEEDS, "reconstruction", "budget", "there is no budget whose error could be measured"}, \
    {OPT_NEEDS, "overlap", "draft|force-accept|settings", "there are no drafts to measure"}, \
    {OPT_EXCLUDES, "accept", "force-accept", "has no effect on forced text"}, \
    {OPT_NEEDS, "accept", "draft|settings", "there are no drafts to accept"}, \
    {OPT_EXCLUDES, "budget", "force-routes|force-accept", "has no effect on forced routes or text"}, \
    DECODE_TEXT_RULES

#define DECODE_TEXT_RULES \
    DECODE_TEXT_RULES_BUT_SEED, \
    {OPT_NEEDS, "seed", "temperature|draft|force-accept|settings", "has no effect at temperature 0"}

/* Rules of a command that uses --seed for more than texts. */
#define DECODE_TEXT_RULES_BUT_SEED \
    {OPT_NEEDS, SAMPLING_FILTERS, "temperature", "has no effect at temperature 0"}, \
    {OPT_NEEDS, "tree|policy", "draft|force-accept", "there is nothing to draft with"}

/* The members of struct sample_filter. COUNT and FLOAT are OPT_COUNT and OPT_FLOAT, or macros with the same arguments; `at`
 * precedes the name of each field: "settings.filter.". SAMPLING_FILTERS: those that have no effect at temperature 0. */
#define SAMPLING_OPTIONS(COUNT, FLOAT, args, at) \
    FLOAT(0, "temperature", args, at temperature, 0, 100, "T", "divide logits by T; 0 chooses the most likely token"), \
    COUNT(0, "top-k", args, at top_k, 0, 1 << 24, "keep the K best tokens; 0 keeps all"), \
    FLOAT(0, "top-p", args, at top_p, 0, 1, "P", "keep the fewest best tokens of total probability P"), \
    FLOAT(0, "min-p", args, at min_p, 0, 1, "P", "keep tokens at least P times as likely as the best")
#define SAMPLING_FILTERS "top-k|top-p|min-p"

#define ENDING_OPTIONS(args, settings) \
    OPT_STRINGS(0, "stop", args, settings.stop, "TEXT", "end before TEXT; may be given several times"), \
    OPT_FLAG(0, "ignore-eos", args, settings.ignore_eos, "continue after an end-of-sequence token")

#define MEASURE_OPTIONS(args, settings) \
    OPT_FLAG(0, "overlap", args, settings.overlap, "record for each verified token the upper bound of its acceptance " \
             "probability under any rule"), \
    OPT_FLAG(0, "forecasts", args, settings.forecasts, \
             "record how well each forecast named the experts that verifications requested"), \
    OPT_STRING(0, "reference", args, settings.reference, "self|FILE", \
               "record the divergence of each token's distribution from model FILE, or from this model without a budget"), \
    OPT_FLAG(0, "reconstruction", args, settings.reconstruction, "record the error that the budget causes in each layer's " \
             "output of experts")

#define DECODE_OPTIONS(args, settings) \
    OPT_GROUP_OF("Choosing tokens", SETTING_LIMIT), \
    OPT_COUNT('n', "max-tokens", args, settings.max_tokens, 0, 1 << 24, \
              "generate at most N tokens per prompt; the prompt's max_tokens, or 256, if not given"), \
    OPT_GROUP("Drafting"), \
    OPT_INPUT(0, "settings", args, settings.tuned, \
              "draft with the settings in FILE, written by moe-bench tune, unless --draft, -K, --tree or --policy is given"), \
    OPT_GROUP_OF("Measurements", SETTING_MEASURE), \
    MEASURE_OPTIONS(args, settings), \
    OPT_GROUP_OF("Measurements", SETTING_FORCE), \
    OPT_STRING(0, "force-routes", args, settings.force_routes, "FILE", \
               "route each token to its experts in FILE, a recording of drafts"), \
    OPT_STRING(0, "force-accept", args, settings.force_accept, "FILE", \
               "replay the answers in FILE, a recording of drafts, and without --draft also its drafts"), \
    DECODE_OPTIONS_BUT_LENGTH(args, settings)

/* Defaults of a command with another default of -n. */
#define DECODE_OPTIONS_BUT_LENGTH(args, settings) \
    DECODE_TEXT_OPTIONS(args, settings), \
    OPT_STRING(0, "accept", args, settings.accept, "coupled|rejection|typical:epsilon=P,delta=P|jakiro-star", \
               "accept drafted tokens by this rule"), \
    OPT_GROUP_OF("Budgets", SETTING_BUDGET), \
    OPT_STRING('B', "budget", args, settings.budget, "B,...|rank|auto[:kl=X,every=N,check=0]", \
               "load at most B experts per layer in a forward; `rank': as recommended by the rank stream; `auto': as few as " \
               "keep the text close"), \
    OPT_INPUT_AS(0, "rank", args, settings.rank, "FILE|router|path|oracle[:printed]", \
              "keep the experts ranked highest by the rank stream FILE, or by `router', `path' or `oracle'"), \
    OPT_STRING(0, "budget-phase", args, settings.budget_phase, "decode|verify|draft|decode,draft|verify,draft", \
               "apply the budget in these forwards; decode if not given"), \
    OPT_CHOICE(0, "budget-mode", args, settings.budget_mode, budget_mode_words, "replace or drop experts outside the budget")

/* Options that determine the model's own text, and those that accelerate it. */
#define DECODE_TEXT_OPTIONS(args, settings) \
    OPT_GROUP_OF("Choosing tokens", SETTING_SAMPLING), \
    SAMPLING_OPTIONS(OPT_COUNT, OPT_FLOAT, args, settings.filter.), \
    OPT_GROUP_OF("Choosing tokens", SETTING_SEED), \
    OPT_SEED(args, settings.seed), \
    OPT_GROUP_OF("Choosing tokens", SETTING_ENDING), \
    ENDING_OPTIONS(args, settings), \
    OPT_GROUP_OF("Drafting", SETTING_DRAFT), \
    OPT_STRINGS('d', "draft", args, settings.draft, \
                "auto|none|ngram[:n=N]|pld[:n=N]|suffix:corpus=FILE|lookahead[:level=N]|model:file=FILE|head:file=FILE|" \
                "mtp[:depth=N]|self:skip=FILE[,...]", \
                "guess tokens ahead; may be given several times, the best first"), \
    OPT_COUNT_AUTO('K', "draft-length", args, settings.draft_length, 0, DRAFT_LENGTH_MAX, \
                   "draft up to N tokens in sequence; 4, or the depth of the tree, if not given; `auto' chooses by measured " \
                   "gain"), \
    OPT_STRING(0, "tree", args, settings.tree, "chain|static:file=FILE|static:width=N,depth=N|" \
               "dynamic:total=N,depth=N,topk=N|own:total=N,depth=N", \
               "draft in this shape"), \
    OPT_STRING(0, "policy", args, settings.policy, "static|cascade|cascade-cost|tiers|table|off|oracle:file=FILE|" \
               "vertical|horizontal|cs-drafting|tr|dytc|dytc-verify|evict|evict-experts|bastion|threshold[,...]", \
               "choose the draft length by this policy")

/* Returns the maximum draft length if it is given, else 8, as in MoE-SpAc. */
static inline int decode_gamma(const struct decode_settings *settings)
{
    return settings->draft_length > 0 ? settings->draft_length : 8;
}

/* The options of moe-decode, DECODE_OPTIONS, with fields of struct decode_settings. */
extern const struct opt decode_settings_options[];

/* Returns the part of the option with this name; 0: no such option, or an option without a part. */
unsigned setting_part(const char *name);

/* Returns the first option of these parts whose values differ; NULL: none. */
const struct opt *decode_settings_differ(const struct decode_settings *a, const struct decode_settings *b, unsigned parts);

/* Adds the options of these parts to a JSON object, by their names. */
int decode_settings_json(json_t *out, const struct decode_settings *settings, unsigned parts, struct err *err);

/* Reads a map of option names and values, {"draft": "ngram", "draft-length": 8, "ignore-eos": true, "stop": ["a", "b"]},
 * with the same table. *store owns the strings; free it with decode_settings_free after the last use of the settings. */
struct decode_settings_store;
int decode_settings_from_json(struct decode_settings *out, struct decode_settings_store **store, const json_t *map,
                              struct err *err);

/* The keys of a suite's setting that are not options of this table, ending with NULL. */
extern const char *const suite_setting_keys[];

/* Adds a line to `notes` for each given option that has no effect in combination with the others, such as --top-p at
 * temperature 0. name: of a suite's setting, which may share drafting options with settings that draft; NULL: the command
 * line. */
int decode_settings_note(const struct decode_settings *settings, const char *name, struct text *notes, struct err *err);

/* Prints the notes of a command line. */
int decode_settings_print(const struct decode_settings *settings, const struct console *console, struct err *err);

/* Passes each input file that the settings name to `visit`. */
int decode_settings_inputs(const struct decode_settings_store *store, opt_visitor *visit, const void *context, struct err *err);
void decode_settings_free(struct decode_settings_store **store);

#endif
