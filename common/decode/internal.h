/* The inside of a decoder, shared by open.c, decode.c, which reads prompts, and iteration.c. */
#ifndef MOE_DECODE_INTERNAL_H
#define MOE_DECODE_INTERNAL_H

#include "common/decode/decode.h"
#include "common/decode/ending.h"
#include "common/decode/grow.h"
#include "common/decode/scoring.h"
#include "common/decode/watch.h"
#include "common/draft/drafters.h"
#include "common/policy/shape.h"
#include "common/sample/sampler.h"
#include "common/verify/acceptance.h"
#include "common/verify/overlap.h"

enum { ROWS_MAX = ENGINE_ROWS_MAX };

_Static_assert((int)ROWS_MAX >= 1 + (int)SHAPE_NODES_MAX, "rows of a tree");

struct budgeting;
struct divergence;
struct forecasting;
struct forced;

struct overlap_watch {
    struct watch watch;
    struct overlap overlap;
    bool draws[DRAFTERS_MAX];           /* the drafter draws its tokens from a distribution */
};

/* An iteration in progress. */
struct started_iteration {
    struct decode_iteration iteration;
    struct forward forward;
    double draft_s, verify_s;
    bool failed;                        /* the step failed in this text */
};

/* Texts that run an iteration together. */
struct step_texts {
    struct decoder *const *decoder;
    int count;
    struct store_facts counted;         /* counts of the expert source that are already assigned to iterations */
};

struct decoder {
    struct decoder_setup setup;
    struct decode_sink sink;            /* of this text */
    struct batch batch;                 /* forward of the current iteration */
    struct started_iteration step;
    struct sampler *sampler;
    struct acceptance *acceptance;
    struct drafters drafters;
    struct drafter_setup drafting;
    struct policy_drafter about[DRAFTERS_MAX];
    char *named;                        /* JSON list that decoder_drafters returns */
    struct draft_share share[DRAFTERS_MAX];             /* work of each drafter in the current iteration */
    struct feature_request features;    /* features that drafters observe */
    int riding[DRAFTERS_MAX];           /* riders of each drafter in the current forward */
    struct shape *shape;
    int nodes, riders;                  /* maximum draft nodes and riders of a forward after the prompt */
    struct policy *policy;
    const struct policy_class *policy_class;            /* named by the settings; NULL: an unknown name */
    struct sequence *sequence;          /* NULL before the first prompt */
    struct draft_tree tree;
    struct draft_steps steps;           /* that made it */
    struct draft_leaf *leaf;            /* [tree.capacity] */
    struct watches watches;             /* the watches below that exist */
    struct forced *forced;
    struct budgeting *budgeting;
    struct overlap_watch overlap;
    struct scoring *scoring;            /* NULL: forecasts are not scored */
    struct divergence *divergence;
    struct forecasting *forecasting;
    struct text notes;
    bool by_device;                     /* the device runs whole iterations */
    bool chooses;                       /* the device chooses tokens in the host's loop */
    struct engine_choice choice;        /* arguments of the choice in the current iteration */
    char loop_device[64];                     /* text that decoder_loop_device returns */
    struct ending ending;
    size_t text_given;                  /* bytes of the text passed to the sink */
    int prompt_tokens, vocab;
    int32_t *text;                      /* prompt and answer; the last one is the root */
    size_t text_room;
    int length;
    int computed;                       /* max tokens of `text` whose KV rows equal those of a prompt */
    struct decode_result result;
    double began;                       /* clock_seconds */
    double learning_s;                  /* time in which the policy learned from the previous iteration */
    int32_t token[ROWS_MAX], parent[ROWS_MAX], path[ROWS_MAX], emitted[ROWS_MAX];
    int32_t *kept_expert;               /* experts of the root and the kept tokens, for policies that learn from trees */
    size_t kept_expert_room;
    uint8_t kept[ROWS_MAX];
    float node_acceptance[ROWS_MAX];
};

/* Runs one iteration of each text, which adds at least one token or ends the text. */
int decoders_iterate(struct decoder *const *decoder, int count, struct err *err);

/* Runs all iterations of a text on the device (device_loop.c). */
int decoder_iterate_on_device(struct decoder *decoder, const struct decode_sink *sink, struct err *err);

/* Returns whether the device cannot run the iterations, and writes the reason to `why`. */
bool decoder_obstacle(const struct decoder *decoder, char *why, size_t bytes);

/* Append riders, rows that drafters add for themselves (riders.c), after the draft's rows, and return their logits to the
 * drafters. */
int decoder_add_riders(struct decoder *decoder, struct decode_iteration *iteration, struct err *err);
int decoder_return_riders(struct decoder *decoder, const struct decode_iteration *iteration, struct err *err);

/* Starts an iteration at the end of the text; its arrays are the decoder's. */
void decoder_start(struct decoder *decoder, struct decode_iteration *iteration);

/* Runs the last two steps of an iteration whose record is complete: the policy learns from it, and the sink receives it. */
int decoder_conclude(struct decoder *decoder, const struct decode_iteration *iteration, const struct decode_sink *sink,
                     struct err *err);

/* Returns the token after the prompt, given the last forward of the prompt; -1: failure. */
int32_t decoder_first_token(struct decoder *decoder, const struct forward *forward, struct err *err);

/* Add tokens to text and answer until the answer ends; return their number. decoder_emit also passes them to the drafters. */
int decoder_append(struct decoder *decoder, const int32_t *token, int count, struct err *err);
int decoder_emit(struct decoder *decoder, const int32_t *token, int count, struct err *err);

/* Passes the newly final part of the text to the sink. */
int decoder_deliver_text(struct decoder *decoder, const struct decode_sink *sink, struct err *err);

/* Returns the features of the target that drafters read after each forward; NULL: none. */
const struct feature_request *decoder_features(const struct decoder *decoder);

bool decoder_text_is_forced(const struct decoder *decoder);

#endif
