#include "common/cache/split.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/cli/spec.h"

static const char *const names[] = {[SPLIT_NONE] = "none", [SPLIT_STATIC] = "static", [SPLIT_RESIDENT] = "resident",
                                    [SPLIT_LEVEL] = "level", [SPLIT_BALANCE] = "balance"};

const char *split_rule_name(const struct split_rule *rule) { return names[rule->kind]; }

bool split_rule_is_lossless(const struct split_rule *rule) { return rule->kind <= SPLIT_STATIC; }

static int read_settings(struct split_rule *rule, struct spec *spec, struct err *err)
{
    static const char *const by_words[] = {"experts", "layers", NULL};
    int by = 0;
    if (rule->kind == SPLIT_STATIC &&
        (spec_float(spec, "share", -1, 0, 100, &rule->share, err) || spec_choice(spec, "by", 0, by_words, &by, err)))
        return -1;
    rule->share = rule->share < 0 ? -1 : rule->share / 100;
    rule->by_layers = by;
    return (rule->kind == SPLIT_LEVEL && spec_int(spec, "tau", 2, 1, BALANCE_LEVELS, &rule->tau, err)) ||
           (rule->kind == SPLIT_BALANCE && spec_int(spec, "warm-up", 16, 1, 1 << 20, &rule->warm_up, err)) ||
           spec_end(spec, err) ? -1 : 0;
}

int split_rule_read(struct split_rule *out, const char *text, struct err *err)
{
    struct split_rule rule = {.share = -1, .tau = 1};
    struct spec *spec = NULL;
    int kind = 0;
    int rc = spec_parse(&spec, text, err) ||
             spec_pick(spec, "a way to split experts", names, (int)(sizeof names / sizeof *names), &kind, err) ? -1 : 0;
    rule.kind = (enum split_kind)kind;
    rc = rc || read_settings(&rule, spec, err) ? -1 : 0;
    spec_free(&spec);
    if (!rc)
        *out = rule;
    return rc;
}

/* Returns how many experts of each layer, or how many layers, the device computes under STATIC. */
static int64_t device_part(const struct split_rule *rule, int layers, int experts, int64_t slots)
{
    const int64_t parts = rule->by_layers ? layers : experts;
    return rule->share < 0 ? slots * parts / ((int64_t)layers * experts) : llround(floor(rule->share * (double)parts + 1e-9));
}

static bool in_part(const struct split_rule *rule, int64_t part, int layers, int layer, int expert)
{
    return rule->by_layers ? layer >= layers - part : expert < part;
}

bool split_rule_on_device(const struct split_rule *rule, int layers, int experts, int64_t slots, int layer, int expert)
{
    return rule->kind != SPLIT_STATIC || in_part(rule, device_part(rule, layers, experts, slots), layers, layer, expert);
}

int split_open(struct split *out, const struct split_setup *setup, struct err *err)
{
    const struct split_rule *rule = &setup->rule;
    const int all = setup->layers * setup->experts;
    struct split split = {.setup = *setup};
    if (rule->kind >= SPLIT_LEVEL && !setup->K)
        return err_set(err, ERR_INPUT, "%s: this rule needs the utility levels of a cache; add --cache-experts and "
                       "--cache-policy utility", split_rule_name(rule));
    if (rule->kind == SPLIT_LEVEL && rule->tau > setup->K)
        return err_set(err, ERR_INPUT, "level: tau=%d: exceeds the highest level, %d; give at most that", rule->tau, setup->K);
    if (rule->kind == SPLIT_STATIC && rule->share < 0 && setup->slots >= all)
        return err_set(err, ERR_INPUT, "static: the device has room for all %d experts, so no split is needed; give "
                       "share=PERCENT", all);
    split.layer = mem_alloc((size_t)setup->layers, sizeof *split.layer, err);
    if (!split.layer)
        return -1;
    for (int i = 0; i < setup->layers; i++)
        split.layer[i].tau = rule->tau;
    split.on_device = device_part(rule, setup->layers, setup->experts, setup->slots);
    *out = split;
    return 0;
}

void split_close(struct split *split)
{
    mem_free(&split->layer);
    *split = (struct split){0};
}

void split_begin(struct split *split) { split->verifications++; }

bool split_warms_up(const struct split *split)
{
    return split->setup.rule.kind == SPLIT_BALANCE && split->verifications <= split->setup.rule.warm_up;
}

static int level_of(const int32_t *level, int stride, int expert)
{
    return *(const int32_t *)(const void *)((const char *)level + (int64_t)expert * stride);
}

static bool is_device_s(const struct split *split, int layer, int expert, bool there, const int32_t *level, int stride)
{
    const struct split_rule *rule = &split->setup.rule;
    switch (rule->kind) {
    case SPLIT_STATIC:
        return in_part(rule, split->on_device, split->setup.layers, layer, expert);
    case SPLIT_RESIDENT:
    case SPLIT_BALANCE:
        return there;
    case SPLIT_LEVEL:
        return level_of(level, stride, expert) >= split->layer[layer].tau;
    default:
        return true;
    }
}

int split_choose(const struct split *split, int layer, int32_t *expert, int32_t *tokens, bool *on_device, int count,
                 const int32_t *level, int stride)
{
    int chosen = 0;
    for (int i = 0; i < count; i++) {
        const int32_t this = expert[i], its = tokens[i];
        const bool there = on_device[i];
        if (!is_device_s(split, layer, this, there, level, stride))
            continue;
        for (int at = i; at > chosen; at--) {
            expert[at] = expert[at - 1];
            tokens[at] = tokens[at - 1];
            on_device[at] = on_device[at - 1];
        }
        expert[chosen] = this;
        tokens[chosen] = its;
        on_device[chosen++] = there;
    }
    return chosen;
}

void split_learn(struct split *split, int layer, const int32_t *expert, const int32_t *tokens, int count, const int32_t *level,
                 int stride)
{
    if (split_warms_up(split))
        balance_learn(&split->layer[layer].shares, split->setup.K, expert, tokens, count, level, stride);
}

static double unit(double seconds, int64_t count) { return count ? seconds / (double)count : 0; }

int split_next(struct split *split, int layer, int distinct, const int32_t *fetches, int cold)
{
    const struct split_setup *setup = &split->setup;
    const struct split_times *times = &split->times;
    struct split_layer *at = &split->layer[layer];
    const struct balance balance = {
        .K = setup->K, .draft_length = setup->draft_length, .top_k = setup->top_k, .distinct = distinct,
        .cpu_unit = unit(times->host_s, times->pairs), .gpu_unit = unit(times->device_s, times->experts),
        .io_unit = unit(times->copy_s, times->copies), .draft_unit = unit(times->draft_s, times->drafted),
        .layers = setup->all_layers, .expert_bytes = setup->expert_bytes, .bytes_left = cold * setup->expert_bytes,
        .shares = &at->shares, .fetches = fetches};
    if (setup->rule.kind == SPLIT_BALANCE && split->verifications >= setup->rule.warm_up)
        at->tau = balance_tau(&balance);
    return at->tau;
}
