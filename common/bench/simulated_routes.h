/* The experts of the tokens of each forward, in memory, so that many policies can run over the same routes: recorded (from
 * route streams) or synthetic (route/synthesis.h). Prompts are left out unless requested. */
#ifndef MOE_BENCH_SIMULATED_ROUTES_H
#define MOE_BENCH_SIMULATED_ROUTES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/cli/opt.h"
#include "common/route/synthesis.h"
#include "common/stream/header.h"

struct simulated_step {
    int64_t text;               /* index of the step's text */
    int tokens, kept;           /* number of tokens in the forward, and of those that became part of the text */
    bool prompt;                /* the forward is a piece of a prompt */
    size_t first;               /* index in `expert` of the step's first expert */
    size_t accepted;            /* index in `accepted` of the step's first flag */
};

struct simulated_routes {
    int layers, experts, top_k; /* layers: MoE layers only */
    char name[160];             /* name of the model, and of the source of the routes */
    char model[128];            /* model of the recording; "": synthetic routes for the machine's model */
    struct simulated_step *step;
    size_t steps, room;
    int16_t *expert;            /* [tokens][layers][top_k] of all steps; -1: dropped by a budget */
    size_t selections, expert_room;
    uint8_t *accepted;          /* [tokens] 1: accepted */
    int32_t *token;             /* [tokens] ids; 0 in synthetic routes */
    size_t tokens, accepted_room, token_room;
    int vocab;
};

/* Setup of synthetic routes: `tokens` tokens in `texts` texts, drafted `draft_length` at a time; each drafted token is
 * accepted with this probability if those before it were. Rejected tokens have the routes that the text would have continued
 * with. */
struct simulated_texts {
    struct synthesis_setup shape;
    int texts, tokens, draft_length;
    double acceptance;
};
int simulated_routes_make(struct simulated_routes *out, const struct simulated_texts *setup, struct err *err);

/* Reads route streams of one model, with or without forwards of prompts; notes for the user go to *note. It is an error if
 * nothing was decoded. */
int simulated_routes_read(struct simulated_routes *out, const struct strings *paths, bool prompts, bool force,
                          struct text *note, struct err *err);

/* Writes the same forwards as a route stream, for moe-coact; argc and argv are recorded in its header. */
int simulated_routes_write(const struct simulated_routes *routes, const char *path, int argc, char *const *argv,
                           struct err *err);

/* Makes the routes of the same text decoded without drafts: only kept tokens, one per forward. */
int simulated_routes_undrafted(struct simulated_routes *out, const struct simulated_routes *routes, struct err *err);

void simulated_routes_free(struct simulated_routes *routes);

/* Lists the distinct experts of one layer of a step, ascending, each with its number of tokens; returns their number. often:
 * scratch [experts], zeros before and after. */
int simulated_routes_want(const struct simulated_routes *routes, const struct simulated_step *step, int layer,
                          int32_t *expert, int32_t *tokens, int32_t *often);

#endif
