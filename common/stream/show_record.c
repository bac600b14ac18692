/* Prints records and headers by means of show.h. */
#include "common/stream/show.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/numeral.h"
#include "common/base/text.h"
#include "common/stream/decode.h"
#include "common/stream/show_origin.h"

static void show_list_of_texts(struct show *show, const char *key, char *const *texts, int count)
{
    show_list_begin(show, key);
    for (int i = 0; i < count; i++)
        show_text(show, NULL, texts[i], strlen(texts[i]));
    show_list_end(show);
}

static void show_string(struct show *show, const char *key, const char *value) { show_text(show, key, value, strlen(value)); }

static void show_model(struct show *show, const struct stream_model *model)
{
    show_map_begin(show, "model");
    show_string(show, "name", model->name);
    show_string(show, "index_sha256", model->index_sha256);
    show_string(show, "source_sha256", model->source_sha256);
    show_string(show, "tokenizer_sha256", model->tokenizer_sha256);
    show_int(show, "layers", model->layers);
    show_int(show, "moe_layers", model->moe_layers);
    show_int(show, "experts", model->experts);
    show_int(show, "top_k", model->top_k);
    show_int(show, "vocab", model->vocab);
    show_int(show, "hidden", model->hidden);
    show_map_end(show);
}

/* Prints the header's map with the keys of the stream. */
static void show_header_keys(struct show *show, const struct header *header)
{
    show_string(show, "kind", header->kind_name);
    show_int(show, "version", header->version);
    show_map_begin(show, "producer");
    show_string(show, "tool", header->tool);
    show_string(show, "version", header->tool_version);
    show_list_of_texts(show, "argv", header->argv, header->argc);
    show_map_end(show);
    if (header->has_model)
        show_model(show, &header->model);
    if (header->has_seed)
        show_uint(show, "seed", header->seed);
    if (header->parts) {
        show_int(show, "part", header->part);
        show_int(show, "parts", header->parts);
    }
    if (header->dtype)
        show_string(show, "dtype", header->dtype);
    if (header->device)
        show_string(show, "device", header->device);
    if (header->label_count) {
        show_map_begin(show, "labels");
        for (int i = 0; i < header->label_count; i++)
            show_string(show, header->labels[i].key, header->labels[i].value);
        show_map_end(show);
    }
    if (header->source_count) {
        show_list_begin(show, "sources");
        for (int i = 0; i < header->source_count; i++) {
            show_map_begin(show, NULL);
            show_header_keys(show, &header->sources[i]);
            show_map_end(show);
        }
        show_list_end(show);
    }
    if (header->sources_omitted)
        show_int(show, "sources_omitted", header->sources_omitted);
}

static void show_header_lines(struct show *show, const struct header *header, int indent)
{
    char command[900] = "";
    size_t used = 0;
    for (int i = 0; i < header->argc && used < sizeof command; i++)
        used += (size_t)snprintf(command + used, sizeof command - used, " %s", header->argv[i]);
    show_line(show, "%*s%s stream, version %d, by %s %s:%s", indent, "", header->kind_name, header->version, header->tool,
              header->tool_version, command);
    indent += 4;
    if (header->has_model) {
        const struct stream_model *model = &header->model;
        show_line(show, "%*smodel %s: %d layer%s, %d with a router, %d experts, %d a token, vocabulary %d, hidden %d", indent,
                  "", model->name, model->layers, numeral_plural(model->layers), model->moe_layers, model->experts,
                  model->top_k, model->vocab, model->hidden);
        show_line(show, "%*smodel file %.12s, weights %.12s, tokenizer %.12s", indent, "", model->index_sha256,
                  model->source_sha256, *model->tokenizer_sha256 ? model->tokenizer_sha256 : "none");
    }
    if (header->dtype || header->device)
        show_line(show, "%*sweights in %s, computed on %s", indent, "", header->dtype ? header->dtype : "no one format",
                  header->device ? header->device : "nothing");
    if (header->has_seed)
        show_line(show, "%*sseed %llu", indent, "", (unsigned long long)header->seed);
    if (header->parts)
        show_line(show, "%*spart %d of %d of the prompts", indent, "", header->part, header->parts);
    for (int i = 0; i < header->label_count; i++)
        show_line(show, "%*s%s: %s", indent, "", header->labels[i].key, header->labels[i].value);
    for (int i = 0; i < header->source_count; i++)
        show_header_lines(show, &header->sources[i], indent);
    if (header->sources_omitted)
        show_line(show, "%*sand %d sources further back", indent, "", header->sources_omitted);
}

