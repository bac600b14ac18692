#include "common/route/analysis.h"

#include "common/route/counts.h"

/* Context of the consumer of route records. */
struct reading {
    struct analysis **out;
    const struct analysis_class *class;
    const struct analysis_setup *setup;
};

static int open_analysis(void *context, const struct stream_model *model, struct err *err)
{
    const struct reading *reading = context;
    return analysis_open(reading->out, reading->class, reading->setup, model, err);
}

static void begin_text(void *context, const struct route_begin *begin)
{
    const struct reading *reading = context;
    reading->class->begin(*reading->out, begin);
}

static int add_tokens(void *context, const struct route_tokens *record, struct err *err)
{
    const struct reading *reading = context;
    return reading->class->tokens(*reading->out, record, err);
}

static int end_text(void *context, int64_t sequence, struct err *err)
{
    const struct reading *reading = context;
    (void)err;
    reading->class->end(*reading->out, sequence);
    return 0;
}

static int add_iteration(void *context, const struct decode_iter *iter, struct err *err)
{
    const struct reading *reading = context;
    return reading->class->iteration(*reading->out, iter, err);
}

int analysis_open(struct analysis **out, const struct analysis_class *class, const struct analysis_setup *setup,
                  const struct stream_model *model, struct err *err)
{
    if (route_model_check(model, err) || class->open(out, setup, model, err))
        return -1;
    (*out)->class = class;
    return 0;
}

int analysis_read(struct analysis **out, const struct analysis_class *class, const struct analysis_setup *setup,
                  const struct route_input *input, struct header *header, struct text *note, struct err *err)
{
    struct reading reading = { out, class, setup };
    const struct route_consumer consumer = { .context = &reading, .open = open_analysis,
                                             .begin = class->begin ? begin_text : NULL, .tokens = add_tokens,
                                             .end = class->end ? end_text : NULL,
                                             .iteration = class->iteration ? add_iteration : NULL };
    if (class->consecutive && setup->phases == ROUTE_VERIFY)
        return err_set(err, ERR_INPUT, "--phase verify: includes rejected tokens, which are not part of a text; give --phase "
                       "decode, or measure drafts with union --trees");
    if (route_input_read(input, &consumer, header, note, err))
        return -1;
    if ((*out)->counted)
        return 0;
    return class->empty ? err_set(err, ERR_INPUT, "%s", class->empty) : route_phase_lacks(setup->phases, err);
}

int analysis_finish(struct analysis *analysis, struct header *header, struct progress *bar, struct text *note, struct err *err)
{
    return analysis->class->finish ? analysis->class->finish(analysis, header, bar, note, err) : 0;
}

void analysis_free(struct analysis **analysis)
{
    if (*analysis)
        (*analysis)->class->free(*analysis);
    *analysis = NULL;
}
