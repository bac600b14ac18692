#include "common/instruments/features.h"

#include <string.h>

#include "common/base/float.h"
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/instruments/profile.h"
#include "common/stream/feature.h"
#include "common/stream/route.h"

enum { PIECE_ROWS = 64 };

/* One text on its way into the stream. */
struct feature_text {
    const char *id, *task;
    const int32_t *token;               /* [tokens] */
    const uint8_t *mask;                /* [tokens] */
    int tokens;
    bool validation;
};

struct feature_profile {
    struct feature_profile_setup setup;
    struct feature_request request;
    struct feature_totals totals;
    struct decoder *decoder;            /* NULL: texts bring their answers along */
    struct sequence *sequence;          /* NULL: no text so far */
    const struct feature_text *text;    /* being read */
    float *states;                      /* [points][PIECE_ROWS][hidden] */
    uint16_t *narrow;                   /* the same; NULL: f32 is written */
    int32_t *token;                     /* a prompt and the answer to it */
    uint8_t *mask;
    size_t token_room, mask_room;
};

int feature_profile_open(struct feature_profile **out, const struct feature_profile_setup *setup, struct err *err)
{
    struct feature_profile *profile;
    const size_t hidden = (size_t)model_hparams(setup->session->model)->hidden, points = (size_t)setup->states.count;
    if (points > FEATURES_MAX)
        return err_set(err, ERR_INPUT, "%d states: %d are possible", setup->states.count, FEATURES_MAX);
    if (!(profile = mem_alloc(1, sizeof *profile, err)))
        return -1;
    profile->setup = *setup;
    profile->request.count = setup->states.count;
    memcpy(profile->request.layer, setup->states.state, points * sizeof *profile->request.layer);
    const struct decoder_setup decoding = {.engine = setup->session->engine, .tokenizer = setup->session->tokenizer,
                                           .settings = setup->settings, .on_device = true, .stop = setup->stop};
    if ((setup->settings->max_tokens && decoder_open(&profile->decoder, &decoding, err)) ||
        !(profile->states = mem_alloc(points * PIECE_ROWS, hidden * sizeof *profile->states, err)) ||
        (setup->dtype == DTYPE_BF16 &&
         !(profile->narrow = mem_alloc(points * PIECE_ROWS, hidden * sizeof *profile->narrow, err)))) {
        feature_profile_close(&profile);
        return -1;
    }
    *out = profile;
    return 0;
}

void feature_profile_close(struct feature_profile **profile)
{
    if (!*profile)
        return;
    decoder_close(&(*profile)->decoder);
    sequence_close(&(*profile)->sequence);
    mem_free(&(*profile)->states);
    mem_free(&(*profile)->narrow);
    mem_free(&(*profile)->token);
    mem_free(&(*profile)->mask);
    mem_free(profile);
}

/* Rows from..from + n of a piece, whose first is at `position` of the text. */
static int put_rows(struct feature_profile *profile, const struct forward *piece, int position, int from, int n,
                    struct err *err)
{
    const struct feature_profile_setup *setup = &profile->setup;
    const struct feature_text *text = profile->text;
    const size_t hidden = (size_t)piece->hidden_size, width = (size_t)n * hidden;
    for (int i = 0; i < profile->request.count; i++)
        queue_download(setup->session->device, profile->states + (size_t)i * width,
                       buffer_part(piece->features, ((uint64_t)i * (uint64_t)piece->rows + (uint64_t)from) * hidden *
                                   sizeof(float), width * sizeof(float)), width * sizeof(float));
    if (queue_wait(setup->session->device, err))
        return -1;
    for (size_t i = 0; profile->narrow && i < (size_t)profile->request.count * width; i++)
        profile->narrow[i] = f32_to_bf16(profile->states[i]);
    const struct feature_states record = {
        .sequence = profile->totals.texts, .pos = position + from, .n = n, .tokens = text->token + position + from,
        .mask = text->mask + position + from, .points = profile->request.count, .point = profile->request.layer,
        .values = {profile->narrow ? (const void *)profile->narrow : profile->states, setup->dtype}};
    return writer_record(setup->writer, &feature_states_kind, &record, err);
}

