/* What dytc and dytc-verify have in common: settings of their ablations. */
#ifndef MOE_POLICY_DYTC_H
#define MOE_POLICY_DYTC_H

#include "common/cli/spec.h"

extern const char *const dytc_yes_no[];         /* "no", "yes", NULL */

/* `acceptance=X/Y/...`, a chance for each drafter, in place of what is learned: out[drafters]; NaN: not given. */
int dytc_fixed(struct spec *spec, const char *name, int drafters, double *out, struct err *err);

#endif
