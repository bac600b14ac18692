/* Values of a config.json, with errors that name the key and show what is there. A key that is null counts as absent,
 * as in transformers. */
#ifndef MOE_ARCH_CONFIG_H
#define MOE_ARCH_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/base/err.h"
#include "common/base/text.h"

/* Parses a text that must be one JSON object without duplicate keys. */
int config_parse(json_t **out, const char *text, size_t bytes, struct err *err);

/* Returns the value of a key; NULL if it is absent or null. */
const json_t *config_get(const json_t *object, const char *key);

/* Sets the error "key is VALUE; reason"; returns -1. */
int config_refuse(const json_t *object, const char *key, struct err *err, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Read a value into *out, which stays unchanged if the key is absent; `required` makes absence an error. */
int config_int(const json_t *object, const char *key, bool required, int *out, struct err *err);
int config_real(const json_t *object, const char *key, bool required, double *out, struct err *err);
int config_bool(const json_t *object, const char *key, bool required, bool *out, struct err *err);
int config_text(const json_t *object, const char *key, bool required, const char **out, struct err *err);

/* Refuses a time_step_limit of Mamba-2 other than 0 to infinity (an object in files of transformers 5). */
int config_no_step_limit(const json_t *config, struct err *err);

#endif
