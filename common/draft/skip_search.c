#include "common/draft/skip_search.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/draft/gaussian.h"
#include "kernels/plain/philox.h"

enum { WARM_UP = 1000, STARTS = 10, ASCENT = 60, REDRAWS = 1000 };
static const double noise = 1e-2, kappa = 2.5;

struct skip_search {
    struct skip_search_setup setup;
    struct skip_set first, best, candidate;
    int parts, count;               /* number of parts that may be skipped, and of those that are */
    struct gaussian *gaussian;      /* fitted to all scored sets */
    bool *seen;                     /* [scored][parts] */
    size_t seen_room;
    double *point, *trial, *peak, *gradient;        /* [parts] each, gradient [2][parts] */
    int *order;                     /* [parts] */
    int scored, bayesian, kept, idle;       /* idle: candidates since the last better one */
    double score;
    const char *ended;
    bool asked, expected;              /* asked: a candidate awaits its score; expected: it came from the Gaussian process */
};

int skip_search_open(struct skip_search **out, const struct skip_search_setup *setup, const struct skip_set *first,
                     struct err *err)
{
    struct skip_search *search = mem_alloc(1, sizeof *search, err);
    size_t parts = (size_t)skip_parts(first->layers);
    if (!search)
        return -1;
    search->setup = *setup;
    search->first = search->best = *first;
    search->parts = (int)parts;
    for (int part = 0; part < search->parts; part++)
        search->count += skip_part(first, part);
    if (!(search->point = mem_alloc(parts, sizeof *search->point, err)) ||
        !(search->trial = mem_alloc(parts, sizeof *search->trial, err)) ||
        !(search->peak = mem_alloc(parts, sizeof *search->peak, err)) ||
        !(search->gradient = mem_alloc(2 * parts, sizeof *search->gradient, err)) ||
        !(search->order = mem_alloc(parts, sizeof *search->order, err)) ||
        gaussian_open(&search->gaussian, search->parts, noise, err)) {
        skip_search_close(&search);
        return -1;
    }
    *out = search;
    return 0;
}

void skip_search_close(struct skip_search **search)
{
    struct skip_search *old = *search;
    if (!old)
        return;
    gaussian_close(&old->gaussian);
    mem_free(&old->seen);
    mem_free(&old->point);
    mem_free(&old->trial);
    mem_free(&old->peak);
    mem_free(&old->gradient);
    mem_free(&old->order);
    mem_free(search);
}

static void leave_out(struct skip_search *search, const int *part)
{
    search->candidate = (struct skip_set){.layers = search->first.layers};
    for (int i = 0; i < search->count; i++)
        skip_part_set(&search->candidate, part[i], true);
}

