#include "common/bench/sweep.h"

#include <math.h>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/numeral.h"
#include "common/report/stats.h"
#include "kernels/plain/philox.h"

#define BANDWIDTH_SECONDS 0.3           /* duration of measuring the read bandwidth, before and after */

/* The measurement of one forward. */
struct trial {
    double seconds, bytes, experts;
};

struct trials {
    const struct sweep_setup *setup;
    const struct session *session;
    struct sequence *sequence;
    int32_t *token;                     /* [maximum of rows and prefix] */
    int32_t *parent;                    /* [maximum of rows] of a tree; NULL: a chain */
    struct trial *trial;                /* [rounds][points] */
    size_t room;
    int rounds;
    uint32_t drawn;
};

static void draw_tokens(struct trials *t, int count)
{
    const uint32_t vocab = (uint32_t)engine_hparams(t->session->engine)->vocab;
    for (int i = 0; i < count; i++)
        t->token[i] = (int32_t)(philox((struct philox){{t->drawn++, 0, 0, 0}}, t->setup->seed).word[0] % vocab);
}

static int run_trial(struct trials *t, int rows, struct trial *out, struct err *err)
{
    struct engine *engine = t->session->engine;
    struct forward forward;
    const int32_t last = rows - 1;
    const struct engine_choice greedy = {.filter = {.top_p = 1}};
    const struct batch batch = {.rows = rows, .token = t->token, .parent = t->parent,
                                .logit_row = t->setup->last_logits ? &last : NULL,
                                .logit_rows = t->setup->last_logits ? 1 : rows,
                                .choice = engine_chooses(engine) ? &greedy : NULL};
    double experts = 0;
    draw_tokens(t, rows);
    double begin = clock_seconds();
    if (engine_forward(engine, t->sequence, &batch, &forward, err))
        return -1;
    double seconds = clock_seconds() - begin;
    sequence_rollback(t->sequence);
    for (int i = 0; i < forward.moe_layers; i++)
        experts += forward.distinct_loaded[i];
    *out = (struct trial){seconds, (double)forward.bytes, forward.moe_layers ? experts / forward.moe_layers : NAN};
    return 0;
}

static int run_trials(struct trials *t, struct err *err)
{
    const struct sweep_setup *setup = t->setup;
    struct trial warm;
    for (int i = 0; i < setup->points; i++)
        if (run_trial(t, setup->rows[i], &warm, err))
            return -1;
    double end = clock_seconds() + setup->seconds;
    do {
        size_t used = (size_t)t->rounds * (size_t)setup->points;
        if (mem_grow(&t->trial, &t->room, used + (size_t)setup->points, sizeof *t->trial, err))
            return -1;
        for (int i = 0; i < setup->points; i++)
            if (run_trial(t, setup->rows[i], &t->trial[used + (size_t)i], err))
                return -1;
        t->rounds++;
    } while (t->rounds < setup->rounds_min || clock_seconds() < end);
    return 0;
}

/* Computes the medians of one point. Ratios are formed within each round and the median is taken afterwards, so that drift
 * between rounds cancels. */
static int sum_up_point(struct sweep_point *out, const struct trials *t, int i, double bandwidth, struct err *err)
{
    const size_t rounds = (size_t)t->rounds, points = (size_t)t->setup->points;
    double *value = mem_alloc(6 * rounds, sizeof *value, err);
    if (!value)
        return -1;
    double *column[6];
    for (int k = 0; k < 6; k++)
        column[k] = value + (size_t)k * rounds;
    for (size_t r = 0; r < rounds; r++) {
        const struct trial *one = &t->trial[r * points], *at = one + i;
        const double each[6] = {at->seconds, at->bytes, at->experts, at->seconds / one->seconds, at->bytes / one->bytes,
                                at->seconds / one->seconds / (at->bytes / one->bytes)};
        for (int k = 0; k < 6; k++)
            column[k][r] = each[k];
    }
    *out = (struct sweep_point){
        .rows = t->setup->rows[i], .seconds = stats_quantile(column[0], rounds, 0.5),
        .low = stats_quantile(column[0], rounds, 0.25), .high = stats_quantile(column[0], rounds, 0.75),
        .bytes = stats_quantile(column[1], rounds, 0.5), .experts = stats_mean(column[2], rounds),
        .cost = stats_quantile(column[3], rounds, 0.5), .bytes_ratio = stats_quantile(column[4], rounds, 0.5),
        .excess = stats_quantile(column[5], rounds, 0.5)};
    out->share = out->bytes / out->seconds / bandwidth;
    mem_free(&value);
    return 0;
}

static int sum_up(struct sweep *out, const struct trials *t, struct err *err)
{
    out->rounds = t->rounds;
    out->points = t->setup->points;
    out->prefix = t->setup->prefix;
    out->tree = t->setup->tree;
    for (int i = 0; i < out->points; i++)
        if (sum_up_point(&out->point[i], t, i, out->machine.bytes_per_second, err))
            return -1;
    return 0;
}

