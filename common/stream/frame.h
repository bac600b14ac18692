/* Framing constants and functions that writer and reader of streams share; moe-stream(5) documents the format. */
#ifndef MOE_STREAM_FRAME_H
#define MOE_STREAM_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/base/text.h"
#include "common/base/wire.h"

/* The first bytes of a stream: an extension value of 12 bytes with code 77 ('M'). It consists of a guard that any text
 * conversion would damage, then major and minor version of the framing as u16, little-endian. */
#define FRAME_GUARD "\xc7\x0c\x4d\x89MOE\r\n\x1a\n"
enum { FRAME_GUARD_BYTES = 11, FRAME_BYTES = 15, FRAME_MAJOR = 1, FRAME_MINOR = 0, FRAME_DIGEST = 16, FRAME_TYPE = 32 };

#define FRAME_RECORD_BYTES  ((size_t)1 << 30)
#define FRAME_RECORD_VALUES ((size_t)1 << 20)
#define FRAME_HEADER_BYTES  ((size_t)16 << 20)
#define FRAME_HEADER_VALUES ((size_t)1 << 17)

/* Returns true for record types that a reader may skip if it does not know them. */
bool frame_is_ancillary(const char *type);

/* Number of records of a type; the end record repeats these counts. */
struct frame_count {
    char type[FRAME_TYPE];
    uint64_t records;
};
struct frame_counts {
    struct frame_count *items;
    size_t count, room;
};
int frame_counts_add(struct frame_counts *counts, const char *type, struct err *err);
const struct frame_count *frame_counts_find(const struct frame_counts *counts, const char *type, size_t bytes);
void frame_counts_free(struct frame_counts *counts);

/* Appends the end record to *out, without the 16 digest bytes that end it: these are the XXH3-128 (big-endian) of every byte
 * before them. index, bytes: number of records and bytes of the stream so far. */
int frame_end_encode(const struct frame_counts *counts, int64_t index, uint64_t bytes, struct text *out, struct err *err);

/* Checks the payload of an end record (a map) against the records and bytes read. *digest points to its last 16 bytes. */
int frame_end_check(const uint8_t *payload, const uint8_t *end, const struct frame_counts *counts, uint64_t bytes,
                    const uint8_t **digest, struct err *err);

/* Writes a digest as 16 bytes, big-endian. */
void frame_digest(struct digest128 digest, uint8_t out[FRAME_DIGEST]);

/* Appends an abort record with this index and message to *out. */
int frame_abort_encode(int64_t index, const char *message, struct text *out, struct err *err);

#endif
