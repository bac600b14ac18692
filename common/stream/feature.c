#include "common/stream/feature.h"

static const struct field begin_fields[] = {
    FIELD(feature_begin, sequence, false, "number of the text within the stream"),
    FIELD(feature_begin, id, true, "the text's id"),
    FIELD(feature_begin, task, true, "the text's task"),
    FIELD(feature_begin, prompt_tokens, false, "tokens before the first answer"),
    FIELD(feature_begin, text_tokens, false, "tokens of the text, which follow in records of type feature"),
    FIELD(feature_begin, validation, false, "whether the text is used for validation, not for training"),
};

static const struct field states_fields[] = {
    FIELD(feature_states, sequence, false, "the text these tokens belong to"),
    FIELD(feature_states, pos, false, "position of the first token, 0 for the first of the text"),
    FIELD(feature_states, n, false, "tokens in this record"),
    FIELD_ARRAY_OF(feature_states, tokens, "[n]", false, "token ids"),
    FIELD_ARRAY_OF(feature_states, mask, "[n]", false, "1: the token is part of an answer, including its end token"),
    FIELD(feature_states, points, false, "states of each token"),
    FIELD_ARRAY_OF(feature_states, point, "[points]", false, "layers of the states, ascending: N for the residual stream "
                   "after layer N, with all layers counted from 0; the number of layers for the state after the final norm"),
    FIELD_ELEMENTS_OF(feature_states, values, "[points][n][hidden]", 1u << DTYPE_F32 | 1u << DTYPE_BF16, "the states"),
};

static int check_begin(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct feature_begin *begin = body;
    (void)header;
    if (open->count)
        return err_set(err, ERR_INPUT, "sequence %lld begins before sequence %lld has ended; the stream is damaged",
                       (long long)begin->sequence,
                       (long long)open->open[0]);
    if (!begin->text_tokens || begin->prompt_tokens > begin->text_tokens)
        return err_set(err, ERR_INPUT, "a text of %d tokens cannot have a prompt of %d; the stream is damaged",
                       begin->text_tokens,
                       begin->prompt_tokens);
    return sequences_begin(open, begin->sequence, err);
}

static int check_states(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct feature_states *states = body;
    if (sequences_use(open, states->sequence, err))
        return -1;
    if (!states->n || !states->points)
        return err_set(err, ERR_INPUT, "a record has %d states of %d tokens, but needs at least one of each; the stream is "
                       "damaged", states->points, states->n);
    for (int i = 0; i < states->n; i++) {
        if (states->tokens[i] < 0 || states->tokens[i] >= header->model.vocab)
            return err_set(err, ERR_INPUT, "token %d is %d, outside the vocabulary of %d tokens; the stream is damaged", i,
                           states->tokens[i],
                           header->model.vocab);
        if (states->mask[i] > 1)
            return err_set(err, ERR_INPUT, "the mask of token %d is %d, but must be 0 or 1; the stream is damaged", i,
                           states->mask[i]);
    }
    for (int i = 0; i < states->points; i++)
        if (states->point[i] < (i ? states->point[i - 1] + 1 : 0) || states->point[i] > header->model.layers)
            return err_set(err, ERR_INPUT, "state %d is of layer %d, but layers must ascend, up to %d; the stream is damaged",
                           i,
                           states->point[i], header->model.layers);
    return 0;
}

const struct record_kind feature_begin_kind = {
    RECORD_KIND("begin", "a text begins", feature_begin, begin_fields, check_begin)
};
const struct record_kind feature_states_kind = {
    RECORD_KIND("feature", "a piece of a text and the model's states there", feature_states, states_fields, check_states)
};
