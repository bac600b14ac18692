#include "common/report/measurements.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/base/mem.h"
#include "common/report/grade.h"
#include "common/stream/bench.h"
#include "common/stream/decode.h"
#include "common/stream/record.h"

enum { TASKS_MAX = 1000, LOOK_BACK = 4096 };

/* State of reading one stream. */
struct intake {
    struct measurements *all;
    struct reader *in;
    int stream;
    bool bench;
    size_t first_setting, first_sample;
};

static char *copy_or_empty(const char *text, struct err *err) { return mem_string(text ? text : "", err); }

/* Returns a header's remark on its model: "inflated: 64 to 5120; ...". */
static char *labels_text(const struct header *header, struct err *err)
{
    struct text text = {0};
    for (int i = 0; i < header->label_count; i++)
        if (text_printf(&text, err, "%s%s: %s", i ? "; " : "", header->labels[i].key, header->labels[i].value)) {
            text_free(&text);
            return NULL;
        }
    char *copy = copy_or_empty(text.data, err);
    text_free(&text);
    return copy;
}

/* Sets the drafters' names from a JSON list. Anything else is ignored: the names are only displayed. */
static int name_drafters(struct measured_setting *setting, const json_t *list, struct err *err)
{
    const size_t count = json_array_size(list);
    if (setting->drafters || !count || count > DECODE_DRAFTERS_MAX)
        return 0;
    if (!(setting->drafters = mem_alloc(count, sizeof *setting->drafters, err)))
        return -1;
    for (size_t i = 0; i < count; i++, setting->drafter_count++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!(setting->drafters[i] = copy_or_empty(name, err)))
            return -1;
    }
    return 0;
}

static int add_setting(struct intake *intake, const char *name, const char *model, const char *options, char **label,
                       const struct bench_setting *shape, struct err *err)
{
    struct measurements *all = intake->all;
    if (all->setting_count == BENCH_SETTINGS_MAX)
        return err_set(err, ERR_INPUT, "the streams have more than %d settings; give fewer streams", BENCH_SETTINGS_MAX);
    if (!*label || mem_grow(&all->settings, &all->setting_room, all->setting_count + 1, sizeof *all->settings, err))
        return -1;
    struct measured_setting *setting = &all->settings[all->setting_count];
    *setting = (struct measured_setting){.moe_layers = shape->moe_layers, .experts = shape->experts, .stream = intake->stream,
                                         .reference = -1};
    if (shape->reference >= 0)
        setting->reference = (int)intake->first_setting + shape->reference;
    all->setting_count++;
    if (!(setting->name = copy_or_empty(name, err)) || !(setting->model = copy_or_empty(model, err)) ||
        !(setting->options = copy_or_empty(options, err)) ||
        !(setting->index_sha256 = copy_or_empty(shape->index_sha256, err)))
        return -1;
    setting->label = *label;
    *label = NULL;
    return 0;
}

/* Writes the file name without folder and extension: "run" for "folder/run.moes". */
static void plain_name(const char *path, char *name, size_t room)
{
    const char *slash = strrchr(path, '/');
    snprintf(name, room, "%s", slash ? slash + 1 : path);
    char *dot = strrchr(name, '.');
    if (dot && dot > name)
        *dot = '\0';
}

static int decode_setting(struct intake *intake, struct err *err)
{
    const struct header *header = reader_header(intake->in), *made = header_producer(header);
    struct text options = {0};
    char name[128], *label = NULL;
    int rc = -1;
    const struct bench_setting shape = {.moe_layers = header->model.moe_layers, .experts = header->model.experts,
                                        .reference = -1, .index_sha256 = header->model.index_sha256};
    plain_name(reader_name(intake->in), name, sizeof name);
    for (int i = 1; i < made->argc; i++)
        if (text_printf(&options, err, "%s%s", i > 1 ? " " : "", made->argv[i]))
            goto done;
    label = labels_text(header, err);
    rc = add_setting(intake, name, header->model.name, options.data, &label, &shape, err);
done:
    mem_free(&label);
    text_free(&options);
    return rc;
}

