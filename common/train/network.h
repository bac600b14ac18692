/* Draft heads as networks in training: the forward over a batch and the loss, from which the tape computes the gradients.
 *
 * common/model/head.h has the formulas of the networks. t: the tokens; f: the target's state after its final norm; m: the mask,
 * where m of a text's last token counts as 0 except for medusa and hydra. Sums run over all texts of the step and are divided
 * by counts of the whole step, so the losses and gradients of a step's parts add up to those of the step:
 *
 *     eagle1        row i is compared with f of i + 1, weighted by m of i: feature = sum m SL1 / (sum m + 1e-5),
 *                   token = sum m CE / (sum m + 1e-5); L = feature + token_weight token
 *     jakiro        feature and token of `moe` as in eagle1; feature_const, token_const: row i of `const` is compared with f of
 *                   i + 2, with m of i + 1; L = feature + const_feature feature_const + token_weight (token + const_token
 *                   token_const). Equation 14 of the paper (arXiv 2502.06282) has const_feature 1; its program, and the default
 *                   here, 0.5. head_params.second selects another second branch, with the same loss, or none; with second_next
 *                   the second branch is compared with the same row as the first
 *     jakiro_star   eagle1's loss on u + w0 E0 + w1 E1
 *     eagle3        several steps j: row i reads token i + 1 + j and, from j = 1 on, its own output of step j - 1;
 *                   L_j = sum CE / (texts x longest text) over rows i whose m of i + j is 1 and whose most probable token is in
 *                   the draft vocabulary; L = sum decay^j L_j
 *     kangaroo      row i reads the state of i + 1; L = sum m CE / sum m
 *     medusa, hydra head i at row j predicts token j + 2 + i; L = sum over heads of the mean cross-entropy over rows whose
 *                   predicted token belongs to an answer
 *
 * SL1: smooth L1, mean over the width. CE: cross-entropy with the target's distribution at the compared row (loss.h). */
#ifndef MOE_TRAIN_NETWORK_H
#define MOE_TRAIN_NETWORK_H

#include "common/engine/engine.h"
#include "common/train/batch.h"
#include "common/train/operation.h"
#include "common/train/weights.h"
/* Weights of the parts of the losses above. */

struct loss_settings {
    double token_weight;            /* weight of token losses in eagle1, jakiro, jakiro_star */
    double const_feature, const_token;      /* weights of the second branch in jakiro */
    int steps;                      /* eagle3: number of steps */
    double decay;                   /* eagle3: factor of each further step */
};
extern const struct loss_settings loss_defaults;

/* A loss and its named parts, in the order of the formulas above. */
enum { LOSS_PARTS_MAX = 64 };
struct losses {
    double total;
    int count;
    struct { char name[16]; double value; } part[LOSS_PARTS_MAX];
};

/* Adds the losses of other texts of the same step; *sum may be {0}. */
void losses_add(struct losses *sum, const struct losses *of);

struct network;

/* Opens the network of a head. weights: placed on the device that computes; ends: the target's embedding and output head in an
 * engine on the same device, NULL: the network copies them there. Both, target and the engine must outlive the network.
 * longest: max tokens of a text. Fails for heads whose layer training does not support. */
int network_open(struct network **out, struct weights *weights, const struct model *target, const struct engine_ends *ends,
                 const struct loss_settings *settings, int longest, struct err *err);
void network_close(struct network **network);

/* Runs the forward over the batch on an empty tape, and waits for the losses. Afterwards tape_backward adds the
 * gradients of the weights. */
int network_loss(struct network *network, struct tape *tape, const struct train_batch *batch, struct losses *out,
                 struct err *err);

#endif
