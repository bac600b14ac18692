#include "common/decode/budgeting.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/decode/divergence.h"
#include "common/decode/meter.h"
#include "common/decode/reach.h"

struct budgeting {
    struct watch watch;
    const struct budget *budget;
    struct engine *engine;
    struct expert_plan plan;
    struct governor governor;           /* automatic budget only; sets the plan's numbers [moe_layers] */
    int32_t *size;                      /* NULL: the budget is not automatic */
    struct meter *meter;                /* automatic budget only */
    const struct sequence *sequence;    /* the text's sequence in this iteration */
    int tried, waited;                  /* tried tokens (governor_observe) and iterations since the last probe */
    bool checked;                       /* this iteration was checked before its tokens were emitted */
    double *divergence;                 /* [1 + nodes] if checked: divergence of each row of its path */
    bool *restored;                     /* [1 + nodes] rows whose logits were replaced by those without a budget */
    float *logits;                      /* [1 + nodes + riders][vocab] copy of the forward's logits, once a row is restored */
    struct reach reach;
    struct estimator_signal *signal;   /* [nodes] signals of the draft's nodes */
    float *weight;                      /* [1 + nodes] weights of rows, by reach; riders are refused with these */
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
    if (budgeting->governor.each)
        budgeting->governor = budgeting->budget->governor;
    if (budgeting->meter)
        meter_begin(budgeting->meter, prompt->tokens + limit);
    budgeting->tried = budgeting->waited = 0;
    budgeting->checked = false;
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
        governor_state(&budgeting->governor, held, &iteration->record.policy);
    if (!held)
        return 0;
    for (int layer = 0; budgeting->size && layer < budgeting->plan.moe_layers; layer++)
        budgeting->size[layer] = governor_budget(&budgeting->governor, layer);
    batch->plan = &budgeting->plan;
    if (by_path(budgeting)) {
        reach_weights(&budgeting->reach, iteration->tree, budgeting->signal, budgeting->weight);
        batch->row_weight = budgeting->weight;
    }
    return 0;
}

/* Returns whether experts other than its router's computed a kept row; if not, its bits equal those without a budget. */
static bool is_touched(const struct decode_iteration *iteration)
{
    const struct forward *forward = iteration->forward;
    const size_t width = (size_t)forward->moe_layers * (size_t)forward->top_k;
    for (int i = 0; i <= iteration->record.accepted; i++) {
        const size_t at = (size_t)iteration->path[i] * width;
        if (memcmp(forward->expert + at, forward->wanted + at, width * sizeof *forward->expert) != 0)
            return true;
    }
    return false;
}

/* Returns whether a smaller budget could have changed the emitted tokens. If experts are ranked by router, path or oracle, a
 * token that is alone in its forward gets its own experts under any budget; not so with an oracle as printed. */
static bool is_tried(const struct budgeting *budgeting, const struct decode_iteration *iteration)
{
    const enum plan_ranking ranking = budgeting->plan.ranking;
    return holds(budgeting, iteration) && (iteration->tree->nodes || ranking == PLAN_STATIC || ranking == PLAN_PRINTED);
}

static void count_probe(struct budgeting *budgeting, const struct meter_reading *reading, struct decode_iteration *iteration)
{
    if (reading->tokens)
        governor_observe(&budgeting->governor, reading->tokens, budgeting->tried, reading->divergence);
    budgeting->tried = reading->tokens ? 0 : budgeting->tried;
    budgeting->waited = 0;
    iteration->record.probe += reading->tokens;
    iteration->record.probe_bytes += reading->bytes;
    iteration->record.bytes += reading->bytes;
}

static int probe(struct budgeting *budgeting, struct decode_iteration *iteration, struct err *err)
{
    struct meter_reading reading;
    if (meter_probe(budgeting->meter, budgeting->sequence, &reading, err))
        return err_at(err, "--budget auto");
    count_probe(budgeting, &reading, iteration);
    return 0;
}

static void restore(struct budgeting *budgeting, struct forward *forward, size_t row, const float *logits)
{
    const size_t vocab = (size_t)forward->vocab;
    if (forward->logits != budgeting->logits)
        memcpy(budgeting->logits, forward->logits, (size_t)forward->logit_rows * vocab * sizeof *logits);
    memcpy(budgeting->logits + row * vocab, logits, vocab * sizeof *logits);
    forward->logits = budgeting->logits;
    budgeting->restored[row] = true;
    governor_restored(&budgeting->governor);
}

/* Restores every row of the path that the governor's account does not allow. */
static void restore_rows(struct budgeting *budgeting, const struct decode_iteration *iteration, struct forward *forward,
                         bool *changed)
{
    double sum = 0;
    for (int i = 0; i <= iteration->record.accepted; i++) {
        const size_t row = (size_t)iteration->path[i], vocab = (size_t)forward->vocab;
        const float *own = meter_logits(budgeting->meter, i);
        double divergence = divergence_between(own, forward->logits + row * vocab, forward->vocab);
        if (!governor_allows(&budgeting->governor, i + 1, divergence, sum + divergence)) {
            restore(budgeting, forward, row, own);
            divergence = 0;
            *changed = true;
        }
        sum += budgeting->divergence[i] = divergence;
    }
}

