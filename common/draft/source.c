#include "common/draft/source.h"

static int engine_nodes(const struct draft_source *source)
{
    return sequence_pending(((const struct engine_source *)source)->sequence);
}

static int engine_room(const struct draft_source *source)
{
    const struct sequence *sequence = ((const struct engine_source *)source)->sequence;
    return sequence_capacity(sequence) - sequence_length(sequence) - sequence_pending(sequence);
}

static int engine_read(struct draft_source *source, const struct draft_reading *reading, int64_t *bytes, struct err *err)
{
    struct engine_source *mine = (struct engine_source *)source;
    const struct batch batch = {.rows = reading->rows, .token = reading->token, .parent = reading->parent,
                                .logit_row = reading->logit_row, .logit_rows = reading->logit_rows, .best = reading->best,
                                .plan = mine->plan, .part = mine->part};
    struct forward forward;
    if (engine_forward(mine->engine, mine->sequence, &batch, &forward, err))
        return -1;
    for (int at = 0; at < forward.logit_rows; at++) {
        const int first = at * reading->best;
        const float *logits = reading->best ? NULL : forward.logits + (size_t)at * (size_t)forward.vocab;
        const struct draft_best best = reading->best
            ? (struct draft_best){forward.best + first, forward.best_log_probability + first} : (struct draft_best){NULL, NULL};
        if (reading->best ? reading->take_best(reading->context, at, &best, reading->best, err)
                          : reading->take(reading->context, at, &logits, err))
            return -1;
    }
    *bytes = forward.bytes;
    return 0;
}

void engine_source_init(struct engine_source *source, struct engine *engine)
{
    const struct engine_setup *setup = engine_config(engine);
    const int vocab = engine_hparams(engine)->vocab;
    *source = (struct engine_source){
        .base = {.path = model_path(setup->model), .fault = "the draft model's weights are damaged", .vocab = vocab,
                 .logits = vocab, .branches = 1, .max_rows = setup->max_rows,
                 .max_logit_rows = setup->max_logit_rows < DRAFT_ASKED_MAX ? setup->max_logit_rows : DRAFT_ASKED_MAX,
                 .positions = engine_max_positions(engine), .ranks = engine_ranks(engine),
                 .nodes = engine_nodes, .room = engine_room, .read = engine_read},
        .engine = engine};
}
