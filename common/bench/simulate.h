/* Decoding in virtual time: cache policies as they are (common/cache) over routes, on a described machine. Nothing is measured,
 * and all that comes out is labelled simulated.
 *
 * A SYSTEM is a way of having experts in two memories: a cache policy, what happens to an expert that is not in fast memory,
 * and what is fetched beforehand. The paper's own (MoE-SpAc, arXiv 2603.09983) and those that it is compared with are in
 * simulate_systems.c, each with its source. One forward:
 *
 *   - its tokens but the first are drafted first, one after the other; the link goes on meanwhile
 *   - each layer: all but experts; then the router is known. Residents are computed by the fast processor, one after the other.
 *     SLOW     the others by the slow one, at the same time where the system can
 *     FETCH    the others are fetched, on demand first, and computed as they come
 *     GREEDY   each by whichever has it done sooner, most tokens first
 *     WHOLE    a layer that is not resident is fetched with all its experts
 *   - the link moves one expert after the other; what is fetched beforehand is decided when it is free. An expert on its way is
 *     not there yet: SLOW computes it, others wait for it.
 *
 * Where what is asked for at a time comes together, as from a disk, systems that fetch all that is missing and keep it do so as
 * the store does (simulated_store.h): a hit is then an expert that is there or on its way, as in its records. */
#ifndef MOE_BENCH_SIMULATE_H
#define MOE_BENCH_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/simulated_machine.h"
#include "common/bench/simulated_routes.h"

enum simulated_misses { MISSES_SLOW, MISSES_FETCH, MISSES_GREEDY, MISSES_WHOLE };
enum simulated_pins { PINS_NONE, PINS_LAYERS, PINS_RANKED };            /* whole layers from the first; the most wanted */
enum simulated_prefetch {
    PREFETCH_NONE, PREFETCH_POLICY,     /* what the policy asks for */
    PREFETCH_MISSED,                    /* what was missed, for the next time */
    PREFETCH_NEXT_LAYER,                /* what the next layer's router says of this layer's state */
    PREFETCH_DRAFT                      /* what the draft phase says of all layers */
};

struct simulated_system {
    const char *name, *cache;           /* its policy */
    const char *source;                 /* where it is described, and how it is taken here */
    enum simulated_misses misses;
    enum simulated_pins pins;
    enum simulated_prefetch prefetch;
    bool drafts, keeps, overlaps;       /* what is fetched on demand stays; processors and link work at the same time */
    bool balances;                      /* tau by eq. 7 to 12 */
};
extern const struct simulated_system simulated_systems[];               /* name NULL after the last */

struct simulated_result {
    char system[96];
    const char *source;
    double cached;                      /* share of the experts; less than the machine's where a copy drafts */
    double seconds, draft_s, stall_s, fast_s, slow_s;   /* stall: the fast processor waits for experts, or for the slow one */
    int64_t forwards, tokens;
    int64_t wanted, hits;               /* experts of a layer of a forward; there when it wanted them */
    int64_t fetched, prefetched, wasted;                /* wasted: prefetched, and gone unused */
    double decide_us;                   /* measured, of a forward: what deciding takes on this machine */
};

/* What was busy when, in one forward. Times are seconds since its drafting had ended, so that drafts are below 0. */
enum simulated_lane { LANE_FAST, LANE_SLOW, LANE_LINK, SIMULATED_LANES };
struct simulated_span {
    enum simulated_lane lane;
    int layer;                          /* -1: it drafts */
    double from, to;
};
struct simulated_trace {
    size_t step;                        /* the caller sets this alone, and frees span */
    struct simulated_span *span;
    size_t count, room;
    double began, end;                  /* of the forward */
    double *layer_end;                  /* [layers] the caller's */
};

struct simulation {
    const struct simulated_machine *machine;
    const struct simulated_routes *drafted, *undrafted;
    uint64_t seed;                      /* of what forecasts name wrongly */
    const char *prefetch;               /* a source of predict/forecast.h that follows from routes; NULL: none is asked */
    struct simulated_trace *trace;      /* output; NULL: not recorded */
};

/* 0 where the machine has what a system needs: a slow processor, and memory for a drafter that knows routes; -1: *err says what
 * is missing. */
int simulate_possible(const struct simulation *simulation, const char *text, struct err *err);

/* `text` is the name of a system, and after a colon settings of its cache policy. */
int simulate_run(struct simulated_result *out, const struct simulation *simulation, const char *text, struct err *err);

/* The share of hits that no policy surpasses which brings in what is wanted when it is wanted: all of it, or, where an expert
 * can be computed elsewhere (`bypass`), what it likes of it. */
int simulate_belady(double *share, const struct simulation *simulation, bool drafted, bool bypass, struct err *err);

/* What all layers of all forwards want, in this order, for a policy that knows the future; the caller frees *keys. */
struct cache_future;
int simulate_future(const struct simulated_routes *routes, struct cache_future *future, int32_t **keys, struct err *err);

struct simulated_table {
    struct simulated_result *result;    /* [count] */
    int count, reference;               /* static-split-draft; -1: it is not among them */
    double belady[2][2];                /* [undrafted, drafted][all, bypass] */
};
int simulate_compare(struct simulated_table *out, const struct simulation *simulation, const char *const *systems, int count,
                     struct err *err);
void simulated_table_free(struct simulated_table *table);
int simulate_text(struct text *out, const struct simulation *simulation, const struct simulated_table *table, bool markdown,
                  struct err *err);
int simulate_json(struct text *out, const struct simulation *simulation, const struct simulated_table *table, struct err *err);

/* Each source of predict/forecast.h over the drafted routes: of every layer of every forward it names as many experts as it is
 * let, and what it named is held against what was wanted. What states would say (draft, next-layer) is the machine's share of
 * the truth. */
int simulate_forecasts(struct text *out, const struct simulation *simulation, bool json, bool markdown, struct err *err);

#endif
