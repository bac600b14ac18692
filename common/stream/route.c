#include "common/stream/route.h"

static const char *const phases[] = {"prompt", "decode", "verify", NULL};

static const struct field begin_fields[] = {
    FIELD(route_begin, sequence, false, "number of the prompt's text within the stream"),
    FIELD(route_begin, id, true, "the prompt's id"),
    FIELD(route_begin, task, true, "the prompt's task"),
    FIELD(route_begin, prompt_tokens, false, "tokens in the prompt"),
    FIELD_ARRAY_OF(route_begin, correction, "[moe_layers][experts]", true, "bias that the router adds to probs when it "
                   "selects experts, and that a budget by router adds when it ranks them; absent: no bias, or no probs are "
                   "recorded"),
};

static const struct field tokens_fields[] = {
    FIELD(route_tokens, sequence, false, "the sequence these tokens belong to"),
    FIELD(route_tokens, pos, false, "position of the first token, 0 for the first of the prompt"),
    FIELD(route_tokens, n, false, "tokens in this forward"),
    FIELD_WORD(route_tokens, phase, phases, "prompt: tokens of the prompt; decode: one new token; verify: a draft and its "
               "root"),
    FIELD_ARRAY_OF(route_tokens, tokens, "[n]", false, "token ids"),
    FIELD_ARRAY_OF(route_tokens, parents, "[n]", true, "each token's predecessor in this record, -1 for the sequence's last "
                   "token before it; absent: a chain"),
    FIELD_ARRAY_OF(route_tokens, accepted, "[n]", true, "1: the token became part of the text; absent: all tokens did"),
    FIELD_ARRAY_OF(route_tokens, experts, "[n][moe_layers][top_k]", true, "selected experts, heaviest first; -1: dropped "
                   "by a budget; absent: the model has none"),
    FIELD_ARRAY_OF(route_tokens, weights, "[n][moe_layers][top_k]", true, "their weights as applied; absent: the model has no "
                   "experts"),
    FIELD_ARRAY_OF(route_tokens, mass, "[moe_layers][experts]", true, "probs summed over the accepted tokens"),
    FIELD_ARRAY_OF(route_tokens, probs, "[n][moe_layers][experts]", true, "the router's score of each expert: the softmax "
                   "over all experts, or the sigmoid of each in families that use it"),
    FIELD_ARRAY_OF(route_tokens, logits, "[n][vocab]", true, "logits before any filter"),
    FIELD_ARRAY_OF(route_tokens, hidden, "[n][layers][hidden]", true, "residual stream after each layer, "
                   "before the final norm"),
};

static const struct field end_fields[] = {
    FIELD(route_end, sequence, false, "the sequence that is complete"),
};

static int check_begin(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    (void)header;
    return sequences_begin(open, ((const struct route_begin *)body)->sequence, err);
}

/* Checks the range of expert ids. The loop is vectorised over 32 ids, because routes are most of a stream's data. */
static int check_experts(const int16_t *expert, size_t slots, int experts, struct err *err)
{
    int16_t max = (int16_t)(experts > INT16_MAX ? INT16_MAX : experts - 1);
    size_t right = 0;
    for (int16_t wrong = 0; !wrong && slots - right >= 32; right += wrong ? 0 : 32)
        for (int i = 0; i < 32; i++)
            wrong |= (expert[right + (size_t)i] < -1) | (expert[right + (size_t)i] > max);
    for (; right < slots; right++)
        if (expert[right] < -1 || expert[right] >= experts)
            return err_set(err, ERR_INPUT, "expert %d does not exist, the model has %d; the stream is damaged", expert[right],
                           experts);
    return 0;
}

static int check_tokens(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct route_tokens *tokens = body;
    if (sequences_use(open, tokens->sequence, err))
        return -1;
    if (tokens->n < 1)
        return err_set(err, ERR_INPUT, "a forward has no tokens; the stream is damaged");
    for (int i = 0; i < tokens->n; i++) {
        if (tokens->tokens[i] < 0 || tokens->tokens[i] >= header->model.vocab)
            return err_set(err, ERR_INPUT, "token %d is %d, outside the vocabulary of %d tokens; the stream is damaged", i,
                           tokens->tokens[i],
                           header->model.vocab);
        if (tokens->parents && (tokens->parents[i] < -1 || tokens->parents[i] >= i))
            return err_set(err, ERR_INPUT, "token %d has parent %d, but must have one from -1 to %d; the stream is damaged", i,
                           tokens->parents[i], i - 1);
        if (tokens->accepted && tokens->accepted[i] > 1)
            return err_set(err, ERR_INPUT, "the accepted flag of token %d is %d, but must be 0 or 1; the stream is damaged", i,
                           tokens->accepted[i]);
    }
    size_t slots = (size_t)tokens->n * (size_t)header->model.moe_layers * (size_t)header->model.top_k;
    if (!slots != !tokens->experts || !slots != !tokens->weights)
        return err_set(err, ERR_INPUT, slots ? "experts or weights are missing, although the model has experts; the stream is "
                       "damaged"
                                             : "there are experts or weights, although the model has no experts; the stream "
                                             "is damaged");
    return check_experts(tokens->experts, slots, header->model.experts, err);
}

static int check_end(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    (void)header;
    return sequences_end(open, ((const struct route_end *)body)->sequence, err);
}

const struct record_kind route_begin_kind = {
    RECORD_KIND("begin", "a sequence begins", route_begin, begin_fields, check_begin)
};
const struct record_kind route_tokens_kind = {
    RECORD_KIND("route", "one forward's tokens and their experts", route_tokens, tokens_fields, check_tokens)
};
const struct record_kind route_end_kind = {
    RECORD_KIND("end_sequence", "a sequence is complete", route_end, end_fields, check_end)
};
