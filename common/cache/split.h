/* Which experts of a layer a device computes and which the host's processor, at the same time. Decisions alone: no clock, no
 * tensors, plain arrays, so that they can be made again from what records have.
 *
 *   STATIC    each expert always by the same processor: as llama.cpp has it, split once. A token then has the same bits in
 *             every company, so that drafts change no text
 *   RESIDENT  on the device those that are there; what is not is asked for, for the next time (Fiddler, kTransformers,
 *             HybriMoE)
 *   LEVEL     on the device those of a level of utility of at least tau, be they there or not; the device waits for those that
 *             are not. MoE-SpAc without its balancer ("w/o HetWB") is RESIDENT with the policy utility:tau=2
 *   BALANCE   on the device those that are there, as in the paper, its released program and moe-bench simulate. A tau for each
 *             layer and verification (balance.h) decides what is fetched and evicted. Unit times, r_c and r_g are learned
 *             during the first verifications; until then tau is 1
 *
 * Levels are those before the verification (the policy learns of it afterwards), and a tau holds for the next one of its layer.
 * Of prompts only STATIC splits: all tokens of a prompt share what is copied for them. `layer` counts layers with experts. */
#ifndef MOE_CACHE_SPLIT_H
#define MOE_CACHE_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cache/balance.h"

enum split_kind { SPLIT_NONE, SPLIT_STATIC, SPLIT_RESIDENT, SPLIT_LEVEL, SPLIT_BALANCE };

struct split_rule {
    enum split_kind kind;
    bool by_layers;             /* STATIC: experts of whole layers, the last ones on the device; else the first of each layer */
    double share;               /* STATIC: on the device, of all experts; negative: as many as it has slots for */
    int tau;                    /* LEVEL */
    int warm_up;                /* BALANCE: verifications */
};

/* "static:share=25,by=layers", "resident", "level:tau=2", "balance:warm-up=8", "none". */
int split_rule_read(struct split_rule *out, const char *text, struct err *err);
const char *split_rule_name(const struct split_rule *rule);
/* No bit of a token depends on its company. */
bool split_rule_is_lossless(const struct split_rule *rule);

/* Whether the device, with so many slots, may compute an expert: STATIC says it for ever. */
bool split_rule_on_device(const struct split_rule *rule, int layers, int experts, int64_t slots, int layer, int expert);

struct split_setup {
    struct split_rule rule;
    int layers, experts, top_k; /* layers with experts; experts of each */
    int all_layers;             /* L of eq. 10 */
    int slots;                  /* of the device; all experts have one: layers * experts */
    int draft_length;           /* gamma */
    int K;                      /* of levels; 0: there are none */
    double expert_bytes;
};

/* Sums of seconds, and of what took them; measured while it warms up. */
struct split_times {
    double host_s, device_s, copy_s, draft_s;
    int64_t pairs, experts, copies, drafted;
};

struct split_layer {
    int tau;                    /* that holds now */
    struct balance_shares shares;
};

struct split {
    struct split_setup setup;
    int64_t on_device;          /* STATIC: experts of each layer, or layers */
    struct split_times times;
    int64_t verifications;
    struct split_layer *layer;  /* [layers] */
};

int split_open(struct split *out, const struct split_setup *setup, struct err *err);
void split_close(struct split *split);

/* A verification begins. */
void split_begin(struct split *split);
bool split_warms_up(const struct split *split);

/* The layer wants expert[i] by tokens[i]; on_device[i]: it is there; level[experts of the layer], `stride` bytes apart, those
 * before this forward (NULL: none). Moves those that the device computes to the front, in the order they had, as the others
 * keep theirs; answers how many. on_device moves along. */
int split_choose(const struct split *split, int layer, int32_t *expert, int32_t *tokens, bool *on_device, int count,
                 const int32_t *level, int stride);

/* A verification's layer wanted these, at those levels; then, when the policy has learned of it, what tau is next:
 * fetches[K + 1] and `cold` slots as balance_look says. */
void split_learn(struct split *split, int layer, const int32_t *expert, const int32_t *tokens, int count, const int32_t *level,
                 int stride);
int split_next(struct split *split, int layer, int distinct, const int32_t *fetches, int cold);

#endif
