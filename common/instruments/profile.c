#include "common/instruments/profile.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/stream/route.h"

enum { PIECE_ROWS = 64, RECORD_ROWS = ENGINE_ROWS_MAX };

struct profile {
    struct profile_setup setup;
    struct decoder *decoder;
    struct route_counts *counts;        /* NULL, as the next three, if the model has no experts */
    int16_t *experts;                   /* [RECORD_ROWS][moe_layers][top_k] */
    double *mass;                       /* [moe_layers][experts] */
    float *correction;                  /* [moe_layers][experts]; NULL: not recorded */
    const int32_t *prompt;              /* tokens of the prompt being read */
    int64_t sequence;                   /* number of texts begun; the current one has number sequence - 1 */
};

/* Sets the routes of rows `from` .. from + record->n. */
static int set_routes(struct profile *profile, const struct forward *forward, int from, struct route_tokens *record,
                      struct err *err)
{
    size_t layers = (size_t)forward->moe_layers;
    size_t slots = layers * (size_t)forward->top_k, cells = layers * (size_t)forward->experts;
    const int32_t *expert = forward->expert + (size_t)from * slots;
    const float *score = forward->score + (size_t)from * cells;
    memset(profile->mass, 0, cells * sizeof *profile->mass);
    for (size_t i = 0; i < (size_t)record->n * slots; i++)
        profile->experts[i] = (int16_t)expert[i];
    for (int row = 0; row < record->n; row++)
        if (!record->accepted || record->accepted[row])
            route_mass_add(profile->mass, score + (size_t)row * cells, (int)cells);
    record->experts = profile->experts;
    record->weights = forward->weight + (size_t)from * slots;
    record->mass = profile->mass;
    if (profile->setup.probs)
        record->probs = score;
    return route_counts_add(profile->counts, record, err);
}

/* Writes rows `from` .. from + record->n of the forward; the caller has set the record's other members. */
static int put_rows(struct profile *profile, const struct forward *forward, int from, struct route_tokens *record,
                    struct err *err)
{
    const struct profile_setup *setup = &profile->setup;
    record->sequence = profile->sequence - 1;
    if (profile->counts && set_routes(profile, forward, from, record, err))
        return -1;
    if (setup->logits)
        record->logits = forward->logits + (size_t)from * (size_t)forward->vocab;
    if (setup->hidden)
        record->hidden = forward->hidden + (size_t)from * (size_t)forward->layers * (size_t)forward->hidden_size;
    if (setup->bar)
        progress_step(setup->bar, (uint64_t)record->n);
    return setup->writer ? writer_record(setup->writer, &route_tokens_kind, record, err) : 0;
}

static int put_prompt(void *context, const struct forward *piece, int position, struct err *err)
{
    struct profile *profile = context;
    for (int from = 0; from < piece->rows; from += PIECE_ROWS) {
        int left = piece->rows - from;
        struct route_tokens record = { .pos = position + from, .n = left < PIECE_ROWS ? left : PIECE_ROWS,
                                       .phase = PHASE_PROMPT, .tokens = profile->prompt + position + from };
        if (put_rows(profile, piece, from, &record, err))
            return -1;
    }
    return 0;
}

/* Marks accepted rows. The row of a kept token gives the next token. If the answer was truncated, the last kept rows gave
 * tokens beyond its end; these rows are not marked, because without a draft there would have been no such forwards. */
static int put_iteration(void *context, const struct decode_iteration *iteration, struct err *err)
{
    uint8_t accepted[RECORD_ROWS];
    int given = 0;
    for (int row = 0; row < iteration->rows; row++)
        accepted[row] = iteration->kept[row] && given++ < iteration->n_emitted;
    struct route_tokens record = { .pos = iteration->position, .n = iteration->rows,
                                   .phase = iteration->rows > 1 ? PHASE_VERIFY : PHASE_DECODE, .tokens = iteration->token,
                                   .parents = iteration->rows > 1 ? iteration->parent : NULL,
                                   .accepted = iteration->rows > 1 ? accepted : NULL };
    return put_rows(context, iteration->forward, 0, &record, err);
}

/* Copies the router's correction biases; the experts chosen depend on them, not on the probabilities alone. */
static int take_corrections(struct profile *profile, const struct model *model, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    size_t experts = (size_t)shape->router.experts;
    if (!shape->router.correction || !profile->setup.probs)
        return 0;
    if (!(profile->correction = mem_alloc((size_t)hparams_moe_layers(shape) * experts, sizeof *profile->correction, err)))
        return -1;
    float *to = profile->correction;
    for (int n = 0; n < shape->layers; n++) {
        if (shape->layer[n].ffn != FFN_EXPERTS)
            continue;
        const struct tensor *tensor = model_tensor(model, err, "layers.%d.router_correction", n);
        if (!tensor)
            return -1;
        memcpy(to, model_data(model, tensor), experts * sizeof *to);
        to += experts;
    }
    return 0;
}

/* Allocates the route counters, and the arrays of a record. */
static int open_routes(struct profile *profile, const struct stream_model *model, struct err *err)
{
    size_t layers = (size_t)model->moe_layers;
    return route_counts_open(&profile->counts, model, err) ||
           take_corrections(profile, profile->setup.session->model, err) ||
           !(profile->experts = mem_alloc(RECORD_ROWS * layers, (size_t)model->top_k * sizeof *profile->experts, err)) ||
           !(profile->mass = mem_alloc(layers * (size_t)model->experts, sizeof *profile->mass, err)) ? -1 : 0;
}

