/* What has a choice and settings is written KIND[:key=value,...]: `ngram:n=4,k=8`.
 *
 *     struct spec *spec = NULL;
 *     if (spec_parse(&spec, text, err) || spec_int(spec, "n", 4, 1, 64, &n, err) || spec_end(spec, err)) ...
 *     spec_free(&spec);
 *
 * Every key that a kind knows is asked for once; then spec_end says which of those given is not known. In a value a
 * backslash takes the next byte as it is, so a file name may hold a comma. Errors begin with the kind: the caller adds the
 * option (err_at). */
#ifndef MOE_CLI_SPEC_H
#define MOE_CLI_SPEC_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct spec;

int spec_parse(struct spec **out, const char *text, struct err *err);
void spec_free(struct spec **spec);

/* *out is the value of the key, or `otherwise` when it was not given. Text stays valid until spec_free. A key that was called
 * otherwise once has both names, "max|most": help and errors know the first, either is taken, both together are an error. */
int spec_int(struct spec *spec, const char *key, int otherwise, int min, int max, int *out, struct err *err);
int spec_float(struct spec *spec, const char *key, double otherwise, double min, double max, double *out, struct err *err);
int spec_choice(struct spec *spec, const char *key, int otherwise, const char *const *choices, int *out, struct err *err);
int spec_text(struct spec *spec, const char *key, const char *otherwise, const char **out, struct err *err);

/* What comes before the colon. */
const char *spec_kind(const struct spec *spec);

/* The value of the n-th setting given, whatever its key; NULL: there are fewer. */
const char *spec_value(const struct spec *spec, int n);

/* Which of names[count] the kind is: *out is its index. `what` says what kinds they are, "a policy". */
int spec_pick(const struct spec *spec, const char *what, const char *const *names, int count, int *out, struct err *err);

int spec_end(const struct spec *spec, struct err *err);

#endif
