/* Encodes and decodes headers as msgpack maps; the keys are described in moe-stream(5). */
#include "common/stream/header.h"

#include <limits.h>
#include <msgpack.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/stream/record.h"

enum { MODEL_EXTENT = 1 << 24, MODEL_EXPERTS = INT16_MAX };     /* experts are stored as i16 */

static void pack_text(msgpack_packer *packer, const char *text)
{
    size_t bytes = strlen(text);
    msgpack_pack_str(packer, bytes);
    msgpack_pack_str_body(packer, text, bytes);
}

static void pack_text_at(msgpack_packer *packer, const char *key, const char *text)
{
    pack_text(packer, key);
    pack_text(packer, text);
}

static void pack_int_at(msgpack_packer *packer, const char *key, int value)
{
    pack_text(packer, key);
    msgpack_pack_int(packer, value);
}

static void pack_model(msgpack_packer *packer, const struct stream_model *model)
{
    pack_text(packer, "model");
    msgpack_pack_map(packer, 10);
    pack_text_at(packer, "name", model->name);
    pack_text_at(packer, "index_sha256", model->index_sha256);
    pack_text_at(packer, "source_sha256", model->source_sha256);
    pack_text_at(packer, "tokenizer_sha256", model->tokenizer_sha256);
    pack_int_at(packer, "layers", model->layers);
    pack_int_at(packer, "moe_layers", model->moe_layers);
    pack_int_at(packer, "experts", model->experts);
    pack_int_at(packer, "top_k", model->top_k);
    pack_int_at(packer, "vocab", model->vocab);
    pack_int_at(packer, "hidden", model->hidden);
}

static void pack_header(msgpack_packer *packer, const struct header *header, int depth)
{
    int sources = depth < HEADER_DEPTH ? header->source_count : 0;
    int omitted = header->sources_omitted + header->source_count - sources;
    msgpack_pack_map(packer, (size_t)(3 + header->has_model + header->has_seed + 2 * !!header->parts + !!header->dtype +
                                      !!header->device + !!header->label_count + !!sources + !!omitted));
    pack_text_at(packer, "kind", header->kind_name);
    pack_int_at(packer, "version", header->version);
    pack_text(packer, "producer");
    msgpack_pack_map(packer, 3);
    pack_text_at(packer, "tool", header->tool);
    pack_text_at(packer, "version", header->tool_version);
    pack_text(packer, "argv");
    msgpack_pack_array(packer, (size_t)header->argc);
    for (int i = 0; i < header->argc; i++)
        pack_text(packer, header->argv[i]);
    if (header->has_model)
        pack_model(packer, &header->model);
    if (header->has_seed) {
        pack_text(packer, "seed");
        msgpack_pack_uint64(packer, header->seed);
    }
    if (header->parts) {
        pack_int_at(packer, "part", header->part);
        pack_int_at(packer, "parts", header->parts);
    }
    if (header->dtype)
        pack_text_at(packer, "dtype", header->dtype);
    if (header->device)
        pack_text_at(packer, "device", header->device);
    if (header->label_count) {
        pack_text(packer, "labels");
        msgpack_pack_map(packer, (size_t)header->label_count);
        for (int i = 0; i < header->label_count; i++)
            pack_text_at(packer, header->labels[i].key, header->labels[i].value);
    }
    if (sources) {
        pack_text(packer, "sources");
        msgpack_pack_array(packer, (size_t)sources);
        for (int i = 0; i < sources; i++)
            pack_header(packer, &header->sources[i], depth + 1);
    }
    if (omitted)
        pack_int_at(packer, "sources_omitted", omitted);
}

int header_encode(const struct header *header, struct text *out, struct err *err)
{
    struct wire_sink sink = {0};
    msgpack_packer packer;
    msgpack_packer_init(&packer, &sink, wire_sink_put);
    pack_header(&packer, header, 0);
    int rc = sink.failed ? err_memory(err) : text_put(out, sink.text.data, sink.text.length, err);
    text_free(&sink.text);
    return rc;
}

