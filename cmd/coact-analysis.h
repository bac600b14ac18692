/* Parts shared by the analyses of moe-coact: options, reading of routes, and output of results. */
#ifndef MOE_CMD_COACT_ANALYSIS_H
#define MOE_CMD_COACT_ANALYSIS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/text.h"
#include "common/cli/command.h"
#include "common/route/input.h"
#include "common/route/put.h"

struct coact_args {
    struct strings inputs;
    const char *output, *rank, *budget;
    int by, phase, layer, total;
    double keep, acceptance, draft_cost, threshold;
    int draft_length;
    bool text, json, csv, svg, trees, force;
};

/* A result, as records and as figures. */
struct coact_finding {
    const void *what;
    int layers, layer;
    int64_t tokens;
    const struct header *header;
    int (*put)(const struct coact_finding *finding, record_put *put, void *context, struct err *err);
    int (*text)(const struct coact_finding *finding, struct text *out, struct err *err);
    int (*svg)(const struct coact_finding *finding, struct text *out, struct err *err);
};

/* Refuses rejected nodes, for analyses of consecutive tokens. */
int coact_texts_alone(const struct coact_args *args, struct err *err);

/* Passes all routes to the consumer, and fills the header of the output. */
int coact_read(const struct route_consumer *consumer, const struct coact_args *args, const struct console *console,
               enum stream_kind kind, struct header *header, struct err *err);
int coact_emit(const struct coact_finding *finding, const struct coact_args *args, struct err *err);
const char *coact_output(const char *output);                           /* "-" if none is given */

#endif
