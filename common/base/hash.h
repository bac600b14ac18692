/* Digests: XXH3 (128 bits) against accidents, SHA-256 for identity. */
#ifndef MOE_BASE_HASH_H
#define MOE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct digest128 { uint64_t low, high; };
struct sha256 { uint8_t bytes[32]; };

struct digest128 hash_xxh3(const void *data, size_t bytes);

struct xxh3_stream;                      /* running XXH3 */
int xxh3_stream_new(struct xxh3_stream **out, struct err *err);
void xxh3_stream_put(struct xxh3_stream *stream, const void *data, size_t bytes);
struct digest128 xxh3_stream_digest(const struct xxh3_stream *stream);   /* digest of all bytes so far */
void xxh3_stream_free(struct xxh3_stream **stream);

struct sha256_stream;                    /* running SHA-256 */
int sha256_stream_new(struct sha256_stream **out, struct err *err);
int sha256_stream_put(struct sha256_stream *stream, const void *data, size_t bytes, struct err *err);
int sha256_stream_end(struct sha256_stream **stream, struct sha256 *out, struct err *err);   /* frees */
void sha256_stream_free(struct sha256_stream **stream);
int hash_sha256(const void *data, size_t bytes, struct sha256 *out, struct err *err);

void sha256_hex(const struct sha256 *digest, char hex[65]);
void digest128_hex(struct digest128 digest, char hex[33]);

#endif
