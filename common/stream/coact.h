/* Co-activation streams: what analyses of routes found, a record a layer. Written and read by moe-coact. */
#ifndef MOE_STREAM_COACT_H
#define MOE_STREAM_COACT_H

#include <stdint.h>

#include "common/stream/field.h"

struct coact_coverage {
    int layer;                      /* among the layers with a router */
    const char *method;
    int64_t tokens;
    int points;
    const int32_t *budget;          /* [points], ascending */
    const double *mass;             /* [points], 0 to 1 */
    const double *served;           /* [points], 0 to 1 */
};

extern const struct record_kind coact_coverage_kind;

#endif
