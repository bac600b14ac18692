#include "common/bench/simulated_routes.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/version.h"
#include "common/route/counts.h"
#include "common/route/input.h"
#include "common/stream/writer.h"

void simulated_routes_free(struct simulated_routes *routes)
{
    mem_free(&routes->step);
    mem_free(&routes->expert);
    mem_free(&routes->accepted);
    mem_free(&routes->token);
    *routes = (struct simulated_routes){0};
}

/* Allocates one more step and sets its text and tokens; the caller fills in its experts and flags. */
static struct simulated_step *add(struct simulated_routes *r, int64_t text, int tokens, struct err *err)
{
    size_t slots = (size_t)tokens * r->layers * r->top_k;
    if (mem_grow(&r->step, &r->room, r->steps + 1, sizeof *r->step, err) ||
        mem_grow(&r->expert, &r->expert_room, r->selections + slots, sizeof *r->expert, err) ||
        mem_grow(&r->accepted, &r->accepted_room, r->tokens + tokens, sizeof *r->accepted, err) ||
        mem_grow(&r->token, &r->token_room, r->tokens + tokens, sizeof *r->token, err))
        return NULL;
    struct simulated_step *step = &r->step[r->steps++];
    *step = (struct simulated_step){.text = text, .tokens = tokens, .first = r->selections, .accepted = r->tokens};
    r->selections += slots;
    r->tokens += tokens;
    return step;
}

static int make_text(struct simulated_routes *r, const struct simulated_texts *setup, struct synthesis *source, int64_t text,
                     struct err *err)
{
    size_t slots = (size_t)r->layers * r->top_k, last = 0;
    for (int left = setup->tokens; left > 0;) {
        int drafted = left - 1 < setup->draft_length ? left - 1 : setup->draft_length;
        bool begins = left == setup->tokens, follows = true;
        struct simulated_step *step = add(r, text, 1 + drafted, err);
        if (!step)
            return -1;
        for (int i = 0; i < step->tokens; i++) {
            size_t before = i ? step->first + (i - 1) * slots : last;
            synthesis_draw(source, r->expert + step->first + i * slots, i || !begins ? r->expert + before : NULL);
            follows = follows && (!i || synthesis_chance(source) < setup->acceptance);
            r->accepted[step->accepted + i] = follows;
            step->kept += follows;
        }
        last = step->first + (step->kept - 1) * slots;
        left -= step->kept;
    }
    return 0;
}

int simulated_routes_make(struct simulated_routes *out, const struct simulated_texts *setup, struct err *err)
{
    struct simulated_routes routes = {.layers = setup->shape.layers, .experts = setup->shape.experts,
                                      .top_k = setup->shape.top_k, .vocab = 1};
    struct synthesis *source = NULL;
    int rc = synthesis_open(&source, &setup->shape, err);
    snprintf(routes.name, sizeof routes.name, "synthetic routes, %s", synthesis_skews[setup->shape.skew]);
    for (int text = 0; !rc && text < setup->texts; text++)
        rc = make_text(&routes, setup, source, text, err);
    synthesis_close(&source);
    if (rc)
        simulated_routes_free(&routes);
    else
        *out = routes;
    return rc;
}

static int open_recorded(void *context, const struct stream_model *model, struct err *err)
{
    struct simulated_routes *r = context;
    if (!model->experts || !model->moe_layers)
        return err_set(err, ERR_INPUT, "the model has no experts to simulate; name routes of a Mixture-of-Experts model");
    r->layers = model->moe_layers;
    r->experts = model->experts;
    r->top_k = model->top_k;
    r->vocab = model->vocab;
    snprintf(r->name, sizeof r->name, "routes recorded from %s", model->name);
    snprintf(r->model, sizeof r->model, "%s", *model->name ? model->name : "a model without a name");
    return 0;
}

static int add_recorded(void *context, const struct route_tokens *record, struct err *err)
{
    struct simulated_routes *r = context;
    struct simulated_step *step = add(r, record->sequence, record->n, err);
    if (!step)
        return -1;
    step->prompt = record->phase == PHASE_PROMPT;
    memcpy(r->expert + step->first, record->experts, (size_t)record->n * r->layers * r->top_k * sizeof *r->expert);
    memcpy(r->token + step->accepted, record->tokens, (size_t)record->n * sizeof *r->token);
    for (int i = 0; i < record->n; i++)
        step->kept += r->accepted[step->accepted + i] = !record->accepted || record->accepted[i];
    return 0;
}

