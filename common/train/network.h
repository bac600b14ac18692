/* Draft heads as networks in training: the forward over a batch, and the loss, from which the tape makes the gradients.
 *
 * Formulas of the networks are in common/model/head.h. With t the tokens, f the target's state after its final norm, m the mask
 * (m of a text's last token counts as 0 but for medusa and hydra), sums over all texts of the step: what they are divided by is
 * the step's, too, so that the losses and gradients of a step's parts add up to the step's:
 *
 *     eagle1        row i is judged by f of i + 1, with m of i: feature = sum m SL1 / (sum m + 1e-5), token = sum m CE / (the
 *                   same); L = feature + token_weight token
 *     jakiro        feature and token of `moe` as eagle1's; feature_const, token_const: row i of `const` by f of i + 2, with
 *                   m of i + 1; L = feature + const_feature feature_const + token_weight (token + const_token token_const).
 *                   The paper's equation 14 (arXiv 2502.06282) has const_feature 1; its program, and the default here, 0.5.
 *                   With head_params.second another second branch is judged so, or there is none; with second_next it is
 *                   judged as the first
 *     jakiro_star   eagle1's loss on u + w0 E0 + w1 E1
 *     eagle3        steps j: row i reads token i + 1 + j and, from j = 1 on, its own output of step j - 1;
 *                   L_j = sum CE / (texts x longest text) over rows i whose m of i + j is 1 and whose most probable word is in
 *                   the draft vocabulary; L = sum decay^j L_j
 *     kangaroo      row i reads the state of i + 1; L = sum m CE / sum m
 *     medusa, hydra head i at row j says token j + 2 + i; L = sum over heads of the mean cross-entropy over rows whose said
 *                   token is of an answer
 *
 * SL1: smooth L1, mean over the width. CE: of the target's distribution at that row (loss.h). */
#ifndef MOE_TRAIN_NETWORK_H
#define MOE_TRAIN_NETWORK_H

#include "common/engine/engine.h"
#include "common/train/batch.h"
#include "common/train/operation.h"
#include "common/train/weights.h"

struct loss_settings {
    double token_weight;            /* eagle1, jakiro, jakiro_star */
    double const_feature, const_token;      /* jakiro */
    int steps;                      /* eagle3 */
    double decay;                   /* eagle3 */
};
extern const struct loss_settings loss_defaults;

enum { LOSS_PARTS_MAX = 64 };
struct losses {
    double total;
    int count;
    struct { char name[16]; double value; } part[LOSS_PARTS_MAX];
};

void losses_add(struct losses *sum, const struct losses *of);      /* of other texts of the same step; *sum may be {0} */

struct network;

/* weights, which are placed on the device that all is computed on, target and who has `ends` stay. ends: the target's in
 * an engine on that device; NULL: there is none, and they are brought there. longest: tokens of a text. */
int network_open(struct network **out, struct weights *weights, const struct model *target, const struct engine_ends *ends,
                 const struct loss_settings *settings, int longest, struct err *err);
void network_close(struct network **network);

/* A forward over the batch, on the tape that has just begun, and waits for it; tape_backward then gives the gradients of the
 * weights. */
int network_loss(struct network *network, struct tape *tape, const struct train_batch *batch, struct losses *out,
                 struct err *err);

#endif
