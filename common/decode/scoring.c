#include "common/decode/scoring.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/predict/forecast.h"

struct scoring {
    struct watch watch;
    struct forecast *source[FORECASTS_MAX];
    int sources;
    char names[128];
    struct forecast_setup shape;
    float *score;                       /* [experts] */
    int32_t *expert;                    /* [experts] named */
    uint8_t *mark;                      /* [experts] 1: the layer wanted this expert */
    int32_t *wanted, *named, *right;    /* of the iteration: wanted [layers]; named, right [sources][layers] */
    int16_t *routed, *ahead;            /* routed [rows][layers][top_k], ahead [rows][top_k] */
    size_t routed_room, ahead_room;
};

void scoring_close(struct scoring **scoring)
{
    struct scoring *s = *scoring;
    if (!s)
        return;
    for (int i = 0; i < s->sources; i++)
        forecast_close(&s->source[i]);
    mem_free(&s->score);
    mem_free(&s->expert);
    mem_free(&s->mark);
    mem_free(&s->wanted);
    mem_free(&s->named);
    mem_free(&s->right);
    mem_free(&s->routed);
    mem_free(&s->ahead);
    mem_free(scoring);
}

static int begin(struct watch *watch, const struct decode_prompt *prompt, int limit, struct err *err)
{
    struct scoring *s = (struct scoring *)watch;
    (void)prompt, (void)limit, (void)err;
    for (int i = 0; i < s->sources; i++)
        if (s->source[i]->class->begin)
            s->source[i]->class->begin(s->source[i]);
    return 0;
}

static int before(struct watch *watch, struct sequence *sequence, struct batch *batch, struct decode_iteration *iteration,
                  struct err *err)
{
    (void)watch, (void)sequence, (void)iteration, (void)err;
    batch->want_ahead = true;
    return 0;
}

/* Marks the experts that the layer wanted, and returns how many. */
static int mark_wanted(struct scoring *s, const struct forward *forward, int rows, int layer)
{
    int count = 0;
    memset(s->mark, 0, (size_t)s->shape.experts);
    for (int row = 0; row < rows; row++) {
        const int32_t *expert = forward->expert + ((size_t)row * (size_t)s->shape.layers + (size_t)layer) *
                                                  (size_t)s->shape.top_k;
        for (int k = 0; k < s->shape.top_k; k++)
            if (expert[k] >= 0 && !s->mark[expert[k]]) {
                s->mark[expert[k]] = 1;
                count++;
            }
    }
    return count;
}

static void score_layer(struct scoring *s, const struct decode_iteration *iteration, int layer)
{
    const struct forward *forward = iteration->forward;
    const size_t choices = (size_t)iteration->record.nodes * (size_t)s->shape.top_k;
    const int32_t *ahead = forward->ahead + (size_t)layer * (size_t)forward->rows * (size_t)s->shape.top_k;
    for (size_t i = 0; i < choices; i++)
        s->ahead[i] = (int16_t)ahead[i];
    const struct forecast_facts facts = {.token = iteration->record.node_tokens, .tokens = iteration->record.nodes,
                                         .ahead = s->ahead};
    s->wanted[layer] = mark_wanted(s, forward, iteration->record.nodes, layer);
    for (int i = 0; i < s->sources; i++) {
        const size_t at = (size_t)i * (size_t)s->shape.layers + (size_t)layer;
        s->source[i]->class->expect(s->source[i], layer, &facts, s->score);
        s->named[at] = forecast_name(s->expert, s->score, s->shape.experts, 2 * s->shape.top_k);
        s->right[at] = 0;
        for (int n = 0; n < s->named[at]; n++)
            s->right[at] += s->mark[s->expert[n]];
    }
}

static int after_untimed(struct watch *watch, struct decode_iteration *iteration, struct err *err)
{
    struct scoring *s = (struct scoring *)watch;
    const size_t choices = (size_t)iteration->record.nodes * (size_t)s->shape.top_k, slots = choices * (size_t)s->shape.layers;
    if (mem_grow(&s->routed, &s->routed_room, slots, sizeof *s->routed, err) ||
        mem_grow(&s->ahead, &s->ahead_room, choices, sizeof *s->ahead, err))
        return -1;
    for (int layer = 0; layer < s->shape.layers; layer++)
        score_layer(s, iteration, layer);
    for (size_t i = 0; i < slots; i++)
        s->routed[i] = (int16_t)iteration->forward->expert[i];
    const struct forecast_outcome outcome = {iteration->record.node_tokens, iteration->kept, s->routed,
                                             iteration->record.nodes};
    for (int i = 0; i < s->sources; i++)
        if (s->source[i]->class->learn)
            s->source[i]->class->learn(s->source[i], &outcome);
    iteration->record.forecasts = s->sources;
    iteration->record.forecast_sources = s->names;
    iteration->record.forecast_wanted = s->wanted;
    iteration->record.forecast_named = s->named;
    iteration->record.forecast_right = s->right;
    iteration->record.forecast_expert_bytes = iteration->forward->expert_bytes;
    return 0;
}

struct watch *scoring_watch(struct scoring *scoring)
{
    static const struct watch_class class = {.begin = begin, .before = before, .after_untimed = after_untimed};
    scoring->watch.class = &class;
    return &scoring->watch;
}

/* Opens all sources except draft, which needs a drafter that computes the model's routes. */
static int open_sources(struct scoring *s, struct err *err)
{
    for (int i = 0; forecast_classes[i]; i++) {
        const char *name = forecast_classes[i]->name;
        if (!strcmp(name, "draft"))
            continue;
        if (forecast_open(&s->source[s->sources], name, &s->shape, err))
            return -1;
        strcat(s->names, s->sources++ ? " " : "");
        strcat(s->names, name);
    }
    return 0;
}

int scoring_open(struct scoring **out, const struct engine *engine, int draft_length, struct err *err)
{
    const struct model_identity *identity = model_identity(engine_config(engine)->model);
    const size_t layers = (size_t)identity->moe_layers, experts = (size_t)identity->experts;
    if (!layers)
        return err_set(err, ERR_INPUT, "the model has no routed experts to forecast; leave --forecasts out");
    struct scoring *s = mem_alloc(1, sizeof *s, err);
    if (!s)
        return -1;
    s->shape = (struct forecast_setup){identity->moe_layers, identity->experts, identity->top_k, identity->vocab, draft_length};
    s->score = mem_alloc(experts, sizeof *s->score, err);
    s->expert = mem_alloc(experts, sizeof *s->expert, err);
    s->mark = mem_alloc(experts, 1, err);
    s->wanted = mem_alloc(layers, sizeof *s->wanted, err);
    s->named = mem_alloc(FORECASTS_MAX * layers, sizeof *s->named, err);
    s->right = mem_alloc(FORECASTS_MAX * layers, sizeof *s->right, err);
    if (!s->score || !s->expert || !s->mark || !s->wanted || !s->named || !s->right || open_sources(s, err)) {
        scoring_close(&s);
        return -1;
    }
    *out = s;
    return 0;
}
