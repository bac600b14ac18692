#include "common/instruments/skip.h"

#include "common/base/mem.h"
#include "common/decode/decode.h"
#include "common/draft/matchness.h"

struct skip_profile {
    struct skip_profile_setup setup;
    struct decode_settings settings;
    struct decoder *decoder;
    struct skip_set first;
    struct skip_search *search;
    struct match_window **window;           /* [texts] */
    size_t window_room;
    int texts;
    int64_t tokens;                         /* total tokens of all windows */
};

int skip_profile_rows(int window, int *rows, struct err *err)
{
    const struct decode_settings settings = DECODE_DEFAULTS;
    if (decode_rows(&settings, false, rows, err))
        return -1;
    *rows = *rows < window ? window : *rows;
    return 0;
}

int skip_profile_open(struct skip_profile **out, const struct skip_profile_setup *setup, struct err *err)
{
    struct skip_profile *profile = mem_alloc(1, sizeof *profile, err);
    if (!profile)
        return -1;
    profile->setup = *setup;
    profile->setup.search.fixed_texts = true;
    profile->settings = (struct decode_settings)DECODE_DEFAULTS;
    profile->settings.max_tokens = setup->window;
    const struct decoder_setup decoding = {.engine = setup->session->engine, .tokenizer = setup->session->tokenizer,
                                           .settings = &profile->settings, .stop = setup->stop};
    if (skip_set_first(&profile->first, model_hparams(setup->session->model)->layers, setup->ratio, err)) {
        err_at(err, "--ratio");
        goto failed;
    }
    if (skip_search_open(&profile->search, &profile->setup.search, &profile->first, err) ||
        decoder_open(&profile->decoder, &decoding, err))
        goto failed;
    *out = profile;
    return 0;
failed:
    skip_profile_close(&profile);
    return -1;
}

void skip_profile_close(struct skip_profile **profile)
{
    struct skip_profile *old = *profile;
    if (!old)
        return;
    for (int text = 0; text < old->texts; text++)
        match_window_close(&old->window[text]);
    mem_free(&old->window);
    skip_search_close(&old->search);
    decoder_close(&old->decoder);
    mem_free(profile);
}

static int keep_window(struct skip_profile *profile, const struct tokens *prompt, const struct decode_result *result,
                       struct err *err)
{
    size_t count = (size_t)prompt->n + (size_t)result->tokens;
    int32_t *token = NULL;
    if (!result->tokens)
        return 0;
    if (mem_grow(&profile->window, &profile->window_room, (size_t)profile->texts + 1, sizeof(struct match_window *), err) ||
        !(token = mem_alloc(count, sizeof *token, err)))
        return -1;
    for (size_t at = 0; at < count; at++)
        token[at] = at < (size_t)prompt->n ? prompt->ids[at] : result->token[at - (size_t)prompt->n];
    int rc = match_window_open(&profile->window[profile->texts], profile->setup.session->engine,
                               decoder_sequence(profile->decoder), token, prompt->n, result->tokens, err);
    mem_free(&token);
    if (rc)
        return -1;
    profile->texts++;
    profile->tokens += result->tokens;
    return 0;
}

/* Reads all turns of a prompt. */
static int read_prompt(struct skip_profile *profile, struct prompts *prompts, struct prompt *prompt, struct err *err)
{
    static const struct decode_sink nothing = {0};
    struct decode_result result;
    int turn = 1;
    while (turn > 0) {
        const struct decode_prompt text = {.token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                           .max_tokens = prompt->max_tokens, .task = prompt->task};
        if (decoder_run(profile->decoder, &text, &nothing, &result, err))
            return err_at(err, "%s", prompt->where);
        if (result.finish == FINISH_ABORT)
            return err_set(err, ERR_SIGNAL, "ended while prompts were read, before the search began; start again");
        if (keep_window(profile, &prompt->tokens, &result, err))
            return -1;
        turn = prompt_next_turn(prompts, prompt, result.text, result.text_bytes, err);
    }
    return turn;
}

int skip_profile_read(struct skip_profile *profile, struct prompts *prompts, struct progress *bar, struct err *err)
{
    struct prompt prompt = {0};
    int more, rc = 0;
    while (!rc && (more = prompts_next(prompts, &prompt, err)) != 0) {
        if (more < 0)
            return -1;
        rc = read_prompt(profile, prompts, &prompt, err);
        prompt_free(&prompt);
        if (bar)
            progress_step(bar, 1);
    }
    if (!rc && !profile->texts)
        rc = err_set(err, ERR_INPUT, "no prompt was answered, and the search needs at least one answer; give other prompts");
    return rc;
}

static int score(struct skip_profile *profile, const struct skip_set *candidate, struct err *err)
{
    const struct forward_part part = {.skip_attention = candidate->attention, .skip_ffn = candidate->ffn};
    int64_t all = 0;
    for (int text = 0; text < profile->texts; text++) {
        int matches;
        if (match_window_count(profile->window[text], &part, &matches, err))
            return -1;
        all += matches;
    }
    return skip_search_score(profile->search, (double)all / (double)profile->tokens, err);
}

int skip_profile_search(struct skip_profile *profile, struct progress *bar, struct skip_set *best, struct skip_found *found,
                        struct err *err)
{
    struct skip_set candidate;
    struct skip_found facts = {.window = profile->setup.window};
    bool ended = false;
    int rc;
    while (!(ended = stop_asked(profile->setup.stop)) &&
           (rc = skip_search_next(profile->search, &candidate, err)) != 0) {
        if (rc < 0 || score(profile, &candidate, err))
            return -1;
        if (bar)
            progress_step(bar, 1);
    }
    skip_search_result(profile->search, &facts);
    if (ended && !facts.search.candidates)
        return err_set(err, ERR_SIGNAL, "ended before the first candidate was tested; start again");
    facts.search.ended = ended ? "interrupted" : facts.search.ended;
    facts.search.ratio = profile->setup.ratio;
    facts.search.texts = profile->texts;
    *best = *skip_search_best(profile->search);
    *found = facts;
    return 0;
}