/* Draws a random set: attempt number `try` for candidate number `scored`. */
static void draw_random(struct skip_search *search, int try)
{
    struct philox random = {{0}};
    int *order = search->order;
    for (int part = 0; part < search->parts; part++)
        order[part] = part;
    for (int i = 0; i < search->count; i++) {
        if (i % 4 == 0)
            random = philox((struct philox){{(uint32_t)i, (uint32_t)try, (uint32_t)search->scored, 0}}, search->setup.seed);
        int other = i + (int)((uint64_t)random.word[i % 4] * (uint64_t)(search->parts - i) >> 32), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    leave_out(search, order);
}

static void draw_point(struct skip_search *search, int number, double *point)
{
    for (int at = 0; at < search->parts; at += 2) {
        struct philox random = philox((struct philox){{(uint32_t)at, (uint32_t)number, (uint32_t)search->scored, 1}},
                                      search->setup.seed);
        point[at] = philox_uniform(random.word[0], random.word[1]);
        if (at + 1 < search->parts)
            point[at + 1] = philox_uniform(random.word[2], random.word[3]);
    }
}

/* Returns the upper confidence bound, mean + kappa deviation, and its gradient (NULL: not wanted). */
static double confidence_bound(struct skip_search *search, const double *point, double *gradient)
{
    struct expectation expected = gaussian_expect(search->gaussian, point, gradient);
    for (int at = 0; gradient && at < search->parts; at++)
        gradient[at] += kappa * gradient[search->parts + at];
    return expected.mean + kappa * expected.deviation;
}

/* Ascends from search->point along the gradient within the unit box; returns the bound at the final point. */
static double ascend(struct skip_search *search)
{
    double value = confidence_bound(search, search->point, search->gradient), step = 0;
    for (int round = 0; round < ASCENT; round++) {
        double largest = 0;
        for (int at = 0; at < search->parts; at++)
            largest = fmax(largest, fabs(search->gradient[at]));
        if (largest == 0)
            break;
        step = step > 0 ? step : 0.25 / largest;
        double reached = value;
        for (; step * largest > 1e-6; step /= 2) {
            for (int at = 0; at < search->parts; at++)
                search->trial[at] = fmin(1, fmax(0, search->point[at] + step * search->gradient[at]));
            reached = confidence_bound(search, search->trial, NULL);
            if (reached > value)
                break;
        }
        if (!(reached > value))
            break;
        double *kept = search->point;
        search->point = search->trial;
        search->trial = kept;
        value = confidence_bound(search, search->point, search->gradient);
        step *= 2;
    }
    return value;
}

/* Sets the start point of an ascent: number 0 is the best of many random points, number 1 the best set so far, the others
 * are random. */
static void begin_ascent(struct skip_search *search, int start)
{
    double highest = -INFINITY;
    if (start == 1)
        for (int part = 0; part < search->parts; part++)
            search->point[part] = skip_part(&search->best, part);
    else if (start)
        draw_point(search, WARM_UP + start, search->point);
    for (int number = 0; !start && number < WARM_UP; number++) {
        draw_point(search, number, search->trial);
        double now = confidence_bound(search, search->trial, NULL);
        if (now > highest) {
            double *kept = search->point;
            highest = now;
            search->point = search->trial;
            search->trial = kept;
        }
    }
}

/* Makes the set of the parts with the largest coordinates at the maximum of the bound; of equal ones the earlier. */
static int draw_expected(struct skip_search *search, struct err *err)
{
    double highest = -INFINITY;
    int *order = search->order;
    if (gaussian_fit(search->gaussian, err))
        return -1;
    for (int start = 0; start < STARTS; start++) {
        begin_ascent(search, start);
        double now = ascend(search);
        if (now > highest) {
            highest = now;
            memcpy(search->peak, search->point, (size_t)search->parts * sizeof *search->peak);
        }
    }
    for (int part = 0; part < search->parts; part++) {
        int at = part;
        for (; at && search->peak[order[at - 1]] < search->peak[part]; at--)
            order[at] = order[at - 1];
        order[at] = part;
    }
    leave_out(search, order);
    return 0;
}

static bool is_tried(const struct skip_search *search)
{
    for (int which = 0; which < search->scored; which++) {
        const bool *seen = search->seen + (size_t)which * (size_t)search->parts;
        int part = 0;
        while (part < search->parts && seen[part] == skip_part(&search->candidate, part))
            part++;
        if (part == search->parts)
            return true;
    }
    return false;
}

static int draw(struct skip_search *search, struct err *err)
{
    int number = search->scored, interval = search->setup.bayes_interval;
    search->expected = number && interval && number % interval == 0;
    if (!number)
        search->candidate = search->first;
    else if (search->expected && draw_expected(search, err))
        return -1;
    else if (!search->expected)
        draw_random(search, 0);
    for (int try = 1; search->setup.fixed_texts && is_tried(search); try++) {
        if (try > REDRAWS) {
            search->ended = "all";
            return 0;
        }
        search->expected = false;
        draw_random(search, try);
    }
    search->asked = true;
    return 1;
}

int skip_search_next(struct skip_search *search, struct skip_set *candidate, struct err *err)
{
    int rc = search->ended ? 0 : search->asked ? 1 : draw(search, err);
    if (rc > 0)
        *candidate = search->candidate;
    return rc;
}

int skip_search_score(struct skip_search *search, double matchness, struct err *err)
{
    size_t parts = (size_t)search->parts, need = ((size_t)search->scored + 1) * parts;
    if (mem_grow(&search->seen, &search->seen_room, need, sizeof *search->seen, err))
        return -1;
    for (int part = 0; part < search->parts; part++) {
        search->seen[need - parts + (size_t)part] = skip_part(&search->candidate, part);
        search->point[part] = skip_part(&search->candidate, part);
    }
    if (gaussian_add(search->gaussian, search->point, matchness, err))
        return -1;
    bool better = !search->scored || matchness > search->score;
    search->asked = false;
    search->bayesian += search->expected;
    search->idle = better ? 0 : search->idle + 1;
    search->scored++;
    if (better) {
        search->best = search->candidate;
        search->score = matchness;
        search->kept++;
    }
    search->ended = search->score > search->setup.max_score ? "score"
                  : search->idle >= search->setup.patience ? "patience"
                  : search->scored >= search->setup.iterations ? "iterations" : NULL;
    return 0;
}

const struct skip_set *skip_search_best(const struct skip_search *search) { return &search->best; }

void skip_search_result(const struct skip_search *search, struct skip_found *out)
{
    out->matchness = search->score;
    out->search.seed = search->setup.seed;
    out->search.candidates = search->scored;
    out->search.bayesian = search->bayesian;
    out->search.kept = search->kept;
    out->search.ended = search->ended;
}
