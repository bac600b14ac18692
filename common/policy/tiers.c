/* Draft length by acceptance, in tiers: a running average of accepted tokens selects one of a few lengths. The rule of SGLang's
 * adaptive speculation:
 *
 *     average = (1 - weight) average + weight accepted                    after each iteration with a draft
 *
 * After every `every` drafts, from the `warmup`th draft on: down one tier while average <= next lower length - 1/2 + down, then
 * up one tier while average > length - 1/2 + up. The rule ignores cost. A tier of length 0 is final, because nothing is learned
 * there. Begins in the highest tier of at most 3, or in the lowest; the state is kept from text to text. */
#include "common/policy/shape.h"

#include <stdlib.h>

#include "common/base/mem.h"

enum { TIERS_MAX = 16 };

struct tiers {
    struct policy base;
    struct shape *shape;
    int length[TIERS_MAX], count, at;   /* ascending */
    int warmup, every;
    double weight, down, up;
    double average;                     /* running average of accepted tokens */
    int64_t drafts;
};

static int parse_lengths(struct tiers *tiers, const char *text, int max, struct err *err)
{
    const char *at = text;
    do {
        char *end;
        long length = strtol(at, &end, 10);
        if (end == at || length < 0 || length > max || (*end && *end != '/') || tiers->count == TIERS_MAX ||
            (tiers->count && length <= tiers->length[tiers->count - 1]))
            return err_set(err, ERR_INPUT, "tiers: lengths=%s: expected up to %d lengths from 0 to %d in ascending order, "
                           "separated by slashes, as in 1/3/7", text, TIERS_MAX, max);
        tiers->length[tiers->count++] = (int)length;
        at = end + 1;
        if (!*end)
            break;
    } while (true);
    return 0;
}

static const char usual[] = "1/3/7";

/* Returns the usual lengths up to `max`; 0, if there are none. */
static const char *usual_lengths(int max) { return max < 1 ? "0" : max < 3 ? "1" : max < 7 ? "1/3" : usual; }

static int tiers_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    const int max = setup->draft_length >= 0 ? setup->draft_length : setup->max_length;
    const char *lengths;
    struct tiers *tiers = mem_alloc(1, sizeof *tiers, err);
    if (!tiers)
        return -1;
    if (spec_text(spec, "lengths", usual, &lengths, err) || spec_float(spec, "weight", 0.2, 0, 1, &tiers->weight, err) ||
        spec_int(spec, "every", 5, 1, 1 << 20, &tiers->every, err) ||
        spec_int(spec, "warmup", 10, 0, 1 << 20, &tiers->warmup, err) ||
        spec_float(spec, "down", -0.25, -64, 64, &tiers->down, err) || spec_float(spec, "up", 0, -64, 64, &tiers->up, err) ||
        parse_lengths(tiers, lengths == usual ? usual_lengths(max) : lengths, max, err)) {
        mem_free(&tiers);
        return -1;
    }
    tiers->shape = setup->shape;
    while (tiers->at + 1 < tiers->count && tiers->length[tiers->at + 1] <= 3)
        tiers->at++;
    tiers->average = tiers->length[tiers->at] > 1 ? tiers->length[tiers->at] - 1 : 0;
    *out = &tiers->base;
    return 0;
}

static struct step tiers_next(struct policy *policy, const struct draft_view *view)
{
    struct tiers *tiers = (struct tiers *)policy;
    int K = tiers->length[tiers->at];
    return K ? shape_next(tiers->shape, view, K) : (struct step){.kind = STEP_STOP};
}

static int tiers_length(const struct policy *policy)
{
    const struct tiers *tiers = (const struct tiers *)policy;
    return tiers->length[tiers->at];
}

static void tiers_observe(struct policy *policy, const struct outcome *outcome)
{
    struct tiers *tiers = (struct tiers *)policy;
    if (!outcome->drafted)
        return;
    tiers->average += tiers->weight * (outcome->accepted - tiers->average);
    tiers->drafts++;
    if (tiers->drafts <= tiers->warmup || tiers->drafts % tiers->every)
        return;
    while (tiers->at > 0 && tiers->average <= tiers->length[tiers->at - 1] - 0.5 + tiers->down)
        tiers->at--;
    while (tiers->at + 1 < tiers->count && tiers->average > tiers->length[tiers->at] - 0.5 + tiers->up)
        tiers->at++;
}

static void tiers_state(const struct policy *policy, struct values *out)
{
    const struct tiers *tiers = (const struct tiers *)policy;
    values_text(out, "name", policy->class->name);
    values_int(out, "K", tiers_length(policy));
    values_real(out, "average", tiers->average);
    values_int(out, "drafts", tiers->drafts);
}

static void tiers_free(struct policy *policy) { mem_free(&policy); }

const struct policy_class policy_tiers = {
    .name = "tiers",
    .summary = "one of a few draft lengths, by how many tokens are kept",
    .settings = "lengths=N/N/...,weight=X,every=N,warmup=N,down=X,up=X",
    .open = tiers_open,
    .next = tiers_next,
    .length = tiers_length,
    .observe = tiers_observe,
    .state = tiers_state,
    .free = tiers_free,
};
