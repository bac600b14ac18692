/* A decoder inside: what decode.c, which opens it and reads prompts, and iteration.c have in common. */
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

/* An iteration on its way. */
struct underway {
    struct decode_iteration iteration;
    struct forward forward;
    double draft_s, verify_s;
    bool failed;                        /* it is this text at which the step of several failed */
};

/* Texts that run an iteration together. */
struct step_texts {
    struct decoder *const *decoder;
    int count;
    struct store_facts counted;         /* counters of the expert source that iterations already have */
};

struct decoder {
    struct decoder_setup setup;
    struct decode_sink sink;            /* of this text */
    struct batch batch;                 /* of this iteration's forward */
    struct underway step;
    struct sampler *sampler;
    struct acceptance *acceptance;
    struct drafters drafters;
    struct drafter_setup drafting;
    struct policy_drafter about[DRAFTERS_MAX];
    char *named;                        /* decoder_drafters' */
    struct draft_share share[DRAFTERS_MAX];             /* of this iteration */
    struct feature_request features;    /* that drafters want to see */
    int riding[DRAFTERS_MAX];           /* rows that each has in this iteration's forward */
    struct shape *shape;
    int nodes, riders;                  /* of the largest forward after the prompt: of its draft, and rows of drafters' own */
    struct policy *policy;
    const struct policy_class *policy_class;            /* named by the settings; NULL: an unknown name */
    struct sequence *sequence;          /* NULL before the first prompt */
    struct draft_tree tree;
    struct draft_steps steps;           /* that made it */
    struct draft_leaf *leaf;            /* [tree.capacity] */
    struct watches watches;             /* of the five below, those that are there */
    struct forced *forced;
    struct budgeting *budgeting;
    struct overlap_watch overlap;
    struct scoring *scoring;            /* NULL: forecasts are not scored */
    struct divergence *divergence;
    struct forecasting *forecasting;
    struct text notes;
    bool by_device;                     /* the device iterates */
    bool chooses;                       /* the device chooses tokens of the host's loop */
    struct engine_choice choice;        /* of this iteration */
    char loop_device[64];                     /* decoder_loop_device's */
    struct ending ending;
    size_t text_given;                  /* bytes of the text that the sink has */
    int prompt_tokens, vocab;
    int32_t *text;                      /* prompt and answer; the last one is the root */
    size_t text_room;
    int length;
    int computed;                       /* max tokens of `text` whose KV rows equal those of a prompt */
    struct decode_result result;
    double began;                       /* clock_seconds */
    double learning_s;                  /* the policy, from the iteration before */
    int32_t token[ROWS_MAX], parent[ROWS_MAX], path[ROWS_MAX], emitted[ROWS_MAX];
    int32_t *kept_expert;               /* of the root and the tokens kept, for policies that learn from trees */
    size_t kept_expert_room;
    uint8_t kept[ROWS_MAX];
    float node_acceptance[ROWS_MAX];
};

/* One iteration of each text: it grows by at least a token, or is at its end. */
int decoders_iterate(struct decoder *const *decoder, int count, struct err *err);

/* The same for all iterations of a text, on the device (device_loop.c). */
int decoder_iterate_on_device(struct decoder *decoder, const struct decode_sink *sink, struct err *err);

/* Whether the device cannot, and why. */
bool decoder_obstacle(const struct decoder *decoder, char *why, size_t bytes);

/* Rows of drafters' own (riders.c): put after those of the draft, and their logits given back. */
int decoder_add_riders(struct decoder *decoder, struct decode_iteration *iteration, struct err *err);
int decoder_return_riders(struct decoder *decoder, const struct decode_iteration *iteration, struct err *err);

/* Starts an iteration at the end of the text; its arrays are those of the decoder. */
void decoder_start(struct decoder *decoder, struct decode_iteration *iteration);

/* The last two steps of an iteration, its record being complete: the policy learns of it, and the caller sees it. */
int decoder_conclude(struct decoder *decoder, const struct decode_iteration *iteration, const struct decode_sink *sink,
                     struct err *err);

/* Returns the token after the prompt, given the last forward of the prompt; -1: failure. */
int32_t decoder_first_token(struct decoder *decoder, const struct forward *forward, struct err *err);

/* Adds tokens to text and answer until it ends; returns how many. Drafters learn of them, or (append) do not. */
int decoder_append(struct decoder *decoder, const int32_t *token, int count, struct err *err);
int decoder_emit(struct decoder *decoder, const int32_t *token, int count, struct err *err);

/* Hands over what of the text has become certain. */
int decoder_deliver_text(struct decoder *decoder, const struct decode_sink *sink, struct err *err);

/* Returns the features of the target that drafters read after each forward; NULL: none. */
const struct feature_request *decoder_features(const struct decoder *decoder);

bool decoder_text_is_forced(const struct decoder *decoder);

#endif
