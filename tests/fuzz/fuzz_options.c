/* Any bytes as a command line, a word per line: parsed with moe-decode's table, then the values with a syntax of their own
 * (drafter, policy, budget). Nothing is opened. */
#include <string.h>

#include "common/cli/command.h"
#include "common/decode/budget.h"
#include "common/draft/drafters.h"
#include "common/policy/policy.h"
#include "common/policy/shape.h"
#include "common/session/session.h"
#include "common/session/settings.h"
#include "tests/fuzz/fuzz.h"

enum { WORDS_MAX = 64 };

struct fuzz_args {
    struct session_options session;
    struct session_prompts prompts;
    struct decode_settings settings;
    const char *output;
    uint64_t size;
    int count;
    struct strings files;
};

static const struct opt options[] = {
    SESSION_OPTIONS(struct fuzz_args, session),
    SESSION_PROMPT_OPTIONS(struct fuzz_args, prompts),
    DECODE_OPTIONS(struct fuzz_args, settings),
    OPT_OUTPUT('o', "output", struct fuzz_args, output, "a name"),
    OPT_SIZE(0, "size", struct fuzz_args, size, 1, 1 << 30, "a size"),
    OPT_COUNT_AUTO(0, "count", struct fuzz_args, count, 0, 64, "a count"),
    OPT_END };
static const struct operand operands[] = { OPERAND_ANY("FILE", struct fuzz_args, files), OPERAND_END };
static const struct subcommand subcommand = { .options = options, .operands = operands, .args_bytes = sizeof(struct fuzz_args),
    .console = CONSOLE_QUIET | CONSOLE_VERBOSE | CONSOLE_PROGRESS };

static void check_fault(int rc, const struct err *err)
{
    if (rc && (!*err->text || strchr(err->text, '\n')))
        abort();                                /* an error is reported, in one line */
}

static void open_settings(const struct decode_settings *s)
{
    static const struct stream_model model = { .layers = 3, .moe_layers = 2, .experts = 8, .top_k = 2, .vocab = 99,
        .hidden = 8 };
    const struct decode_settings unranked = { .budget = s->budget, .budget_phase = s->budget_phase,
                                              .budget_mode = s->budget_mode };
    struct drafter_setup drafter_setup = {0};
    struct policy_setup policy_setup = { .draft_length = s->draft_length };
    struct err err = {0};
    struct budget *budget = NULL;
    struct drafters drafters = {{NULL}, 0};
    bool files = false;
    struct policy *policy = NULL;
    struct shape *shape = NULL;
    struct text note = {0};
    check_fault(budget_open(&budget, &unranked, false, &model, &note, &err), &err);
    for (int i = 0; i < s->draft.count; i++)
        files |= strstr(s->draft.items[i], "file=") != NULL;
    if (!files)
        check_fault(drafters_open(&drafters, s->draft.items, s->draft.count, &drafter_setup, &err), &err);
    if (!s->tree || !strstr(s->tree, "file="))
        check_fault(shape_open(&shape, s->tree, &err), &err);
    policy_setup.shape = shape;
    if (s->policy && shape)
        check_fault(policy_open(&policy, s->policy, &policy_setup, &err), &err);
    policy_close(&policy);
    shape_close(&shape);
    drafters_close(&drafters);
    budget_close(&budget);
    text_free(&note);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz_args args = { .settings = DECODE_DEFAULTS };
    struct console console = { .program = "fuzz" };
    struct err err = {0};
    char *words[WORDS_MAX + 1], *text = malloc(bytes + 1);
    int count = 0;
    if (!text)
        abort();
    memcpy(text, data, bytes);
    text[bytes] = 0;
    for (char *word = text; word && count < WORDS_MAX;) {
        char *end = strchr(word, '\n');
        if (end)
            *end++ = 0;
        words[count++] = word;
        word = end;
    }
    words[count] = NULL;
    int rc = opt_parse(&subcommand, count, words, &args, &console, &err);
    check_fault(rc, &err);
    if (!rc)
        open_settings(&args.settings);
    opt_free(&subcommand, &args);
    free(text);
    return 0;
}
