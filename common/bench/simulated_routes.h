/* Which experts the tokens of each forward wanted, kept in memory so that many policies can be run over the same: recorded,
 * from route streams, or made (route/synthesis.h). Prompts are left out, but where they are asked for. */
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
    int64_t text;               /* number of its text */
    int tokens, kept;           /* of the forward; of them part of the text */
    bool prompt;                /* it reads one */
    size_t first;               /* its experts begin here */
    size_t accepted;            /* and its flags here */
};

struct simulated_routes {
    int layers, experts, top_k; /* layers with experts */
    char name[160];             /* of the model and where they come from */
    char model[128];            /* they were recorded from; "": they were made for the machine's own */
    struct simulated_step *step;
    size_t steps, room;
    int16_t *expert;            /* [tokens][layers][top_k] of all steps, -1: dropped by a budget */
    size_t selections, expert_room;
    uint8_t *accepted;          /* [tokens] */
    int32_t *token;             /* [tokens] ids; of made routes 0 */
    size_t tokens, accepted_room, token_room;
    int vocab;
};

/* `tokens` tokens of text in `texts` texts, drafted `draft_length` at a time, of which each is accepted with this probability
 * once those before it were. Drafts that are not accepted route as the text would have gone on. */
struct simulated_texts {
    struct synthesis_setup shape;
    int texts, tokens, draft_length;
    double acceptance;
};
int simulated_routes_make(struct simulated_routes *out, const struct simulated_texts *setup, struct err *err);

/* Of route streams of one model, with forwards of prompts or without; notes go to *note. Errors: nothing was decoded. */
int simulated_routes_read(struct simulated_routes *out, const struct strings *paths, bool prompts, bool force,
                          struct text *note, struct err *err);

/* The same forwards as a route stream, for moe-coact; argv is for its header. */
int simulated_routes_write(const struct simulated_routes *routes, const char *path, int argc, char *const *argv,
                           struct err *err);

/* The kept tokens alone, one a forward: the same text without drafts. */
int simulated_routes_undrafted(struct simulated_routes *out, const struct simulated_routes *routes, struct err *err);

void simulated_routes_free(struct simulated_routes *routes);

/* The distinct experts of one layer of a step, ascending, each with its number of tokens; `often` is [experts] zeros, and is
 * again. */
int simulated_routes_want(const struct simulated_routes *routes, const struct simulated_step *step, int layer,
                          int32_t *expert, int32_t *tokens, int32_t *often);

#endif
