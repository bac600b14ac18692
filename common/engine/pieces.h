/* Makes the experts of some rows available in pieces: usually all at once; if some are not in memory, or not all fit,
 * resident ones come first. Private to engine/.
 *
 *     pieces_begin(&pieces, at, expert, ids, count)
 *     while (pieces_left(&pieces)) {
 *         pieces_next(&pieces)
 *         ... expert_ffn with pieces.table and pieces.expert, in which experts outside the piece are -1 ...
 *         pieces_release(&pieces)
 *     } */
#ifndef MOE_ENGINE_PIECES_H
#define MOE_ENGINE_PIECES_H

#include "common/engine/layer.h"

struct pieces {
    const struct layer *at;
    struct expert_union wanted;
    const int32_t *ids;                  /* [count] on the host; NULL: the source is fixed, so they are not needed */
    struct buffer all_ids;               /* [count] i32 on the device */
    int count;
    bool begun, announced;               /* the wanted experts were passed to the source, and to forecast_to */
    struct second *second;               /* computes the experts after wanted.count; NULL: the device computes all */
    int all;                             /* number of experts, including those of `second` */
    /* The current piece: */
    struct buffer expert, table;
    bool whole;                          /* the piece contains all experts, so it is the only one */
};

/* Begins a layer. expert: [count] i32 on the device, -1 or an expert; ids: the same on the host, NULL: not known there.
 * second: computes some of the experts (second.h); NULL: none. */
int pieces_begin(struct pieces *pieces, const struct layer *at, struct buffer expert, const int32_t *ids, int count,
                 struct second *second, struct err *err);
/* Lists the distinct experts among ids [count], ascending, in expert[experts], and the number of tokens of each in
 * tokens[experts]; an id of -1 means none. Returns the number of distinct experts. */
int distinct_experts(const int32_t *ids, int count, int experts, int32_t *expert, int32_t *tokens);

/* pieces_left returns whether pieces remain; pieces_next waits for the next one; pieces_release frees its slots. */
bool pieces_left(const struct pieces *pieces);
int pieces_next(struct pieces *pieces, struct err *err);
void pieces_release(struct pieces *pieces);
/* Ends the layer. Must be called after the last piece. */
int pieces_end(struct pieces *pieces, struct err *err);

#endif