static int check(struct watch *watch, struct decode_iteration *iteration, struct forward *forward, bool *changed,
                 struct err *err)
{
    struct budgeting *budgeting = budgeting_of(watch);
    struct meter *meter = budgeting->meter;
    struct meter_reading reading;
    if (!meter || (!meter_is_running(meter) && !is_touched(iteration)) ||
        (!budgeting->checked && !governor_checks(&budgeting->governor, meter_waiting(meter) + 1 + iteration->record.accepted)))
        return 0;
    double start = clock_seconds();
    if (!budgeting->checked)
        memset(budgeting->restored, 0, (size_t)iteration->record.nodes * sizeof *budgeting->restored);
    budgeting->checked = true;
    if (meter_probe_path(meter, budgeting->sequence, iteration, &reading, err))
        return err_at(err, "--budget auto");
    count_probe(budgeting, &reading, iteration);
    restore_rows(budgeting, iteration, forward, changed);
    iteration->record.probe_us += 1e6 * (clock_seconds() - start);
    return 0;
}

/* Counts the divergence that a check measured, up to the last emitted token. */
static int keep(struct budgeting *budgeting, struct decode_iteration *iteration, int tried, struct err *err)
{
    double sum = 0;
    for (int i = 0; i < iteration->record.emitted; i++) {
        sum += budgeting->divergence[i];
        iteration->record.restored += budgeting->restored[iteration->path[i]];
    }
    budgeting->checked = false;
    iteration->record.probe += iteration->record.emitted;
    governor_observe(&budgeting->governor, iteration->record.emitted, tried, sum);
    return meter_keep(budgeting->meter, iteration->record.emitted, err);
}

/* Measures the divergence of emitted tokens: 0 for tokens that no budget has touched; all others wait for a probe. */
static int measure(struct budgeting *budgeting, struct decode_iteration *iteration, struct err *err)
{
    struct meter *meter = budgeting->meter;
    const int tried = is_tried(budgeting, iteration) ? iteration->record.emitted : 0;
    if (budgeting->checked)
        return keep(budgeting, iteration, tried, err);
    if (!meter_is_running(meter) && !is_touched(iteration)) {
        governor_observe(&budgeting->governor, iteration->record.emitted, tried, 0);
        return 0;
    }
    meter_add(meter, iteration);
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
    if (by_path(budgeting) && holds(budgeting, iteration))
        reach_observe(&budgeting->reach, iteration->tree, budgeting->signal, iteration->kept);
    if (!budgeting->meter)
        return 0;
    double start = clock_seconds();
    int rc = measure(budgeting, iteration, err);
    if (iteration->record.probe)
        iteration->record.probe_us += 1e6 * (clock_seconds() - start);
    return rc;
}

static int open_measuring(struct budgeting *budgeting, size_t rows, size_t riders, struct err *err)
{
    const size_t vocab = (size_t)engine_hparams(budgeting->engine)->vocab;
    budgeting->plan.budget = budgeting->size;
    if (!(budgeting->divergence = mem_alloc(rows, sizeof *budgeting->divergence, err)) ||
        !(budgeting->restored = mem_alloc(rows, sizeof *budgeting->restored, err)) ||
        !(budgeting->logits = mem_alloc((rows + riders) * vocab, sizeof *budgeting->logits, err)))
        return -1;
    return meter_open(&budgeting->meter, budgeting->engine, (int)rows, err);
}

int budgeting_open(struct budgeting **out, const struct budget *budget, struct engine *engine, int nodes, int riders,
                   struct err *err)
{
    static const struct watch_class class = {.begin = begin, .before = before, .check = check, .after = after};
    size_t layers = (size_t)budget->plan.moe_layers;
    struct budgeting *budgeting = mem_alloc(1, sizeof *budgeting, err);
    if (!budgeting)
        return -1;
    *budgeting = (struct budgeting){.watch = {&class}, .budget = budget, .engine = engine, .plan = budget->plan,
                                    .governor = budget->governor};
    budgeting->weight = mem_alloc(1 + (size_t)nodes, sizeof *budgeting->weight, err);
    budgeting->signal = mem_alloc((size_t)nodes + 1, sizeof *budgeting->signal, err);
    if (!budgeting->weight || !budgeting->signal ||
        (budget->automatic && !(budgeting->size = mem_alloc(layers, sizeof *budgeting->size, err)))) {
        budgeting_close(&budgeting);
        return -1;
    }
    budgeting->watch.reads_logits = budget->automatic;
    if (budgeting->size && open_measuring(budgeting, 1 + (size_t)nodes, (size_t)riders, err)) {
        budgeting_close(&budgeting);
        return -1;
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
        mem_free(&(*budgeting)->signal);
        mem_free(&(*budgeting)->divergence);
        mem_free(&(*budgeting)->restored);
        mem_free(&(*budgeting)->logits);
    }
    mem_free(budgeting);
}

struct watch *budgeting_watch(struct budgeting *budgeting) { return &budgeting->watch; }
