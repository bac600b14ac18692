#include "common/decode/budgeting.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/decode/meter.h"
#include "common/decode/reach.h"

struct budgeting {
    struct watch watch;
    const struct budget *budget;
    struct engine *engine;
    struct expert_plan plan;
    struct governor governor;           /* of an automatic budget, with the plan's numbers [moe_layers] that it sets */
    int32_t *size;                      /* NULL: the budget is not automatic */
    struct meter *meter;                /* of an automatic budget */
    const struct sequence *sequence;    /* of this iteration */
    int tried, waited;                  /* tokens of governor_observe, and iterations, since the last probe */
    struct reach reach;
    float *weight;                      /* [1 + nodes] of rows, by reach */
};

static struct budgeting *budgeting_of(struct watch *watch) { return (struct budgeting *)watch; }

static bool by_path(const struct budgeting *budgeting) { return budgeting->plan.ranking == PLAN_PATH; }

static bool holds(const struct budgeting *budgeting, const struct decode_iteration *iteration)
{
    return iteration->tree->nodes ? budgeting->budget->verifies : budgeting->budget->decodes;
}

static int begin(struct watch *watch, const struct decode_prompt *prompt, int limit, struct err *err)
{
    struct budgeting *budgeting = budgeting_of(watch);
    (void)err;
    reach_begin(&budgeting->reach);
    if (budgeting->meter)
        meter_begin(budgeting->meter, prompt->tokens + limit);
    budgeting->tried = budgeting->waited = 0;
    return 0;
}

static int before(struct watch *watch, struct sequence *sequence, struct batch *batch, struct decode_iteration *iteration,
                  struct err *err)
{
    struct budgeting *budgeting = budgeting_of(watch);
    bool held = holds(budgeting, iteration);
    (void)err;
    budgeting->sequence = sequence;
    if (budgeting->size)
        governor_state(&budgeting->governor, held, &iteration->policy);
    if (!held)
        return 0;
    for (int layer = 0; budgeting->size && layer < budgeting->plan.moe_layers; layer++)
        budgeting->size[layer] = governor_budget(&budgeting->governor, layer);
    batch->plan = &budgeting->plan;
    if (by_path(budgeting)) {
        reach_weights(&budgeting->reach, iteration->tree, budgeting->weight);
        batch->row_weight = budgeting->weight;
    }
    return 0;
}

/* Whether a row that is kept was computed by other experts than its router's. Else its bits are those without a budget. */
static bool is_touched(const struct decode_iteration *iteration)
{
    const struct forward *forward = iteration->forward;
    const size_t width = (size_t)forward->moe_layers * (size_t)forward->top_k;
    for (int i = 0; i <= iteration->accepted; i++) {
        const size_t at = (size_t)iteration->path[i] * width;
        if (memcmp(forward->expert + at, forward->wanted + at, width * sizeof *forward->expert) != 0)
            return true;
    }
    return false;
}

/* Whether a smaller budget could have changed what a token is. By router, path and oracle a token that is alone in its forward
 * has its experts whatever the budget; but not by an oracle as printed. */
static bool is_tried(const struct budgeting *budgeting, const struct decode_iteration *iteration)
{
    const enum plan_ranking ranking = budgeting->plan.ranking;
    return holds(budgeting, iteration) && (iteration->tree->nodes || ranking == PLAN_STATIC || ranking == PLAN_PRINTED);
}

static int probe(struct budgeting *budgeting, struct decode_iteration *iteration, struct err *err)
{
    double start = clock_seconds();
    struct meter_reading reading;
    if (meter_read(budgeting->meter, budgeting->sequence, &reading, err))
        return err_at(err, "--budget auto");
    governor_observe(&budgeting->governor, reading.tokens, budgeting->tried, reading.divergence);
    budgeting->tried = budgeting->waited = 0;
    iteration->probe = reading.tokens;
    iteration->probe_bytes = reading.bytes;
    iteration->bytes += reading.bytes;
    iteration->probe_us = 1e6 * (clock_seconds() - start);
    return 0;
}

/* Tokens that no budget has touched are known to be those of the model without; all others wait for a probe. */
static int measure(struct budgeting *budgeting, struct decode_iteration *iteration, struct err *err)
{
    struct meter *meter = budgeting->meter;
    const int tried = is_tried(budgeting, iteration) ? iteration->n_emitted : 0;
    if (!meter_is_running(meter) && !is_touched(iteration)) {
        governor_observe(&budgeting->governor, iteration->n_emitted, tried, 0);
        return 0;
    }
    meter_put(meter, iteration);
    budgeting->tried += tried;
    budgeting->waited++;
    if (iteration->ends || !meter_has_room(meter) ||
        governor_is_due(&budgeting->governor, budgeting->waited, meter_waiting(meter)))
        return probe(budgeting, iteration, err);
    return 0;
}

static int after(struct watch *watch, struct decode_iteration *iteration, struct err *err)
{
    struct budgeting *budgeting = budgeting_of(watch);
    if (by_path(budgeting))
        reach_observe(&budgeting->reach, iteration->tree, iteration->kept);
    return budgeting->meter ? measure(budgeting, iteration, err) : 0;
}

int budgeting_open(struct budgeting **out, const struct budget *budget, struct engine *engine, int nodes, struct err *err)
{
    static const struct watch_class class = {.begin = begin, .before = before, .after = after};
    size_t layers = (size_t)budget->plan.moe_layers;
    struct budgeting *budgeting = mem_alloc(1, sizeof *budgeting, err);
    if (!budgeting)
        return -1;
    *budgeting = (struct budgeting){.watch = {&class}, .budget = budget, .engine = engine, .plan = budget->plan,
                                    .governor = budget->governor};
    budgeting->weight = mem_alloc(1 + (size_t)nodes, sizeof *budgeting->weight, err);
    if (!budgeting->weight || (budget->automatic && !(budgeting->size = mem_alloc(layers, sizeof *budgeting->size, err)))) {
        budgeting_close(&budgeting);
        return -1;
    }
    if (budgeting->size) {
        budgeting->plan.budget = budgeting->size;
        if (meter_open(&budgeting->meter, engine, 1 + nodes, err)) {
            budgeting_close(&budgeting);
            return -1;
        }
    }
    *out = budgeting;
    return 0;
}

void budgeting_close(struct budgeting **budgeting)
{
    if (*budgeting) {
        mem_free(&(*budgeting)->size);
        meter_close(&(*budgeting)->meter);
        mem_free(&(*budgeting)->weight);
    }
    mem_free(budgeting);
}

struct watch *budgeting_watch(struct budgeting *budgeting) { return &budgeting->watch; }
