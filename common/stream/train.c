#include "common/stream/train.h"

static const struct field run_fields[] = {
    FIELD(train_run, arch, false, "kind of the head"),
    FIELD(train_run, parameters, false, "number of trained parameters"),
    FIELD(train_run, steps, false, "planned number of steps"),
    FIELD(train_run, options, true, "the options in force, as JSON"),
};

static const struct field step_fields[] = {
    FIELD(train_step, step, false, "number of the step, from 0"),
    FIELD(train_step, epoch, false, "number of passes over all texts so far, including this step"),
    FIELD(train_step, loss, false, "training loss of the step"),
    FIELD(train_step, parts, true, "parts of the loss by name, before weighting"),
    FIELD(train_step, lr, false, "learning rate of the step"),
    FIELD(train_step, gradient_norm, true, "norm of the gradient before clipping"),
    FIELD(train_step, clipped, true, "elements of the gradient that were clipped; absent: elements are not clipped"),
    FIELD(train_step, tokens, false, "tokens of its texts, including those without loss"),
    FIELD(train_step, seconds, false, "training time until the end of the step, including earlier runs for the same head"),
};

static const struct field eval_fields[] = {
    FIELD(train_eval, step, false, "steps before the evaluation"),
    FIELD(train_eval, texts, false, "texts used for the evaluation"),
    FIELD(train_eval, loss, true, "mean loss on these texts"),
    FIELD(train_eval, positions, false, "length of the drafts"),
    FIELD_ARRAY_OF(train_eval, position, "[positions]", false, "1 for the first drafted token"),
    FIELD_ARRAY_OF(train_eval, acceptance, "[positions]", false, "share of drafts that are right up to this token"),
    FIELD_ARRAY_OF(train_eval, conditional, "[positions]", true, "the same share among drafts that are right up to the "
                   "previous token"),
    FIELD_ARRAY_OF(train_eval, begun, "[positions]", true, "acceptance of drafts that begin an iteration"),
    FIELD(train_eval, tokens_per_iteration, true, "tokens per forward of the target with these chains"),
    FIELD(train_eval, tree_tokens_per_iteration, true, "tokens per forward of the target with trees"),
    FIELD(train_eval, by, true, "basis of the evaluation: text, the answers of the texts; answers, the target's own answers; "
          "decoding, iterations of decoding"),
    FIELD(train_eval, tokens, true, "tokens of answers, without the first token of each"),
    FIELD(train_eval, iterations, true, "iterations for these tokens with chains"),
    FIELD(train_eval, tree_iterations, true, "iterations for these tokens with trees"),
    FIELD(train_eval, best, false, "whether this is the best evaluation so far"),
    FIELD(train_eval, seconds, false, "training time until the evaluation"),
};

static int check_eval(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct train_eval *eval = body;
    (void)header, (void)open;
    for (int i = 0; i < eval->positions; i++) {
        if (eval->position[i] < 1 || (i && eval->position[i] <= eval->position[i - 1]))
            return err_set(err, ERR_INPUT, "position %d is out of order, because positions must ascend from 1; the stream is "
                           "damaged", eval->position[i]);
        if (!(eval->acceptance[i] >= 0 && eval->acceptance[i] <= 1))
            return err_set(err, ERR_INPUT, "the acceptance %g at position %d is not from 0 to 1; the stream is damaged",
                           eval->acceptance[i],
                           eval->position[i]);
    }
    return 0;
}

const struct record_kind train_run_kind = {
    RECORD_KIND("run", "what is trained", train_run, run_fields, NULL)
};
const struct record_kind train_step_kind = {
    RECORD_KIND("step", "one step of training", train_step, step_fields, NULL)
};
const struct record_kind train_eval_kind = {
    RECORD_KIND("eval", "evaluation of the head", train_eval, eval_fields, check_eval), .spread = true
};
