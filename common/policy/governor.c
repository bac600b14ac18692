#include "common/policy/governor.h"

#include <math.h>

static const double SAVES = 0.98;

int governor_init(struct governor *governor, struct spec *spec, int experts, int top_k, struct err *err)
{
    struct governor made = {.top_k = top_k};
    if (spec_float(spec, "kl", 0.02, 1e-9, 1e3, &made.bound, err) || spec_int(spec, "every", 16, 1, 1 << 20, &made.every, err))
        return -1;
    for (int eighths = 8; eighths >= 1; eighths--) {
        int budget = (experts * eighths + 7) / 8;
        budget = budget < top_k ? top_k : budget;
        if (!made.levels || budget < made.level[made.levels - 1].budget)
            made.level[made.levels++].budget = budget;
    }
    *governor = made;
    return 0;
}

/* The next level that saves something, or the next one while nothing is known; 0: there is none. */
static int below(const struct governor *governor)
{
    const double now = governor->level[governor->at].bytes;
    for (int level = governor->at + 1; level < governor->levels; level++)
        if (!(governor->level[level].bytes > SAVES * now))
            return level;
    return 0;
}

/* The level that the next probe is of; 0: none. */
static int probed(const struct governor *governor)
{
    int next = below(governor);
    return governor->at && (governor->turn % 2 || !next) ? governor->at : next;
}

int governor_next(struct governor *governor, bool *probe)
{
    int level = probed(governor);
    *probe = level > 0 && governor->since + 1 >= governor->every;
    governor->since = *probe ? 0 : governor->since + 1;
    return governor->level[*probe ? level : governor->at].budget;
}

static int64_t counted(const struct governor_level *level)
{
    return level->probes < PROBES_MOST ? level->probes : PROBES_MOST;
}

/* Mean of the last probes, and its standard error. */
static double mean(const struct governor_level *level, double *error)
{
    double sum = 0, square = 0;
    int64_t count = counted(level);
    for (int i = 0; i < count; i++)
        sum += level->probe[i];
    for (int i = 0; i < count; i++)
        square += (level->probe[i] - sum / (double)count) * (level->probe[i] - sum / (double)count);
    *error = count > 1 ? sqrt(square / (double)(count - 1) / (double)count) : INFINITY;
    return sum / (double)count;
}

static void decide(struct governor *governor)
{
    struct governor_level *now = &governor->level[governor->at];
    double error;
    if (governor->at && now->probes && mean(now, &error) > governor->bound) {
        now->probes = 0;                        /* to be learned anew before it is taken again */
        governor->at--;
        return;
    }
    int next = below(governor);
    if (!next || governor->level[next].probes < PROBES_LEAST)
        return;
    double divergence = mean(&governor->level[next], &error);
    if (divergence + 2 * error <= governor->bound)
        governor->at = next;
}

void governor_observe(struct governor *governor, int budget, double divergence, const int32_t *wanted, int layers,
                      double expert_bytes, double other_bytes)
{
    for (int i = 0; i < governor->levels; i++) {
        struct governor_level *level = &governor->level[i];
        double loaded = 0;
        for (int layer = 0; layer < layers; layer++)
            loaded += wanted[layer] < level->budget ? wanted[layer] : level->budget;
        double bytes = other_bytes + loaded * expert_bytes;
        level->bytes = level->bytes > 0 ? level->bytes + (bytes - level->bytes) / PROBES_MOST : bytes;
        if (level->budget == budget)
            level->probe[level->probes++ % PROBES_MOST] = divergence;
    }
    governor->turn++;
    decide(governor);
}

void governor_state(const struct governor *governor, struct values *out)
{
    double error;
    values_int(out, "budget", governor->level[governor->at].budget);
    if (governor->at && governor->level[governor->at].probes)
        values_real(out, "kl", mean(&governor->level[governor->at], &error));
    int next = below(governor);
    if (next && governor->level[next].probes)
        values_real(out, "kl_below", mean(&governor->level[next], &error));
}
