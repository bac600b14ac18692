/* jansson, made safe against failed allocations. By itself jansson continues after one: a string lacks a letter, an object
 * lacks a key. Allocations are therefore watched per thread, and every result after a failure is rejected. */
#ifndef MOE_BASE_JSON_H
#define MOE_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "common/base/err.h"
#include "common/base/text.h"

/* Like json_loadb, but the tree may take at most this plus twice the bytes of its text ({} alone takes 200 bytes). An integer
 * beyond 64 bits becomes a real: tokenizers without a longest text have "model_max_length": 1000000000000000019884624838656. */
enum { JSON_TREE_ROOM = 24 << 20 };
json_t *json_read(const char *text, size_t bytes, size_t flags, json_error_t *fault);

/* Returns whether the last read failed for lack of memory; `fault` has no text then. */
bool json_no_memory(const json_error_t *fault);

/* Reads a whole small file of at most `limit` bytes ("-": standard input). Refuses duplicate keys. Returns NULL with err set,
 * which names `what` was expected: "a cost table". */
json_t *json_file(const char *path, size_t limit, const char *what, struct err *err);

/* Returns the value as text, to be freed with mem_free; NULL: no memory. Reals have the fewest digits that read back as the
 * same, unless `flags` contain a JSON_REAL_PRECISION. */
char *json_text(const json_t *value, size_t flags, struct err *err);

/* Writes a file that contains the value as text, and a line end. */
int json_write(const char *path, const json_t *value, size_t flags, struct err *err);

/* Writes the object as one line and frees it. */
int json_line(struct text *out, json_t *object, struct err *err);

json_t *json_finite(double value);      /* JSON null for NaN and infinities */

#endif
