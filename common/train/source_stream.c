#include "common/train/source_stream.h"

#include "common/base/mem.h"
#include "common/base/text.h"

struct stream_source {
    struct feature_source *features;
    bool any_order, borrowed;   /* borrowed: `features` belongs to another source */
    int64_t first;              /* index of this source's first text in `features` */
    struct text name;           /* name of the current text */
};

static void close_stream(void *self)
{
    struct stream_source *s = self;
    if (!s->borrowed)
        feature_source_close(&s->features);
    text_free(&s->name);
    mem_free(&s);
}

static int take_text(struct stream_source *s, const struct feature_text *text, int longest, struct train_text *out,
                     struct err *err)
{
    const struct feature_source_setup *setup = feature_source_setup_of(s->features);
    const size_t hidden = (size_t)setup->target->hidden;
    text_clear(&s->name);
    if (text_printf(&s->name, err, "%s: text %lld", setup->path, (long long)text->ordinal) ||
        (text->id && text_printf(&s->name, err, " (%s)", text->id)))
        return -1;
    int tokens = text->n < longest ? text->n : longest;
    while (tokens > 1 && !text->mask[tokens - 1])       /* tokens after the last answer teach nothing */
        tokens--;
    *out = (struct train_text){.tokens = tokens, .token = text->tokens, .mask = text->mask,
                               .name = s->name.data};
    for (int i = 0; text->states && i < setup->states; i++)
        out->state[i] = text->states + (size_t)i * (size_t)text->n * hidden;
    return 1;
}

static int read_stream(void *self, int64_t index, int longest, struct train_text *out, struct err *err)
{
    struct stream_source *s = self;
    const struct feature_text *text;
    const int more = s->any_order ? feature_source_read(s->features, s->first + index, &text, err) ? -1 : 1
                                  : feature_source_next(s->features, &text, err);
    return more <= 0 ? more : take_text(s, text, longest, out, err);
}

static int outline_stream(void *self, int64_t index, int longest, struct train_text *out, struct err *err)
{
    struct stream_source *s = self;
    const struct feature_text *text;
    return feature_source_outline(s->features, s->first + index, &text, err) ? -1 : take_text(s, text, longest, out, err);
}

int source_stream_open(struct train_source *out, struct feature_source **features, bool any_order, struct err *err)
{
    struct stream_source *s = NULL;
    int64_t texts = -1;
    if (feature_source_setup_of(*features)->states > POINTS_MAX) {
        err_set(err, ERR_INPUT, "the head reads %d states, more than the maximum of %d",
                feature_source_setup_of(*features)->states, POINTS_MAX);
        goto failed;
    }
    if ((any_order && feature_source_index(*features, &texts, err)) || !(s = mem_alloc(1, sizeof *s, err)))
        goto failed;
    if (any_order)
        texts -= feature_source_validation(*features);
    s->features = *features;
    s->any_order = any_order;
    *features = NULL;
    *out = (struct train_source){.self = s, .texts = texts, .read = read_stream,
                                .outline = any_order ? outline_stream : NULL, .close = close_stream};
    return 0;
failed:
    feature_source_close(features);
    return -1;
}

int source_stream_validation(struct train_source *out, const struct train_source *others, struct err *err)
{
    const struct stream_source *other = others->self;
    struct stream_source *s = mem_alloc(1, sizeof *s, err);
    if (!s)
        return -1;
    *s = (struct stream_source){.features = other->features, .any_order = true, .borrowed = true, .first = others->texts};
    *out = (struct train_source){.self = s, .texts = feature_source_validation(s->features), .read = read_stream,
                                 .outline = outline_stream, .close = close_stream};
    return 0;
}
