#include "common/instruments/profile.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/stream/route.h"

enum {
    PIECE_ROWS = 64, RECORD_ROWS = ENGINE_ROWS_MAX,
    WAITING_MAX = 1024,                 /* max completed prompts that wait for an older one to be written */
    WAITING_BYTES = 256 << 20           /* max bytes of waiting records; above this only the oldest text continues */
};

/* A prompt in progress: it was read, and some of its texts are not written yet. */
struct profiled {
    struct profile *profile;
    int slot;                           /* index of its decoder; -1: all its texts are complete */
    struct prompt prompt;
    struct decode_prompt asked;         /* the text that is being decoded */
    struct text held;                   /* records that wait until all older prompts are complete */
};

struct profile {
    struct profile_setup setup;
    struct decoder *decoder[DECODERS_MAX];              /* [setup.texts] */
    bool busy[DECODERS_MAX];            /* decoders with a text */
    struct profiled **work;             /* [works] prompts in progress, the oldest first */
    size_t works, room;
    struct route_counts *counts;        /* NULL, like the next three arrays, if the model has no experts */
    int16_t *experts;                   /* [RECORD_ROWS][moe_layers][top_k] */
    double *mass;                       /* [moe_layers][experts] */
    float *correction;                  /* [moe_layers][experts]; NULL: not recorded */
    int64_t sequence;                   /* number of the next prompt's first text */
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

/* Directs the following records to the stream, or to the prompt's buffer if older prompts are incomplete. */
static void direct_records(struct profiled *at)
{
    struct profile *profile = at->profile;
    if (profile->setup.writer)
        writer_hold(profile->setup.writer, profile->work[0] == at ? NULL : &at->held);
}

/* Writes rows `from` .. from + record->n of the forward; the caller has set the record's other members. */
static int put_rows(struct profiled *at, const struct forward *forward, int from, struct route_tokens *record,
                    struct err *err)
{
    struct profile *profile = at->profile;
    const struct profile_setup *setup = &profile->setup;
    record->sequence = at->asked.sequence;
    direct_records(at);
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
    struct profiled *at = context;
    for (int from = 0; from < piece->rows; from += PIECE_ROWS) {
        int left = piece->rows - from;
        struct route_tokens record = { .pos = position + from, .n = left < PIECE_ROWS ? left : PIECE_ROWS,
                                       .phase = PHASE_PROMPT, .tokens = at->asked.token + position + from };
        if (put_rows(at, piece, from, &record, err))
            return -1;
    }
    return 0;
}

/* Marks accepted rows. The row of a kept token predicts the next token. If the answer was truncated, the last kept rows
 * predicted tokens beyond its end; these rows are not marked, because without a draft there would have been no such
 * forwards. */
static int put_iteration(void *context, const struct decode_iteration *iteration, struct err *err)
{
    uint8_t accepted[RECORD_ROWS];
    int given = 0;
    for (int row = 0; row < iteration->record.nodes; row++)
        accepted[row] = iteration->kept[row] && given++ < iteration->record.emitted;
    const bool draft = iteration->record.nodes > 1;
    struct route_tokens record = { .pos = iteration->position, .n = iteration->record.nodes,
                                   .phase = draft ? PHASE_VERIFY : PHASE_DECODE, .tokens = iteration->record.node_tokens,
                                   .parents = draft ? iteration->record.node_parents : NULL,
                                   .accepted = draft ? accepted : NULL };
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

/* Opens a decoder for each concurrent text; the first one counts equal prompts for all. */
static int open_decoders(struct profile *profile, struct decoder_setup *decoding, struct err *err)
{
    const char *why = profile->setup.texts > 1 ? decoder_alone(decoding) : NULL;
    if (why)
        return err_set(err, ERR_INPUT, "--parallel: %s", why);
    for (int i = 0; i < profile->setup.texts; i++) {
        if (decoder_open(&profile->decoder[i], decoding, err))
            return -1;
        decoding->counts = decoding->like = profile->decoder[0];
    }
    return 0;
}

int profile_open(struct profile **out, const struct profile_setup *setup, struct err *err)
{
    struct stream_model model;
    session_stream_model(setup->session, &model);
    if (!model.moe_layers && (!(setup->logits || setup->hidden) || setup->probs || !setup->writer))
        return err_set(err, ERR_INPUT, "the model has no experts, so there are no routes to record; choose --record logits or "
                       "--record hidden");
    struct profile *profile = mem_alloc(1, sizeof *profile, err);
    if (!profile)
        return -1;
    struct decoder_setup decoding = { .engine = setup->session->engine, .tokenizer = setup->session->tokenizer,
                                            .settings = setup->settings, .budget = setup->budget,
                                            .caching = &setup->session->caching,
                                            .want_scores = model.moe_layers > 0,
                                            .stop = setup->stop, .want_hidden = setup->hidden,
                                            .want_prompt_logits = setup->logits };
    profile->setup = *setup;
    if ((model.moe_layers && open_routes(profile, &model, err)) || open_decoders(profile, &decoding, err)) {
        profile_close(&profile);
        return -1;
    }
    *out = profile;
    return 0;
}

/* ---- texts ---- */

static void free_decoder(struct profiled *at)
{
    at->profile->busy[at->slot] = false;
    at->slot = -1;
}

/* Begins one text: a prompt, or one turn of a chat with all turns before it. */
static int begin_text(struct profiled *at, bool *ended, struct err *err)
{
    static const struct decode_sink kinds = { .prompt = put_prompt, .iteration = put_iteration };
    struct profile *profile = at->profile;
    const struct prompt *prompt = &at->prompt;
    struct writer *writer = profile->setup.writer;
    const struct route_begin begin = { .sequence = at->asked.sequence, .id = prompt->id, .task = prompt->task,
                                 .prompt_tokens = prompt->tokens.n, .correction = profile->correction };
    struct decode_sink sink = kinds;
    sink.context = at;
    at->asked = (struct decode_prompt){ .token = prompt->tokens.ids, .tokens = prompt->tokens.n, .turn = prompt->turn,
                                        .max_tokens = prompt->max_tokens, .sequence = begin.sequence, .task = prompt->task };
    direct_records(at);
    if (writer && writer_record(writer, &route_begin_kind, &begin, err))
        return -1;
    if (!decoder_begin(profile->decoder[at->slot], &at->asked, &sink, err))
        return 0;
    if (err->code != ERR_SIGNAL)
        return err_at(err, "%s", prompt->where);
    err_clear(err);                     /* the text remains without an end record */
    *ended = true;
    free_decoder(at);
    return 0;
}

/* Ends a text, and begins the next turn of its chat unless the text has no answer. */
static int end_text(struct profiled *at, struct prompts *prompts, bool *ended, struct err *err)
{
    struct profile *profile = at->profile;
    struct writer *writer = profile->setup.writer;
    const struct route_end end = { .sequence = at->asked.sequence };
    struct decode_result result;
    decoder_end(profile->decoder[at->slot], &result);
    direct_records(at);
    if (writer && writer_record(writer, &route_end_kind, &end, err))
        return -1;
    *ended |= result.finish == FINISH_ABORT;
    const int more = profile->setup.settings->max_tokens && !*ended
                         ? prompt_next_turn(prompts, &at->prompt, result.text, result.text_bytes, err) : 0;
    if (more > 0) {
        at->asked.sequence++;
        return begin_text(at, ended, err);
    }
    free_decoder(at);
    return more;
}

static void drop_prompt(struct profile *profile, size_t i)
{
    prompt_free(&profile->work[i]->prompt);
    text_free(&profile->work[i]->held);
    mem_free(&profile->work[i]);
    memmove(profile->work + i, profile->work + i + 1, (--profile->works - i) * sizeof *profile->work);
}

/* Adds a prompt, and begins its first text. A chat reserves the sequence numbers of all its turns. */
static int begin_prompt(struct profile *profile, struct prompt *prompt, bool *ended, struct err *err)
{
    const int turns = profile->setup.settings->max_tokens && prompt->turns > 1 ? prompt->turns : 1;
    struct profiled *at;
    if (mem_grow(&profile->work, &profile->room, profile->works + 1, sizeof *profile->work, err) ||
        !(at = mem_alloc(1, sizeof *at, err)))
        return -1;
    *at = (struct profiled){ .profile = profile, .prompt = *prompt, .asked.sequence = profile->sequence };
    *prompt = (struct prompt){0};
    while (profile->busy[at->slot])
        at->slot++;
    profile->work[profile->works++] = at;
    profile->busy[at->slot] = true;
    profile->sequence += turns;
    return begin_text(at, ended, err);
}

/* Returns the total bytes of waiting records. */
static size_t waiting_bytes(const struct profile *profile)
{
    size_t bytes = 0;
    for (size_t i = 0; i < profile->works; i++)
        bytes += profile->work[i]->held.length;
    return bytes;
}

static bool can_begin(const struct profile *profile)
{
    int used = 0;
    for (int i = 0; i < profile->setup.texts; i++)
        used += profile->busy[i];
    return used < profile->setup.texts && profile->works < (size_t)profile->setup.texts + WAITING_MAX &&
           (!used || waiting_bytes(profile) < WAITING_BYTES);
}

static int begin_prompts(struct profile *profile, struct prompts *prompts, bool *more, bool *ended, struct err *err)
{
    while (*more && !*ended && can_begin(profile)) {
        struct prompt prompt = {0};
        const int next = prompts_next(prompts, &prompt, err);
        *more = next > 0;
        if (next < 0 && err->code != ERR_SIGNAL)
            return -1;
        *ended = next < 0 || (next > 0 && stop_asked(profile->setup.stop));
        const int rc = !*ended && next > 0 ? begin_prompt(profile, &prompt, ended, err) : 0;
        prompt_free(&prompt);           /* no-op if begin_prompt took the prompt over */
        if (rc)
            return -1;
    }
    return 0;
}

/* Runs one iteration of all unfinished texts, or of the oldest one alone while too many bytes wait for it. */
static int step(struct profile *profile, struct err *err)
{
    struct decoder *decoder[DECODERS_MAX];
    const struct profiled *of[DECODERS_MAX];
    const bool all = waiting_bytes(profile) < WAITING_BYTES;
    int count = 0, failed;
    for (size_t i = 0; i < profile->works && (all || !count); i++) {
        const struct profiled *at = profile->work[i];
        if (at->slot < 0 || decoder_ends(profile->decoder[at->slot]))
            continue;
        of[count] = at;
        decoder[count++] = profile->decoder[at->slot];
    }
    if (!count || !decoders_step(decoder, count, &failed, err))
        return 0;
    return failed >= 0 ? err_at(err, "%s", of[failed]->prompt.where) : -1;
}

/* Ends complete texts, and writes all records that no older incomplete prompt precedes. */
static int end_texts(struct profile *profile, struct prompts *prompts, bool *ended, struct err *err)
{
    struct writer *writer = profile->setup.writer;
    for (size_t i = 0; i < profile->works; i++) {
        struct profiled *at = profile->work[i];
        while (at->slot >= 0 && decoder_ends(profile->decoder[at->slot]))
            if (end_text(at, prompts, ended, err))
                return -1;
    }
    while (profile->works && profile->work[0]->slot < 0) {
        drop_prompt(profile, 0);
        if (profile->works && profile->work[0]->held.length) {
            if (writer_release(writer, &profile->work[0]->held, err))
                return -1;
            text_free(&profile->work[0]->held);
        }
    }
    return 0;
}

static int run_prompts(struct profile *profile, struct prompts *prompts, bool *ended, struct err *err)
{
    bool more = true;
    do
        if (begin_prompts(profile, prompts, &more, ended, err) || step(profile, err) ||
            end_texts(profile, prompts, ended, err))
            return -1;
    while (profile->works || (more && !*ended));
    return 0;
}

/* Context of the callback `judge`. */
struct judged {
    const struct profile *profile;
    int longest;                        /* tokens of the longest text and its prompt */
};

static int judge(void *context, const struct prompt *prompt, struct err *err)
{
    struct judged *judged = context;
    const struct profile *profile = judged->profile;
    const struct decode_prompt text = { .token = prompt->tokens.ids, .tokens = prompt->tokens.n,
                                        .max_tokens = prompt->max_tokens };
    if (decoder_check(profile->decoder[0], &text, err))
        return -1;
    const int room = prompt->turns > 1 ? INT_MAX : decoder_room(profile->decoder[0], &text);
    judged->longest = room > judged->longest ? room : judged->longest;
    return 0;
}

int profile_check(struct profile *profile, struct prompts *prompts, struct err *err)
{
    struct judged judged = { .profile = profile };
    bool all;
    if (prompts_check(prompts, judge, &judged, &all, err))
        return -1;
    return session_check_texts(profile->setup.session, profile->setup.texts, all ? judged.longest : INT_MAX,
                               budget_caches(profile->setup.budget), err)
               ? err_at(err, "--parallel") : 0;
}

static int skip(void *context, const struct prompt *prompt, struct err *err)
{
    const struct profile *profile = context;
    const struct decode_prompt skipped = { .token = prompt->tokens.ids, .tokens = prompt->tokens.n };
    return decoder_skip(profile->decoder[0], &skipped, err);
}

int profile_run(struct profile *profile, struct prompts *prompts, bool *ended, struct err *err)
{
    *ended = false;
    const int rc = prompts_before(prompts, skip, profile, err) || run_prompts(profile, prompts, ended, err) ? -1 : 0;
    if (profile->setup.writer)
        writer_hold(profile->setup.writer, NULL);
    return rc;
}

void profile_close(struct profile **address)
{
    struct profile *profile = *address;
    if (!profile)
        return;
    while (profile->works)
        drop_prompt(profile, profile->works - 1);
    for (int i = profile->setup.texts - 1; i >= 0; i--)
        decoder_close(&profile->decoder[i]);
    route_counts_free(&profile->counts);
    mem_free(&profile->work);
    mem_free(&profile->experts);
    mem_free(&profile->mass);
    mem_free(&profile->correction);
    mem_free(address);
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
            return err_set(err, ERR_INPUT, "--record: '%.*s' cannot be recorded; give route, probs, logits and hidden, or "
                           "some of them, separated by commas", (int)length, at);
        if (known[i].flag)
            *known[i].flag = true;
        if (!at[length])
            return 0;
        at += length + 1;
    }
}