int show_header(struct show *show, const struct header *header, struct err *err)
{
    if (show_form(show) == SHOW_TEXT) {
        show_header_lines(show, header, 0);
        return 0;
    }
    show_begin(show, "header", -1);
    show_header_keys(show, header);
    return show_end(show, err);
}

/* Returns the index of the layer axis of an array, or -1. */
static int layer_axis(const struct record *record, const char *key)
{
    const struct field *field = record->kind ? record_kind_field(record->kind, key) : NULL;
    const char *at = field && field->type == FIELD_ARRAY ? strstr(field->shape, "[moe_layers]") : NULL;
    int axis = 0;
    if (!at)
        return -1;
    for (const char *p = field->shape; p < at; p++)
        axis += *p == '[';
    return axis;
}

/* Reduces an array to layer `layer`; the axis stays, with extent 1. */
static int take_layer(const struct record *record, struct array *array, int axis, int layer, struct err *err)
{
    size_t inner = array_dtype_size(array->dtype), outer = 1;
    if ((uint64_t)layer >= array->shape[axis])
        return err_set(err, ERR_INPUT, "--layer %d: no such layer; the model has %llu layers with a router, numbered from 0",
                       layer,
                       (unsigned long long)array->shape[axis]);
    for (int i = 0; i < array->rank; i++)
        if (i != axis)
            *(i < axis ? &outer : &inner) *= (size_t)array->shape[i];
    uint8_t *copy = record_memory_take(record->memory, outer * inner, err);
    if (!copy)
        return -1;
    for (size_t i = 0; i < outer; i++)
        memcpy(copy + i * inner,
               (const uint8_t *)array->data + (i * (size_t)array->shape[axis] + (size_t)layer) * inner, inner);
    array->data = copy;
    array->count /= (size_t)array->shape[axis];
    array->shape[axis] = 1;
    return 0;
}

static void show_wire(struct show *show, const char *key, struct cursor *cursor);

static void show_wire_pairs(struct show *show, struct cursor *cursor, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct cursor start = *cursor;
        struct wire_value key;
        char name[64];
        if (cursor_next(cursor, &key))
            return;
        if (key.type != WIRE_TEXT) {            /* not written by this program; the key may be a list or a map */
            *cursor = start;
            cursor_skip(cursor);
            snprintf(name, sizeof name, "key %lu", (unsigned long)i);
        } else {
            snprintf(name, sizeof name, "%.*s", (int)(key.bytes < 60 ? key.bytes : 60), (const char *)key.data);
        }
        show_wire(show, name, cursor);
    }
}

/* Prints any value, of known or unknown meaning. Recursion is bounded: the scan has limited the depth of the record. */
static void show_wire(struct show *show, const char *key, struct cursor *cursor)
{
    struct wire_value value;
    struct array array;
    char other[40];
    if (cursor_next(cursor, &value))
        return;
    switch (value.type) {
    case WIRE_NIL:   show_real(show, key, NAN); break;
    case WIRE_FLAG:  show_flag(show, key, value.integer != 0); break;
    case WIRE_INT:
        if (value.negative)
            show_int(show, key, (int64_t)value.integer);
        else
            show_uint(show, key, value.integer);
        break;
    case WIRE_REAL:  show_real(show, key, value.real); break;
    case WIRE_TEXT:  show_text(show, key, (const char *)value.data, value.bytes); break;
    case WIRE_MAP:
        show_map_begin(show, key);
        show_wire_pairs(show, cursor, value.count);
        show_map_end(show);
        break;
    case WIRE_ARRAY:
        show_list_begin(show, key);
        for (uint32_t i = 0; i < value.count; i++)
            show_wire(show, NULL, cursor);
        show_list_end(show);
        break;
    case WIRE_EXT: case WIRE_BYTES:
        if (value.type == WIRE_EXT && value.code == ARRAY_EXT && !array_decode(&array, value.data, value.bytes, NULL)) {
            show_array(show, key, &array);
            break;
        }
        snprintf(other, sizeof other, "%zu bytes", value.bytes);
        show_text(show, key, other, strlen(other));
        break;
    }
}

