#include "common/stream/header.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"

int header_init(struct header *header, enum stream_kind kind, const char *tool, const char *version, int argc,
                char *const *argv, struct err *err)
{
    const struct stream_schema *schema = stream_schema(kind);
    struct header made = {.kind = kind, .version = schema->version};
    if (argc > HEADER_ITEMS)
        argc = HEADER_ITEMS;
    made.kind_name = mem_string(schema->name, err);
    made.tool = mem_string(tool, err);
    made.tool_version = mem_string(version, err);
    made.argv = mem_alloc((size_t)argc, sizeof *made.argv, err);
    if (!made.kind_name || !made.tool || !made.tool_version || !made.argv)
        goto failed;
    for (; made.argc < argc; made.argc++) {
        made.argv[made.argc] = utf8_string(argv[made.argc], err);       /* names of files may have any bytes */
        if (!made.argv[made.argc])
            goto failed;
    }
    *header = made;
    return 0;
failed:
    header_free(&made);
    return -1;
}

static int set_text(char **member, const char *value, struct err *err)
{
    char *copy = utf8_string(value, err);
    if (!copy)
        return -1;
    mem_free(member);
    *member = copy;
    return 0;
}

int header_set_dtype(struct header *header, const char *dtype, struct err *err)
{
    return set_text(&header->dtype, dtype, err);
}

int header_set_device(struct header *header, const char *device, struct err *err)
{
    return set_text(&header->device, device, err);
}

/* Grows an array by one element. These arrays are short, and have no spare capacity. */
static void *grow_by_one(void *old, int count, size_t size, struct err *err)
{
    size_t room = (size_t)count;
    if (count >= HEADER_ITEMS) {
        err_set(err, ERR_INPUT, "the header of a stream has more than %d labels or sources; merge fewer streams", HEADER_ITEMS);
        return NULL;
    }
    return mem_grow(&old, &room, room + 1, size, err) ? NULL : old;
}

int header_label(struct header *header, const char *key, const char *value, struct err *err)
{
    for (int i = 0; i < header->label_count; i++)
        if (!strcmp(header->labels[i].key, key))
            return set_text(&header->labels[i].value, value, err);
    struct label label = {mem_string(key, err), utf8_string(value, err)};
    struct label *labels = NULL;
    if (label.key && label.value)
        labels = grow_by_one(header->labels, header->label_count, sizeof *labels, err);
    if (!labels) {
        mem_free(&label.key);
        mem_free(&label.value);
        return -1;
    }
    labels[header->label_count++] = label;
    header->labels = labels;
    return 0;
}

const char *header_label_of(const struct header *header, const char *key)
{
    for (int i = 0; i < header->label_count; i++)
        if (!strcmp(header->labels[i].key, key))
            return header->labels[i].value;
    return NULL;
}

static int add_source(struct header *header, const struct header *source, struct err *err)
{
    if (header->source_count == HEADER_ITEMS) {
        header->sources_omitted++;
        return 0;
    }
    struct header copy = {0};
    if (header_copy(&copy, source, err))
        return -1;
    struct header *sources = grow_by_one(header->sources, header->source_count, sizeof *sources, err);
    if (!sources) {
        header_free(&copy);
        return -1;
    }
    sources[header->source_count++] = copy;
    header->sources = sources;
    return 0;
}

const struct header *header_producer(const struct header *header)
{
    while (header->source_count && header->argc > 1 && !strcmp(header->argv[1], "merge"))
        header = &header->sources[0];
    return header;
}

int header_copy(struct header *out, const struct header *from, struct err *err)
{
    struct header copy = {.kind = from->kind, .version = from->version, .has_model = from->has_model, .model = from->model,
                          .has_seed = from->has_seed, .seed = from->seed, .part = from->part, .parts = from->parts,
                          .sources_omitted = from->sources_omitted};
    copy.argv = mem_alloc((size_t)from->argc, sizeof *copy.argv, err);
    if (!copy.argv || set_text(&copy.kind_name, from->kind_name, err) || set_text(&copy.tool, from->tool, err) ||
        set_text(&copy.tool_version, from->tool_version, err) || (from->dtype && header_set_dtype(&copy, from->dtype, err)) ||
        (from->device && header_set_device(&copy, from->device, err)))
        goto failed;
    for (; copy.argc < from->argc; copy.argc++) {
        copy.argv[copy.argc] = mem_string(from->argv[copy.argc], err);
        if (!copy.argv[copy.argc])
            goto failed;
    }
    for (int i = 0; i < from->label_count; i++)
        if (header_label(&copy, from->labels[i].key, from->labels[i].value, err))
            goto failed;
    for (int i = 0; i < from->source_count; i++)
        if (add_source(&copy, &from->sources[i], err))
            goto failed;
    *out = copy;
    return 0;
failed:
    header_free(&copy);
    return -1;
}

