/* Settings for ablations that dytc and dytc-verify share. */
#ifndef MOE_POLICY_DYTC_H
#define MOE_POLICY_DYTC_H

#include "common/cli/spec.h"

extern const char *const dytc_yes_no[];         /* ends with NULL */

/* Parses `acceptance=X/Y/...`, an acceptance probability for each drafter that replaces the learned one, into out[drafters];
 * NaN: not given. */
int dytc_fixed(struct spec *spec, const char *name, int drafters, double *out, struct err *err);

#endif
