#include "common/stream/frame.h"

#include <msgpack.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/stream/record.h"

enum { COUNT_TYPES = 256 };

bool frame_is_ancillary(const char *type) { return !strncmp(type, "x-", 2); }

const struct frame_count *frame_counts_find(const struct frame_counts *counts, const char *type, size_t bytes)
{
    for (size_t i = 0; i < counts->count; i++)
        if (strlen(counts->items[i].type) == bytes && !memcmp(counts->items[i].type, type, bytes))
            return &counts->items[i];
    return NULL;
}

int frame_counts_add(struct frame_counts *counts, const char *type, struct err *err)
{
    const struct frame_count *found = frame_counts_find(counts, type, strlen(type));
    if (found) {
        counts->items[found - counts->items].records++;
        return 0;
    }
    if (strlen(type) >= FRAME_TYPE)
        return err_set(err, ERR_INPUT, "a record type has more than %d letters; the stream is damaged", FRAME_TYPE - 1);
    if (counts->count == COUNT_TYPES)
        return err_set(err, ERR_INPUT, "the stream has more than %d record types; it is damaged", COUNT_TYPES);
    if (mem_grow(&counts->items, &counts->room, counts->count + 1, sizeof *counts->items, err))
        return -1;
    struct frame_count *added = &counts->items[counts->count++];
    memset(added, 0, sizeof *added);
    memcpy(added->type, type, strlen(type));
    added->records = 1;
    return 0;
}

void frame_counts_free(struct frame_counts *counts)
{
    mem_free(&counts->items);
    counts->count = counts->room = 0;
}

static void pack_text(msgpack_packer *packer, const char *text)
{
    msgpack_pack_str(packer, strlen(text));
    msgpack_pack_str_body(packer, text, strlen(text));
}

static void pack_start(msgpack_packer *packer, const char *type, int64_t index)
{
    msgpack_pack_array(packer, 3);
    pack_text(packer, type);
    msgpack_pack_int64(packer, index);
}

static int finish(struct wire_sink *sink, struct text *out, struct err *err)
{
    int rc = sink->failed ? err_memory(err) : text_put(out, sink->text.data, sink->text.length, err);
    text_free(&sink->text);
    return rc;
}

int frame_end_encode(const struct frame_counts *counts, int64_t index, uint64_t bytes, struct text *out, struct err *err)
{
    struct wire_sink sink = {0};
    msgpack_packer packer;
    msgpack_packer_init(&packer, &sink, wire_sink_put);
    pack_start(&packer, "end", index);
    msgpack_pack_map(&packer, 3);
    pack_text(&packer, "records");
    msgpack_pack_map(&packer, counts->count);
    for (size_t i = 0; i < counts->count; i++) {
        pack_text(&packer, counts->items[i].type);
        msgpack_pack_uint64(&packer, counts->items[i].records);
    }
    pack_text(&packer, "bytes");
    msgpack_pack_uint64(&packer, bytes);
    pack_text(&packer, "digest");
    msgpack_pack_bin(&packer, FRAME_DIGEST);
    return finish(&sink, out, err);
}

int frame_abort_encode(int64_t index, const char *message, struct text *out, struct err *err)
{
    struct wire_sink sink = {0};
    msgpack_packer packer;
    msgpack_packer_init(&packer, &sink, wire_sink_put);
    pack_start(&packer, "abort", index);
    msgpack_pack_map(&packer, 1);
    pack_text(&packer, "message");
    pack_text(&packer, message);
    return finish(&sink, out, err);
}

void frame_digest(struct digest128 digest, uint8_t out[FRAME_DIGEST])
{
    for (int i = 0; i < 8; i++) {
        out[i] = (uint8_t)(digest.high >> (56 - 8 * i));
        out[8 + i] = (uint8_t)(digest.low >> (56 - 8 * i));
    }
}

static int check_counts(const struct record *seen, const struct frame_counts *counts, struct err *err)
{
    size_t matched = 0;
    for (int i = 0; i < seen->count; i++) {
        const struct record_entry *entry = &seen->entries[i];
        const struct frame_count *count = frame_counts_find(counts, (const char *)entry->key.data, entry->key.bytes);
        struct cursor cursor = {entry->begin, entry->end};
        struct wire_value value;
        matched += count && !cursor_next(&cursor, &value) && value.type == WIRE_INT && !value.negative &&
                   value.integer == count->records;
    }
    if (matched != counts->count || (size_t)seen->count != counts->count)
        return err_set(err, ERR_INPUT, "the record counts of the end record are wrong; the stream is damaged");
    return 0;
}

int frame_end_check(const uint8_t *payload, const uint8_t *end, const struct frame_counts *counts, uint64_t bytes,
                    const uint8_t **digest, struct err *err)
{
    struct record_memory memory = {0};
    struct record map = {.type = "end record", .index = -1, .payload = payload, .payload_end = end, .memory = &memory};
    struct record records;
    uint64_t claimed;
    int rc = -1;
    if (record_index(&map, err)) {
        err_at(err, "end record");
        goto done;
    }
    if (record_map(&map, "records", &records, err) || check_counts(&records, counts, err) ||
        record_uint(&map, "bytes", &claimed, err))
        goto done;
    if (claimed != bytes) {
        err_set(err, ERR_INPUT, "the end record counts %llu bytes, but the stream has %llu; the stream is damaged",
                (unsigned long long)claimed, (unsigned long long)bytes);
        goto done;
    }
    const struct record_entry *last = &map.entries[map.count - 1];      /* the keys read above exist, so count >= 2 */
    struct cursor cursor = {last->begin, last->end};
    struct wire_value value;
    if (!wire_is(&last->key, "digest") || cursor_next(&cursor, &value) || value.type != WIRE_BYTES ||
        value.bytes != FRAME_DIGEST || last->end != end) {
        err_set(err, ERR_INPUT, "the end record has no digest; the stream is damaged");
        goto done;
    }
    *digest = value.data;
    rc = 0;
done:
    record_memory_free(&memory);
    return rc;
}
