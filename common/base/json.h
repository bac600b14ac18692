/* jansson, with memory that may run short. Alone it goes on then: a string it reads lacks a letter, an object it writes lacks a
 * key. So its allocations are watched, for each thread, and after a failure nothing is believed. */
#ifndef MOE_BASE_JSON_H
#define MOE_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "common/base/err.h"
#include "common/base/text.h"

/* As json_loadb, but a tree may take no more than twice the bytes of its text and this: {} alone takes 200 bytes. An integer
 * beyond 64 bits becomes a real: tokenizers without a longest text have "model_max_length": 1000000000000000019884624838656. */
enum { JSON_TREE_ROOM = 24 << 20 };
json_t *json_read(const char *text, size_t bytes, size_t flags, json_error_t *fault);

/* Did that fail for want of memory? Then `fault` has no words for it. */
bool json_no_memory(const json_error_t *fault);

/* A whole small file of at most `limit` bytes ("-" is standard input); no key may be there twice. NULL with err set, which
 * says `what` is expected: "a cost table". */
json_t *json_file(const char *path, size_t limit, const char *what, struct err *err);

/* The value as text, to be freed with mem_free; NULL: no memory. Reals have the fewest digits that read back as the same,
 * unless `flags` have a JSON_REAL_PRECISION. */
char *json_text(const json_t *value, size_t flags, struct err *err);

/* The object, which is taken over, as a line of its own. */
int json_line(struct text *out, json_t *object, struct err *err);

json_t *json_finite(double value);      /* null where it is no number, or infinite */

#endif
