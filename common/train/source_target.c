#include "common/train/source_target.h"

#include <string.h>

#include "common/base/mem.h"

struct kept_text {
    int32_t *token;
    uint8_t *mask;
    int tokens;
    char *name;
};

struct train_texts {
    struct kept_text *list;
    size_t count, room;
};

int train_texts_new(struct train_texts **out, struct err *err)
{
    struct train_texts *texts = mem_alloc(1, sizeof *texts, err);
    if (!texts)
        return -1;
    *out = texts;
    return 0;
}

static void free_text(struct kept_text *text)
{
    mem_free(&text->token);
    mem_free(&text->mask);
    mem_free(&text->name);
}

void train_texts_free(struct train_texts **texts)
{
    if (*texts) {
        for (size_t i = 0; i < (*texts)->count; i++)
            free_text(&(*texts)->list[i]);
        mem_free(&(*texts)->list);
    }
    mem_free(texts);
}

int train_texts_add(struct train_texts *texts, const int32_t *token, const uint8_t *mask, int tokens, const char *name,
                    struct err *err)
{
    struct kept_text text = {.tokens = tokens};
    if (!(text.token = mem_copy(token, (size_t)tokens * sizeof *token, err)) ||
        !(text.mask = mem_copy(mask, (size_t)tokens, err)) || !(text.name = mem_string(name, err)) ||
        mem_grow(&texts->list, &texts->room, texts->count + 1, sizeof *texts->list, err)) {
        free_text(&text);
        return -1;
    }
    texts->list[texts->count++] = text;
    return 0;
}

int64_t train_texts_count(const struct train_texts *texts) { return (int64_t)texts->count; }

void train_texts_at(const struct train_texts *texts, int64_t index, struct train_text *out)
{
    const struct kept_text *text = &texts->list[index];
    *out = (struct train_text){.tokens = text->tokens, .token = text->token, .mask = text->mask, .name = text->name};
}

struct target_source {
    struct train_texts *texts;
    struct engine *engine;
    struct sequence *sequence;
    int capacity;
    struct feature_request request;
    float *state[POINTS_MAX];
    size_t room;                /* allocated tokens per state */
};

static void close_target(void *self)
{
    struct target_source *s = self;
    train_texts_free(&s->texts);
    sequence_close(&s->sequence);
    for (int i = 0; i < POINTS_MAX; i++)
        mem_free(&s->state[i]);
    mem_free(&s);
}

/* Stores the states of a piece of the prompt, [count][rows][hidden], after those of earlier pieces. */
static int take_piece(void *context, const struct forward *piece, int position, struct err *err)
{
    struct target_source *s = context;
    struct device *device = engine_config(s->engine)->device;
    const size_t hidden = (size_t)engine_hparams(s->engine)->hidden, bytes = (size_t)piece->rows * hidden * sizeof(float);
    for (int i = 0; i < s->request.count; i++) {
        const struct buffer from = buffer_part(piece->features, (uint64_t)i * bytes, bytes);
        queue_download(device, s->state[i] + (size_t)position * hidden, from, bytes);
    }
    return queue_wait(device, err);
}

static int make_room(struct target_source *s, int tokens, struct err *err)
{
    const size_t width = (size_t)engine_hparams(s->engine)->hidden * sizeof(float);
    size_t room = s->room;
    for (int i = 0; i < s->request.count; i++) {
        room = s->room;
        if (mem_grow(&s->state[i], &room, (size_t)tokens, width, err))
            return -1;
    }
    s->room = room;
    if (s->capacity >= tokens)
        return 0;
    sequence_close(&s->sequence);
    s->capacity = 0;
    if (sequence_open(&s->sequence, s->engine, tokens, err))
        return -1;
    s->capacity = tokens;
    return 0;
}

static int read_target(void *self, int64_t index, int longest, struct train_text *out, struct err *err)
{
    struct target_source *s = self;
    const struct kept_text *text = &s->texts->list[index];
    const int tokens = text->tokens < longest ? text->tokens : longest;
    const struct batch options = {.features = &s->request};
    struct forward forward;
    if (make_room(s, tokens, err) || sequence_truncate(s->sequence, 0, err) ||
        engine_prompt(s->engine, s->sequence, text->token, tokens, &options, take_piece, s, &forward, err))
        return err_at(err, "%s", text->name);
    *out = (struct train_text){.tokens = tokens, .token = text->token, .mask = text->mask, .name = text->name};
    for (int i = 0; i < s->request.count; i++)
        out->state[i] = s->state[i];
    return 1;
}

static int outline_target(void *self, int64_t index, int longest, struct train_text *out, struct err *err)
{
    const struct target_source *s = self;
    (void)err;
    train_texts_at(s->texts, index, out);
    out->tokens = out->tokens < longest ? out->tokens : longest;
    return 1;
}

int source_target_open(struct train_source *out, struct train_texts **texts, struct engine *engine,
                       const struct head_states *points, struct err *err)
{
    struct target_source *s = mem_alloc(1, sizeof *s, err);
    if (!s) {
        train_texts_free(texts);
        return -1;
    }
    s->texts = *texts;
    s->engine = engine;
    *texts = NULL;
    if (points->count > FEATURES_MAX) {
        close_target(s);
        return err_set(err, ERR_INPUT, "the head reads %d states, more than the maximum of %d", points->count, FEATURES_MAX);
    }
    s->request.count = points->count;
    memcpy(s->request.layer, points->state, (size_t)points->count * sizeof *points->state);
    *out = (struct train_source){.self = s, .texts = (int64_t)s->texts->count, .read = read_target,
                                 .outline = outline_target, .close = close_target};
    return 0;
}
