/* Runs the iterations of a text on a device that decodes without the host (engine/loop.h). Reads the records of the
 * iterations from the device's ring. The policy observes each record, so that the host knows on which decision each
 * iteration was based; host and device must decide alike. */
#include <math.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/decode/grow.h"
#include "common/decode/internal.h"
#include "common/engine/loop.h"

_Static_assert((int)LOOP_EOS_MAX >= (int)EOS_MAX, "end tokens of a model");
_Static_assert((int)LOOP_ROWS_MAX >= 1 + (int)DRAFT_LENGTH_MAX, "rows of a chain");

static bool set_rules(const struct decoder *decoder, struct loop_rules *rules)
{
    const struct drafter *drafter = decoder->drafters.item[0];
    const struct policy *policy = decoder->policy;
    *rules = (struct loop_rules){
        .K = drafter ? policy->class->length(policy) : 0, .prompt = decoder->prompt_tokens, .limit = decoder->ending.limit,
        .eos_count = decoder->ending.eos_count};
    for (int i = 0; i < rules->eos_count; i++)
        rules->eos[i] = decoder->ending.eos[i];
    return !drafter || (policy->class->device(policy, rules) && drafter->class->device(drafter, rules));
}

/* Returns the first setting that loops on a device do not support; NULL: none. */
static const char *obstacle(const struct decoder *decoder)
{
    const struct decoder_setup *setup = &decoder->setup;
    if (hparams_state_layers(engine_hparams(setup->engine)))
        return "layers have a recurrent state";
    if (!engine_loops(setup->engine))
        return "experts or vocabulary do not fit the device";
    if (decoder->watches.count || decoder->forced || setup->want_scores || setup->want_hidden)
        return "budgets and measurements look at forwards";
    if (setup->settings->stop.count)
        return "stop strings";
    if (decoder->acceptance->class != &acceptance_coupled)
        return "acceptance is not coupled";
    if (decoder->shape->class != &shape_chain)
        return "drafts are trees";
    return decoder->drafters.count > 1 ? "several drafters" : NULL;
}

bool decoder_obstacle(const struct decoder *decoder, char *why, size_t bytes)
{
    const struct drafter *drafter = decoder->drafters.item[0];
    const struct policy *policy = decoder->policy;
    const char *what = obstacle(decoder);
    struct loop_rules rules;
    if (what)
        snprintf(why, bytes, "%s", what);
    else if (drafter && !drafter->class->device)
        snprintf(why, bytes, "drafter %s", drafter->class->name);
    else if (!policy->class->device)
        snprintf(why, bytes, "policy %s", policy->class->name);
    else if (!set_rules(decoder, &rules))
        snprintf(why, bytes, "settings of drafter %s or policy %s", drafter->class->name, policy->class->name);
    else
        return false;
    return true;
}

/* Fills the decoder's arrays with the tokens of an iteration, as the host's own steps would. */
static int take_rows(struct decoder *decoder, const struct engine_iteration *from, struct err *err)
{
    const struct loop_record *record = from->record;
    draft_tree_clear(&decoder->tree);
    for (int row = 0; row < record->rows; row++) {
        if (row && draft_tree_add(&decoder->tree, row - 2, from->token[row], NAN, 0) != row - 1)
            return err_set(err, ERR_INPUT, "the device drafted %d tokens, more than the maximum of %d", record->rows - 1,
                           decoder->tree.capacity);
        decoder->token[row] = from->token[row];
        decoder->parent[row] = row - 1;
        decoder->path[row] = row;
        decoder->kept[row] = row <= record->accepted;
    }
    for (int i = 0; i < record->emitted; i++)
        decoder->emitted[i] = from->emitted[i];
    return 0;
}

static int take(struct decoder *decoder, const struct engine_iteration *from, struct decode_iteration *iteration,
                struct err *err)
{
    const struct loop_record *record = from->record;
    const int K = decoder->drafters.count ? decoder->policy->class->length(decoder->policy) : 0;
    if (record->end == LOOP_DAMAGED)
        return err_set(err, ERR_INPUT, "the logits at position %d are not finite; the model's weights are damaged",
                       record->position + 1 + record->emitted);
    if (record->K != K || record->number != decoder->result.iterations || record->position != decoder->length - 1)
        return err_set(err, ERR_INPUT, "the device ran iteration %d at position %d with K = %d, but the host expected "
                       "iteration %d at position %d with K = %d",
                       (int)record->number, (int)record->position, (int)record->K, decoder->result.iterations,
                       decoder->length - 1, K);
    if (take_rows(decoder, from, err))
        return -1;
    decoder_start(decoder, iteration);
    iteration->forward = &from->forward;
    struct decode_iter *out = &iteration->record;
    out->K = K;
    out->drafted = record->rows - 1;
    out->nodes = record->rows;
    out->accepted = record->accepted;
    out->bytes = from->forward.bytes;
    out->draft_us = (double)record->part[LOOP_DRAFT] / 1e3;
    out->verify_us = (double)record->part[LOOP_VERIFY] / 1e3;
    out->accept_us = (double)record->part[LOOP_ACCEPT] / 1e3;
    out->other_us = (double)record->part[LOOP_OTHER] / 1e3;
    decoder->policy->class->state(decoder->policy, &out->policy);
    decoder->share[0] = (struct draft_share){.steps = K > 0, .levels = K, .proposed = record->rows - 1,
                                             .seconds = out->draft_us / 1e6};
    draft_count_kept(&decoder->tree, decoder->kept, decoder->share);
    out->emitted = decoder_emit(decoder, decoder->emitted, record->emitted, err);
    if (out->emitted < 0)
        return -1;
    if (out->emitted != record->emitted || decoder->ending.ended != (record->end != LOOP_CONTINUES))
        return err_set(err, ERR_INPUT, "device and host disagree where the answer ends, at %d tokens", decoder->length);
    return 0;
}

int decoder_iterate_on_device(struct decoder *decoder, const struct decode_sink *sink, struct err *err)
{
    struct engine_loop_setup setup = {.sequence = decoder->sequence, .text = decoder->text, .length = decoder->length,
                                      .filter = decoder->drafting.filter, .draw = *sampler_draw(decoder->sampler)};
    struct engine_loop *loop = NULL;
    struct engine_iteration from;
    struct decode_iteration iteration;
    uint64_t first = 0;
    int rc = -1;
    if (!set_rules(decoder, &setup.rules))
        return err_set(err, ERR_INPUT, "the device cannot decode with these settings by itself");
    if (engine_loop_open(&loop, decoder->setup.engine, &setup, err))
        return -1;
    double began = 1e6 * (clock_seconds() - decoder->began);        /* until the first iteration; then the device counts */
    while (!decoder->ending.ended && !stop_asked(decoder->setup.stop)) {
        if (engine_loop_next(loop, &from, err) || take(decoder, &from, &iteration, err))
            goto done;
        first = iteration.number ? first : from.record->start;
        struct decode_iter *record = &iteration.record;
        record->t_us = began + (double)(from.record->start - first) / 1e3 + record->draft_us + record->verify_us +
                       record->accept_us + record->other_us;
        if (decoder_conclude(decoder, &iteration, sink, err))
            goto done;
    }
    rc = 0;
done:
    return engine_loop_close(&loop, rc ? NULL : err) || rc ? -1 : 0;
}
