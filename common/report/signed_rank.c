#include "common/report/signed_rank.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/report/stats.h"

/* Sets chance[s] = P(V = s) for s < sums. V is the sum of those ranks 1 to count whose difference is positive, each with
 * probability 1/2. Each rank is one convolution step, computed in place by descending s. */
static void rank_sum_chances(double *chance, size_t sums, size_t count)
{
    chance[0] = 1;
    for (size_t rank = 1; rank <= count; rank++)
        for (size_t s = sums; s-- > 0;)
            chance[s] = 0.5 * chance[s] + (s >= rank ? 0.5 * chance[s - rank] : 0);
}

/* Returns how many of the sorted means are outside a bound: the largest n with P(V < n) <= error. */
static size_t means_outside(const double *chance, size_t sums, double error)
{
    size_t outside = 0;
    double total = 0;
    while (outside < sums && total + chance[outside] <= error)
        total += chance[outside++];
    return outside;
}

int signed_rank(const double *differences, size_t count, double error_low, double error_high, struct signed_rank *out,
                struct err *err)
{
    size_t means = count * (count + 1) / 2, at = 0, sums = means / 2 + 1;
    if (!count) {
        *out = (struct signed_rank){NAN, -INFINITY, INFINITY};
        return 0;
    }
    double *mean = mem_alloc(means, sizeof *mean, err);
    double *chance = mean ? mem_alloc(sums, sizeof *chance, err) : NULL;
    if (!chance) {
        mem_free(&mean);
        return -1;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t k = i; k < count; k++)
            mean[at++] = (differences[i] + differences[k]) / 2;
    qsort(mean, means, sizeof *mean, stats_ascending);
    rank_sum_chances(chance, sums, count);
    size_t below = means_outside(chance, sums, error_low), above = means_outside(chance, sums, error_high);
    *out = (struct signed_rank){.middle = (mean[(means - 1) / 2] + mean[means / 2]) / 2,
                                .low = below ? mean[below - 1] : -INFINITY,
                                .high = above ? mean[means - above] : INFINITY};
    mem_free(&mean);
    mem_free(&chance);
    return 0;
}