static int put_piece(void *context, const struct forward *piece, int position, struct err *err)
{
    struct feature_profile *profile = context;
    for (int from = 0; from < piece->rows; from += PIECE_ROWS) {
        int left = piece->rows - from;
        if (put_rows(profile, piece, position, from, left < PIECE_ROWS ? left : PIECE_ROWS, err))
            return -1;
    }
    if (profile->setup.bar)
        progress_step(profile->setup.bar, (uint64_t)piece->rows);
    return stop_asked(profile->setup.stop) ? err_set(err, ERR_SIGNAL, "interrupted") : 0;
}

/* An empty sequence with room for so many tokens. */
static int prepare_sequence(struct feature_profile *profile, int tokens, struct err *err)
{
    struct engine *engine = profile->setup.session->engine;
    int max = engine_max_positions(engine), old = profile->sequence ? sequence_capacity(profile->sequence) : 0;
    if (profile->sequence && old >= tokens)
        return sequence_truncate(profile->sequence, 0, err);
    int room = old < max / 2 ? 2 * old : max;             /* so that growing texts do not each cost a new one */
    sequence_close(&profile->sequence);
    return sequence_open(&profile->sequence, engine, room < tokens ? tokens : room, err);
}

/* Reads a text and writes what there is of it. */
static int write_text(struct feature_profile *profile, const struct feature_text *text, int prompt_tokens, struct err *err)
{
    struct writer *writer = profile->setup.writer;
    const int64_t sequence = profile->totals.texts;
    const struct feature_begin begin = {.sequence = sequence, .id = text->id, .task = text->task,
                                        .prompt_tokens = prompt_tokens, .text_tokens = text->tokens,
                                        .validation = text->validation};
    const struct batch options = {.features = &profile->request};
    struct forward forward;
    profile->text = text;
    return prepare_sequence(profile, text->tokens, err) || writer_record(writer, &feature_begin_kind, &begin, err) ||
           engine_prompt(profile->setup.session->engine, profile->sequence, text->token, text->tokens, &options, put_piece,
                         profile, &forward, err) ||
           writer_record(writer, &route_end_kind, &(struct route_end){sequence}, err) ? -1 : 0;
}

/* As far as it is not cut, and to the end of its last answer; one without anything left to learn is left out. */
static int take_text(struct feature_profile *profile, const struct feature_text *whole, struct err *err)
{
    struct feature_text text = *whole;
    struct feature_totals *totals = &profile->totals;
    int learnt = 0, prompt_tokens;
    if (profile->setup.cut && text.tokens > profile->setup.cut)
        text.tokens = profile->setup.cut;
    while (text.tokens && !text.mask[text.tokens - 1])
        text.tokens--;
    for (prompt_tokens = 0; prompt_tokens < text.tokens && !text.mask[prompt_tokens]; prompt_tokens++)
        ;
    for (int i = 0; i < text.tokens; i++)
        learnt += text.mask[i];
    if (!learnt) {
        totals->left_out++;
        return 0;
    }
    if (profile->setup.writer && write_text(profile, &text, prompt_tokens, err))
        return -1;
    totals->texts++;
    totals->validation += text.validation;
    totals->tokens += text.tokens;
    totals->learnt += learnt;
    return 0;
}

/* A prompt is kept apart by its own tokens alone: whatever answers it, in whatever order or company it comes. */
static bool kept_apart(const struct feature_profile *profile, const int32_t *token, int tokens)
{
    const struct digest128 digest = hash_xxh3(token, (size_t)tokens * sizeof *token);
    return (double)(digest.high >> 11) * 0x1p-53 < profile->setup.validation;
}

/* A text that brings its answers along, or several. */
static int run_answered(struct feature_profile *profile, struct prompts *prompts, struct prompt *prompt, struct err *err)
{
    int asked = 0, turn = 1;
    while (asked < prompt->tokens.n && !prompt->mask[asked])
        asked++;
    const bool validation = kept_apart(profile, prompt->tokens.ids, asked);
    while (turn > 0) {
        const struct feature_text text = {prompt->id, prompt->task, prompt->tokens.ids, prompt->mask, prompt->tokens.n,
                                          validation};
        if (profile->setup.all)
            memset(prompt->mask, 1, (size_t)prompt->tokens.n);
        if (take_text(profile, &text, err))
            return err_at(err, "%s", prompt->place);
        turn = prompt_next_turn(prompts, prompt, NULL, 0, err);
    }
    return turn;
}

