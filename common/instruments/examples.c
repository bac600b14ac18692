#include "common/instruments/examples.h"

#include <string.h>

#include "common/base/hash.h"
#include "common/base/mem.h"

struct examples {
    struct examples_setup setup;
    struct examples_totals totals;
    struct decoder *decoder;            /* NULL: texts contain their answers */
    examples_take *take;
    void *context;                      /* passed to `take` */
    int32_t *token;                     /* a prompt and its answer */
    uint8_t *mask;
    size_t token_room, mask_room;
};

int examples_check_settings(const struct decode_settings *settings, struct err *err)
{
    const struct decode_settings defaults = DECODE_DEFAULTS;
    const struct opt *given = decode_settings_differ(settings, &defaults, SETTING_SAMPLING | SETTING_ENDING | SETTING_DRAFT);
    return settings->max_tokens || !given ? 0
               : err_set(err, ERR_INPUT, "--%s: has no effect, because the model generates no answers; add -n N", given->name);
}

int examples_open(struct examples **out, const struct examples_setup *setup, struct err *err)
{
    struct examples *examples = mem_alloc(1, sizeof *examples, err);
    if (!examples)
        return -1;
    examples->setup = *setup;
    const struct decoder_setup decoding = {.engine = setup->session->engine, .tokenizer = setup->session->tokenizer,
                                           .settings = setup->settings, .on_device = true, .stop = setup->stop};
    if (setup->settings->max_tokens && decoder_open(&examples->decoder, &decoding, err)) {
        examples_close(&examples);
        return -1;
    }
    *out = examples;
    return 0;
}

void examples_close(struct examples **examples)
{
    if (!*examples)
        return;
    decoder_close(&(*examples)->decoder);
    mem_free(&(*examples)->token);
    mem_free(&(*examples)->mask);
    mem_free(examples);
}

/* Passes a text to `take`: truncated at the limit, then after the last token to be learnt. Skips a text without tokens to
 * learn. */
static int take_text(struct examples *examples, const struct example *whole, struct err *err)
{
    struct example text = *whole;
    struct examples_totals *totals = &examples->totals;
    if (examples->setup.cut && text.tokens > examples->setup.cut)
        text.tokens = examples->setup.cut;
    while (text.tokens && !text.mask[text.tokens - 1])
        text.tokens--;
    while (text.prompt_tokens < text.tokens && !text.mask[text.prompt_tokens])
        text.prompt_tokens++;
    for (int i = 0; i < text.tokens; i++)
        text.learnt += text.mask[i];
    if (!text.learnt) {
        totals->left_out++;
        return 0;
    }
    if (examples->take(examples->context, &text, err))
        return -1;
    totals->texts++;
    totals->validation += text.validation;
    totals->tokens += text.tokens;
    totals->learnt += text.learnt;
    return 0;
}

/* Returns whether a prompt is used for validation. This depends on its tokens alone, not on its answer or on other prompts. */
static bool is_for_validation(const struct examples *examples, const int32_t *token, int tokens)
{
    const struct digest128 digest = hash_xxh3(token, (size_t)tokens * sizeof *token);
    return (double)(digest.high >> 11) * 0x1p-53 < examples->setup.validation;
}

/* Processes a text that contains one or more answers. */
static int run_answered(struct examples *examples, struct prompts *prompts, struct prompt *prompt, struct err *err)
{
    int asked = 0, turn = 1;
    while (asked < prompt->tokens.n && !prompt->mask[asked])
        asked++;
    const bool validation = is_for_validation(examples, prompt->tokens.ids, asked);
    while (turn > 0) {
        const struct example text = {.id = prompt->id, .task = prompt->task, .where = prompt->where,
                                     .token = prompt->tokens.ids, .mask = prompt->mask, .tokens = prompt->tokens.n,
                                     .validation = validation};
        if (examples->setup.all)
            memset(prompt->mask, 1, (size_t)prompt->tokens.n);
        if (take_text(examples, &text, err))
            return err_at(err, "%s", prompt->where);
        turn = prompt_next_turn(prompts, prompt, NULL, 0, err);
    }
    return turn;
}

