#include "common/decode/forecasting.h"

#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/predict/forecast.h"
#include "common/route/input.h"
#include "common/session/session.h"

struct forecasting {
    struct watch watch;
    struct forecast *forecast;
    struct expert_source *source;
    struct forecast_setup shape;
    int max;                            /* maximum number of experts named per layer */
    int32_t number[LAYERS_MAX];         /* layer number in the model of each layer with experts */
    float *score;                       /* [experts] */
    int32_t *named, *tokens;            /* [experts] */
    int16_t *expert;                    /* [rows][layers][top_k] of the previous forward */
    size_t room;
    const struct stream_model *model;   /* only while streams are read */
    struct text *note;
};

void forecasting_close(struct forecasting **forecasting)
{
    struct forecasting *f = *forecasting;
    if (!f)
        return;
    forecast_close(&f->forecast);
    mem_free(&f->score);
    mem_free(&f->named);
    mem_free(&f->tokens);
    mem_free(&f->expert);
    mem_free(forecasting);
}

/* ---- learning from recorded routes */

static int check_model(void *context, const struct stream_model *model, struct err *err)
{
    const struct forecasting *f = context;
    return header_same_model(model, f->model, "the route stream", false, f->note, err);
}

static int learn_tokens(void *context, const struct route_tokens *record, struct err *err)
{
    const struct forecasting *f = context;
    const struct forecast_outcome outcome = {record->tokens, record->accepted, record->experts, record->n};
    for (int i = 0; i < record->n; i++)
        if (record->tokens[i] >= f->shape.vocab)
            return err_set(err, ERR_INPUT, "token %d is outside the vocabulary of %d tokens", (int)record->tokens[i],
                           f->shape.vocab);
    f->forecast->class->learn(f->forecast, &outcome);
    return 0;
}

static int read_routes(struct forecasting *f, const char *path, const struct stream_model *model, struct text *note,
                       struct err *err)
{
    const struct route_consumer consumer = {.context = f, .open = check_model, .tokens = learn_tokens};
    const struct route_input input = {.paths = &path, .count = 1, .phases = ROUTE_ALL};
    struct header header = {0};
    f->model = model;
    f->note = note;
    int rc = header_init(&header, STREAM_ROUTE, "moe-decode", MOE_VERSION, 0, NULL, err) ||
             route_input_read(&input, &consumer, &header, note, err) ? -1 : 0;
    header_free(&header);
    return rc;
}

/* ---- a run */

static int ask(struct forecasting *f, const struct forecast_facts *facts, struct err *err)
{
    const struct forecast_class *class = f->forecast->class;
    for (int layer = 0; layer < f->shape.layers; layer++) {
        class->expect(f->forecast, layer, facts, f->score);
        const int count = forecast_name(f->named, f->score, f->shape.experts, f->max);
        for (int i = 0; i < count; i++)
            f->tokens[i] = class->levels ? (int32_t)f->score[f->named[i]] : 1;
        if (expert_source_prefetch(f->source, f->number[layer], f->named, f->tokens, count, err))
            return -1;
    }
    return 0;
}

static int begin(struct watch *watch, const struct decode_prompt *prompt, int limit, struct err *err)
{
    struct forecasting *f = (struct forecasting *)watch;
    (void)prompt, (void)limit, (void)err;
    if (f->forecast->class->begin)
        f->forecast->class->begin(f->forecast);
    return 0;
}

static int start(struct watch *watch, int32_t root, struct err *err)
{
    struct forecasting *f = (struct forecasting *)watch;
    const struct forecast_facts facts = {.token = &root, .tokens = 1};
    return f->forecast->class->reads_tokens ? 0 : ask(f, &facts, err);
}

static int before(struct watch *watch, struct sequence *sequence, struct batch *batch, struct decode_iteration *iteration,
                  struct err *err)
{
    struct forecasting *f = (struct forecasting *)watch;
    const struct forecast_facts facts = {.token = iteration->record.node_tokens, .tokens = iteration->record.nodes};
    (void)sequence, (void)batch;
    return f->forecast->class->reads_tokens ? ask(f, &facts, err) : 0;
}

static int after(struct watch *watch, struct decode_iteration *iteration, struct err *err)
{
    struct forecasting *f = (struct forecasting *)watch;
    const size_t count = (size_t)iteration->record.nodes * (size_t)f->shape.layers * (size_t)f->shape.top_k;
    if (mem_grow(&f->expert, &f->room, count, sizeof *f->expert, err))
        return -1;
    for (size_t i = 0; i < count; i++)
        f->expert[i] = (int16_t)iteration->forward->expert[i];
    const struct forecast_outcome outcome = {iteration->record.node_tokens, iteration->kept, f->expert,
                                             iteration->record.nodes};
    f->forecast->class->learn(f->forecast, &outcome);
    return 0;
}

struct watch *forecasting_watch(struct forecasting *forecasting)
{
    static const struct watch_class class = {.begin = begin, .start = start, .before = before, .after = after};
    forecasting->watch.class = &class;
    return &forecasting->watch;
}

static int open_parts(struct forecasting *f, const struct prefetching *prefetching, const struct engine_setup *engine,
                      int draft_length, struct text *note, struct err *err)
{
    const struct hparams *shape = model_hparams(engine->model);
    struct stream_model model;
    stream_model_of(engine->model, &model);
    f->source = engine->experts;
    f->shape = (struct forecast_setup){model.moe_layers, model.experts, model.top_k, model.vocab, draft_length};
    f->max = prefetching->max ? prefetching->max : 2 * model.top_k;
    for (int n = 0, layer = 0; n < shape->layers; n++)
        if (shape->layer[n].ffn == FFN_EXPERTS)
            f->number[layer++] = n;
    f->score = mem_alloc((size_t)model.experts, sizeof *f->score, err);
    f->named = mem_alloc((size_t)model.experts, sizeof *f->named, err);
    f->tokens = mem_alloc((size_t)model.experts, sizeof *f->tokens, err);
    if (!f->score || !f->named || !f->tokens || forecast_open(&f->forecast, prefetching->forecast, &f->shape, err))
        return -1;
    return prefetching->file ? read_routes(f, prefetching->file, &model, note, err) : 0;
}

int forecasting_open(struct forecasting **out, const struct caching_options *options, const struct engine *engine,
                   int draft_length, struct text *note, struct err *err)
{
    struct forecasting *f = NULL;
    struct prefetching prefetching;
    *out = NULL;
    if (!options || !options->experts)
        return 0;
    if (caching_prefetching(&prefetching, options, err))
        return -1;
    int rc = !prefetching.forecast ? 0 : !(f = mem_alloc(1, sizeof *f, err)) ||
             open_parts(f, &prefetching, engine_config(engine), draft_length, note, err) ? -1 : 0;
    prefetching_free(&prefetching);
    if (rc)
        forecasting_close(&f);
    *out = f;
    return rc ? err_at(err, "--prefetch") : 0;
}
