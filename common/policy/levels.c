/* Cascades of drafters of CS-Drafting (arXiv 2312.11462), in chains.
 *
 *   vertical     The cheapest drafter drafts a few tokens; the next better drafter reviews them in one forward and adds a token
 *                of its own. When a level has its number of tokens, the level above reviews them, up to the best drafter, whose
 *                tokens the target verifies. lengths=N/N/..., best drafter first: tokens of each level before the next level
 *                reviews them.
 *   horizontal   The best drafter drafts the first tokens, which matter most, and cheaper drafters the later ones.
 *                lengths=N/N/..., best drafter first.
 *   cs-drafting  Both, the paper's algorithm 1: the target's draft is horizontal, and each drafter's part is drafted by the
 *                drafters below it, `inner` tokens each, and reviewed by it.
 *
 * All three are cases of the paper's matrix of lengths: row 0 for the target, row 1 + t for drafter t; column i is the number
 * of tokens that drafter i drafts for it. A drafter with a row of zeros drafts by itself. A drafter that adds nothing is
 * skipped. */
#include "common/policy/shape.h"

#include <stdlib.h>

#include "common/base/mem.h"

enum { DRAFTERS = 8 };

struct part {                           /* a part being drafted for drafter `of`; -1: for the target */
    int of, by;                         /* by: the current drafter */
    int start, since;                   /* start: number of tokens before the part; since: number before the tokens of `by` */
};

struct levels {
    struct policy base;
    int drafters, max;
    int length[1 + DRAFTERS][DRAFTERS];
    struct part part[1 + DRAFTERS];     /* a stack, innermost last */
    int parts, K, before;               /* before: tokens at the request of the previous step */
    struct draft_leaf leaf;
};

static bool writes_alone(const struct levels *l, int drafter)
{
    for (int i = drafter + 1; i < l->drafters; i++)
        if (l->length[1 + drafter][i])
            return false;
    return true;
}

static struct step stop(struct levels *l, const struct draft_view *view)
{
    l->K = view->tree->nodes;
    return (struct step){.kind = STEP_STOP};
}

static struct step ask(struct levels *l, enum step_kind kind, int drafter, int node, int tokens)
{
    l->leaf = (struct draft_leaf){node, 1};
    return (struct step){.kind = kind, .drafter = drafter, .tokens = tokens, .leaf = &l->leaf, .leaves = 1};
}

static struct step levels_next(struct policy *policy, const struct draft_view *view)
{
    struct levels *l = (struct levels *)policy;
    const int nodes = view->tree->nodes, max = l->max < view->room ? l->max : view->room;
    if (!view->steps) {
        l->part[0] = (struct part){-1, 0, 0, 0};
        l->parts = 1;
    } else if (nodes <= l->before) {    /* the last drafter added nothing */
        l->part[l->parts - 1].by++;
        l->part[l->parts - 1].since = nodes;
    }
    while (l->parts && max > 0) {
        struct part *part = &l->part[l->parts - 1];
        const int *row = l->length[1 + part->of], room = max - nodes - (l->parts - 1);     /* reserves one token for each
                                                                                            * reviewer */
        if (part->by < l->drafters && (nodes - part->since >= row[part->by] || room <= 0)) {
            part->by++;
            part->since = nodes;
        } else if (part->by < l->drafters && writes_alone(l, part->by)) {
            int left = row[part->by] - (nodes - part->since);
            l->before = nodes;
            return ask(l, STEP_EXTEND, part->by, nodes - 1, left < room ? left : room);
        } else if (part->by < l->drafters) {
            l->part[l->parts++] = (struct part){part->by, part->by + 1, nodes, nodes};
        } else if (part->of < 0) {
            break;
        } else {
            l->parts--;
            l->before = part->start;
            if (nodes > part->start)
                return ask(l, STEP_REVIEW, part->of, part->start - 1, 0);
            return ask(l, STEP_EXTEND, part->of, nodes - 1, 1);
        }
    }
    return stop(l, view);
}

/* Parses numbers separated by slashes, one for each drafter. */
static int parse(const char *text, int count, int *out, struct err *err)
{
    const char *at = text;
    for (int i = 0; i < count; i++) {
        char *end;
        long value = strtol(at, &end, 10);
        if (end == at || value < 0 || value > SHAPE_DEPTH_MAX || *end != (i + 1 < count ? '/' : '\0'))
            return err_set(err, ERR_INPUT, "lengths=%s: expected %d numbers from 0 to %d, one per drafter, the best first, "
                           "separated by slashes", text, count, SHAPE_DEPTH_MAX);
        out[i] = (int)value;
        at = end + 1;
    }
    return 0;
}

