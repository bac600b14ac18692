/* Checks the members of a JSON object that a person wrote. */
#ifndef MOE_CLI_KEYS_H
#define MOE_CLI_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "common/base/err.h"

/* Fails for a key that is not among `keys` (which end with NULL), and suggests the nearest one. */
int keys_known(const json_t *object, const char *const *keys, struct err *err);

/* Stores the integer value of the key, from min to max, in *out, or `otherwise` if the key is missing. */
int keys_int(const json_t *object, const char *key, int otherwise, int min, int max, int *out, struct err *err);

/* Store real numbers likewise; a missing key that has no default must have an `otherwise` outside min .. max, which is an
 * error. keys_microseconds returns seconds. keys_flag: a missing key is false. */
int keys_real(const json_t *object, const char *key, double otherwise, double min, double max, double *out, struct err *err);
int keys_microseconds(const json_t *object, const char *key, double otherwise, double *out, struct err *err);
int keys_flag(const json_t *object, const char *key, bool *out, struct err *err);

/* Copies the text of a required key, truncated to `room` bytes. */
int keys_text(const json_t *object, const char *key, char *out, size_t room, struct err *err);

/* Finds the object under a key, NULL if it is missing and not `needed`; any of its keys that is not in `keys` is an error. */
int keys_object(const json_t *map, const char *key, const char *const *keys, bool needed, const json_t **out, struct err *err);

#endif