void header_free(struct header *header)
{
    for (int i = 0; i < header->argc; i++)
        mem_free(&header->argv[i]);
    for (int i = 0; i < header->label_count; i++) {
        mem_free(&header->labels[i].key);
        mem_free(&header->labels[i].value);
    }
    for (int i = 0; i < header->source_count; i++)
        header_free(&header->sources[i]);
    mem_free(&header->argv);
    mem_free(&header->labels);
    mem_free(&header->sources);
    mem_free(&header->kind_name);
    mem_free(&header->tool);
    mem_free(&header->tool_version);
    mem_free(&header->dtype);
    mem_free(&header->device);
    memset(header, 0, sizeof *header);
}

int header_derive(struct header *header, const struct header *source, struct err *err)
{
    bool first = !header->source_count && !header->sources_omitted;
    if (add_source(header, source, err))
        return -1;
    if (!first)
        return 0;
    if (!header->has_model && source->has_model) {
        header->model = source->model;
        header->has_model = true;
    }
    if (!header->has_seed && source->has_seed) {
        header->seed = source->seed;
        header->has_seed = true;
    }
    if ((!header->dtype && source->dtype && header_set_dtype(header, source->dtype, err)) ||
        (!header->device && source->device && header_set_device(header, source->device, err)))
        return -1;
    for (int i = 0; i < source->label_count; i++)
        if (!header_label_of(header, source->labels[i].key) &&
            header_label(header, source->labels[i].key, source->labels[i].value, err))
            return -1;
    return 0;
}

static bool both_differ(const char *a, const char *b) { return *a && *b && strcmp(a, b); }

/* Appends to *why how the models differ. *shape: they differ in more than the meaning of their tokens. */
static int describe_difference(const struct stream_model *data, const struct stream_model *model, struct text *why, bool *shape,
                               struct err *err)
{
    const struct { const char *name; int data, model; } parts[] = {
        {"layers", data->layers, model->layers}, {"MoE layers", data->moe_layers, model->moe_layers},
        {"experts", data->experts, model->experts}, {"experts a token", data->top_k, model->top_k},
        {"hidden units", data->hidden, model->hidden}, {"tokens in the vocabulary", data->vocab, model->vocab},
    };
    const size_t count = sizeof parts / sizeof *parts;
    *shape = false;
    for (size_t i = 0; i < count; i++) {
        if (parts[i].data == parts[i].model)
            continue;
        *shape = *shape || i < count - 1;
        if (text_printf(why, err, "%s%d %s instead of %d", why->length ? ", " : "", parts[i].data, parts[i].name,
                        parts[i].model))
            return -1;
    }
    if (both_differ(data->tokenizer_sha256, model->tokenizer_sha256))
        return text_printf(why, err, "%sanother tokenizer", why->length ? ", " : "");
    return 0;
}

int header_same_model(const struct stream_model *data, const struct stream_model *model, const char *what, bool force,
                      struct text *note, struct err *err)
{
    struct text why = {0};
    bool shape;
    int rc = -1;
    const char *name = *data->name ? data->name : "another model", *here = *model->name ? model->name : "this model";
    if (describe_difference(data, model, &why, &shape, err))
        goto done;
    if (shape || (why.length && !force)) {
        err_set(err, ERR_INPUT, "%s was made with %s, which differs from %s (%s); make it with this model%s", what, name, here,
                why.data, shape ? "" : ", or use --force");
        goto done;
    }
    if (why.length)
        rc = text_printf(note, err, "%s was made with %s, which does not fit %s (%s); used because of --force\n", what, name,
                         here, why.data);
    else if (both_differ(data->source_sha256, model->source_sha256))
        rc = text_printf(note, err, "%s was made with %s, which has the shape of %s, but other weights\n", what, name, here);
    else if (both_differ(data->index_sha256, model->index_sha256))
        rc = text_printf(note, err, "%s was made with %s, which has the same weights as %s in another format\n", what, name,
                         here);
    else
        rc = 0;
done:
    text_free(&why);
    return rc;
}