/* One turn, which the target answers. */
static int run_turn(struct feature_profile *profile, const struct prompt *prompt, bool validation, bool *ended,
                    struct decode_result *result, struct err *err)
{
    static const struct decode_sink none;
    const struct decode_prompt asked = {.token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                        .max_tokens = prompt->max_tokens, .sequence = profile->totals.texts,
                                        .task = prompt->task};
    if (decoder_run(profile->decoder, &asked, &none, result, err))
        return -1;
    if (result->finish == FINISH_ABORT) {
        *ended = true;
        return 0;
    }
    const size_t before = (size_t)asked.tokens, all = before + (size_t)result->tokens;
    if (mem_grow(&profile->token, &profile->token_room, all, sizeof *profile->token, err) ||
        mem_grow(&profile->mask, &profile->mask_room, all, 1, err))
        return -1;
    memcpy(profile->token, asked.token, before * sizeof *profile->token);
    if (result->tokens)
        memcpy(profile->token + before, result->token, (size_t)result->tokens * sizeof *profile->token);
    memset(profile->mask, profile->setup.all, before);
    memset(profile->mask + before, 1, all - before);
    const struct feature_text text = {prompt->id, prompt->task, profile->token, profile->mask, (int)all, validation};
    return take_text(profile, &text, err);
}

static int run_asked(struct feature_profile *profile, struct prompts *prompts, struct prompt *prompt, bool *ended,
                     struct err *err)
{
    const bool validation = kept_apart(profile, prompt->tokens.ids, prompt->tokens.n);
    struct decode_result result;
    int turn = 1;
    while (turn > 0 && !*ended) {
        if (run_turn(profile, prompt, validation, ended, &result, err))
            return err_at(err, "%s", prompt->place);
        turn = *ended ? 0 : prompt_next_turn(prompts, prompt, result.text, result.text_bytes, err);
    }
    return turn;
}

static int run_prompt(struct feature_profile *profile, struct prompts *prompts, struct prompt *prompt, bool *ended,
                      struct err *err)
{
    const struct decode_prompt skipped = {.token = prompt->tokens.ids, .tokens = prompt->tokens.n};
    if (prompt->ordinal % profile->setup.shards != profile->setup.shard - 1)
        return profile->decoder ? decoder_skip(profile->decoder, &skipped, err) : 0;
    int rc = profile->decoder ? run_asked(profile, prompts, prompt, ended, err) : run_answered(profile, prompts, prompt, err);
    *ended |= rc && err->code == ERR_SIGNAL;
    return *ended ? 0 : rc;
}

int feature_profile_run(struct feature_profile *profile, struct prompts *prompts, bool *ended, struct err *err)
{
    struct prompt prompt = {0};
    int more, rc = 0;
    *ended = false;
    while (!rc && !*ended && (more = prompts_next(prompts, &prompt, err)) != 0) {
        if (more < 0 && err->code != ERR_SIGNAL)
            return -1;
        if (more < 0 || stop_asked(profile->setup.stop))
            *ended = true;
        else
            rc = run_prompt(profile, prompts, &prompt, ended, err);
        if (more > 0)
            prompt_free(&prompt);
    }
    return rc;
}

static int judge(void *context, const struct prompt *prompt, struct err *err)
{
    const struct feature_profile *profile = context;
    const int cut = profile->setup.cut, max = engine_max_positions(profile->setup.session->engine);
    const struct decode_prompt text = {.token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                       .max_tokens = prompt->max_tokens};
    if (profile->decoder)
        return decoder_check(profile->decoder, &text, err);
    if (prompt->tokens.n > max && !(cut && cut <= max))
        return err_set(err, ERR_INPUT, "the text has %d tokens, more than the context of %d; --cut N takes the first N of each "
                       "text", prompt->tokens.n, max);
    return 0;
}

int feature_profile_check(struct feature_profile *profile, struct prompts *prompts, struct err *err)
{
    bool all;
    return prompts_check(prompts, judge, profile, &all, err);
}

const struct feature_totals *feature_profile_totals(const struct feature_profile *profile) { return &profile->totals; }
