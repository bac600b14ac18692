#include "common/instruments/features.h"

#include <string.h>

#include "common/base/float.h"
#include "common/base/mem.h"
#include "common/stream/feature.h"
#include "common/stream/route.h"

enum { PIECE_ROWS = 64 };

struct feature_profile {
    struct feature_profile_setup setup;
    struct feature_request request;
    struct examples *examples;
    int64_t texts;                      /* texts written so far */
    struct sequence *sequence;          /* NULL: no text so far */
    const struct example *text;         /* text being read */
    float *states;                      /* [points][PIECE_ROWS][hidden] */
    uint16_t *narrow;                   /* the same as bf16; NULL: f32 is written */
};

int feature_profile_open(struct feature_profile **out, const struct feature_profile_setup *setup, struct err *err)
{
    struct feature_profile *profile;
    const size_t hidden = (size_t)model_hparams(setup->examples.session->model)->hidden, points = (size_t)setup->states.count;
    if (points > FEATURES_MAX)
        return err_set(err, ERR_INPUT, "%d states were requested; the maximum is %d", setup->states.count, FEATURES_MAX);
    if (!(profile = mem_alloc(1, sizeof *profile, err)))
        return -1;
    profile->setup = *setup;
    profile->request.count = setup->states.count;
    memcpy(profile->request.layer, setup->states.state, points * sizeof *profile->request.layer);
    if (examples_open(&profile->examples, &setup->examples, err) ||
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
    examples_close(&(*profile)->examples);
    sequence_close(&(*profile)->sequence);
    mem_free(&(*profile)->states);
    mem_free(&(*profile)->narrow);
    mem_free(profile);
}

/* Writes rows from .. from + n of a piece, whose first row is at `position` of the text. */
static int put_rows(struct feature_profile *profile, const struct forward *piece, int position, int from, int n,
                    struct err *err)
{
    const struct feature_profile_setup *setup = &profile->setup;
    const struct example *text = profile->text;
    const size_t hidden = (size_t)piece->hidden_size, width = (size_t)n * hidden;
    for (int i = 0; i < profile->request.count; i++)
        queue_download(setup->examples.session->device, profile->states + (size_t)i * width,
                       buffer_part(piece->features, ((uint64_t)i * (uint64_t)piece->rows + (uint64_t)from) * hidden *
                                   sizeof(float), width * sizeof(float)), width * sizeof(float));
    if (queue_wait(setup->examples.session->device, err))
        return -1;
    for (size_t i = 0; profile->narrow && i < (size_t)profile->request.count * width; i++)
        profile->narrow[i] = f32_to_bf16(profile->states[i]);
    const struct feature_states record = {
        .sequence = profile->texts, .pos = position + from, .n = n, .tokens = text->token + position + from,
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
    return stop_asked(profile->setup.examples.stop) ? err_set(err, ERR_SIGNAL, "interrupted") : 0;
}

/* Makes an empty sequence with a capacity of at least `tokens`. */
static int prepare_sequence(struct feature_profile *profile, int tokens, struct err *err)
{
    struct engine *engine = profile->setup.examples.session->engine;
    int max = engine_max_positions(engine), old = profile->sequence ? sequence_capacity(profile->sequence) : 0;
    if (profile->sequence && old >= tokens)
        return sequence_truncate(profile->sequence, 0, err);
    int room = old < max / 2 ? 2 * old : max;             /* doubled, so that growing texts do not each cost a new one */
    sequence_close(&profile->sequence);
    return sequence_open(&profile->sequence, engine, room < tokens ? tokens : room, err);
}

/* Reads a text with the target and writes its records. */
static int take_text(void *context, const struct example *text, struct err *err)
{
    struct feature_profile *profile = context;
    struct writer *writer = profile->setup.writer;
    const int64_t sequence = profile->texts;
    const struct feature_begin begin = {.sequence = sequence, .id = text->id, .task = text->task,
                                        .prompt_tokens = text->prompt_tokens, .text_tokens = text->tokens,
                                        .validation = text->validation};
    const struct batch options = {.features = &profile->request};
    struct forward forward;
    profile->text = text;
    if (writer && (prepare_sequence(profile, text->tokens, err) || writer_record(writer, &feature_begin_kind, &begin, err) ||
                   engine_prompt(profile->setup.examples.session->engine, profile->sequence, text->token, text->tokens,
                                 &options, put_piece, profile, &forward, err) ||
                   writer_record(writer, &route_end_kind, &(struct route_end){sequence}, err)))
        return -1;
    profile->texts++;
    return 0;
}

int feature_profile_check(struct feature_profile *profile, struct prompts *prompts, struct err *err)
{
    return examples_check(profile->examples, prompts, err);
}

int feature_profile_run(struct feature_profile *profile, struct prompts *prompts, bool *ended, struct err *err)
{
    return examples_run(profile->examples, prompts, take_text, profile, ended, err);
}

const struct examples_totals *feature_profile_totals(const struct feature_profile *profile)
{
    return examples_totals(profile->examples);
}