int profile_open(struct profile **out, const struct profile_setup *setup, struct err *err)
{
    struct stream_model model;
    session_stream_model(setup->session, &model);
    if (!model.moe_layers && (!(setup->logits || setup->hidden) || setup->probs || !setup->writer))
        return err_set(err, ERR_INPUT, "the model has no experts, so there are no routes to record; write a stream with "
                                       "--record logits or --record hidden");
    struct profile *profile = mem_alloc(1, sizeof *profile, err);
    if (!profile)
        return -1;
    const struct decoder_setup decoding = { .engine = setup->session->engine, .tokenizer = setup->session->tokenizer,
                                            .settings = setup->settings, .budget = setup->budget,
                                            .caching = &setup->session->caching,
                                            .want_scores = model.moe_layers > 0,
                                            .stop = setup->stop, .want_hidden = setup->hidden,
                                            .want_prompt_logits = setup->logits };
    profile->setup = *setup;
    if ((model.moe_layers && open_routes(profile, &model, err)) || decoder_open(&profile->decoder, &decoding, err)) {
        profile_close(&profile);
        return -1;
    }
    *out = profile;
    return 0;
}

void profile_close(struct profile **profile)
{
    if (!*profile)
        return;
    decoder_close(&(*profile)->decoder);
    route_counts_free(&(*profile)->counts);
    mem_free(&(*profile)->experts);
    mem_free(&(*profile)->mass);
    mem_free(&(*profile)->correction);
    mem_free(profile);
}

/* Runs one text: a prompt, or one turn of a chat with all turns before it. */
static int run_text(struct profile *profile, const struct prompt *prompt, struct decode_result *result, struct err *err)
{
    static const struct decode_sink kinds = { .prompt = put_prompt, .iteration = put_iteration };
    struct decode_sink sink = kinds;
    const struct decode_prompt text = { .token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                        .max_tokens = prompt->max_tokens, .turn = prompt->turn,
                                        .sequence = profile->sequence, .task = prompt->task };
    struct writer *writer = profile->setup.writer;
    struct route_begin begin = { .sequence = profile->sequence, .id = prompt->id, .task = prompt->task,
                                 .prompt_tokens = text.tokens, .correction = profile->correction };
    struct route_end end = { .sequence = profile->sequence };
    sink.context = profile;
    profile->prompt = text.token;
    profile->sequence++;
    if (writer && writer_record(writer, &route_begin_kind, &begin, err))
        return -1;
    if (decoder_run(profile->decoder, &text, &sink, result, err))
        return err_at(err, "%s", prompt->where);
    return writer ? writer_record(writer, &route_end_kind, &end, err) : 0;
}

static int judge(void *context, const struct prompt *prompt, struct err *err)
{
    const struct profile *profile = context;
    const struct decode_prompt text = { .token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                        .max_tokens = prompt->max_tokens };
    return decoder_check(profile->decoder, &text, err);
}

int profile_check(struct profile *profile, struct prompts *prompts, struct err *err)
{
    bool all;
    return prompts_check(prompts, judge, profile, &all, err);
}

/* Runs all turns of a prompt. */
static int run_prompt(void *context, struct prompts *prompts, struct prompt *prompt, bool *ended, struct err *err)
{
    struct profile *profile = context;
    const struct profile_setup *setup = &profile->setup;
    struct decode_result result;
    int turn = 1;
    while (turn > 0 && !*ended) {
        if (run_text(profile, prompt, &result, err))
            return -1;
        *ended = result.finish == FINISH_ABORT;
        /* without an answer there is no next turn */
        turn = setup->settings->max_tokens && !*ended
                   ? prompt_next_turn(prompts, prompt, result.text, result.text_bytes, err) : 0;
    }
    return turn;
}

static int skip(void *context, const struct prompt *prompt, struct err *err)
{
    const struct profile *profile = context;
    const struct decode_prompt skipped = { .token = prompt->tokens.ids, .tokens = prompt->tokens.n };
    return decoder_skip(profile->decoder, &skipped, err);
}

int profile_run(struct profile *profile, struct prompts *prompts, bool *ended, struct err *err)
{
    return prompts_before(prompts, skip, profile, err) ||
           prompts_each(prompts, profile->setup.stop, run_prompt, profile, ended, err) ? -1 : 0;
}

const struct route_counts *profile_counts(const struct profile *profile) { return profile->counts; }

int profile_texts(const struct profile *profile) { return (int)profile->sequence; }

int profile_parse_record(struct profile_setup *setup, const char *words, struct err *err)
{
    const struct { const char *name; bool *flag; } known[] = {
        { "route", NULL }, { "probs", &setup->probs }, { "logits", &setup->logits }, { "hidden", &setup->hidden },
    };
    for (const char *at = words; ; ) {
        size_t length = strcspn(at, ","), i;
        for (i = 0; i < sizeof known / sizeof *known; i++)
            if (strlen(known[i].name) == length && !strncmp(known[i].name, at, length))
                break;
        if (i == sizeof known / sizeof *known)
            return err_set(err, ERR_INPUT, "--record: '%.*s' cannot be recorded; give route, and any of probs, logits "
                           "and hidden, with commas between them", (int)length, at);
        if (known[i].flag)
            *known[i].flag = true;
        if (!at[length])
            return 0;
        at += length + 1;
    }
}
