/* One iteration of decoding without its forward, over plain arrays: what a device with its own loop computes between forwards.
 * The results equal those of the loop of common/decode with the same settings: chains drafted by prompt lookup (ngram.h), of a
 * fixed length or one chosen by Cascade (cascade.h), coupled acceptance (accept.h), truncated at the end of the answer
 * (ending.h).
 *
 *     loop_draft     writes root and draft as rows of the forward
 *     loop_accept    from the target's choice after each row to the accepted and emitted tokens and the loop's end
 *     loop_decide    chooses the draft length of the next iteration
 *
 * Rows: row 0 is the root, the last token of the text; row i + 1 is node i of a chain. KV cache entries need not be moved,
 * because the accepted nodes are the first ones of the chain. Each iteration writes a RECORD: struct loop_record, followed by
 * arrays of i32 as in loop_record_*. */
#ifndef MOE_KERNELS_PLAIN_LOOP_H
#define MOE_KERNELS_PLAIN_LOOP_H

#include "kernels/plain/accept.h"
#include "kernels/plain/cascade.h"
#include "kernels/plain/ending.h"
#include "kernels/plain/ngram.h"

enum { LOOP_EOS_MAX = 16, LOOP_ROWS_MAX = 1 + CASCADE_K_MAX };
enum loop_end { LOOP_CONTINUES, LOOP_STOP, LOOP_LENGTH, LOOP_DAMAGED };     /* DAMAGED: the logits are not finite */
enum loop_part { LOOP_DRAFT, LOOP_VERIFY, LOOP_ACCEPT, LOOP_OTHER, LOOP_PARTS };

/* Settings of a whole text. */
struct loop_rules {
    int shortest, longest;              /* n-gram lengths; longest 0: no drafts */
    int adapts;                         /* 1: Cascade chooses the draft length; 0: it is K */
    int K;
    int prompt, limit;                  /* tokens of the prompt; max tokens of the answer */
    int eos_count;
    int32_t eos[LOOP_EOS_MAX];
    struct cascade_settings cascade;
};

struct loop_state {
    int length;                         /* tokens of the text; the last one is the root and is not in the KV cache yet */
    int rows;                           /* rows of the current forward */
    int K;                              /* current draft length */
    int iterations;                     /* number of completed iterations */
    int end;                            /* enum loop_end */
    uint64_t start, stamp;              /* beginning of the iteration, and end of its last part, in ns */
    uint64_t part[LOOP_PARTS];          /* ns of each part of the iteration */
    struct cascade_state cascade;
};

struct loop_record {
    int32_t number, position, K, rows, accepted, emitted, end;
    int32_t unused;
    uint64_t start;
    uint64_t part[LOOP_PARTS];
};

/* Returns the bytes of a record and its arrays, a multiple of 16: i32 token [rows_max], emitted [rows_max], wanted
 * [moe_layers], loaded [moe_layers]. rows_max: max rows of any iteration. */
PLAIN int64_t loop_record_bytes(int rows_max, int moe_layers)
{
    int64_t bytes = (int64_t)sizeof(struct loop_record) + 4 * (2 * (int64_t)rows_max + 2 * (int64_t)moe_layers);
    return (bytes + 15) / 16 * 16;
}
PLAIN int32_t *loop_record_tokens(struct loop_record *record) { return (int32_t *)(record + 1); }
PLAIN int32_t *loop_record_emitted(struct loop_record *record, int rows_max) { return loop_record_tokens(record) + rows_max; }
PLAIN int32_t *loop_record_experts(struct loop_record *record, int rows_max)
{
    return loop_record_tokens(record) + 2 * rows_max;
}

/* Ends a part of an iteration at time `now`, in ns. */
PLAIN void loop_stamp(struct loop_state *state, enum loop_part part, uint64_t now)
{
    state->part[part] = now > state->stamp ? now - state->stamp : 0;
    state->stamp = now;
}

/* Begins a text whose prompt has `length` tokens, and sets the first draft length. */
PLAIN void loop_begin(const struct loop_rules *rules, struct loop_state *state, int length)
{
    state->length = length;
    state->rows = state->iterations = 0;
    state->end = LOOP_CONTINUES;
    state->start = state->stamp = 0;
    if (rules->adapts)
        cascade_begin(&rules->cascade, &state->cascade);
    state->K = rules->adapts ? state->cascade.K : rules->K;
}

/* Fills token[state->rows]. The draft is truncated at the answer's token limit. */
PLAIN void loop_draft(const struct loop_rules *rules, struct loop_state *state, const struct ngram_index *index,
                      const int32_t *text, int32_t *token)
{
    int room = rules->prompt + rules->limit - state->length - 1;
    int max = state->K < room ? state->K : room, tail = rules->longest < state->length ? rules->longest : state->length;
    int32_t next = 0;
    token[0] = text[state->length - 1];
    if (rules->longest && max > 0)
        next = ngram_latest(index, text, text + state->length - tail, tail, rules->shortest, rules->longest);
    state->rows = next ? 1 + max : 1;
    for (int at = 0; at + 1 < state->rows; at++)
        token[1 + at] = ngram_continued(text, state->length, next, at);
}

/* Accepts and emits tokens. choice[r]: the target's token after row r, -1 if its logits are not finite; parent[i] = i - 1.
 * Appends the emitted tokens to `text` and to `emitted`. path: scratch [rows]. */
PLAIN void loop_accept(const struct loop_rules *rules, struct loop_state *state, struct ngram_index *index, int32_t *text,
                       const int32_t *token, const int32_t *parent, const int32_t *choice, int32_t *path, int32_t *emitted,
                       struct loop_record *record)
{
    int accepted = accept_walk(token + 1, parent, state->rows - 1, choice, path), count = 0;
    record->number = state->iterations++;
    record->position = state->length - 1;
    record->K = rules->longest ? state->K : 0;
    record->rows = state->rows;
    record->accepted = accepted;
    while (count <= accepted && state->end == LOOP_CONTINUES) {
        int32_t next = choice[count ? path[count - 1] + 1 : 0];
        if (next < 0) {
            state->end = LOOP_DAMAGED;
            break;
        }
        text[state->length++] = emitted[count++] = next;
        if (rules->longest)
            ngram_enter(index, text, state->length - 1, rules->shortest, rules->longest);
        enum token_end end = ending_of(next, state->length - rules->prompt, rules->limit, rules->eos, rules->eos_count);
        state->end = end == TOKEN_IS_EOS ? LOOP_STOP : end == TOKEN_IS_LAST ? LOOP_LENGTH : LOOP_CONTINUES;
    }
    record->emitted = count;
    record->end = state->end;
}

/* Returns the seconds of an iteration, computed from microseconds as its record shows them. */
PLAIN double loop_seconds(const uint64_t *part)
{
    return ((double)part[LOOP_DRAFT] / 1e3 + (double)part[LOOP_VERIFY] / 1e3 + (double)part[LOOP_ACCEPT] / 1e3 +
            (double)part[LOOP_OTHER] / 1e3) / 1e6;
}

/* Completes the record and chooses the next draft length; must be called after the iteration's last stamp. */
PLAIN void loop_decide(const struct loop_rules *rules, struct loop_state *state, struct loop_record *record)
{
    record->unused = 0;
    record->start = state->start;
    for (int i = 0; i < LOOP_PARTS; i++)
        record->part[i] = state->part[i];
    if (rules->adapts) {
        cascade_observe(&rules->cascade, &state->cascade, record->accepted, loop_seconds(state->part));
        state->K = state->cascade.K;
    }
}

#endif
