/* Decode streams: the work, result and cost of each iteration of decoding, so that every figure of a report can be
 * recomputed.
 *
 * Written by the decoding loop (moe-decode --stream, moe-bench run), read by moe-bench. Times are in microseconds. */
#ifndef MOE_STREAM_DECODE_H
#define MOE_STREAM_DECODE_H

#include <stdint.h>

#include "common/stream/field.h"

enum { DECODE_DRAFTERS_MAX = 8, DECODE_FORECASTS_MAX = 8 };    /* maximum per iteration */

struct decode_machine {
    int threads;
    const char *device;
    const char *isa, *gpu;          /* one of them is set, the other NULL */
    const char *kv_dtype;           /* NULL: unknown */
    const char *loop;               /* NULL: unknown */
    const char *drafters;           /* NULL: none, or unknown */
    const char *options;            /* NULL: not recorded */
    double read_bandwidth;          /* bytes per second, NaN: not measured */
};

struct decode_begin {
    int64_t sequence;
    const char *id, *task;
    int prompt_tokens;
    double prefill_us;
    const int32_t *prompt;          /* [prompt_tokens], NULL: not recorded */
};

struct decode_iter {
    int64_t sequence;
    double t_us;
    int K;
    int nodes, drafted, accepted, emitted;
    double draft_us, verify_us, accept_us, other_us;
    int experts_wanted, experts_loaded;
    int64_t bytes, draft_bytes;
    int shared_texts, shared_rows;          /* -1: the forward was this text's alone */
    double shared_us;
    int shared_experts, shared_only;
    int catch_up;                           /* -1: no drafter read text first */
    double catch_up_us;
    int probe;                              /* -1: none */
    double probe_us;
    int64_t probe_bytes;
    int restored;                           /* -1: none */
    int64_t cache_hits, cache_misses, cache_read_bytes, cache_prefetched_bytes, cache_wasted_bytes;  /* -1: no expert cache */
    double cache_stall_us;
    int64_t cache_host_hits, cache_copied_bytes, cache_copied_early_bytes, cache_copied_wasted_bytes;    /* -1: only one tier */
    double cache_stall_copies_us;
    int64_t cache_named, cache_right, cache_scored;         /* -1: no forecasts */
    const int32_t *cache_levels;            /* [moe_layers][experts] */
    const double *cache_up, *cache_down;    /* [moe_layers][experts] */
    struct values cache;
    struct values split;                    /* fields of two processors; empty: only one, and the arrays are NULL */
    double split_host_us, split_wait_us;
    const int32_t *split_tau, *split_device_experts, *split_host_experts, *split_device_pairs, *split_host_pairs;
    int split_levels;                       /* -1: not recorded */
    const int32_t *split_fetches, *split_cold;           /* [moe_layers][split_levels], [moe_layers] */
    const double *split_host_share, *split_device_share;    /* [moe_layers][split_levels] */
    const int32_t *node_tokens;             /* [nodes]; this and the following arrays: NULL if not recorded */
    const int32_t *node_parents;            /* -1: no riders, or one drafter */
    int riders, drafters;                   /* -1: no riders; -1: not several drafters */
    const int32_t *node_drafters, *node_reviewers;          /* [nodes] */
    const int32_t *drafter_steps, *drafter_levels, *drafter_reviewed, *drafter_proposed, *drafter_verified, *drafter_accepted;
    const int64_t *drafter_bytes;           /* [drafters], as the arrays before */
    const double *drafter_us;
    const int32_t *drafter_catch_up;
    const double *drafter_catch_up_us;
    const float *node_log_probability;      /* [nodes] NaN: unknown, and for the root */
    const int32_t *node_match;              /* [nodes] */
    const float *node_acceptance;           /* [nodes] NaN: not estimated, and for the root */
    int steps;                              /* -1: not recorded */
    const int32_t *step_kind, *step_drafter, *step_leaf, *step_leaves, *step_tokens, *step_added;     /* [steps] */
    const int32_t *step_dropped;            /* [steps] */
    int dropped;                            /* nodes that steps dropped; -1: not recorded */
    const int32_t *dropped_nodes, *dropped_parents, *dropped_tokens, *dropped_drafters, *dropped_match;    /* [dropped] */
    const float *dropped_log_probability;   /* [dropped] NaN: unknown */
    const int32_t *emitted_experts;         /* [emitted][moe_layers][top_k] */
    int forecasts;                          /* sources of forecasts that were scored; -1: none */
    const char *forecast_sources;
    const int32_t *forecast_wanted;         /* [moe_layers] */
    const int32_t *forecast_named, *forecast_right;         /* [forecasts][moe_layers] */
    int64_t forecast_expert_bytes;          /* -1 */
    const int32_t *tokens;                  /* [emitted] */
    const float *overlap;                   /* [nodes] NaN: the node was not tried, or the overlap is unknown */
    const float *divergence;                /* [emitted] */
    int flips;                              /* -1: not measured */
    const float *reconstruction;            /* [moe_layers] */
    const int32_t *experts_wanted_layer;    /* [moe_layers] */
    const int32_t *experts_loaded_layer;    /* [moe_layers] */
    struct values policy;
};

/* The outcome of drafting at one position of the text with one drafter, for every draft length: element k of an array is
 * for k drafted tokens, verified in a forward of k + 1 rows. For a tree all nodes ever drafted are stored in the order of
 * drafting, including those dropped before the forward; the first k nodes form a tree, and element k is for that tree. */
struct decode_draft {
    int64_t sequence;
    int pos, left, room, K, n, accepted;
    int drafter;                            /* -1: there is only one */
    const int32_t *tokens;                  /* [n]; the root first */
    const int32_t *parents, *asked;         /* [n] NULL: a chain */
    const int32_t *path;                    /* [accepted] NULL: a chain */
    const float *log_probability;           /* [n] NaN: unknown, and for the root */
    const int32_t *match;                   /* [n] NULL: none */
    const double *draft_us, *verify_us;     /* [n] */
    const int64_t *draft_bytes, *bytes;     /* [n] */
    const int32_t *experts_loaded;          /* [n] */
    const int32_t *experts;                 /* [n][moe_layers][top_k]; NULL: the model has no experts */
    int64_t expert_bytes;                   /* -1: not recorded */
};

enum finish_reason { FINISH_STOP, FINISH_LENGTH, FINISH_ABORT };

struct decode_done {
    int64_t sequence;
    const char *id;
    int n;
    const int32_t *tokens;          /* [n] */
    const char *text;               /* NULL: the model has no tokenizer */
    int finish_reason;              /* enum finish_reason */
    int num_drafts, num_draft_tokens, num_accepted_tokens;
};

/* A prompt that could not be decoded, in a run that continued. */
struct decode_failed {
    const char *id, *message;
};

extern const struct record_kind decode_failed_kind;
extern const struct record_kind decode_machine_kind, decode_begin_kind, decode_iter_kind, decode_draft_kind,
                                decode_done_kind;

#endif
