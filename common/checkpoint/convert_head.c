#include "common/checkpoint/convert_head.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

static const int64_t *dims_of(const void *context, const char *name, int *count)
{
    const struct source_tensor *tensor = checkpoint_find(context, name);
    if (!tensor)
        return NULL;
    *count = tensor->dim_count;
    return tensor->dims;
}

static const char *file_of(const struct checkpoint *cp, const struct source_tensor *tensor)
{
    return cp->files[tensor->file].name;
}

/* Reads the bytes of a vector of `count` elements whose dtype has no coding. The caller frees *out. */
static int read_vector(const struct checkpoint *cp, struct source_tensor *tensor, const char *dtype, int count, size_t element,
                       uint8_t **out, struct err *err)
{
    const size_t bytes = (size_t)count * element;
    if (strcmp(tensor->dtype_name, dtype) || tensor->dim_count != 1 || tensor->dims[0] != count || tensor->bytes != bytes)
        return err_set(err, ERR_INPUT, "%s: tensor %s has dtype %s and %d dimensions, the first of size %lld; expected %s[%d]",
                       file_of(cp, tensor), tensor->name, tensor->dtype_name, tensor->dim_count,
                       tensor->dim_count ? (long long)tensor->dims[0] : 1LL, dtype, count);
    uint8_t *data = mem_alloc(bytes, 1, err);
    if (!data || checkpoint_read(cp, tensor, 0, data, bytes, err)) {
        mem_free(&data);
        return -1;
    }
    tensor->used = true;
    *out = data;
    return 0;
}

static int64_t integer_at(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return (int64_t)value;
}

/* Reads the vocabulary map from d2t, which contains offsets: draft id i is the target's id i + d2t[i]. */
static int read_offsets(struct head_params *head, const struct checkpoint *cp, struct source_tensor *tensor, struct err *err)
{
    uint8_t *data = NULL;
    if (read_vector(cp, tensor, "I64", head->draft_vocab, 8, &data, err))
        return -1;
    if (!(head->target_id = mem_alloc((size_t)head->draft_vocab, sizeof *head->target_id, err))) {
        mem_free(&data);
        return -1;
    }
    int rc = 0;
    for (int i = 0; i < head->draft_vocab && !rc; i++) {
        const int64_t offset = integer_at(data + (size_t)i * 8);
        if (offset < -(int64_t)VOCAB_MAX || offset > VOCAB_MAX || i + offset < 0 || i + offset >= head->target.vocab)
            rc = err_set(err, ERR_INPUT, "%s: tensor d2t: draft id %d with offset %lld is outside the target's vocabulary of "
                         "%d tokens; the head is for another model",
                         file_of(cp, tensor), i, (long long)offset, head->target.vocab);
        else
            head->target_id[i] = (int32_t)(i + offset);
    }
    mem_free(&data);
    return rc;
}

/* Checks that t2d marks exactly the target's ids that are in the vocabulary map. */
static int compare_marks(const struct head_params *head, const struct checkpoint *cp, struct source_tensor *tensor,
                         struct err *err)
{
    uint8_t *marks = NULL;
    int count = 0, rc = 0;
    if (read_vector(cp, tensor, "BOOL", head->target.vocab, 1, &marks, err))
        return -1;
    for (int i = 0; i < head->target.vocab; i++)
        count += marks[i] != 0;
    for (int i = 0; i < head->draft_vocab && !rc; i++) {
        const int id = head->target_id ? head->target_id[i] : i;
        if (!marks[id])
            rc = err_set(err, ERR_INPUT, "%s: tensor d2t maps draft id %d to target id %d, which tensor t2d does not mark; "
                         "the two belong to different vocabularies", file_of(cp, tensor), i, id);
    }
    if (!rc && count != head->draft_vocab)
        rc = err_set(err, ERR_INPUT, "%s: tensor t2d marks %d ids, but the draft vocabulary has %d; the two belong to "
                     "different vocabularies", file_of(cp, tensor), count,
                     head->draft_vocab);
    mem_free(&marks);
    return rc;
}

