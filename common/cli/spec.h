/* Parses a kind with settings, KIND[:key=value,...]: `ngram:n=4,k=8`.
 *
 *     struct spec *spec = NULL;
 *     if (spec_parse(&spec, text, err) || spec_int(spec, "n", 4, 1, 64, &n, err) || spec_end(spec, err)) ...
 *     spec_free(&spec);
 *
 * The caller asks once for every key that a kind knows; spec_end then refuses unknown keys. In a value a backslash makes the
 * next byte literal, so a file name may contain a comma. Errors begin with the kind; the caller adds the option (err_at). */
#ifndef MOE_CLI_SPEC_H
#define MOE_CLI_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct spec;

int spec_parse(struct spec **out, const char *text, struct err *err);
void spec_free(struct spec **spec);

/* Stores the value of the key in *out, or `otherwise` if it was not given. Text stays valid until spec_free. A renamed key has
 * both names, "max|most": either is accepted, both together are an error, and help and errors show the first. */
int spec_int(struct spec *spec, const char *key, int otherwise, int min, int max, int *out, struct err *err);
int spec_float(struct spec *spec, const char *key, double otherwise, double min, double max, double *out, struct err *err);
int spec_choice(struct spec *spec, const char *key, int otherwise, const char *const *choices, int *out, struct err *err);
int spec_text(struct spec *spec, const char *key, const char *otherwise, const char **out, struct err *err);

/* Returns the kind, the text before the colon. */
const char *spec_kind(const struct spec *spec);

/* Returns the value of the n-th setting given, whatever its key; NULL if there are fewer. */
const char *spec_value(const struct spec *spec, int n);

/* Stores the index of the kind in names[count] in *out. `what` names the group in errors, "a policy". */
int spec_pick(const struct spec *spec, const char *what, const char *const *names, int count, int *out, struct err *err);

int spec_end(const struct spec *spec, struct err *err);

#endif
