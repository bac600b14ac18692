/* Checks the members of a JSON object that a person wrote. */
#ifndef MOE_CLI_KEYS_H
#define MOE_CLI_KEYS_H

#include <jansson.h>

#include "common/base/err.h"

/* Fails for a key that is not among `keys` (which end with NULL), and suggests the nearest one. */
int keys_known(const json_t *object, const char *const *keys, struct err *err);

/* Stores the integer value of the key, from min to max, in *out, or `otherwise` if the key is missing. */
int keys_int(const json_t *object, const char *key, int otherwise, int min, int max, int *out, struct err *err);

#endif
