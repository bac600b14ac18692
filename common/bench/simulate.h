/* Simulates decoding in virtual time: the real cache policies (common/cache) over routes, on a described machine. Nothing is
 * measured, and all output is labelled simulated.
 *
 * A SYSTEM is a way of using two memories for experts: a cache policy, what happens with an expert that is not in fast
 * memory, and what is prefetched. The system of MoE-SpAc (arXiv 2603.09983) and those it is compared with are in
 * simulate_systems.c, each with its source. One forward:
 *
 *   - all tokens except the first are drafted first, one after the other, while the link continues to work
 *   - in each layer everything except the experts is computed, then the router's choice is known. Resident experts are
 *     computed by the fast processor, one after the other:
 *     SLOW     the others by the slow processor, at the same time if the system can
 *     FETCH    the others are fetched, on-demand ones first, and computed as they arrive
 *     GREEDY   each by the processor that finishes it sooner, most tokens first
 *     WHOLE    a layer that is not resident is fetched with all its experts
 *   - the link transfers one expert at a time; the next prefetch is chosen when it is free. An expert in flight is not
 *     resident yet: SLOW computes it on the slow processor, the others wait for it.
 *
 * If experts requested together arrive together, as from a disk, systems that fetch and keep all missing experts work like
 * the store (common/store/schedule.h): a hit is then an expert that is resident or in flight, as in the store's records. */
#ifndef MOE_BENCH_SIMULATE_H
#define MOE_BENCH_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/simulated_machine.h"
#include "common/bench/simulated_routes.h"

enum simulated_misses { MISSES_SLOW, MISSES_FETCH, MISSES_GREEDY, MISSES_WHOLE };
enum simulated_pins { PINS_NONE, PINS_LAYERS, PINS_RANKED };            /* whole layers from the first on; the most requested
                                                                         * experts */
enum simulated_prefetch {
    PREFETCH_NONE, PREFETCH_POLICY,     /* experts requested by the policy */
    PREFETCH_MISSED,                    /* experts that were missed, prefetched for the layer's next turn */
    PREFETCH_NEXT_LAYER,                /* experts predicted by the next layer's router from this layer's state */
    PREFETCH_DRAFT                      /* experts of the routes of the draft phase, for all layers */
};

struct simulated_system {
    const char *name, *cache;           /* cache: its cache policy */
    const char *source;                 /* paper or program that describes the system, and which parts of it are simulated */
    enum simulated_misses misses;
    enum simulated_pins pins;
    enum simulated_prefetch prefetch;
    bool drafts, keeps, overlaps;       /* keeps: experts fetched on demand stay; overlaps: processors and link work at the
                                         * same time */
    bool balances;                      /* threshold tau by eq. 7 to 12 of MoE-SpAc */
};
extern const struct simulated_system simulated_systems[];               /* ends with name NULL */

struct simulated_result {
    char system[96];
    const char *source;
    double cached;                      /* cached share of the experts; smaller than the machine's if a copy drafts */
    double seconds, draft_s, stall_s, fast_s, slow_s;   /* stall: the fast processor waits for experts, or for the slow
                                                         * processor */
    int64_t forwards, tokens;
    int64_t wanted, hits;               /* experts per layer and forward; those resident when needed */
    int64_t fetched, prefetched, wasted;                /* wasted: prefetched, and evicted unused */
    double decide_us;                   /* measured time per forward of the policy's decisions on this machine */
};

/* Busy times of the processors and the link in one forward, in seconds from the end of drafting; drafting has negative times.
 * */
enum simulated_lane { LANE_FAST, LANE_SLOW, LANE_LINK, SIMULATED_LANES };
struct simulated_span {
    enum simulated_lane lane;
    int layer;                          /* -1: drafting */
    double from, to;
};
struct simulated_trace {
    size_t step;                        /* index of the step to trace; set by the caller, who also frees span */
    struct simulated_span *span;
    size_t count, room;
    double began, end;                  /* of the forward */
    double *layer_end;                  /* [layers], provided by the caller */
};

struct simulation {
    const struct simulated_machine *machine;
    const struct simulated_routes *drafted, *undrafted;
    uint64_t seed;                      /* seed of wrongly forecast experts */
    const char *prefetch;               /* a source of predict/forecast.h that depends on routes alone; NULL: none */
    struct simulated_trace *trace;      /* output; NULL: not recorded */
};

/* Returns 0 if the machine has what the system needs (a slow processor, memory for a drafter that knows routes); otherwise
 * -1 with what is missing in *err. */
int simulate_possible(const struct simulation *simulation, const char *text, struct err *err);

/* Simulates a system. text: its name and, after a colon, settings of its cache policy. */
int simulate_run(struct simulated_result *out, const struct simulation *simulation, const char *text, struct err *err);

/* Computes Belady's bound: the maximum share of hits of any policy without prefetching, which inserts all experts that are
 * needed or, where an expert can be computed elsewhere (`bypass`), any subset of them. */
int simulate_belady(double *share, const struct simulation *simulation, bool drafted, bool bypass, struct err *err);

/* Lists the experts needed by all layers of all forwards, in order, for a policy that knows the future; the caller frees
 * *keys. */
struct cache_future;
int simulate_future(const struct simulated_routes *routes, struct cache_future *future, int32_t **keys, struct err *err);

struct simulated_table {
    struct simulated_result *result;    /* [count] */
    int count, reference;               /* index of static-split-draft; -1: not in the list */
    double belady[2][2];                /* [undrafted, drafted][all, bypass] */
};
int simulate_compare(struct simulated_table *out, const struct simulation *simulation, const char *const *systems, int count,
                     struct err *err);
void simulated_table_free(struct simulated_table *table);
int simulate_text(struct text *out, const struct simulation *simulation, const struct simulated_table *table, bool markdown,
                  struct err *err);
int simulate_json(struct text *out, const struct simulation *simulation, const struct simulated_table *table, struct err *err);

/* Scores each source of predict/forecast.h over the drafted routes: in every layer of every forward it names as many experts
 * as it may, which are compared with those needed. Sources that would need states (draft, next-layer) name the machine's
 * share of the truth. */
int simulate_forecasts(struct text *out, const struct simulation *simulation, bool json, bool markdown, struct err *err);

#endif
