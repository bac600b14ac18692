#include "common/stream/kind.h"

#include <stddef.h>
#include <string.h>

#include "common/stream/bench.h"
#include "common/stream/coact.h"
#include "common/stream/decode.h"
#include "common/stream/feature.h"
#include "common/stream/rank.h"
#include "common/stream/route.h"
#include "common/stream/train.h"

static const struct record_kind *const route_records[] = {&route_begin_kind, &route_tokens_kind, &route_end_kind, NULL};
static const struct record_kind *const rank_records[] = {&rank_layer_kind, NULL};
static const struct record_kind *const coact_records[] = {&coact_coverage_kind, &coact_matrix_kind, &coact_union_kind,
                                                          &coact_locality_kind, &coact_stats_kind, &coact_reuse_kind,
                                                          &coact_signal_kind, &coact_drift_kind, NULL};
static const struct record_kind *const decode_records[] = {&decode_machine_kind, &decode_begin_kind, &decode_iter_kind,
                                                           &decode_draft_kind, &decode_done_kind,
                                                           &decode_failed_kind, NULL};
static const struct record_kind *const bench_records[] = {&decode_machine_kind, &bench_setting_kind, &bench_sample_kind,
                                                          &decode_begin_kind, &decode_iter_kind, &decode_done_kind,
                                                          &bench_grade_kind, &bench_timing_kind, NULL};
static const struct record_kind *const feature_records[] = {&feature_begin_kind, &feature_states_kind, &route_end_kind, NULL};
static const struct record_kind *const train_records[] = {&train_run_kind, &train_step_kind, &train_eval_kind, NULL};

static const struct stream_schema schemas[] = {
    {STREAM_ROUTE, "route", 1, "which experts each token requested", route_records},
    {STREAM_RANK, "rank", 1, "in which order to keep experts", rank_records},
    {STREAM_COACT, "coact", 1, "what analyses of routes found", coact_records},
    {STREAM_DECODE, "decode", 1, "what each iteration of decoding did and cost", decode_records},
    {STREAM_BENCH, "bench", 1, "decoding under several settings", bench_records},
    {STREAM_FEATURE, "feature", 1, "texts and a model's states, for training", feature_records},
    {STREAM_TRAIN, "train", 1, "how a draft head was trained", train_records},
};

const struct stream_schema *stream_schema(enum stream_kind kind)
{
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        if (schemas[i].kind == kind)
            return &schemas[i];
    return NULL;
}

const struct stream_schema *stream_schema_named(const char *name)
{
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        if (!strcmp(schemas[i].name, name))
            return &schemas[i];
    return NULL;
}

const struct record_kind *stream_schema_record(const struct stream_schema *schema, const char *type)
{
    for (const struct record_kind *const *record = schema->records; *record; record++)
        if (!strcmp((*record)->type, type))
            return *record;
    return NULL;
}
