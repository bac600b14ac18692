#include "common/base/hash.h"

/* Uses the old functions of libcrypto: the newer ones load a provider with thousands of allocations, and crash when one of
 * these fails. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <stdio.h>
#include <xxhash.h>

/* The library is built for the oldest processors; a variant for newer ones is used where it exists, with equal digests. */
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#define HAS_DISPATCH 1
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>
#pragma weak XXH3_128bits_update_dispatch
#else
#define HAS_DISPATCH 0
#endif

#include "common/base/mem.h"

struct xxh3_stream { XXH3_state_t *state; };
struct sha256_stream { SHA256_CTX context; };

static struct digest128 from_xxh(XXH128_hash_t hash)
{
    return (struct digest128){hash.low64, hash.high64};
}

struct digest128 hash_xxh3(const void *data, size_t bytes)
{
    return from_xxh(XXH3_128bits(data, bytes));
}

int xxh3_stream_new(struct xxh3_stream **out, struct err *err)
{
    struct xxh3_stream *stream = mem_alloc(1, sizeof *stream, err);
    if (!stream)
        return -1;
    stream->state = XXH3_createState();
    if (!stream->state || XXH3_128bits_reset(stream->state) != XXH_OK) {
        xxh3_stream_free(&stream);
        return err_memory(err);
    }
    *out = stream;
    return 0;
}

static XXH_errorcode update(XXH3_state_t *state, const void *data, size_t bytes)
{
#if HAS_DISPATCH
    if (XXH3_128bits_update_dispatch)
        return XXH3_128bits_update_dispatch(state, data, bytes);
#endif
    return XXH3_128bits_update(state, data, bytes);
}

void xxh3_stream_put(struct xxh3_stream *stream, const void *data, size_t bytes)
{
    if (bytes)
        update(stream->state, data, bytes);
}

struct digest128 xxh3_stream_digest(const struct xxh3_stream *stream)
{
    return from_xxh(XXH3_128bits_digest(stream->state));
}

void xxh3_stream_free(struct xxh3_stream **stream)
{
    if (*stream)
        XXH3_freeState((*stream)->state);
    mem_free(stream);
}

int sha256_stream_new(struct sha256_stream **out, struct err *err)
{
    struct sha256_stream *stream = mem_alloc(1, sizeof *stream, err);
    if (!stream)
        return -1;
    if (SHA256_Init(&stream->context) != 1) {
        sha256_stream_free(&stream);
        return err_set(err, ERR_MEMORY, "SHA-256 cannot be started");
    }
    *out = stream;
    return 0;
}

int sha256_stream_put(struct sha256_stream *stream, const void *data, size_t bytes, struct err *err)
{
    if (bytes && SHA256_Update(&stream->context, data, bytes) != 1)
        return err_set(err, ERR_MEMORY, "SHA-256 cannot continue");
    return 0;
}

int sha256_stream_end(struct sha256_stream **stream, struct sha256 *out, struct err *err)
{
    struct sha256 digest;
    int ok = SHA256_Final(digest.bytes, &(*stream)->context);
    sha256_stream_free(stream);
    if (ok != 1)
        return err_set(err, ERR_MEMORY, "SHA-256 cannot be finished");
    *out = digest;
    return 0;
}

void sha256_stream_free(struct sha256_stream **stream)
{
    mem_free(stream);
}

int hash_sha256(const void *data, size_t bytes, struct sha256 *out, struct err *err)
{
    struct sha256_stream *stream = NULL;
    if (sha256_stream_new(&stream, err))
        return -1;
    if (sha256_stream_put(stream, data, bytes, err)) {
        sha256_stream_free(&stream);
        return -1;
    }
    return sha256_stream_end(&stream, out, err);
}

void sha256_hex(const struct sha256 *digest, char hex[65])
{
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest->bytes[i]);
}

void digest128_hex(struct digest128 digest, char hex[33])
{
    snprintf(hex, 33, "%016llx%016llx", (unsigned long long)digest.high, (unsigned long long)digest.low);
}
