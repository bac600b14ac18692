#include "common/stream/train.h"

static const struct field run_fields[] = {
    FIELD(train_run, arch, false, "kind of the head"),
    FIELD(train_run, parameters, false, "numbers that are trained"),
    FIELD(train_run, steps, false, "steps that are to be made"),
    FIELD(train_run, options, true, "the options in force, as JSON"),
};

static const struct field step_fields[] = {
    FIELD(train_step, step, false, "number of the step, from 0"),
    FIELD(train_step, epoch, false, "how often all texts have been seen, this step included"),
    FIELD(train_step, loss, false, "what the step made smaller"),
    FIELD(train_step, parts, true, "its parts by name, before they are weighted"),
    FIELD(train_step, lr, false, "learning rate of the step"),
    FIELD(train_step, gradient_norm, true, "length of the gradient before it is clipped"),
    FIELD(train_step, clipped, true, "elements of the gradient that were clipped; absent: it is not clipped by elements"),
    FIELD(train_step, tokens, false, "tokens of its texts, those without loss included"),
    FIELD(train_step, seconds, false, "of training until its end, earlier runs into the same head included"),
};

static const struct field eval_fields[] = {
    FIELD(train_eval, step, false, "steps that were made before"),
    FIELD(train_eval, texts, false, "texts that it was tried on"),
    FIELD(train_eval, loss, true, "mean loss on them"),
    FIELD(train_eval, positions, false, "length of the drafts"),
    FIELD_ARRAY_OF(train_eval, position, "[positions]", false, "1 for the first drafted token"),
    FIELD_ARRAY_OF(train_eval, acceptance, "[positions]", false, "share of drafts that are right up to this token"),
    FIELD_ARRAY_OF(train_eval, conditional, "[positions]", true, "the same among those that are right up to the one before"),
    FIELD_ARRAY_OF(train_eval, begun, "[positions]", true, "acceptance of the drafts with which iterations begin"),
    FIELD(train_eval, tokens_per_iteration, true, "tokens that a forward of the target gives with chains so drafted"),
    FIELD(train_eval, tree_tokens_per_iteration, true, "the same with trees"),
    FIELD(train_eval, by, true, "how: text, by the answers of the texts; answers, by the target's own; decoding, by its "
          "iterations"),
    FIELD(train_eval, tokens, true, "of answers, but for the first of each"),
    FIELD(train_eval, iterations, true, "that these take with chains"),
    FIELD(train_eval, tree_iterations, true, "and with trees"),
    FIELD(train_eval, best, false, "whether it is the best so far"),
    FIELD(train_eval, seconds, false, "of training until then"),
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
    RECORD_KIND("eval", "how well the head guesses", train_eval, eval_fields, check_eval), .spread = true
};
