/* A damaged stream with a valid end record, so that readers get past the digest. */
#ifndef MOE_TESTS_FUZZ_RESEAL_H
#define MOE_TESTS_FUZZ_RESEAL_H

#include <string.h>

#include "common/base/wire.h"
#include "common/stream/frame.h"
#include "tests/fuzz/fuzz.h"

/* Reads the type of the record in these bytes; false: not a record, or an end record. */
static inline bool reseal_count(struct frame_counts *counts, const uint8_t *data, size_t bytes)
{
    struct cursor cursor = {data, data + bytes};
    struct wire_value value;
    char type[FRAME_TYPE] = "";
    if (cursor_next(&cursor, &value) || value.type != WIRE_ARRAY || value.count != 3 || cursor_next(&cursor, &value) ||
        value.type != WIRE_TEXT || value.bytes >= FRAME_TYPE || wire_is(&value, "end"))
        return false;
    memcpy(type, value.data, value.bytes);
    return !frame_counts_add(counts, type, NULL);
}

/* Appends the complete records of `data` before its end record to *out, then a valid end record; nothing if guard and header
 * are incomplete. */
static inline void reseal(struct text *out, const uint8_t *data, size_t bytes)
{
    static const struct wire_limits limits = {1 << 24, 1 << 20};
    struct frame_counts counts = {0};
    int64_t records = -1;
    uint8_t digest[FRAME_DIGEST];
    size_t at = FRAME_BYTES < bytes ? FRAME_BYTES : bytes;
    for (;; records++) {
        struct scan scan = {0};
        if (scan_object(&scan, data + at, bytes - at, &limits, NULL) != SCAN_WHOLE)
            break;
        if (records >= 0 && !reseal_count(&counts, data + at, scan.at))
            break;
        at += scan.at;
    }
    if (records >= 0 && !text_put(out, data, at, NULL) && !frame_end_encode(&counts, records, at, out, NULL)) {
        frame_digest(hash_xxh3(out->data, out->length), digest);
        text_put(out, digest, sizeof digest, NULL);
    }
    frame_counts_free(&counts);
}

#endif
