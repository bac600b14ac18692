/* Outcomes of drafts, read from a recording (recording.h) before the draft is verified: the tokens that the text continues
 * with, and the experts of each token. A policy that decides by them shows what perfect estimates would gain. */
#ifndef MOE_POLICY_TRUTH_H
#define MOE_POLICY_TRUTH_H

#include "common/policy/recorded_way.h"

struct truth {
    bool acceptance, experts;           /* requested by the policy */
    struct recording *recording;        /* NULL: neither is requested */
    struct recorded_follow follow;
    int layers, words;                  /* layers with experts; words of 64 bits per set */
    uint64_t *bits, *joined;            /* [room][words]; scratch [words] */
    int room;
};

/* Reads the settings truth and file of a policy whose drafts have up to `room` - 1 nodes, and the recording. */
int truth_open(struct truth *out, struct spec *spec, const struct policy_setup *setup, int room, struct err *err);
void truth_free(struct truth *truth);

/* Writes chance[nodes]: 1 for a node that the text continues with, given its parent, else 0. Unknown texts: unchanged. */
void truth_chances(const struct truth *truth, const struct draft_tree *tree, double *chance);

/* Writes set[1 + nodes], root first: bits of the pairs of layer and expert; NULL: not recorded. */
void truth_sets(struct truth *truth, const struct draft_tree *tree, int experts, const uint64_t **set);

#endif
