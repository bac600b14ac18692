/* A second processor: while a device computes some of the experts of a layer, the host's processor computes the others,
 * directly from the host's memory (cache/split.h decides which).
 *
 * For one layer of one forward:
 *
 *     second_take     copies rows' states to the host                          before the wait for the router's choice
 *     second_split    splits the union in two; the store learns all of it      after the wait
 *     second_start    a thread begins to compute the experts at hand           before the wait for the device's experts
 *     ...             the device's part is queued, piece by piece
 *     second_finish   waits for the thread, which then computes the other experts; copies its results in one transfer
 *
 * The output of each expert for each row is stored separately by both, and added by expert_sum in the order of the row's
 * slots. So the order of sums does not depend on the split; but the products are rounded by each processor in its own way.
 *
 * All calls must come from one thread. Engines with the same expert source may share it, one forward at a time. */
#ifndef MOE_ENGINE_SECOND_H
#define MOE_ENGINE_SECOND_H

#include "common/cache/split.h"
#include "common/model/model.h"
#include "common/store/expert_source.h"
#include "common/tensor/device.h"

struct second;
struct layer;

struct second_setup {
    const struct model *model;           /* these three must stay open as long as the second processor */
    struct device *device;               /* the first processor, which has memory of its own */
    struct expert_source *experts;
    struct split_rule rule;
    int draft_length;
    struct device_setup host;            /* threads and instruction set */
};

/* Opens a second processor. It is an error unless the experts are in the host's memory and the device has its own. */
int second_open(struct second **out, const struct second_setup *setup, struct err *err);
void second_close(struct second **second);

const struct split_rule *second_rule(const struct second *second);
/* Returns the remark for streams and notes. */
const char *second_label(const struct second *second);

/* Begins a forward. second_splits returns whether the forward is split; other forwards do not use the second processor. */
void second_begin(struct second *second, enum expert_forward forward);
bool second_splits(const struct second *second);

int second_take(struct second *second, const struct layer *at, struct err *err);
/* Splits a layer's experts. ids [pairs], on the host. Moves the device's experts to the front of the union, and sets its
 * count to their number. */
int second_split(struct second *second, const struct layer *at, const int32_t *ids, struct expert_union *wanted,
                 struct err *err);
int second_start(struct second *second, const struct layer *at, struct err *err);
/* Returns the buffer for the results of the device's part of this layer: [pairs][hidden]. */
struct buffer second_partial(const struct second *second);
/* Adds the host's results; called when the device's part is queued. All results are then at `out` [pairs][hidden] for
 * operations queued afterwards. */
int second_finish(struct second *second, const struct layer *at, struct buffer out, struct err *err);
/* Ends a failed forward: waits until the thread has finished its piece, if any, and releases its experts. */
void second_abandon(struct second *second);

/* Records the time of drafting `tokens` tokens. */
void second_drafted(struct second *second, double seconds, int tokens);

/* Facts of the latest verification. The arrays are owned by the second processor, and indexed by MoE layer. */
struct second_facts {
    struct split_rule rule;
    int layers, K;
    const int32_t *tau;                  /* threshold of the split; 0: the split does not use levels */
    const int32_t *device_experts, *host_experts;
    const int32_t *device_pairs, *host_pairs;
    const int32_t *fetches;              /* [layers][K + 1] after the forward, see balance.h; NULL without levels */
    const int32_t *cold;                 /* number of cold slots at the same time */
    const double *cold_share, *hot_share;        /* [layers][K + 1] r_c, r_g; NULL without BALANCE */
    double host_s, wait_s;               /* time that the host computed, and that the other thread waited for it */
    double pair_s, expert_s, copy_s, draft_s;    /* unit times, 0: not measured */
    bool warms_up;
};

const struct second_facts *second_facts(struct second *second);

#endif