/* Marks the tensors of the map as used and makes an arbitrary map: without data (headers only) no file is written. */
static int skip_map(struct head_params *head, struct source_tensor *offsets, struct source_tensor *marks, struct err *err)
{
    if (marks)
        marks->used = true;
    if (!offsets)
        return 0;
    offsets->used = true;
    if (!(head->target_id = mem_alloc((size_t)head->draft_vocab, sizeof *head->target_id, err)))
        return -1;
    for (int i = 0; i < head->draft_vocab; i++)
        head->target_id[i] = i;
    return 0;
}

/* Reads the vocabulary map of an EAGLE-3 head. If the head has the target's whole vocabulary, a map of zeros counts as none;
 * in this case the authors leave out both tensors. */
static int read_map(struct head_params *head, const struct checkpoint *cp, struct err *err)
{
    struct source_tensor *offsets = checkpoint_find(cp, "d2t"), *marks = checkpoint_find(cp, "t2d");
    bool same = head->draft_vocab == head->target.vocab;
    if (cp->headers_only)
        return skip_map(head, offsets, marks, err);
    if (!offsets && !same)
        return err_set(err, ERR_INPUT, "tensor d2t is missing; it maps the %d draft ids of an eagle3 head to the target's %d "
                       "ids; convert the complete head", head->draft_vocab, head->target.vocab);
    if (offsets && read_offsets(head, cp, offsets, err))
        return -1;
    for (int i = 0; head->target_id && same && i < head->draft_vocab; i++)
        same = head->target_id[i] == i;
    if (same)
        head_free(head);
    return marks ? compare_marks(head, cp, marks, err) : 0;
}

/* Fills the facts from the source's texts and tensors. */
static int read_head(struct conversion *c, const struct model *target, const struct head_options *options, struct text *notes,
                     struct err *err)
{
    const struct text *text = &c->checkpoint->texts[TEXT_CONFIG];
    struct head_reading reading = {0};
    struct head_request request = {.kind = options->kind, .exit_layer = options->exit_layer, .layer_ids = options->layer_ids,
                                   .tensors = {dims_of, c->checkpoint}, .target = target};
    json_t *config = NULL;
    int rc = -1;
    if (text->length && config_parse(&config, text->data, text->length, err)) {
        err_at(err, "config.json");
        goto done;
    }
    request.config = config;
    if (head_read(&reading, &request, err) ||
        (reading.head.kind == HEAD_EAGLE3 && read_map(&reading.head, c->checkpoint, err)) ||
        head_check(&reading.head, &reading.shape, err) ||
        text_put(notes, reading.notes.data, reading.notes.length, err))
        goto done;
    c->naming = reading.naming;
    c->facts.shape = reading.shape;
    c->facts.head = reading.head;
    reading.head.target_id = NULL;
    rc = 0;
done:
    json_decref(config);
    head_reading_free(&reading);
    return rc;
}

enum head_kind checkpoint_head_kind(const struct checkpoint *checkpoint)
{
    const struct text *text = &checkpoint->texts[TEXT_CONFIG];
    struct head_request request = {.tensors = {dims_of, checkpoint}};
    json_t *config = NULL;
    if (text->length && !config_parse(&config, text->data, text->length, NULL))
        request.config = config;
    const enum head_kind kind = head_recognise(&request);
    json_decref(config);
    return kind;
}

int conversion_plan_head(struct conversion *out, struct checkpoint *checkpoint, const struct model *target,
                         const struct head_options *options, struct text *notes, struct err *err)
{
    struct conversion c = {.checkpoint = checkpoint};
    if (read_head(&c, target, options, notes, err) ||
        layout_make_head(&c.layout, &c.facts.head, &c.facts.shape, err))
        goto failed;
    for (int i = 0; i < c.layout.count; i++)
        if (conversion_bind(&c, &c.layout.tensors[i], &options->format, err))
            goto failed;
    if (conversion_check_left_over(&c, err))
        goto failed;
    model_facts_name(&c.facts, options->name ? options->name : *checkpoint->name ? checkpoint->name : c.facts.shape.family);
    snprintf(c.facts.producer, sizeof c.facts.producer, "%s", options->producer);
    *out = c;
    return 0;
failed:
    conversion_free(&c);
    return err_at(err, "%s", checkpoint->path);
}