static int take_text(const struct record *map, const char *key, char **out, struct err *err)
{
    const char *text;
    if (record_text(map, key, &text, err))
        return -1;
    mem_free(out);
    *out = mem_string(text, err);
    return *out ? 0 : -1;
}

static int take_extent(const struct record *map, const char *key, int64_t min, int64_t max, int *out, struct err *err)
{
    int64_t value;
    if (record_int(map, key, &value, err))
        return -1;
    if (value < min || value > max) {
        err_set(err, ERR_INPUT, "key '%s' is %lld, but must be from %lld to %lld; the stream is damaged", key, (long long)value,
                (long long)min, (long long)max);
        return record_error_at(map, err);
    }
    *out = (int)value;
    return 0;
}

static int take_hash(const struct record *map, const char *key, char out[65], struct err *err)
{
    const char *text;
    if (record_text(map, key, &text, err))
        return -1;
    size_t length = strlen(text);
    if (length && (length != 64 || strspn(text, "0123456789abcdef") != 64)) {
        err_set(err, ERR_INPUT, "key '%s' must be a SHA-256 in hexadecimal; the stream is damaged", key);
        return record_error_at(map, err);
    }
    memcpy(out, text, length + 1);
    return 0;
}

static int take_model(const struct record *header, struct stream_model *out, struct err *err)
{
    struct stream_model model = {0};
    struct record map;
    const char *name;
    if (record_map(header, "model", &map, err) || record_text(&map, "name", &name, err) ||
        take_hash(&map, "index_sha256", model.index_sha256, err) ||
        take_hash(&map, "source_sha256", model.source_sha256, err) ||
        take_hash(&map, "tokenizer_sha256", model.tokenizer_sha256, err) ||
        take_extent(&map, "layers", 0, MODEL_EXTENT, &model.layers, err) ||
        take_extent(&map, "moe_layers", 0, model.layers, &model.moe_layers, err) ||
        take_extent(&map, "experts", 0, MODEL_EXPERTS, &model.experts, err) ||
        take_extent(&map, "top_k", 0, model.experts, &model.top_k, err) ||
        take_extent(&map, "vocab", 0, MODEL_EXTENT, &model.vocab, err) ||
        take_extent(&map, "hidden", 0, MODEL_EXTENT, &model.hidden, err))
        return -1;
    size_t length = strlen(name);
    if (length >= sizeof model.name)
        length = sizeof model.name - 1;
    while (length && (name[length] & 0xc0) == 0x80)             /* never cuts within a UTF-8 character */
        length--;
    memcpy(model.name, name, length);
    *out = model;
    return 0;
}

/* Finds the list under `key`: sets a cursor to its first item, and the number of items. */
static int open_list(const struct record *map, const char *key, struct cursor *items, int *count, struct err *err)
{
    for (int i = 0; i < map->count; i++)
        if (wire_is(&map->entries[i].key, key)) {
            struct wire_value list;
            *items = (struct cursor){map->entries[i].begin, map->entries[i].end};
            if (cursor_next(items, &list) || list.type != WIRE_ARRAY || list.count > HEADER_ITEMS) {
                err_set(err, ERR_INPUT, "key '%s' must be a list of at most %d entries; the stream is damaged", key,
                        HEADER_ITEMS);
                return record_error_at(map, err);
            }
            *count = (int)list.count;
            return 0;
        }
    err_set(err, ERR_INPUT, "key '%s' is missing; the stream is damaged", key);
    return record_error_at(map, err);
}

static int take_argv(const struct record *producer, struct header *header, struct err *err)
{
    struct cursor items;
    int count;
    if (open_list(producer, "argv", &items, &count, err))
        return -1;
    header->argv = mem_alloc((size_t)count, sizeof *header->argv, err);
    if (!header->argv)
        return -1;
    for (; header->argc < count; header->argc++) {
        struct wire_value word;
        if (cursor_next(&items, &word) || word.type != WIRE_TEXT) {
            err_set(err, ERR_INPUT, "key 'argv' has a value that is not text; the stream is damaged");
            return record_error_at(producer, err);
        }
        header->argv[header->argc] = mem_copy(word.data, word.bytes, err);
        if (!header->argv[header->argc])
            return -1;
    }
    return 0;
}

