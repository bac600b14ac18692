/* A second processor: while a device computes some of the experts that a layer wants, the host's own processor computes the
 * others, from where they are in the host's memory (cache/split.h says who computes which).
 *
 * For one layer of one forward:
 *
 *     second_take     rows' states are on their way to the host                before the wait for what the router chose
 *     second_split    the union in two; the store is told all of it            after it
 *     second_start    a thread begins to compute what is at hand               before the device's part is waited for
 *     ...             the device's part goes onto its queue, piece by piece
 *     second_finish   waits for that thread, which goes on with what was not at hand; its results go to the device in one copy
 *
 * What each expert made of a row is kept apart by both, and added by expert_sum in the order of the row's slots. So sums have
 * one order whoever computes what; but products have each processor's own rounding.
 *
 * All calls are from one thread. Engines that share an expert source may share it, one forward at a time. */
#ifndef MOE_ENGINE_SECOND_H
#define MOE_ENGINE_SECOND_H

#include "common/cache/split.h"
#include "common/model/model.h"
#include "common/store/expert_source.h"
#include "common/tensor/device.h"

struct second;
struct layer;

struct second_setup {
    const struct model *model;           /* these three stay open as long as it */
    struct device *device;               /* the first processor, with memory of its own */
    struct expert_source *experts;
    struct split_rule rule;
    int draft_length;
    struct device_setup host;            /* threads and instruction set */
};

int second_open(struct second **out, const struct second_setup *setup, struct err *err);
void second_close(struct second **second);

const struct split_rule *second_rule(const struct second *second);
/* What streams and notes must say of it. */
const char *second_label(const struct second *second);

/* A forward begins. Those that are not split have nothing to do with it. */
void second_begin(struct second *second, enum expert_forward forward);
bool second_splits(const struct second *second);

int second_take(struct second *second, const struct layer *at, struct err *err);
/* ids [pairs] as on the host. Moves the device's experts to the front of the union and counts them alone. */
int second_split(struct second *second, const struct layer *at, const int32_t *ids, struct expert_union *wanted,
                 struct err *err);
int second_start(struct second *second, const struct layer *at, struct err *err);
/* The buffer that the device's part of this layer is to be left in: [pairs][hidden]. */
struct buffer second_partial(const struct second *second);
/* The device's part is on its queue. All parts together are at `out` [pairs][hidden] for what is put on the queue now. */
int second_finish(struct second *second, const struct layer *at, struct buffer out, struct err *err);
/* The forward has failed: the thread, if it has a piece of it, ends that first, and its experts are released. */
void second_abandon(struct second *second);

/* So many tokens were drafted in so many seconds. */
void second_drafted(struct second *second, double seconds, int tokens);

/* The latest verification. Arrays are its own, of layers with experts. */
struct second_facts {
    struct split_rule rule;
    int layers, K;
    const int32_t *tau;                  /* that it was split by; 0: not by levels */
    const int32_t *device_experts, *host_experts;
    const int32_t *device_pairs, *host_pairs;
    const int32_t *fetches;              /* [layers][K + 1] after it, as balance.h says; NULL without levels */
    const int32_t *cold;                 /* slots then */
    const double *cold_share, *hot_share;        /* [layers][K + 1] r_c, r_g; NULL without BALANCE */
    double host_s, wait_s;               /* in which the host computed, and the other thread waited for it */
    double pair_s, expert_s, copy_s, draft_s;    /* units, 0: not measured */
    bool warms_up;
};

const struct second_facts *second_facts(struct second *second);

#endif
