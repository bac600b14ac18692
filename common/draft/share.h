/* Work and result of one drafter in one iteration: counted by the loop, used by policies, stored in records. */
#ifndef MOE_DRAFT_SHARE_H
#define MOE_DRAFT_SHARE_H

#include <stdint.h>

enum { DRAFTERS_MAX = 8 };                  /* in use together */

struct draft_share {
    int steps;                  /* it was asked so often, to draft or to review */
    int levels;                 /* tokens that it was asked for below a leaf, over all steps; a review is one */
    int reviewed;               /* nodes of other drafters that it read */
    int proposed;               /* nodes that it added, also those dropped later */
    int verified, accepted;     /* of its nodes: in the forward, and kept there */
    int64_t bytes;              /* weights, keys and values that it read, nominal */
    double seconds;
    int caught_up;              /* tokens of the text that it had to read first, and how long that took, part of seconds */
    double caught_up_s;
};

#endif