static int take_labels(const struct record *map, struct header *header, struct err *err)
{
    struct record labels;
    int rc = record_map(map, "labels", &labels, err);
    for (int i = 0; !rc && i < labels.count; i++) {
        const char *value;
        char *key = mem_copy(labels.entries[i].key.data, labels.entries[i].key.bytes, err);
        rc = !key || record_text(&labels, key, &value, err) || header_label(header, key, value, err) ? -1 : 0;
        mem_free(&key);
    }
    return rc;
}

static int decode(struct header *out, const uint8_t *begin, const uint8_t *end, int depth, struct err *err);

static int take_sources(const struct record *map, struct header *header, int depth, struct err *err)
{
    struct cursor items;
    int count;
    if (open_list(map, "sources", &items, &count, err))
        return -1;
    if (depth == HEADER_DEPTH) {
        header->sources_omitted += count;
        return 0;
    }
    header->sources = mem_alloc((size_t)count, sizeof *header->sources, err);
    if (!header->sources)
        return -1;
    for (; header->source_count < count; header->source_count++) {
        const uint8_t *source = items.at;
        if (cursor_skip(&items))
            return err_set(err, ERR_INPUT, "header: sources are truncated; the stream is damaged");
        if (decode(&header->sources[header->source_count], source, items.at, depth + 1, err))
            return -1;
    }
    return 0;
}

static int take_all(const struct record *map, struct header *header, int depth, struct err *err)
{
    struct record producer;
    if (take_text(map, "kind", &header->kind_name, err) || take_extent(map, "version", 0, UINT16_MAX, &header->version, err) ||
        record_map(map, "producer", &producer, err) || take_text(&producer, "tool", &header->tool, err) ||
        take_text(&producer, "version", &header->tool_version, err) || take_argv(&producer, header, err))
        return -1;
    if (record_has(map, "parts") && (take_extent(map, "parts", 1, INT_MAX, &header->parts, err) ||
                                     take_extent(map, "part", 1, header->parts, &header->part, err)))
        return -1;
    if (record_has(map, "sources_omitted") &&
        take_extent(map, "sources_omitted", 0, INT_MAX - HEADER_ITEMS, &header->sources_omitted, err))
        return -1;
    if ((record_has(map, "dtype") && take_text(map, "dtype", &header->dtype, err)) ||
        (record_has(map, "device") && take_text(map, "device", &header->device, err)) ||
        (record_has(map, "labels") && take_labels(map, header, err)) ||
        (record_has(map, "sources") && take_sources(map, header, depth, err)))
        return -1;
    header->has_model = record_has(map, "model");
    if (header->has_model && take_model(map, &header->model, err))
        return -1;
    header->has_seed = record_has(map, "seed");
    return header->has_seed ? record_uint(map, "seed", &header->seed, err) : 0;
}

static int decode(struct header *out, const uint8_t *begin, const uint8_t *end, int depth, struct err *err)
{
    struct record_memory memory = {0};
    struct record map = {.type = depth ? "header of a source" : "header", .index = -1, .payload = begin, .payload_end = end,
                         .memory = &memory};
    struct header header = {0};
    int rc = -1;
    if (record_index(&map, err)) {
        err_at(err, "%s", map.type);
        goto done;
    }
    if (take_all(&map, &header, depth, err))
        goto done;
    const struct stream_schema *schema = stream_schema_named(header.kind_name);
    if (!schema && !depth) {
        err_set(err, ERR_INPUT, "header: streams of kind '%.40s' are unknown to this version; update moekit", header.kind_name);
        goto done;
    }
    if (schema && !depth && header.version > schema->version) {
        err_set(err, ERR_INPUT, "header: version %d of '%s' streams is newer than this program's %d; update moekit",
                header.version, schema->name, schema->version);
        goto done;
    }
    header.kind = schema ? schema->kind : STREAM_ANY;
    *out = header;
    header = (struct header){0};
    rc = 0;
done:
    header_free(&header);
    record_memory_free(&memory);
    return rc;
}

int header_decode(struct header *out, const uint8_t *begin, const uint8_t *end, struct err *err)
{
    return decode(out, begin, end, 0, err);
}