static int take_setting(struct intake *intake, const struct bench_setting *record, struct err *err)
{
    if ((size_t)record->setting != intake->all->setting_count - intake->first_setting)
        return err_set(err, ERR_INPUT, "setting %d is out of order; the stream is damaged", record->setting);
    char *label = copy_or_empty(record->label, err);
    json_t *options = json_loads(record->options ? record->options : "", 0, NULL);
    int rc = add_setting(intake, record->name, record->model, record->options, &label, record, err) ||
             name_drafters(&intake->all->settings[intake->all->setting_count - 1], json_object_get(options, "draft"), err)
                 ? -1 : 0;
    json_decref(options);
    mem_free(&label);
    return rc;
}

static int take_machine(struct intake *intake, const struct decode_machine *record, struct err *err)
{
    struct measured_stream *stream = &intake->all->streams[intake->stream];
    if (!stream->device) {
        stream->threads = record->threads;
        if (!(stream->device = copy_or_empty(record->device, err)) ||
            !(stream->isa = copy_or_empty(record->isa ? record->isa : record->gpu, err)))
            return -1;
        stream->read_bandwidth[0] = record->read_bandwidth;
    }
    stream->read_bandwidth[1] = record->read_bandwidth;
    if (intake->bench)
        return 0;
    json_t *drafters = json_loads(record->drafters ? record->drafters : "", 0, NULL);
    int rc = name_drafters(&intake->all->settings[intake->first_setting], drafters, err);
    json_decref(drafters);
    return rc;
}

static struct measured_sample *find_sample(struct intake *intake, int64_t sequence, struct err *err)
{
    struct measurements *all = intake->all;
    size_t look = 0;
    for (size_t i = all->sample_count; i > intake->first_sample && look < LOOK_BACK; i--, look++)
        if (all->samples[i - 1].sequence == sequence)
            return &all->samples[i - 1];
    err_set(err, ERR_INPUT, "sequence %lld has no sample record, or one too far back; the stream is damaged",
            (long long)sequence);
    return NULL;
}

static int add_sample(struct intake *intake, int64_t sequence, int setting, int repeat, struct err *err)
{
    struct measurements *all = intake->all;
    if (setting < 0 || (size_t)setting >= all->setting_count - intake->first_setting)
        return err_set(err, ERR_INPUT, "setting %d has no setting record; the stream is damaged", setting);
    if (mem_grow(&all->samples, &all->sample_room, all->sample_count + 1, sizeof *all->samples, err))
        return -1;
    all->samples[all->sample_count++] = (struct measured_sample){
        .sequence = sequence, .setting = (int)intake->first_setting + setting, .repeat = repeat, .stream = intake->stream,
        .score = NAN};
    return 0;
}

static int task_index(struct measurements *all, const char *task, int *out, struct err *err)
{
    for (size_t i = 0; i < all->task_count; i++)
        if (!strcmp(all->tasks[i], task)) {
            *out = (int)i;
            return 0;
        }
    if (all->task_count == TASKS_MAX)
        return err_set(err, ERR_INPUT, "the streams have more than %d tasks; give fewer streams", TASKS_MAX);
    if (mem_grow(&all->tasks, &all->task_room, all->task_count + 1, sizeof *all->tasks, err))
        return -1;
    if (!(all->tasks[all->task_count] = mem_string(task, err)))
        return -1;
    *out = (int)all->task_count++;
    return 0;
}

static int take_begin(struct intake *intake, const struct decode_begin *record, struct err *err)
{
    if (!intake->bench && add_sample(intake, record->sequence, 0, 0, err))
        return -1;
    struct measured_sample *sample = find_sample(intake, record->sequence, err);
    if (!sample)
        return -1;
    if (sample->id)
        return err_set(err, ERR_INPUT, "sequence %lld begins twice; the stream is damaged", (long long)record->sequence);
    sample->prompt_tokens = record->prompt_tokens;
    sample->prefill_us = sample->end_us = record->prefill_us;
    if (!(sample->id = copy_or_empty(record->id, err)))
        return -1;
    return task_index(intake->all, record->task ? record->task : "", &sample->task, err);
}

