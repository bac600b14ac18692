/* Parses numbers as people type them, completely and within bounds: "8x", "", " 8" and "1e3" are not integers. */
#ifndef MOE_CLI_NUMBER_H
#define MOE_CLI_NUMBER_H

#include <stdint.h>

#include "common/base/err.h"

int number_int(const char *text, int min, int max, int *out, struct err *err);
int number_uint64(const char *text, uint64_t *out, struct err *err);
int number_float(const char *text, double min, double max, double *out, struct err *err);     /* never NaN */

/* Parses a fraction: "2%" or "0.02", from 0 to below 1. */
int number_share(const char *text, double *out, struct err *err);

/* Parses digits with an optional K, M or G (powers of 1024). */
int number_size(const char *text, uint64_t min, uint64_t max, uint64_t *out, struct err *err);

/* Stores the index of text in `choices` (which end with NULL); the error names the nearest choice. */
int number_choice(const char *text, const char *const *choices, int *out, struct err *err);

#endif
