#include "common/report/stats.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "kernels/plain/philox.h"

double stats_mean(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return count ? sum / (double)count : NAN;
}

int stats_ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double stats_quantile(double *values, size_t count, double share)
{
    if (!count)
        return NAN;
    qsort(values, count, sizeof *values, stats_ascending);
    double position = share * (double)(count - 1), below = floor(position);
    size_t at = (size_t)below;
    if (at + 1 >= count)
        return values[count - 1];
    return values[at] + (values[at + 1] - values[at]) * (position - below);
}

static double ratio_of(const struct stats_pair *sum)
{
    return sum->tokens / sum->seconds / (sum->base_tokens / sum->base_seconds);
}

static void add(struct stats_pair *sum, const struct stats_pair *pair)
{
    sum->tokens += pair->tokens;
    sum->seconds += pair->seconds;
    sum->base_tokens += pair->base_tokens;
    sum->base_seconds += pair->base_seconds;
}

/* Returns the ratio of a resample of the pairs, divided by that of the pairs beside them, if any. */
static double resampled(const struct stats_pair *pairs, const struct stats_pair *beside, size_t count, uint32_t resample)
{
    struct stats_pair sum = {0}, sum_beside = {0};
    for (size_t draw = 0; draw < count; draw += 4) {
        struct philox random = philox((struct philox){{(uint32_t)(draw / 4), resample, 0, 0}}, 0);
        for (size_t i = 0; i < 4 && draw + i < count; i++) {
            size_t at = (uint64_t)random.word[i] * count >> 32;
            add(&sum, &pairs[at]);
            if (beside)
                add(&sum_beside, &beside[at]);
        }
    }
    return beside ? ratio_of(&sum) / ratio_of(&sum_beside) : ratio_of(&sum);
}

/* Computes P(|T| > t) of Student's distribution: the finite series for whole degrees of freedom, Abramowitz and Stegun
 * 26.7.3, 26.7.4. */
static double student_tails(double t, size_t freedom)
{
    double angle = atan(t / sqrt((double)freedom)), square = cos(angle) * cos(angle), term, sum;
    bool odd = freedom % 2;
    term = odd ? cos(angle) : 1;
    sum = freedom == 1 ? 0 : term;
    for (size_t k = odd ? 3 : 2; k < freedom; k += 2) {
        term *= square * (double)(k - 1) / (double)k;
        sum += term;
    }
    sum *= sin(angle);
    return 1 - (odd ? 2 / acos(-1) * (angle + sum) : sum);
}

/* Returns the tail probability of the expanded percentile interval for `count` values. */
static double expanded_tail(size_t count, double error)
{
    enum { NORMAL_ENOUGH = 2000 };
    double low = 0, high = 1e6;
    size_t freedom = count - 1;
    if (freedom > NORMAL_ENOUGH)
        return error / 2;
    for (int step = 0; step < 100; step++) {
        double middle = (low + high) / 2;
        if (student_tails(middle, freedom) > error)
            low = middle;
        else
            high = middle;
    }
    return erfc(low * sqrt((double)count / (double)freedom) / sqrt(2)) / 2;
}

/* Returns the effective number of prompts: that many prompts of equal weight would give as much information (Kish). */
static double equal_weights(double sum, double squares) { return floor(sum * sum / squares * (1 + 1e-12)); }

static size_t effective_count(const struct stats_pair *pairs, size_t count)
{
    double sum = 0, squares = 0, base_sum = 0, base_squares = 0;
    for (size_t i = 0; i < count; i++) {
        sum += pairs[i].seconds;
        squares += pairs[i].seconds * pairs[i].seconds;
        base_sum += pairs[i].base_seconds;
        base_squares += pairs[i].base_seconds * pairs[i].base_seconds;
    }
    double effective = fmin(equal_weights(sum, squares), equal_weights(base_sum, base_squares));
    return effective < 2 ? 2 : (size_t)effective;
}

int stats_ratio(const struct stats_pair *pairs, size_t count, double error, struct stats_ratio *out, struct err *err)
{
    return stats_ratio_beside(pairs, NULL, count, error, out, err);
}

int stats_ratio_beside(const struct stats_pair *pairs, const struct stats_pair *beside, size_t count, double error,
                       struct stats_ratio *out, struct err *err)
{
    if (count > UINT32_MAX)
        return err_set(err, ERR_INPUT, "there are too many prompts to resample; report on fewer streams");
    struct stats_pair sum = {0}, sum_beside = {0};
    for (size_t i = 0; i < count; i++) {
        add(&sum, &pairs[i]);
        if (beside)
            add(&sum_beside, &beside[i]);
    }
    struct stats_ratio result = {.ratio = !count ? NAN : beside ? ratio_of(&sum) / ratio_of(&sum_beside) : ratio_of(&sum),
                                 .low = NAN, .high = NAN};
    if (count > 1) {
        double *ratios = mem_alloc(STATS_RESAMPLES, sizeof *ratios, err), tail;
        if (!ratios)
            return -1;
        for (uint32_t s = 0; s < STATS_RESAMPLES; s++)
            ratios[s] = resampled(pairs, beside, count, s);
        size_t effective = effective_count(pairs, count), other = beside ? effective_count(beside, count) : effective;
        tail = expanded_tail(other < effective ? other : effective, error);
        result.low = stats_quantile(ratios, STATS_RESAMPLES, tail);
        result.high = stats_quantile(ratios, STATS_RESAMPLES, 1 - tail);
        mem_free(&ratios);
    }
    *out = result;
    return 0;
}