static int depth_of(const struct decode_iter *record, int node)
{
    int depth = 0;
    for (int at = node; at > 0; at = record->node_parents ? record->node_parents[at] : at - 1)
        depth++;
    return depth;
}

/* Returns the levels of a draft: the longest path from the root. Without parents the draft is a chain. */
static int count_levels(const struct decode_iter *record)
{
    int deepest = 0;
    if (!record->node_parents)
        return record->nodes - 1;
    for (int node = record->nodes - 1; node > deepest; node--) {
        int depth = depth_of(record, node);
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest;
}

/* Adds the nodes whose bound was recorded. These nodes are children of the accepted path, so a node was kept if its depth is
 * at most the number of accepted tokens. */
static int take_trials(struct measurements *all, const struct decode_iter *record, struct err *err)
{
    struct measured_step *step = &all->steps[all->step_count - 1];
    step->first_trial = all->trial_count;
    for (int node = 1; record->overlap && node < record->nodes; node++) {
        if (isnan(record->overlap[node]))
            continue;
        if (mem_grow(&all->trials, &all->trial_room, all->trial_count + 1, sizeof *all->trials, err))
            return -1;
        int depth = depth_of(record, node);
        all->trials[all->trial_count++] =
            (struct measured_trial){.bound = record->overlap[node], .position = depth, .kept = depth <= record->accepted};
        step->trials++;
    }
    return 0;
}

static int take_estimate(struct measurements *all, const struct decode_iter *record, int node, bool kept, struct err *err)
{
    const double log = record->node_log_probability ? (double)record->node_log_probability[node] : NAN;
    const double stated = isnan(log) ? NAN : fmin(1, exp(log));         /* fmin(1, NaN) would be 1 */
    const double estimated = record->node_acceptance ? (double)record->node_acceptance[node] : NAN;
    if (isnan(stated) && isnan(estimated))
        return 0;
    if (mem_grow(&all->estimates, &all->estimate_room, all->estimate_count + 1, sizeof *all->estimates, err))
        return -1;
    all->estimates[all->estimate_count++] = (struct measured_estimate){stated, estimated, kept};
    all->steps[all->step_count - 1].estimates++;
    return 0;
}

/* Follows the text through the draft; adds an estimate for each child of a node on that path: kept if it is the text's
 * token. */
static int take_estimates(struct measurements *all, const struct decode_iter *record, struct err *err)
{
    int at = 0;
    all->steps[all->step_count - 1].first_estimate = all->estimate_count;
    if (!record->node_tokens || !record->node_parents || !record->tokens)
        return 0;
    for (int i = 0; i < record->emitted && at >= 0; i++) {
        int next = -1;
        for (int node = at + 1; node < record->nodes; node++) {
            if (record->node_parents[node] != at)
                continue;
            const bool kept = record->node_tokens[node] == record->tokens[i];
            if (take_estimate(all, record, node, kept, err))
                return -1;
            next = kept ? node : next;
        }
        at = next;
    }
    return 0;
}

/* Adds the changes made by a budget, if recorded. */
static void take_changes(struct measured_step *step, const struct decode_iter *record)
{
    if (record->divergence && record->flips >= 0) {
        step->compared = record->emitted;
        step->flips = record->flips;
        for (int i = 0; i < record->emitted; i++)
            step->divergence += (double)record->divergence[i];
    }
}

static int first_after(const struct decode_iter *record, int parent)
{
    int node = parent + 1;
    while (node < record->nodes && record->node_parents[node] != parent)
        node++;
    return node < record->nodes ? node : -1;
}

/* Returns the child of a node that carries the text's next token; -1: none. */
static int kept_after(const struct decode_iter *record, int parent, int32_t token)
{
    for (int node = parent + 1; node < record->nodes; node++)
        if (record->node_parents[node] == parent && record->node_tokens[node] == token)
            return node;
    return -1;
}

/* Counts tried and kept tokens (see measurements_read). After the last emitted token the right token is unknown. */
static void take_tries(struct measured_share *shares, const struct decode_iter *record)
{
    if (!record->node_drafters || !record->node_reviewers || !record->node_parents || !record->node_tokens || !record->tokens)
        return;
    for (int at = 0, next, level = 0; at >= 0 && level <= record->accepted && level < record->emitted; at = next, level++) {
        const int first = first_after(record, at);
        next = level < record->accepted ? kept_after(record, at, record->tokens[level]) : -1;
        if (first < 0)
            return;
        const int reviewer = record->node_reviewers[first];
        struct measured_share *share = &shares[reviewer >= 0 ? reviewer : record->node_drafters[first]];
        share->tried++;
        share->kept += next == first;
    }
}

/* Returns the drafter's sequential runs. Siblings are drafted together, so there is at most one run per requested level; at
 * most as many runs as proposed tokens, if a chain ended early; and at least one per request. */
static int runs_of(const struct decode_iter *record, int drafter)
{
    if (!record->drafter_levels || !record->drafter_proposed || !record->drafter_bytes)
        return -1;
    const int levels = record->drafter_levels[drafter], proposed = record->drafter_proposed[drafter];
    const int steps = record->drafter_steps[drafter], min = proposed > steps ? proposed : steps;
    return levels < min ? levels : min;
}

static int take_shares(struct measurements *all, const struct decode_iter *record, struct err *err)
{
    struct measured_step *step = &all->steps[all->step_count - 1];
    if (record->drafters < 2 || !record->drafter_steps || !record->drafter_verified || !record->drafter_accepted ||
        !record->drafter_us)
        return 0;
    step->first_share = all->share_count;
    step->drafters = record->drafters;
    if (mem_grow(&all->shares, &all->share_room, all->share_count + (size_t)record->drafters, sizeof *all->shares, err))
        return -1;
    for (int i = 0; i < record->drafters; i++)
        all->shares[all->share_count++] = (struct measured_share){
            .steps = record->drafter_steps[i], .verified = record->drafter_verified[i], .accepted = record->drafter_accepted[i],
            .us = record->drafter_us[i], .bytes = record->drafter_bytes ? record->drafter_bytes[i] : 0,
            .runs = runs_of(record, i)};
    take_tries(&all->shares[step->first_share], record);
    return 0;
}

static double sum_number(double value, int layers) { return (void)layers, value > 0 ? value : 0; }     /* -1, NaN: absent */

static double sum_counts(const int32_t *value, int layers)
{
    double sum = 0;
    for (int i = 0; i < layers && value; i++)
        sum += value[i];
    return sum;
}

static double sum_known(const float *value, int layers)
{
    double sum = 0;
    for (int i = 0; i < layers && value; i++)
        sum += isnan(value[i]) ? 0 : (double)value[i];
    return sum;
}

#define SUM_FIELD(key) step->sum[SUM_##key] = \
    _Generic(record->key, const int32_t *: sum_counts, const float *: sum_known, default: sum_number)(record->key, layers);

static void take_sums(struct measured_step *step, const struct decode_iter *record, int layers)
{
    SUMMED_FIELDS(SUM_FIELD)
    for (int i = 0; i < layers && record->reconstruction; i++)
        step->sum[SUM_REBUILT] += !isnan(record->reconstruction[i]);
}

/* Sets the names of the sources, once; other names in the same setting are an error. */
static int name_forecasts(struct measured_setting *setting, const struct decode_iter *record, struct err *err)
{
    const char *at = record->forecast_sources;
    if (!setting->forecasts && !(setting->forecasts = mem_alloc((size_t)record->forecasts, sizeof *setting->forecasts, err)))
        return -1;
    for (int i = 0; i < record->forecasts; i++, at += strcspn(at, " "), at += *at == ' ') {
        const size_t length = strcspn(at, " ");
        if (i == setting->forecast_count && !(setting->forecasts[setting->forecast_count++] = mem_copy(at, length, err)))
            return -1;
        if (!length || strlen(setting->forecasts[i]) != length || strncmp(setting->forecasts[i], at, length))
            return err_set(err, ERR_INPUT, "an iteration has %d sources of forecasts, but their names are '%s'; the stream is "
                           "damaged", record->forecasts,
                           record->forecast_sources);
    }
    return 0;
}

static int take_forecasts(struct measurements *all, const struct decode_iter *record, int setting, struct err *err)
{
    const int layers = all->settings[setting].moe_layers;
    struct measured_step *step = &all->steps[all->step_count - 1];
    if (record->forecasts < 1 || !record->forecast_sources || !record->forecast_wanted || !record->forecast_named ||
        !record->forecast_right)
        return 0;
    if (all->settings[setting].forecast_count && all->settings[setting].forecast_count != record->forecasts)
        return err_set(err, ERR_INPUT, "an iteration has %d sources of forecasts, but an earlier one %d; the stream is "
                       "damaged", record->forecasts,
                       all->settings[setting].forecast_count);
    const size_t count = (size_t)record->forecasts * (size_t)layers;
    if (name_forecasts(&all->settings[setting], record, err) ||
        mem_grow(&all->forecasts, &all->forecast_room, all->forecast_count + count, sizeof *all->forecasts, err))
        return -1;
    step->first_forecast = all->forecast_count;
    step->forecasts = record->forecasts;
    step->forecast_expert_bytes = record->forecast_expert_bytes > 0 ? record->forecast_expert_bytes : 0;
    for (size_t i = 0; i < count; i++)
        all->forecasts[all->forecast_count++] = (struct measured_forecast){
            record->forecast_wanted[i % (size_t)layers], record->forecast_named[i], record->forecast_right[i]};
    return 0;
}

static int take_iter(struct intake *intake, const struct decode_iter *record, struct err *err)
{
    struct measurements *all = intake->all;
    struct measured_sample *sample = find_sample(intake, record->sequence, err);
    if (!sample || mem_grow(&all->steps, &all->step_room, all->step_count + 1, sizeof *all->steps, err))
        return -1;
    const double us = record->draft_us + record->verify_us + record->accept_us + record->other_us;
    const bool shared = record->shared_texts > 1;
    all->steps[all->step_count++] = (struct measured_step){
        .sample = (size_t)(sample - all->samples),
        .us = us, .wall_us = shared ? record->t_us - sample->end_us : us, .texts = shared ? record->shared_texts : 1,
        .all_experts = shared ? record->shared_experts : record->experts_loaded,
        .bytes = record->bytes + (record->draft_bytes > 0 ? record->draft_bytes : 0),
        .verify_bytes = record->bytes - (record->probe_bytes > 0 ? record->probe_bytes : 0),
        .riders = record->riders > 0 ? record->riders : 0,
        .draft_us = record->draft_us, .verify_us = record->verify_us, .accept_us = record->accept_us, .nodes = record->nodes,
        .levels = count_levels(record),
        .drafted = record->drafted, .emitted = record->emitted,
        .accepted = record->accepted < record->emitted ? record->accepted : record->emitted};
    sample->end_us = record->t_us;
    take_sums(&all->steps[all->step_count - 1], record, all->settings[sample->setting].moe_layers);
    take_changes(&all->steps[all->step_count - 1], record);
    return take_shares(all, record, err) || take_trials(all, record, err) || take_estimates(all, record, err) ||
           take_forecasts(all, record, sample->setting, err) ? -1 : 0;
}

static int take_done(struct intake *intake, const struct decode_done *record, struct err *err)
{
    struct measured_sample *sample = find_sample(intake, record->sequence, err);
    struct xxh3_stream *hash = NULL;
    if (!sample || xxh3_stream_new(&hash, err))
        return -1;
    if (record->n)
        xxh3_stream_put(hash, record->tokens, (size_t)record->n * sizeof *record->tokens);
    if (record->text)
        xxh3_stream_put(hash, record->text, strlen(record->text));
    sample->output = xxh3_stream_digest(hash);
    xxh3_stream_free(&hash);
    sample->tokens = record->n;
    sample->done = true;
    sample->aborted = record->finish_reason == FINISH_ABORT;
    return 0;
}

static int take_grade(struct intake *intake, const struct bench_grade *record, struct err *err)
{
    struct measured_sample *sample = find_sample(intake, record->sequence, err);
    if (!sample)
        return -1;
    sample->rule = GRADE_NONE;
    for (int i = 0; grade_rule_names[i]; i++)
        if (!strcmp(grade_rule_names[i], record->rule))
            sample->rule = i;
    if (grade_scores(record->rule)) {
        if (!(record->score >= 0 && record->score <= 1))
            return err_set(err, ERR_INPUT, "a grade by rule %s has no score from 0 to 1; the stream is damaged", record->rule);
        sample->score = record->score;
        return 0;
    }
    sample->graded = true;
    sample->correct = record->correct;
    return 0;
}

static int take(struct intake *intake, const struct record *record, struct err *err)
{
    if (record->kind == &decode_iter_kind)
        return take_iter(intake, record->body, err);
    if (record->kind == &decode_begin_kind)
        return take_begin(intake, record->body, err);
    if (record->kind == &decode_done_kind)
        return take_done(intake, record->body, err);
    if (record->kind == &decode_machine_kind)
        return take_machine(intake, record->body, err);
    if (record->kind == &bench_setting_kind)
        return take_setting(intake, record->body, err);
    if (record->kind == &bench_grade_kind)
        return take_grade(intake, record->body, err);
    if (record->kind == &bench_sample_kind) {
        const struct bench_sample *sample = record->body;
        return add_sample(intake, sample->sequence, sample->setting, sample->repeat, err);
    }
    return 0;
}

static int add_stream(struct intake *intake, struct err *err)
{
    struct measurements *all = intake->all;
    if (mem_grow(&all->streams, &all->stream_room, all->stream_count + 1, sizeof *all->streams, err))
        return -1;
    struct measured_stream *stream = &all->streams[all->stream_count];
    intake->stream = (int)all->stream_count++;
    *stream = (struct measured_stream){.decode = !intake->bench, .read_bandwidth = {NAN, NAN}};
    return (stream->name = mem_string(reader_name(intake->in), err)) ? 0 : -1;
}

/* Checks that references of a bench stream are its own settings. A decode stream is compared with the first setting of all. */
static int check_references(const struct intake *intake, struct err *err)
{
    struct measurements *all = intake->all;
    for (size_t i = intake->first_setting; i < all->setting_count; i++) {
        struct measured_setting *setting = &all->settings[i];
        if (setting->reference >= 0 && (size_t)setting->reference >= all->setting_count)
            return err_set(err, ERR_INPUT, "setting '%s' refers to a setting that does not exist; the stream is damaged",
                           setting->name);
        if (!intake->bench)
            setting->reference = 0;
    }
    return 0;
}

int measurements_read(struct measurements *all, struct reader *in, struct err *err)
{
    enum stream_kind kind = reader_header(in)->kind;
    const struct record *record;
    int more;
    if (kind != STREAM_BENCH && kind != STREAM_DECODE) {
        err_set(err, ERR_INPUT, "is a %s stream; a report can be made from bench and decode streams, or from train streams",
                reader_header(in)->kind_name);
        return err_at(err, "%s", reader_name(in));
    }
    struct intake intake = {.all = all, .in = in, .bench = kind == STREAM_BENCH, .first_setting = all->setting_count,
                            .first_sample = all->sample_count};
    if (add_stream(&intake, err) || (!intake.bench && decode_setting(&intake, err)))
        return -1;
    while ((more = reader_next(in, &record, err)) > 0)
        if (take(&intake, record, err)) {
            record_error_at(record, err);
            return -1;
        }
    if (more < 0)
        return -1;
    return check_references(&intake, err) ? err_at(err, "%s", reader_name(in)) : 0;
}

static int order_in_run(const void *a, const void *b)
{
    const struct measured_sample *x = *(const struct measured_sample *const *)a, *y = *(const struct measured_sample *const *)b;
    int id;
    if (x->task != y->task)
        return x->task < y->task ? -1 : 1;
    if ((id = strcmp(x->id, y->id)))
        return id;
    if (x->setting != y->setting)
        return x->setting < y->setting ? -1 : 1;
    if (x->repeat != y->repeat)
        return x->repeat < y->repeat ? -1 : 1;
    return x < y ? -1 : x > y;
}

static int order_by_prompt(const void *a, const void *b)
{
    const struct measured_sample *x = a, *y = b;
    int id;
    if (x->task != y->task)
        return x->task < y->task ? -1 : 1;
    if ((id = strcmp(x->id, y->id)))
        return id;
    if (x->occurrence != y->occurrence)
        return x->occurrence < y->occurrence ? -1 : 1;
    if (x->setting != y->setting)
        return x->setting < y->setting ? -1 : 1;
    return x->repeat < y->repeat ? -1 : x->repeat > y->repeat;
}

static bool same_text(const struct measured_sample *a, const struct measured_sample *b)
{
    return a->task == b->task && !strcmp(a->id, b->id);
}

static int number_occurrences(struct measurements *all, struct err *err)
{
    struct measured_sample **order = mem_alloc(all->sample_count, sizeof *order, err);
    if (!order)
        return -1;
    for (size_t i = 0; i < all->sample_count; i++)
        order[i] = &all->samples[i];
    qsort(order, all->sample_count, sizeof *order, order_in_run);
    for (size_t i = 1; i < all->sample_count; i++)
        if (same_text(order[i], order[i - 1]) && order[i]->setting == order[i - 1]->setting &&
            order[i]->repeat == order[i - 1]->repeat)
            order[i]->occurrence = order[i - 1]->occurrence + 1;
    mem_free(&order);
    return 0;
}

/* Groups the steps by sample, in their order. */
static int group_steps(struct measurements *all, struct err *err)
{
    struct measured_step *sorted = mem_alloc(all->step_count, sizeof *sorted, err);
    if (!sorted)
        return -1;
    for (size_t i = 0; i < all->step_count; i++)
        all->samples[all->steps[i].sample].steps++;
    size_t first = 0;
    for (size_t i = 0; i < all->sample_count; i++) {
        all->samples[i].first_step = first;
        first += all->samples[i].steps;
        all->samples[i].steps = 0;
    }
    for (size_t i = 0; i < all->step_count; i++) {
        struct measured_sample *sample = &all->samples[all->steps[i].sample];
        sorted[sample->first_step + sample->steps++] = all->steps[i];
    }
    mem_free(&all->steps);
    all->steps = sorted;
    all->step_room = all->step_count;
    return 0;
}

static void drop_unfinished(struct measurements *all)
{
    size_t kept = 0;
    for (size_t i = 0; i < all->sample_count; i++) {
        struct measured_sample *sample = &all->samples[i];
        if (sample->done && !sample->aborted && sample->id) {
            all->samples[kept++] = *sample;
        } else {
            mem_free(&sample->id);
            all->dropped++;
        }
    }
    all->sample_count = kept;
}

int measurements_arrange(struct measurements *all, struct err *err)
{
    if (group_steps(all, err))
        return -1;
    if (all->setting_count == 1)                /* a single setting has nothing to be compared with */
        all->settings[0].reference = -1;
    drop_unfinished(all);
    if (!all->sample_count)
        return err_set(err, ERR_INPUT, "the streams contain no finished sample; let the run finish at least one");
    if (number_occurrences(all, err))
        return -1;
    qsort(all->samples, all->sample_count, sizeof *all->samples, order_by_prompt);
    for (size_t i = 0; i < all->sample_count; i++) {
        struct measured_sample *sample = &all->samples[i];
        bool same = i && same_text(sample, sample - 1) && sample->occurrence == sample[-1].occurrence;
        all->prompts += !same;
        sample->prompt = all->prompts - 1;
    }
    return 0;
}

const struct measured_step *measurements_step(const struct measurements *all, int task, int setting, struct step_cursor *at)
{
    for (; at->sample < all->sample_count; at->sample++, at->step = 0) {
        const struct measured_sample *sample = &all->samples[at->sample];
        if (sample->setting == setting && (task < 0 || sample->task == task) && at->step < sample->steps)
            return &all->steps[sample->first_step + at->step++];
    }
    return NULL;
}

static int rename_to(char **name, struct text *text, struct err *err)
{
    char *made = mem_string(text->data, err);
    text_free(text);
    if (!made)
        return -1;
    mem_free(name);
    *name = made;
    return 0;
}

static int number_streams(struct measurements *all, struct err *err)
{
    for (size_t i = all->stream_count; i-- > 1;) {
        struct text text = {0};
        int before = 0;
        for (size_t j = 0; j < i; j++)
            before += !strcmp(all->streams[j].name, all->streams[i].name);
        if (before && (text_printf(&text, err, "%s (%d)", all->streams[i].name, before + 1) ||
                       rename_to(&all->streams[i].name, &text, err)))
            return -1;
    }
    return 0;
}

int measurements_make_names_distinct(struct measurements *all, struct err *err)
{
    bool *shared = mem_alloc(all->setting_count ? all->setting_count : 1, sizeof *shared, err);
    int rc = -1;
    if (!shared || number_streams(all, err))
        goto done;
    for (size_t i = 0; i < all->setting_count; i++)
        for (size_t j = 0; j < all->setting_count; j++)
            shared[i] |= all->settings[i].stream != all->settings[j].stream &&
                         !strcmp(all->settings[i].name, all->settings[j].name);
    for (size_t i = 0; i < all->setting_count; i++) {
        struct measured_setting *setting = &all->settings[i];
        struct text text = {0};
        if (shared[i] && (text_printf(&text, err, "%s, %s", setting->name, all->streams[setting->stream].name) ||
                          rename_to(&setting->name, &text, err)))
            goto done;
    }
    rc = 0;
done:
    mem_free(&shared);
    return rc;
}

void measurements_free(struct measurements *all)
{
    for (size_t i = 0; i < all->stream_count; i++) {
        mem_free(&all->streams[i].name);
        mem_free(&all->streams[i].device);
        mem_free(&all->streams[i].isa);
    }
    for (size_t i = 0; i < all->setting_count; i++) {
        mem_free(&all->settings[i].name);
        mem_free(&all->settings[i].model);
        mem_free(&all->settings[i].options);
        for (int d = 0; d < all->settings[i].drafter_count; d++)
            mem_free(&all->settings[i].drafters[d]);
        mem_free(&all->settings[i].drafters);
        for (int f = 0; f < all->settings[i].forecast_count; f++)
            mem_free(&all->settings[i].forecasts[f]);
        mem_free(&all->settings[i].forecasts);
        mem_free(&all->settings[i].label);
        mem_free(&all->settings[i].index_sha256);
    }
    for (size_t i = 0; i < all->sample_count; i++)
        mem_free(&all->samples[i].id);
    for (size_t i = 0; i < all->task_count; i++)
        mem_free(&all->tasks[i]);
    mem_free(&all->streams);
    mem_free(&all->settings);
    mem_free(&all->samples);
    mem_free(&all->steps);
    mem_free(&all->trials);
    mem_free(&all->estimates);
    mem_free(&all->forecasts);
    mem_free(&all->shares);
    mem_free(&all->tasks);
    *all = (struct measurements){0};
}
