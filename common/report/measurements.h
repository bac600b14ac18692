/* The contents of bench and decode streams in plain arrays, from which every figure is computed.
 *
 * A bench stream has settings of its own; a decode stream is one setting, named after its file, and compared with the first
 * setting of all. Streams may be added one after the other; measurements_arrange then sorts the samples so that those of one
 * prompt are adjacent. Two samples have the same prompt if task and id agree (and, if ids repeat, if both are the n-th with
 * that id in their run). Aborted and incomplete samples are left out and counted. */
#ifndef MOE_REPORT_MEASUREMENTS_H
#define MOE_REPORT_MEASUREMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/stream/reader.h"

struct measured_setting {
    char *name, *model, *options, *label;   /* label: "" if there is no remark */
    char **drafters;                        /* [drafter_count] names as in -d or "draft", best first; NULL: unknown */
    int drafter_count;
    char **forecasts;                       /* [forecast_count] sources of forecasts that were scored */
    int forecast_count;
    char *index_sha256;                     /* digest of the setting's model file; "": unknown */
    int moe_layers, experts;                /* sizes of the setting's model; 0: dense */
    int reference;                          /* setting it is compared with; -1: none */
    int stream;                             /* index in measurements.streams */
};

/* Fields of an iteration's record (stream/decode.h) that figures sum over iterations. A value that was not recorded counts as
 * 0, an array as the sum of its numbers. */
#define SUMMED_FIELDS(X) X(experts_wanted) X(experts_loaded) \
    X(cache_hits) X(cache_misses) X(cache_read_bytes) X(cache_prefetched_bytes) X(cache_wasted_bytes) X(cache_stall_us) \
    X(cache_host_hits) X(cache_copied_bytes) X(cache_copied_early_bytes) X(cache_copied_wasted_bytes) \
    X(cache_stall_copies_us) X(cache_named) X(cache_right) X(cache_scored) \
    X(split_host_pairs) X(split_device_pairs) X(split_wait_us) X(reconstruction)
#define SUM_OF(key) SUM_##key,
enum step_sum {
    SUM_NONE, SUMMED_FIELDS(SUM_OF)
    SUM_REBUILT,                            /* layers whose reconstruction error was recorded */
    STEP_SUMS
};
#undef SUM_OF

struct measured_step {                      /* one iteration */
    size_t sample;
    double us, draft_us, verify_us, accept_us;      /* us: the whole iteration; of a shared forward this text's share */
    double wall_us;                         /* us; if texts shared the forward, the time since the previous iteration's end */
    int texts, all_experts;                 /* texts: number of texts in the forward; all_experts: distinct experts of all
                                             * rows, summed over layers */
    int64_t bytes, verify_bytes;            /* verify_bytes: bytes of the iteration's forward only */
    int riders;                             /* further tokens of the forward, which no drafter proposed */
    int levels;                             /* levels of the draft; for a chain the number of drafted nodes */
    int accepted;                           /* drafted tokens in the text, without those accepted after its end */
    int nodes, drafted, emitted;
    size_t first_trial;                     /* index in measurements.trials */
    int trials;
    size_t first_estimate;                  /* index in measurements.estimates */
    int estimates;
    size_t first_share;                     /* index in measurements.shares */
    int drafters;                           /* 0: not several */
    int compared, flips;                    /* number of emitted tokens compared with a reference, and number of those with
                                             * another most likely token */
    double divergence;                      /* sum over the compared tokens */
    double sum[STEP_SUMS];
    size_t first_forecast;                  /* index in measurements.forecasts, [forecasts][moe_layers of the setting] */
    int forecasts;
    int64_t forecast_expert_bytes;
};

struct measured_forecast { int wanted, named, right; };        /* counts of experts in a layer, by one source of forecasts */

struct measured_trial {                     /* a drafted token that was tried, and whose bound is known (verify/overlap.h) */
    float bound;
    int position;                           /* depth below the root, from 1 */
    bool kept;
};

struct measured_estimate {                  /* a drafted token whose parent is in the text; kept: it is the text's next token */
    double stated, estimated;               /* acceptance probability by its drafter and by the policy; NaN: not recorded */
    bool kept;
};

struct measured_share {                     /* work and result of one of several drafters in an iteration */
    int steps, verified, accepted;
    double us;
    int64_t bytes;
    int runs;                               /* sequential runs: tokens drafted one after another, at least one per request or
                                             * review; -1: unknown, or its bytes are */
    int tried, kept;                        /* defined at measurements_read */
};

struct measured_sample {
    int64_t sequence;
    int setting, repeat, stream;
    char *id;
    int task;                               /* index in measurements.tasks */
    int occurrence, prompt;                 /* set by measurements_arrange; samples with equal `prompt` have the same prompt */
    int prompt_tokens, tokens;              /* tokens: number of output tokens, including the token after the prompt */
    double prefill_us;
    double end_us;                          /* end of the last iteration that was read, since the sample's start */
    size_t first_step, steps;               /* range in measurements.steps, after measurements_arrange */
    struct digest128 output;                /* hash of token ids and text */
    bool done, aborted, graded, correct;    /* graded: as right or wrong */
    int rule;                               /* enum grade_rule; GRADE_NONE: by a command, or not graded */
    double score;                           /* score by a rule with scores; NaN: none */
};

struct measured_stream {
    char *name, *device, *isa;
    int threads;
    bool decode;                            /* a decode stream, with one setting */
    double read_bandwidth[2];               /* bytes/s, measured first and last; NaN: not measured */
};

struct measurements {
    struct measured_stream *streams;
    struct measured_setting *settings;
    struct measured_sample *samples;
    struct measured_step *steps;
    struct measured_trial *trials;
    struct measured_share *shares;
    struct measured_estimate *estimates;
    struct measured_forecast *forecasts;
    char **tasks;                           /* in order of appearance; "": prompts without a task */
    size_t stream_count, setting_count, sample_count, step_count, trial_count, share_count, task_count,
           estimate_count, forecast_count;
    size_t stream_room, setting_room, sample_room, step_room, trial_room, share_room, task_room, estimate_room,
           forecast_room;
    size_t dropped;                         /* aborted samples */
    double max_ttft_ms, max_tpot_ms;        /* limits that define goodput; 0: not given */
    int prompts;                            /* number of distinct prompts, after measurements_arrange */
};

/* Reads a stream to its end. Tried tokens of a drafter: along the accepted tokens of a draft, the first drafted child of
 * each node is tried, and kept if it is the text's next token; its siblings are not counted. The token counts for its
 * drafter, or for the drafter that reviewed it last, because it is then that drafter's choice.
 *
 * After a failure measurements may be incomplete and can only be freed. */
int measurements_read(struct measurements *all, struct reader *in, struct err *err);

/* Iterates over the iterations of a setting's samples, of one task (-1: all). The cursor must start as {0}; returns NULL
 * after the last one. */
struct step_cursor {
    size_t sample, step;
};
const struct measured_step *measurements_step(const struct measurements *all, int task, int setting, struct step_cursor *at);

/* Must be called once, after the last stream. It is an error if there are no samples. */
int measurements_arrange(struct measurements *all, struct err *err);

/* Makes names distinct: those of streams by a number, those of settings in several streams by the stream's name. */
int measurements_make_names_distinct(struct measurements *all, struct err *err);

void measurements_free(struct measurements *all);       /* *all is {0} afterwards */

#endif
