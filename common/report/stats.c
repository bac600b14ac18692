#include "common/report/stats.h"

#include <math.h>
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

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double stats_quantile(double *values, size_t count, double share)
{
    if (!count)
        return NAN;
    qsort(values, count, sizeof *values, ascending);
    double place = share * (double)(count - 1), below = floor(place);
    size_t at = (size_t)below;
    if (at + 1 >= count)
        return values[count - 1];
    return values[at] + (values[at + 1] - values[at]) * (place - below);
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

static double resampled(const struct stats_pair *pairs, size_t count, uint32_t resample)
{
    struct stats_pair sum = {0};
    for (size_t draw = 0; draw < count; draw += 4) {
        struct philox random = philox((struct philox){{(uint32_t)(draw / 4), resample, 0, 0}}, 0);
        for (size_t i = 0; i < 4 && draw + i < count; i++)
            add(&sum, &pairs[(uint64_t)random.word[i] * count >> 32]);
    }
    return ratio_of(&sum);
}

int stats_ratio(const struct stats_pair *pairs, size_t count, struct stats_ratio *out, struct err *err)
{
    if (count > UINT32_MAX)
        return err_set(err, ERR_INPUT, "more prompts than can be resampled");
    struct stats_pair sum = {0};
    for (size_t i = 0; i < count; i++)
        add(&sum, &pairs[i]);
    struct stats_ratio result = {.ratio = count ? ratio_of(&sum) : NAN, .low = NAN, .high = NAN};
    if (count > 1) {
        double *ratios = mem_alloc(STATS_RESAMPLES, sizeof *ratios, err);
        if (!ratios)
            return -1;
        for (uint32_t s = 0; s < STATS_RESAMPLES; s++)
            ratios[s] = resampled(pairs, count, s);
        result.low = stats_quantile(ratios, STATS_RESAMPLES, 0.025);
        result.high = stats_quantile(ratios, STATS_RESAMPLES, 0.975);
        mem_free(&ratios);
    }
    *out = result;
    return 0;
}
