/* The experts that some rows want, put in place one piece after another: as a rule all at once; where not all are in memory, or
 * all cannot be at the same time, those that are there first. Private to engine/.
 *
 *     pieces_begin(&pieces, at, expert, ids, count)
 *     while (pieces_left(&pieces)) {
 *         pieces_next(&pieces)
 *         ... expert_ffn with pieces.expert, in which other experts than those of the piece are -1, and pieces.table ...
 *         pieces_release(&pieces)
 *     } */
#ifndef MOE_ENGINE_PIECES_H
#define MOE_ENGINE_PIECES_H

#include "common/engine/layer.h"

struct pieces {
    const struct layer *at;
    struct expert_union wanted;
    const int32_t *ids;                  /* [count] as on the host; NULL: the source is fixed */
    struct buffer all_ids;               /* [count] i32 on the device */
    int count;
    bool begun, announced;               /* what is wanted was given to the source, and to the one that gets forecasts */
    struct second *second;               /* computes those after wanted.count; NULL: all are the device's */
    int all;                             /* experts, with these */
    /* Of the piece. */
    struct buffer expert, table;
    bool whole;                          /* it is all of them: there is one piece */
};

/* expert: [count] i32 on the device, -1 or an expert, and the same as `ids` on the host, NULL: not known there. second: gets a
 * part of them to compute, as second.h says; NULL: nobody does. */
int pieces_begin(struct pieces *pieces, const struct layer *at, struct buffer expert, const int32_t *ids, int count,
                 struct second *second, struct err *err);
/* The distinct experts among ids [count], ascending, and how many tokens want each: expert, tokens [experts]; -1 is none. How
 * many they are. */
int distinct_experts(const int32_t *ids, int count, int experts, int32_t *expert, int32_t *tokens);

bool pieces_left(const struct pieces *pieces);
int pieces_next(struct pieces *pieces, struct err *err);
void pieces_release(struct pieces *pieces);
/* After the last piece. */
int pieces_end(struct pieces *pieces, struct err *err);

#endif
