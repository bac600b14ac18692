/* The members of a JSON object that a person wrote. */
#ifndef MOE_CLI_KEYS_H
#define MOE_CLI_KEYS_H

#include <jansson.h>

#include "common/base/err.h"

/* An error for a key that is not among `keys` (NULL at their end), with the one that was most likely meant. */
int keys_known(const json_t *object, const char *const *keys, struct err *err);

/* *out is the whole number of the key, from min to max, or `otherwise` where there is none. */
int keys_int(const json_t *object, const char *key, int otherwise, int min, int max, int *out, struct err *err);

#endif