/* Processes one turn of a chat, which the target answers. */
static int run_turn(struct examples *examples, const struct prompt *prompt, bool validation, bool *ended,
                    struct decode_result *result, struct err *err)
{
    static const struct decode_sink none;
    const struct decode_prompt asked = {.token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                        .max_tokens = prompt->max_tokens, .turn = prompt->turn,
                                        .sequence = examples->totals.texts, .task = prompt->task};
    if (decoder_run(examples->decoder, &asked, &none, result, err))
        return -1;
    if (result->finish == FINISH_ABORT) {
        *ended = true;
        return 0;
    }
    const size_t before = (size_t)asked.tokens, all = before + (size_t)result->tokens;
    if (mem_grow(&examples->token, &examples->token_room, all, sizeof *examples->token, err) ||
        mem_grow(&examples->mask, &examples->mask_room, all, 1, err))
        return -1;
    memcpy(examples->token, asked.token, before * sizeof *examples->token);
    if (result->tokens)
        memcpy(examples->token + before, result->token, (size_t)result->tokens * sizeof *examples->token);
    memset(examples->mask, examples->setup.all, before);
    memset(examples->mask + before, 1, all - before);
    const struct example text = {.id = prompt->id, .task = prompt->task, .where = prompt->where, .token = examples->token,
                                 .mask = examples->mask, .tokens = (int)all, .validation = validation};
    return take_text(examples, &text, err);
}

static int answer_prompt(struct examples *examples, struct prompts *prompts, struct prompt *prompt, bool *ended,
                         struct err *err)
{
    const bool validation = is_for_validation(examples, prompt->tokens.ids, prompt->tokens.n);
    struct decode_result result;
    int turn = 1;
    while (turn > 0 && !*ended) {
        if (run_turn(examples, prompt, validation, ended, &result, err))
            return err_at(err, "%s", prompt->where);
        turn = *ended ? 0 : prompt_next_turn(prompts, prompt, result.text, result.text_bytes, err);
    }
    return turn;
}

static int run_prompt(void *context, struct prompts *prompts, struct prompt *prompt, bool *ended, struct err *err)
{
    struct examples *examples = context;
    return examples->decoder ? answer_prompt(examples, prompts, prompt, ended, err)
                             : run_answered(examples, prompts, prompt, err);
}

static int skip(void *context, const struct prompt *prompt, struct err *err)
{
    const struct examples *examples = context;
    const struct decode_prompt skipped = {.token = prompt->tokens.ids, .tokens = prompt->tokens.n};
    return decoder_skip(examples->decoder, &skipped, err);
}

int examples_run(struct examples *examples, struct prompts *prompts, examples_take *take, void *context, bool *ended,
                 struct err *err)
{
    examples->take = take;
    examples->context = context;
    if (examples->decoder && prompts_before(prompts, skip, examples, err))
        return -1;
    return prompts_each(prompts, examples->setup.stop, run_prompt, examples, ended, err);
}

static int judge(void *context, const struct prompt *prompt, struct err *err)
{
    const struct examples *examples = context;
    const int cut = examples->setup.cut, max = engine_max_positions(examples->setup.session->engine);
    const struct decode_prompt text = {.token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                       .max_tokens = prompt->max_tokens};
    if (examples->decoder)
        return decoder_check(examples->decoder, &text, err);
    if (prompt->tokens.n > max && !(cut && cut <= max))
        return err_set(err, ERR_INPUT, "the text has %d tokens, but the context is %d; use only the first N tokens of each "
                       "text with --cut N", prompt->tokens.n, max);
    return 0;
}

int examples_check(struct examples *examples, struct prompts *prompts, struct err *err)
{
    bool all;
    return prompts_check(prompts, judge, examples, &all, err);
}

const struct examples_totals *examples_totals(const struct examples *examples) { return &examples->totals; }
