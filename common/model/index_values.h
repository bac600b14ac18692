/* Writes and reads values of a model file's index as msgpack. */
#ifndef MOE_MODEL_INDEX_VALUES_H
#define MOE_MODEL_INDEX_VALUES_H

#include <stdbool.h>
#include <stddef.h>

#include <msgpack.h>

#include "common/base/text.h"
#include "common/base/wire.h"
#include "common/model/head.h"

void index_put_text(msgpack_packer *to, const char *text);
void index_put_blob(msgpack_packer *to, const void *data, size_t bytes);

/* Each of these functions reads the next value; it fails if the value has another type or is out of range. */
int index_take(struct cursor *cursor, enum wire_type type, struct wire_value *value, struct err *err);
int index_int(struct cursor *cursor, int64_t min, int64_t max, int64_t *out, struct err *err);
int index_int32(struct cursor *cursor, int *out, struct err *err);
int index_flag(struct cursor *cursor, bool *out, struct err *err);
int index_text(struct cursor *cursor, char *out, size_t room, struct err *err);        /* a text without NULs, shorter than
                                                                                        * `room` */
int index_blob(struct cursor *cursor, void *out, size_t bytes, struct err *err);       /* exactly `bytes` bytes */
int index_long_text(struct cursor *cursor, struct text *out, struct err *err);
int index_count(struct cursor *cursor, size_t max, size_t *out, struct err *err);     /* number of elements of a list */
int index_list_of(struct cursor *cursor, size_t elements, struct err *err);

/* A member of a struct that is one value of the index. An enumeration is stored as an integer. */
enum index_type { INDEX_INT, INDEX_FLAG, INDEX_FLOAT, INDEX_DOUBLE };

struct index_field {
    const char *key;
    enum index_type type;
    size_t offset;
};

#define INDEX_FIELD(s, key, member) \
    {key, _Generic(((const s *)0)->member, int: INDEX_INT, unsigned: INDEX_INT, bool: INDEX_FLAG, float: INDEX_FLOAT, \
                   double: INDEX_DOUBLE), offsetof(s, member)}

void index_put_field(msgpack_packer *to, const void *body, const struct index_field *field);     /* key and value */
int index_take_field(struct cursor *cursor, void *body, const struct index_field *field, struct err *err);      /* the value */
bool index_field_is_set(const void *body, const struct index_field *field);     /* not 0 */

/* Treatment of unknown keys of a map: skipped if keys only describe the file, rejected if they determine how the model
 * computes. */
enum index_unknown { INDEX_SKIP, INDEX_REFUSE };

/* Reads a map. Each of the first `required` known keys must occur once, the others at most once. at() reads the value of key
 * number `key`. */
int index_map(struct cursor *cursor, const char *(*name)(int key), int keys, int required, enum index_unknown unknown,
              int (*at)(void *context, int key, struct err *err), void *context, struct err *err);

/* Writes and reads the description of a draft head (head_index.c). index_take_head: initialise head with {0}; free it also
 * after a failure. The description is complete but not yet checked by head_check. */
void index_put_head(msgpack_packer *to, const struct head_params *head);
int index_take_head(struct cursor *cursor, struct head_params *head, struct err *err);

#endif