static int levels_new(struct levels **out, const char *name, struct spec *spec, const struct policy_setup *setup,
                      const int *otherwise, int *length, struct err *err)
{
    int limit = setup->max_length < SHAPE_DEPTH_MAX ? setup->max_length : SHAPE_DEPTH_MAX;
    const char *text;
    if (setup->shape->class != &shape_chain)
        return err_set(err, ERR_INPUT, "%s: drafts chains only; leave --tree out", name);
    for (int i = 0; i < DRAFTERS; i++)
        length[i] = otherwise[i ? 1 : 0];
    if (spec_text(spec, "lengths", NULL, &text, err))
        return -1;
    if (text && parse(text, setup->drafters, length, err))
        return err_at(err, "%s", name);
    struct levels *levels = mem_alloc(1, sizeof *levels, err);
    if (!levels)
        return -1;
    levels->drafters = setup->drafters;
    levels->max = setup->draft_length >= 0 && setup->draft_length < limit ? setup->draft_length : limit;
    *out = levels;
    return 0;
}

static bool reviews(const struct policy_setup *setup, int drafter)
{
    return setup->drafter && setup->drafter[drafter].reviews;
}

static int vertical_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    static const int otherwise[] = {5, 3};
    struct levels *levels;
    int length[DRAFTERS];
    for (int i = 0; i + 1 < setup->drafters; i++)
        if (!reviews(setup, i))
            return err_set(err, ERR_INPUT, "vertical: drafter '%s' cannot review the drafts of later drafters; give it last, "
                           "or choose --policy horizontal", setup->drafter ? setup->drafter[i].name : "?");
    if (levels_new(&levels, "vertical", spec, setup, otherwise, length, err))
        return -1;
    for (int i = 0; i < levels->drafters; i++)
        levels->length[i][i] = length[i];
    *out = &levels->base;
    return 0;
}

static int horizontal_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    static const int otherwise[] = {3, 2};
    struct levels *levels;
    int length[DRAFTERS];
    if (levels_new(&levels, "horizontal", spec, setup, otherwise, length, err))
        return -1;
    for (int i = 0; i < levels->drafters; i++)
        levels->length[0][i] = length[i];
    *out = &levels->base;
    return 0;
}

static int cs_drafting_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    static const int otherwise[] = {3, 2};
    struct levels *levels;
    int length[DRAFTERS], inner;
    if (spec_int(spec, "inner", 2, 0, SHAPE_DEPTH_MAX, &inner, err) ||
        levels_new(&levels, "cs-drafting", spec, setup, otherwise, length, err))
        return -1;
    for (int i = 0; i < levels->drafters; i++) {
        levels->length[0][i] = length[i];
        for (int by = i + 1; by < levels->drafters && reviews(setup, i); by++)
            levels->length[1 + i][by] = inner;
    }
    *out = &levels->base;
    return 0;
}

static int levels_length(const struct policy *policy) { return ((const struct levels *)policy)->K; }

static void levels_state(const struct policy *policy, struct values *out)
{
    values_text(out, "name", policy->class->name);
    values_int(out, "K", levels_length(policy));
}

static void levels_free(struct policy *policy) { mem_free(&policy); }

const struct policy_class policy_vertical = {
    .name = "vertical",
    .summary = "each drafter reviews what the cheaper one after it drafts",
    .settings = "lengths=N/N/...",
    .drops = true,
    .open = vertical_open,
    .next = levels_next,
    .length = levels_length,
    .state = levels_state,
    .free = levels_free,
};

const struct policy_class policy_horizontal = {
    .name = "horizontal",
    .summary = "the best drafter writes the first tokens, cheaper ones the later",
    .settings = "lengths=N/N/...",
    .open = horizontal_open,
    .next = levels_next,
    .length = levels_length,
    .state = levels_state,
    .free = levels_free,
};

const struct policy_class policy_cs_drafting = {
    .name = "cs-drafting",
    .summary = "horizontal, and each drafter's tokens are written for it by cheaper ones",
    .settings = "lengths=N/N/...,inner=N",
    .drops = true,
    .open = cs_drafting_open,
    .next = levels_next,
    .length = levels_length,
    .state = levels_state,
    .free = levels_free,
};