int sweep_run(struct sweep *out, const struct session *session, const struct sweep_setup *setup, struct err *err)
{
    const int max = setup->rows[setup->points - 1];
    struct trials t = {.setup = setup, .session = session};
    struct sweep made = {.points = 0};
    double before, after;
    int rc = -1;
    roofline_describe(session->device, &made.machine);
    if (roofline_measure(session->device, ROOFLINE_BYTES, BANDWIDTH_SECONDS, &before, err) ||
        sequence_open(&t.sequence, session->engine, setup->prefix + max, err) ||
        !(t.token = mem_alloc((size_t)(setup->prefix > max ? setup->prefix : max), sizeof *t.token, err)))
        goto done;
    if (setup->tree && !(t.parent = mem_alloc((size_t)max, sizeof *t.parent, err)))
        goto done;
    for (int i = 0; t.parent && i < max; i++)
        t.parent[i] = i ? (i - 1) / 2 : -1;
    draw_tokens(&t, setup->prefix);
    if (setup->prefix) {
        struct forward last;
        if (engine_prompt(session->engine, t.sequence, t.token, setup->prefix, NULL, NULL, NULL, &last, err))
            goto done;
    }
    if (run_trials(&t, err) || roofline_measure(session->device, ROOFLINE_BYTES, BANDWIDTH_SECONDS, &after, err))
        goto done;
    made.machine.bytes_per_second = (before + after) / 2;
    if (sum_up(&made, &t, err))
        goto done;
    *out = made;
    rc = 0;
done:
    sequence_close(&t.sequence);
    mem_free(&t.token);
    mem_free(&t.parent);
    mem_free(&t.trial);
    return rc;
}

int sweep_text(struct text *out, const struct sweep *sweep, const char *label, struct err *err)
{
    const struct roofline *machine = &sweep->machine;
    if (text_printf(out, err, "%s %s, %d thread%s, %d rounds%s after %d token%s%s%s", machine->device, machine->isa,
                    machine->threads, numeral_plural(machine->threads), sweep->rounds, sweep->tree ? " of trees" : "",
                    sweep->prefix, numeral_plural(sweep->prefix), label ? ", " : "", label ? label : "") ||
        (!isnan(machine->bytes_per_second) && text_printf(out, err, ", reads %.1f GB/s", 1e-9 * machine->bytes_per_second)) ||
        text_printf(out, err, "\n%6s %10s %17s %8s %9s %7s %7s %7s %6s\n", "tokens", "ms", "quartiles", "experts", "MB", "cost",
                    "bytes", "excess", "share"))
        return -1;
    for (int i = 0; i < sweep->points; i++) {
        const struct sweep_point *p = &sweep->point[i];
        if (text_printf(out, err, "%6d %10.3f %8.3f-%8.3f", p->rows, 1e3 * p->seconds, 1e3 * p->low, 1e3 * p->high) ||
            (isnan(p->experts) ? text_printf(out, err, " %8s", "-") : text_printf(out, err, " %8.1f", p->experts)) ||
            text_printf(out, err, " %9.2f %7.2f %7.2f %7.3f", 1e-6 * p->bytes, p->cost, p->bytes_ratio, p->excess) ||
            (isnan(p->share) ? text_printf(out, err, " %6s\n", "-") : text_printf(out, err, " %6.3f\n", p->share)))
            return -1;
    }
    return 0;
}

int sweep_json(struct text *out, const struct sweep *sweep, const char *label, struct err *err)
{
    const struct roofline *machine = &sweep->machine;
    json_t *cost = json_array();
    json_t *object = json_pack("{s:s, s:s, s:s, s:i, s:o, s:i, s:i, s:s, s:s?, s:o}", "type", "sweep", "device",
                               machine->device, "isa", machine->isa, "threads", machine->threads, "read_bandwidth",
                               json_finite(machine->bytes_per_second), "rounds", sweep->rounds, "prefix", sweep->prefix,
                               "nodes", sweep->tree ? "tree" : "chain", "label", label, "cost", cost);
    bool failed = !object;
    for (int i = 0; !failed && i < sweep->points; i++) {
        const struct sweep_point *p = &sweep->point[i];
        failed = json_array_append_new(cost, json_pack(
            "{s:i, s:f, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:o}", "m", p->rows, "seconds", p->seconds, "low", p->low, "high",
            p->high, "experts", json_finite(p->experts), "bytes", p->bytes, "ratio", p->cost, "bytes_ratio", p->bytes_ratio,
            "excess", p->excess, "share", json_finite(p->share)));
    }
    char *line = failed ? NULL : json_text(object, JSON_COMPACT, err);
    int rc = line ? text_printf(out, err, "%s\n", line) : failed ? err_memory(err) : -1;
    mem_free(&line);
    json_decref(object);
    return rc;
}
