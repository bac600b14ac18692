/* Rank streams: each layer's experts in the order in which to keep them. Written by moe-coact rank-experts, read by
 * moe-decode. */
#ifndef MOE_STREAM_RANK_H
#define MOE_STREAM_RANK_H

#include <stdint.h>

#include "common/stream/field.h"

struct rank_layer {
    int layer;                      /* index among the MoE layers */
    const char *method;
    int budget;                     /* recommended budget; -1: none */
    const int32_t *order;           /* [experts], a permutation, best first */
    const double *score;            /* [experts], of the expert at the same index in `order` */
};

extern const struct record_kind rank_layer_kind;

#endif
