/* Predicts how a model runs on a machine, before anything is loaded: whether it fits, where its parts are stored, the bytes
 * that a token reads from each tier, tokens/s with and without drafts and what bounds them, and how texts and ranks change
 * that. In: a model file, or a config.json alone; a machine's speeds. Formulas: moe-bench(1), "Plans".
 *
 * A forward of M rows loads E (1 - (1 - k/E)^M) distinct experts per layer, as if tokens chose independently (predict/union.h).
 * Bytes are doubles: they are estimates, and only summed and divided. */
#ifndef MOE_BENCH_OUTLOOK_H
#define MOE_BENCH_OUTLOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bench/speeds.h"
#include "common/cli/opt.h"
#include "common/model/hparams.h"
#include "common/policy/plan.h"

/* Numbers of operations that threads share: qkv, attention, out, router, experts up and down in a layer; two more in a
 * forward. */
enum { OUTLOOK_OPERATIONS_LAYER = 6, OUTLOOK_OPERATIONS_FORWARD = 2, OUTLOOK_LENGTH_MAX = 16, OUTLOOK_CURVE = 11 };

/* ---- models */

struct outlook_bytes { double of[FORMAT_COUNT]; };      /* bytes of weights, by format */

struct outlook_model {
    char name[64];
    bool file;                          /* a model file, not a config.json alone */
    struct hparams shape;
    int layers;                         /* layers that run; for a draft head, its own layers */
    int moe_layers;
    double weights;                     /* bytes of all of them */
    double experts;                     /* bytes of all routed experts */
    double slot;                        /* bytes of the largest routed expert */
    struct outlook_bytes dense;         /* bytes that each forward reads, except routed experts */
    struct outlook_bytes head;          /* the part of `dense` that is the output head */
    struct outlook_bytes expert;        /* bytes of one routed expert of each MoE layer, summed */
    struct outlook_bytes predictor;     /* the first predictor's layer, without its output head */
    bool own_head;                      /* draft heads only: does not use its target's output head */
};

/* Weight formats to assume for a config.json, which names none; -1: not given. */
struct outlook_formats { int dense, experts; };

/* Opens a model file, a config.json, a folder with one, or a known shape (arch.h). Nothing but sizes is read. */
int outlook_model_read(struct outlook_model *out, const char *path, const struct outlook_formats *formats, struct err *err);

/* Opens the file of a draft head. */
int outlook_model_read_head(struct outlook_model *out, const char *path, struct err *err);

/* Returns whether products with this format count: its part is more than norms and biases, which are f32 in any model. */
bool outlook_multiplies(const struct outlook_bytes *bytes, int format);

/* ---- drafters */

struct outlook_drafter {
    const char *text;                   /* as given */
    double accept[PLAN_DEPTHS];         /* acceptance probability at depth 1, at depth 2, and from depth 3 on */
    struct outlook_bytes step;          /* bytes that one drafted token reads */
    int operations;                     /* number of operations for one drafted token */
    double memory;                      /* bytes of the drafter's own weights, keys and values */
};

#define OUTLOOK_ACCEPT 0.6              /* default acceptance probability */

/* Reads a drafter from its settings, KIND[:key=value,...]. */
int outlook_drafter_read(struct outlook_drafter *out, const char *text, const struct outlook_model *target, int context,
                         int format, struct err *err);

/* ---- the plan */

struct outlook_setup {
    const struct outlook_model *model;
    const struct speeds *speeds;
    const struct outlook_drafter *drafter;
    int drafters;
    int context, prefix;                /* context 0: that of session_kv_bytes; prefix: tokens of the text so far */
    int kv_format;                      /* enum cache_format */
    const char *cache;                  /* --cache-experts; NULL: auto if the model does not fit */
    double hits;                        /* share of requested experts found in memory; negative: the share of experts that
                                         * are in memory */
    int texts, ranks;
    int length;                         /* draft length; negative: the best one, up to OUTLOOK_LENGTH_MAX */
};

/* The tiers in which one rank keeps its parts of the model, in bytes. */
struct outlook_place {
    double dense, experts, kv, drafters;        /* experts: all routed experts of the rank */
    double memory;                      /* bytes available for all of these */
    bool fits;                          /* all of them do */
    bool runs;                          /* `fits`, or the experts of one token fit beside the other parts */
    int64_t count, slots;               /* routed experts of the rank over all layers, and those of them in memory */
    int64_t host_slots;                 /* with a GPU: routed experts in the host's memory only */
    double hits, disk;                  /* shares of requested experts: found in memory; read from disk */
};

enum outlook_bound {
    OUTLOOK_MEMORY, OUTLOOK_PRODUCTS, OUTLOOK_LINK, OUTLOOK_DISK, OUTLOOK_NETWORK, OUTLOOK_OPERATIONS, OUTLOOK_DRAFTING,
    OUTLOOK_BOUNDS
};
extern const char *const outlook_bounds[];

/* The times of an iteration, by limiting resource. */
struct outlook_time { double seconds[OUTLOOK_BOUNDS]; };
double outlook_seconds(const struct outlook_time *time);
enum outlook_bound outlook_bound(const struct outlook_time *time);          /* resource with the largest time */

/* Bytes that a forward of all texts reads, by tier. */
struct outlook_tiers { double memory, link, disk, experts; };               /* experts: distinct experts per MoE layer */

/* The result of decoding with one drafter, or without drafts. */
struct outlook_result {
    int length;                         /* tokens of a draft; 0: drafts do not pay */
    double tokens;                      /* tokens per text and iteration */
    struct outlook_time time;           /* of an iteration */
    double tokens_per_second;           /* total of all texts; NaN: a speed is unknown */
    struct outlook_tiers tiers;         /* bytes read by an iteration's forward */
};

/* A point of a curve; result[0] is without drafts, then one per drafter. */
struct outlook_point {
    int texts, ranks;
    struct outlook_place place;
    struct outlook_result result[1 + PLAN_DRAFTERS_MAX];
};

struct outlook {
    struct outlook_point at;            /* as set up */
    struct outlook_point texts[OUTLOOK_CURVE], ranks[OUTLOOK_CURVE];
    int texts_count, ranks_count;
};

/* Places the parts of a rank. Also fills *out, with `runs` false, if the cache of `setup` is refused. */
int outlook_place(struct outlook_place *out, const struct outlook_setup *setup, int texts, int ranks, struct err *err);
int outlook_make(struct outlook *out, const struct outlook_setup *setup, struct err *err);

/* Returns the smallest number of texts or ranks of a curve from which on drafts of a drafter do not pay; 0: they pay at the
 * last point whose tokens/s are known. */
int outlook_break_even(const struct outlook_point *curve, int count, int drafter, bool by_ranks);

int outlook_text(struct text *out, const struct outlook *outlook, const struct outlook_setup *setup, struct err *err);
int outlook_json(struct text *out, const struct outlook *outlook, const struct outlook_setup *setup, struct err *err);

#endif