static int show_entry(struct show *show, const struct record *record, const struct record_entry *entry, int layer,
                      struct err *err)
{
    struct cursor cursor = {entry->begin, entry->end};
    struct wire_value value;
    struct array array;
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)(entry->key.bytes < 60 ? entry->key.bytes : 60), (const char *)entry->key.data);
    int axis = layer < 0 ? -1 : layer_axis(record, key);
    if (axis >= 0) {
        if (cursor_next(&cursor, &value) || array_decode(&array, value.data, value.bytes, err) ||
            take_layer(record, &array, axis, layer, err))
            return -1;
        show_array(show, key, &array);
    } else {
        show_wire(show, key, &cursor);
    }
    return 0;
}

/* Sets *out if the record passes the filter. A record passes a layer filter if it is of that layer, or has an array by
 * layer. */
static int passes(const struct record *record, const struct show_filter *filter, bool *out, struct err *err)
{
    int64_t sequence = -1, layer = -1;
    bool layers = false;
    *out = !filter->type || !strcmp(filter->type, record->type);
    if (filter->sequence >= 0) {
        if (record_int_if_any(record, "sequence", &sequence, err))
            return -1;
        *out = *out && sequence == filter->sequence;
    }
    if (filter->layer >= 0) {
        if (record_int_if_any(record, "layer", &layer, err))
            return -1;
        for (int i = 0; record->kind && i < record->kind->count; i++)
            layers = layers || (layer_axis(record, record->kind->fields[i].key) >= 0 &&
                                record_has(record, record->kind->fields[i].key));
        *out = *out && (layer < 0 ? layers : layer == filter->layer);
    }
    return 0;
}

/* Prints one cell, of a table that spreads arrays over rows (row: index of the element) or of one with scalars only (row
 * -1). */
static int show_cell(struct show *show, const struct record *record, const struct field *field, int64_t row, struct err *err)
{
    struct array array;
    if (field->type == FIELD_ARRAY && (row < 0 || strchr(field->shape + 1, '[')))
        return 0;
    for (int i = 0; i < record->count; i++) {
        const struct record_entry *entry = &record->entries[i];
        if (!wire_is(&entry->key, field->key))
            continue;
        if (field->type != FIELD_ARRAY) {
            show_wire(show, field->key, &(struct cursor){entry->begin, entry->end});
            return 0;
        }
        if (record_array_any(record, field->key, &array, err))
            return -1;
        show_element(show, field->key, &array, (size_t)row);
        return 0;
    }
    show_absent(show, field->key);
    return 0;
}

static int show_rows(struct show *show, const struct record *record, const struct origins *origins, struct err *err)
{
    const struct record_kind *kind = record->kind;
    int64_t rows = 1;
    struct array array;
    if (!kind)
        return 0;                               /* without a table of fields the columns are unknown */
    for (int i = 0; kind->spread && i < kind->count; i++)
        if (kind->fields[i].type == FIELD_ARRAY && record_has(record, kind->fields[i].key)) {
            if (record_array_any(record, kind->fields[i].key, &array, err))
                return -1;
            rows = (int64_t)array.shape[0];
        }
    for (int64_t row = 0; row < rows; row++) {
        show_begin(show, kind->type, record->index);
        if (origins && kind == &decode_iter_kind)
            origins_show(origins, show, ((const struct decode_iter *)record->body)->sequence);
        for (int i = 0; i < kind->count; i++)
            if (show_cell(show, record, &kind->fields[i], kind->spread ? row : -1, err))
                return -1;
        if (show_end(show, err))
            return -1;
    }
    return 0;
}

int show_record(struct show *show, const struct record *record, const struct show_filter *filter, struct err *err)
{
    bool wanted;
    if (passes(record, filter, &wanted, err))
        return -1;
    if (!wanted)
        return 0;
    if (show_form(show) == SHOW_CSV)
        return show_rows(show, record, filter->origins, err) ? -1 : 1;
    show_begin(show, record->type, record->index);
    for (int i = 0; i < record->count; i++)
        if (show_entry(show, record, &record->entries[i], filter->layer, err))
            return -1;
    return show_end(show, err) ? -1 : 1;
}
