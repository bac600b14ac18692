/* The description of a draft head: a small network that reads hidden states of a target and predicts further tokens. A head
 * file (.moe) is a model file whose index contains this description and a shape; model.h opens it, moe-model(5) lists its keys.
 *
 * A head belongs to a target: it reads the target's states and ids, and uses the target's embedding and output head if it has
 * none of its own. The shape (struct hparams) in the index is that of the head's own transformer layer:
 *
 *     vocab           of the target
 *     hidden          width of the head's states
 *     layers          1, or 0: there is no such layer (Medusa, Hydra's mlp)
 *     layer[0].ffn    FFN_NONE: attention alone (Kangaroo); FFN_EXPERTS: Jakiro's, router.experts of them, of which a token
 *                     uses router.top_k
 *     attention, rope, norm_epsilon    of the head's layer; the target's only in Hydra's prefix layer
 *
 * Networks, with E(t) the embedding of token t, f its target state after the final norm, rms(x) a norm, [a; b] a concatenation:
 *
 *     eagle1       x = joint [E(t+1); f] + bias; the layer without its first norm; logits = target's output head
 *                  (arXiv 2401.15077; EAGLE-2, 2406.16858, changes the tree and not the head)
 *     eagle3       g = joint [states]; attention reads [embed_norm E(t+1); hidden_norm g], the residual is g; logits = own
 *                  output head of final_norm, over draft_vocab words (arXiv 2503.01840)
 *     medusa       head i: blocks x = x + silu(linear x), then its own output head (arXiv 2401.10774)
 *     hydra        head i reads [f; E(t) .. E(t+i)]: residual v + silu(linear v), further blocks as Medusa's, then its own
 *                  output head with a bias; prefix: one layer and final_norm compute f first (arXiv 2402.05109)
 *     kangaroo     the layer without a feed-forward network, over the state after an early layer; final_norm; target's output
 *                  head (arXiv 2404.18911)
 *     jakiro       eagle1 with N experts and a router of 2 N rows: weights of the sum, then of the contrast (arXiv 2502.06282).
 *                  The sum is over the K experts with the largest r by softmax(r0 .. rN-1), whose weights are not renormalised
 *                  (equations 2, 3, 5 and 6); the contrast is over the best two experts, by a softmax over their rows among
 *                  rN .. r2N-1 (equation 7). As published N = K = 2
 *     jakiro_star  eagle1 with two experts down gelu(up x) and a router of 2 rows, each expert a branch
 *
 * Details that the papers leave open follow the authors' programs and published files. */
#ifndef MOE_MODEL_HEAD_H
#define MOE_MODEL_HEAD_H

#include "common/base/hash.h"
#include "common/model/hparams.h"

enum head_kind {
    HEAD_NONE,                       /* a model */
    HEAD_EAGLE1, HEAD_EAGLE3, HEAD_MEDUSA, HEAD_HYDRA, HEAD_KANGAROO, HEAD_JAKIRO, HEAD_JAKIRO_STAR,
    HEAD_KINDS,
    HEAD_MTP = HEAD_KINDS            /* predictors of a model (hparams.h), stored in the model's file */
};

/* The second branch of jakiro: the contrast; the sum of its two experts (as in table 4 of the paper without the contrast);
 * or none, and the router has N rows. */
enum head_second { HEAD_SECOND_CONTRAST, HEAD_SECOND_SUM, HEAD_SECOND_NONE, HEAD_SECONDS };

enum { HEAD_EXPERTS_MAX = 64 };      /* of jakiro */
enum { HEAD_STATES_MAX = 8, HEAD_HEADS_MAX = 64, HEAD_BLOCKS_MAX = 16 };

/* The model that a head was made for. */
struct head_target {
    char name[64];
    struct sha256 source;            /* digest of the target's weights, before any change of dtype (struct model_identity) */
    struct sha256 tokenizer;         /* zeros: none */
    int layers, hidden, vocab;
};

struct head_params {
    enum head_kind kind;
    struct head_target target;
    int states;                      /* number of the target's states that the head reads, concatenated in this order: */
    int state[HEAD_STATES_MAX];      /* N: the residual stream after layer N; number of layers: after the final norm */
    bool embed;                      /* the head has its own embedding */
    bool joint_bias;                 /* eagle1, jakiro, jakiro_star */
    bool states_norm;                /* eagle3: the concatenated states are normalised as one vector (norm_before_fc) */
    bool state_norms;                /* eagle3: each state is normalised before the concatenation (fc_norm) */
    bool normed_residual;            /* eagle3: the residual is hidden_norm g (norm_before_residual) */
    bool normed_output;              /* eagle3: the output of final_norm is the next row's g (norm_output) */
    int draft_vocab;                 /* size of the head's vocabulary; without a map the target's */
    int32_t *target_id;              /* [draft_vocab] the target's id of each word, all distinct; NULL: identity */
    int heads, blocks;               /* medusa, hydra: number of heads, and of residual blocks per head; else 0 */
    bool prefix;                     /* hydra: a layer of the head's own computes the state that the heads read */
    int second;                      /* jakiro: enum head_second */
    bool second_next;                /* jakiro: both branches predict the next token; else the second predicts the one after */
    bool scaled;                     /* jakiro_star: branches by equation 4 of the paper as printed: f, the sum of both
                                      * experts, times the score of the best expert, and f times that of the other; later
                                      * rows continue from f. false: each expert alone */
};

const char *head_kind_name(enum head_kind kind);
bool head_kind_by_name(const char *name, enum head_kind *kind);     /* accepts eagle2, too, which is eagle1 */

const char *head_second_name(enum head_second second);      /* contrast, sum, none */
bool head_second_by_name(const char *name, int *second);

/* Returns the rows of the router: one per expert, two per expert for jakiro with a second branch; 0 without a router. */
int head_router_rows(const struct head_params *head, const struct hparams *shape);

/* Returns whether the router selects some of the experts per token; false if a token uses two of two. head: NULL for a
 * model's predictors. */
bool head_routes(const struct head_params *head, const struct hparams *shape);

/* Checks that all values are in range and consistent; an error names the value. */
int head_check(const struct head_params *head, const struct hparams *shape, struct err *err);

/* Checks that the head was made for `target`. Fails if layers, widths, vocabulary or tokenizer differ, and, unless `force`, if
 * the target's weights come from another source. */
struct model_identity;
int head_check_target(const struct head_params *head, const struct model_identity *target, bool force, struct err *err);

int head_copy(struct head_params *out, const struct head_params *head, struct err *err);
void head_free(struct head_params *head);

#endif