int simulated_routes_read(struct simulated_routes *out, const struct strings *paths, bool prompts, bool force,
                          struct text *note, struct err *err)
{
    struct simulated_routes routes = {0};
    struct header header = {0};
    const struct route_consumer consumer = {.context = &routes, .open = open_recorded, .tokens = add_recorded};
    const struct route_input input = {.paths = paths->items, .count = paths->count, .force = force,
                                      .phases = prompts ? ROUTE_ALL : ROUTE_DECODE};
    int rc = header_init(&header, STREAM_ROUTE, "moe-bench", MOE_VERSION, 0, NULL, err) ||
             route_input_read(&input, &consumer, &header, note, err) ? -1 : 0;
    if (!rc && !routes.steps)
        rc = err_set(err, ERR_INPUT, "the routes contain prompts only, no decoded tokens; record answers with moe-profile -n");
    header_free(&header);
    if (rc)
        simulated_routes_free(&routes);
    else
        *out = routes;
    return rc;
}

static int put_step(struct writer *out, const struct simulated_routes *r, const struct simulated_step *step, int pos,
                    const float *weights, struct err *err)
{
    const struct route_tokens record = {
        .sequence = step->text, .pos = pos, .n = step->tokens, .phase = step->tokens > 1 ? PHASE_VERIFY : PHASE_DECODE,
        .tokens = r->token + step->accepted, .accepted = r->accepted + step->accepted, .experts = r->expert + step->first,
        .weights = weights};
    return writer_record(out, &route_tokens_kind, &record, err);
}

static int put_texts(struct writer *out, const struct simulated_routes *r, const float *weights, struct err *err)
{
    int pos = 0;
    for (size_t i = 0; i < r->steps; i++) {
        const struct simulated_step *step = &r->step[i];
        const struct route_begin begin = {.sequence = step->text};
        const struct route_end end = {step->text};
        bool first = !i || r->step[i - 1].text != step->text, last = i + 1 == r->steps || r->step[i + 1].text != step->text;
        pos = first ? 0 : pos;
        if ((first && writer_record(out, &route_begin_kind, &begin, err)) || put_step(out, r, step, pos, weights, err) ||
            (last && writer_record(out, &route_end_kind, &end, err)))
            return -1;
        pos += step->kept;
    }
    return 0;
}

int simulated_routes_write(const struct simulated_routes *r, const char *path, int argc, char *const *argv, struct err *err)
{
    struct header header = {0};
    struct writer *out = NULL;
    int max = 1, rc = -1;
    for (size_t i = 0; i < r->steps; i++)
        max = r->step[i].tokens > max ? r->step[i].tokens : max;
    size_t slots = (size_t)max * r->layers * r->top_k;
    float *weights = mem_alloc(slots, sizeof *weights, err);
    if (!weights || header_init(&header, STREAM_ROUTE, "moe-bench", MOE_VERSION, argc, argv, err) ||
        header_label(&header, "synthetic", "routes", err))
        goto done;
    for (size_t i = 0; i < slots; i++)
        weights[i] = 1.0f / r->top_k;
    header.has_model = true;
    header.model = (struct stream_model){.layers = r->layers, .moe_layers = r->layers, .experts = r->experts,
                                         .top_k = r->top_k, .vocab = r->vocab, .hidden = 1};
    snprintf(header.model.name, sizeof header.model.name, "%.100s", *r->model ? r->model : r->name);
    if (!writer_open(&out, path, &header, err) && !put_texts(out, r, weights, err))
        rc = writer_close(&out, err);
done:
    writer_abort(&out, err);
    header_free(&header);
    mem_free(&weights);
    return rc;
}

int simulated_routes_undrafted(struct simulated_routes *out, const struct simulated_routes *routes, struct err *err)
{
    struct simulated_routes made = {.layers = routes->layers, .experts = routes->experts, .top_k = routes->top_k,
                                    .vocab = routes->vocab};
    size_t slots = (size_t)routes->layers * routes->top_k;
    memcpy(made.name, routes->name, sizeof made.name);
    for (size_t i = 0; i < routes->steps; i++) {
        const struct simulated_step *step = &routes->step[i];
        for (int t = 0; t < step->tokens; t++) {
            if (!routes->accepted[step->accepted + t])
                continue;
            struct simulated_step *single = add(&made, step->text, 1, err);
            if (!single) {
                simulated_routes_free(&made);
                return -1;
            }
            memcpy(made.expert + single->first, routes->expert + step->first + t * slots, slots * sizeof *made.expert);
            made.accepted[single->accepted] = 1;
            made.token[single->accepted] = routes->token[step->accepted + t];
            single->kept = 1;
        }
    }
    *out = made;
    return 0;
}

int simulated_routes_want(const struct simulated_routes *r, const struct simulated_step *step, int layer, int32_t *expert,
                          int32_t *tokens, int32_t *often)
{
    int count = 0;
    for (int t = 0; t < step->tokens; t++) {
        const int16_t *chosen = r->expert + step->first + ((size_t)t * r->layers + layer) * r->top_k;
        for (int k = 0; k < r->top_k; k++)
            if (chosen[k] >= 0)
                often[chosen[k]]++;
    }
    for (int e = 0; e < r->experts; e++)
        if (often[e]) {
            expert[count] = e;
            tokens[count++] = often[e];
            often[e] = 0;
        }
    return count;
}
