/* msgpack bytes, read without trusting them.
 *
 * A scan walks one object as its bytes arrive and reports when it is complete. It allocates nothing and trusts no length
 * before the bytes have arrived. A cursor then reads the complete object: it returns one value after the other, pointing into
 * the bytes. (msgpack-c's own unpacker allocates on a claimed count and limits nesting to a compiled-in depth, so it is
 * used for writing only.) */
#ifndef MOE_BASE_WIRE_H
#define MOE_BASE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"

enum wire_type { WIRE_NIL, WIRE_FLAG, WIRE_INT, WIRE_REAL, WIRE_TEXT, WIRE_BYTES, WIRE_EXT, WIRE_ARRAY, WIRE_MAP };

struct wire_value {
    enum wire_type type;
    bool negative;              /* INT: the value is (int64_t)integer */
    uint64_t integer;           /* INT; FLAG: 0 or 1 */
    double real;                /* REAL */
    int code;                   /* EXT: its type code */
    const uint8_t *data;        /* TEXT (valid UTF-8, no NUL after it), BYTES, EXT */
    size_t bytes;               /* of data */
    uint32_t count;             /* ARRAY: elements, MAP: pairs; they follow */
};

enum { WIRE_DEPTH = 32 };       /* depth of nested containers */

struct wire_limits {
    size_t bytes;               /* of one object */
    size_t values;              /* in one object, counted over all levels */
};

/* State of a scan. Start with {0}; continue with the same bytes followed by more. */
struct scan {
    size_t at;                  /* bytes looked at; after SCAN_WHOLE: the object's length */
    size_t values;
    int depth;
    uint64_t left[WIRE_DEPTH];  /* values missing on each level */
};

enum scan_result { SCAN_BAD = -1, SCAN_MORE = 0, SCAN_WHOLE = 1 };

/* Continues a scan. Returns SCAN_BAD with err set if the bytes cannot become an object within the limits. */
enum scan_result scan_object(struct scan *scan, const uint8_t *data, size_t bytes, const struct wire_limits *limits,
                             struct err *err);

/* Reads bytes that a scan has found complete. */
struct cursor {
    const uint8_t *at, *end;
};

/* Returns the next value: a scalar, or the head of a container, whose values follow. -1 at the end. */
int cursor_next(struct cursor *cursor, struct wire_value *value);
int cursor_skip(struct cursor *cursor);         /* skips one value and all values in it */

/* Output buffer of a msgpack_packer, which records a failed allocation. */
struct wire_sink {
    struct text text;
    bool failed;
};
int wire_sink_put(void *sink, const char *data, size_t bytes);

const char *wire_type_name(enum wire_type type);        /* "an integer", "text", ... for messages */
bool wire_is(const struct wire_value *value, const char *text);
bool wire_int64(const struct wire_value *value, int64_t *out);  /* false when not an integer, or one that does not fit */

#endif
