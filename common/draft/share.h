/* Work and result of one drafter in one iteration: counted by the loop, used by policies, stored in records. */
#ifndef MOE_DRAFT_SHARE_H
#define MOE_DRAFT_SHARE_H

#include <stdint.h>

enum { DRAFTERS_MAX = 8 };                  /* maximum number of drafters in use together */

struct draft_share {
    int steps;                  /* calls to draft or review */
    int levels;                 /* requested levels below a leaf, summed over all calls; a review counts as one */
    int reviewed;               /* nodes of other drafters that it read */
    int proposed;               /* nodes that it added, also those dropped later */
    int verified, accepted;     /* the drafter's nodes in the verification, and the accepted ones among these */
    int64_t bytes;              /* nominal bytes of weights, keys and values read */
    double seconds;
    int caught_up;              /* tokens of the text that it read first, and the seconds this took, included in `seconds` */
    double caught_up_s;
};

#endif
