/* Decides which experts of a layer a device computes and which ones the host's processor, at the same time. Decisions only:
 * no clock, no tensors, plain arrays, so that a recorded run's decisions can be recomputed.
 *
 *   STATIC    each expert always on the same processor, as llama.cpp splits a model once. The bits of a token then do not
 *             depend on the other tokens of its forward, so drafts change no text
 *   RESIDENT  the device computes resident experts; the others are requested for the next time (Fiddler, kTransformers,
 *             HybriMoE)
 *   LEVEL     the device computes experts with a utility level of at least tau, and waits for those that are not resident.
 *             MoE-SpAc without its balancer ("w/o HetWB") is RESIDENT with the policy utility:tau=2
 *   BALANCE   the device computes resident experts, as in the paper, its released program and moe-bench simulate. A tau for
 *             each layer and verification (balance.h) decides which experts are fetched and evicted. Unit times, r_c and r_g
 *             are learned during the first verifications; until then tau is 1
 *
 * Levels are those before the verification (the policy learns from it afterwards), and a tau applies to the next
 * verification of its layer. Only STATIC splits prompts: all tokens of a prompt share each copied expert. `layer` counts
 * layers with experts. */
#ifndef MOE_CACHE_SPLIT_H
#define MOE_CACHE_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cache/balance.h"

enum split_kind { SPLIT_NONE, SPLIT_STATIC, SPLIT_RESIDENT, SPLIT_LEVEL, SPLIT_BALANCE };

struct split_rule {
    enum split_kind kind;
    bool by_layers; /* STATIC: the device computes whole layers, the last ones; else the first experts of each layer */
    double share; /* STATIC: share of all experts that the device computes; negative: as many as it has slots for */
    int tau;                    /* LEVEL: lowest level that the device computes */
    int warm_up;                /* BALANCE: verifications before the first tau is computed */
};

/* Parses "static:share=25,by=layers", "resident", "level:tau=2", "balance:warm-up=8" or "none". */
int split_rule_read(struct split_rule *out, const char *text, struct err *err);
const char *split_rule_name(const struct split_rule *rule);
/* Returns whether no bit of a token depends on the other tokens of its forward. */
bool split_rule_is_lossless(const struct split_rule *rule);

/* Returns whether a device with `slots` slots may compute an expert: for STATIC this never changes. */
bool split_rule_on_device(const struct split_rule *rule, int layers, int experts, int64_t slots, int layer, int expert);

struct split_setup {
    struct split_rule rule;
    int layers, experts, top_k; /* number of layers with experts; number of experts in each */
    int all_layers;             /* all layers of the target, L of eq. 10 */
    int slots;                  /* slots of the device; layers * experts if every expert has its own */
    int draft_length;           /* gamma */
    int K;                      /* highest level; 0: the policy has no levels */
    double expert_bytes;
};

/* Sums of seconds, and the number of operations that took them; measured during the warm-up. */
struct split_times {
    double host_s, device_s, copy_s, draft_s;
    int64_t pairs, experts, copies, drafted;
};

struct split_layer {
    int tau;                    /* current tau */
    struct balance_shares shares;
};

struct split {
    struct split_setup setup;
    int64_t on_device;          /* STATIC: number of experts of each layer, or of layers, that the device computes */
    struct split_times times;
    int64_t verifications;
    struct split_layer *layer;  /* [layers] */
};

int split_open(struct split *out, const struct split_setup *setup, struct err *err);
void split_close(struct split *split);

/* Begins a verification. */
void split_begin(struct split *split);
bool split_warms_up(const struct split *split);

/* Moves the experts that the device computes to the front of expert[], tokens[] and on_device[], stably, and returns their
 * number. tokens[i] tokens want expert[i]; on_device[i]: it is resident; level[experts of the layer], `stride` bytes apart,
 * are the levels before this forward (NULL: none). */
int split_choose(const struct split *split, int layer, int32_t *expert, int32_t *tokens, bool *on_device, int count,
                 const int32_t *level, int stride);

/* split_learn records the experts that a layer of a verification wanted, and their levels; split_next, called after the
 * policy has learned from the same verification, returns the layer's next tau. fetches[K + 1] and `cold` are from
 * balance_fetches. */
void split_learn(struct split *split, int layer, const int32_t *expert, const int32_t *tokens, int count, const int32_t *level,
                 int stride);
int split_next(struct split *split, int layer, int distinct, const int32_t *fetches, int cold);

#endif
