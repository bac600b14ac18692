/* Large objects and lists of a JSON text, one member after the other: a tree of a million short strings takes many times their
 * bytes.
 *
 * A walk cuts a value into its members and finds only where each ends. A member is a part of the text, which the caller reads
 * as the type it expects; jansson parses it, except plain strings and integers. A text is known to be valid JSON once all parts
 * have been read; a part that is not read is not checked. Duplicate keys of a walked object are not detected. Nesting takes
 * no memory, and time is linear.
 * Parts point into the text, which outlives them. Errors: ERR_INPUT with line and column, ERR_MEMORY. */
#ifndef MOE_BASE_JSON_WALK_H
#define MOE_BASE_JSON_WALK_H

#include <stdint.h>

#include "common/base/json.h"
#include "common/base/text.h"

struct json_part {
    const char *begin;              /* the whole text, for messages */
    const char *text;               /* [bytes] one value; NULL: none */
    size_t bytes;
};

/* Returns the text as one part. */
int json_whole(struct json_part *out, const char *text, size_t bytes, struct err *err);

static inline bool json_part_is(struct json_part part, char first) { return part.text && *part.text == first; }

/* Parses a part; NULL with err set. For small parts: the tree may take 32 times their bytes. */
enum { JSON_TREE_BYTES = 1 << 20 };
json_t *json_part_read(struct json_part part, struct err *err);

/* Reads a string and replaces the content of *out; other values are an error. */
int json_part_string(struct json_part part, struct text *out, struct err *err);

/* Returns false if the part is not an integer of 64 bits. */
bool json_part_integer(struct json_part part, int64_t *out);

struct json_walk {
    struct json_part key, value;    /* key (objects only) and value of the current member */
    const char *at, *end;
    bool object, begun;
};

/* Begins a walk through an object or list. */
void json_walk_start(struct json_walk *walk, struct json_part whole);
/* Moves to the next member: 1; 0 at the end; -1 with err set. */
int json_walk_next(struct json_walk *walk, struct err *err);
/* Counts the members. */
int json_walk_count(struct json_part whole, size_t *count, struct err *err);

/* Parses an object without the members of the given names, which are returned unparsed as parts[i] (empty if missing). Refuses
 * duplicate keys and a remainder of more than JSON_TREE_BYTES. */
int json_split(struct json_part object, const char *const *names, int count, struct json_part *parts, json_t **rest,
               struct err *err);

#endif
