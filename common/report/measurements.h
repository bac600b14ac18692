/* What bench and decode streams recorded, gathered into plain arrays: the raw material of every figure.
 *
 * A bench stream has settings of its own; a decode stream is one setting, named after its file, and compared with the first
 * setting of all. Streams may be added one after the other; measurements_arrange then sorts the samples so that those of one
 * prompt are next to each other. Two samples are of the same prompt when task and id agree (and, where ids repeat, when both
 * are the n-th of that id in their run). Samples that were aborted or never ended are left out and counted. */
#ifndef MOE_REPORT_MEASUREMENTS_H
#define MOE_REPORT_MEASUREMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/stream/reader.h"

struct measured_setting {
    char *name, *model, *options, *label;   /* label: "" when there is nothing to say */
    char **drafters;                        /* [drafter_count] as -d or "draft" has them, best first; NULL: not known */
    int drafter_count;
    char *index_sha256;                     /* of its model file; "": not known */
    int moe_layers, experts;                /* of its model; 0: dense */
    int reference;                          /* the setting it is compared with; -1: none */
    int stream;                             /* of measurements.streams */
};

struct measured_step {                      /* one iteration */
    size_t sample;
    double us, draft_us, verify_us, accept_us;      /* us: all of it */
    int64_t bytes, verify_bytes;            /* verify_bytes: of its forward alone */
    int riders;                             /* further tokens of the forward, which nobody drafted */
    int levels;                             /* of the draft: a chain has as many as drafted nodes */
    int accepted;                           /* drafted tokens that are in the text: not those accepted after its end */
    int nodes, drafted, emitted, experts_wanted, experts_loaded;
    size_t first_trial;                     /* of measurements.trials */
    int trials;
    size_t first_estimate;                  /* of measurements.estimates */
    int estimates;
    size_t first_share;                     /* of measurements.shares */
    int drafters;                           /* 0: there are not several */
    int compared, flips;                    /* emitted tokens set against a reference, and those of another likeliest token */
    double divergence;                      /* sum over the compared */
    int rebuilt;                            /* layers whose error under a budget was recorded */
    double reconstruction;                  /* sum over them */
    double host_pairs, device_pairs, split_wait_us;     /* of two processors; 0: there is one */
    /* Of a cache of experts; 0: there is none. stall_us: of what was measured. */
    double hits, misses, read_bytes, prefetched_bytes, wasted_bytes, stall_us;
    double host_hits, copied_bytes, copied_early_bytes, copied_wasted_bytes, stall_copies_us;    /* of two tiers */
    double named, right, scored;            /* experts forecast for its verification, of them wanted, and all wanted; 0: none */
};

struct measured_trial {                     /* a drafted token that was tried, and whose bound is known (verify/overlap.h) */
    float bound;
    int position;                           /* after the root, from 1 */
    bool kept;
};

struct measured_estimate {                  /* a drafted token whose parent is in the text, which went on with it or not */
    double stated, estimated;               /* acceptance probability by its drafter, and by the policy; NaN: not recorded */
    bool kept;
};

struct measured_share {                     /* what a drafter did in an iteration, where there are several */
    int steps, verified, accepted;
    double us;
    int64_t bytes;
    int runs;                               /* tokens one after another that it drafted, and at least one each time
                                             * that it was asked, a review, too; -1: these, or its bytes, were not known */
    int tried, kept;                        /* measurements_read says what these are */
};

struct measured_sample {
    int64_t sequence;
    int setting, repeat, stream;
    char *id;
    int task;                               /* of measurements.tasks */
    int occurrence, prompt;                 /* set by measurements_arrange; equal `prompt`: the same prompt */
    int prompt_tokens, tokens;              /* tokens: all that came out, the one after the prompt included */
    double prefill_us;
    size_t first_step, steps;               /* of measurements.steps, once arranged */
    struct digest128 output;                /* of token ids and text */
    bool done, aborted, graded, correct;    /* graded: as right or wrong */
    int rule;                               /* enum grade_rule; GRADE_NONE: by a command, or not graded */
    double score;                           /* by a rule that scores; NaN: not graded by one */
};

struct measured_stream {
    char *name, *device, *isa;
    int threads;
    bool decode;                            /* a decode stream: one setting */
    double read_bandwidth[2];               /* bytes a second, first and last measured; NaN: not measured */
};

struct measurements {
    struct measured_stream *streams;
    struct measured_setting *settings;
    struct measured_sample *samples;
    struct measured_step *steps;
    struct measured_trial *trials;
    struct measured_share *shares;
    struct measured_estimate *estimates;
    char **tasks;                           /* in order of appearance; "" where prompts have none */
    size_t stream_count, setting_count, sample_count, step_count, trial_count, share_count, task_count,
           estimate_count;
    size_t stream_room, setting_room, sample_room, step_room, trial_room, share_room, task_room, estimate_room;
    size_t dropped;                         /* samples that were aborted */
    int prompts;                            /* distinct ones, once arranged */
};

/* Reads a stream to its end. What was tried of a drafter's tokens: a draft is followed along the accepted tokens, and where
 * anything was drafted after them the first node there is tried, kept if the text went on with its token; siblings of it are
 * not counted. It counts for its drafter, or for the one that reviewed it last, whose choice it is then.
 *
 * On failure measurements may hold a part and can only be freed. */
int measurements_read(struct measurements *all, struct reader *in, struct err *err);

/* Once, after the last stream. No sample at all is an error. */
int measurements_arrange(struct measurements *all, struct err *err);

/* Makes the names of streams distinct, by a number after those that were there before, and those of settings that several
 * streams have, by the stream's name after them. */
int measurements_tell_apart(struct measurements *all, struct err *err);

void measurements_free(struct measurements *all);       /* and back to {0} */

#endif
