/* How often an interval contains the truth, if the truth is known: noise of several kinds over several numbers of prompts,
 * compared with the coverage that moe-bench(1) states; for 5 prompts an interval cannot reach 95 % (stats.h).
 *
 * And how often the intervals of a report and of a comparison find a difference between a binary and itself: resampled from
 * a real run of one setting, 200 times, at most 17 (the 97.5 % quantile at 5 %), with all or a part of its prompts, each
 * side one repetition or the median of three, as measured on a busy machine (tests/bench/itself.txt). */
#include "tests/unit/run_times.h"

#include "common/report/compare.h"

enum { TRIALS = 1000, COMPARISONS = 200, DIFFERENCES_MAX = 17 };

/* Noise of the two sides of n prompts, as logarithms of factors of seconds: own[i] and base[i]. Runs alternate. */
typedef void noise_maker(double *own, double *base, int n, uint32_t *counter);

static void even_noise(double *own, double *base, int n, uint32_t *counter)
{
    for (int i = 0; i < n; i++) {
        own[i] = 0.03 * normal(counter);
        base[i] = 0.03 * normal(counter);
    }
}

static double spike(uint32_t *counter) { return uniform(counter) < 0.05 ? log(1.5) : 0; }

static void spiky_noise(double *own, double *base, int n, uint32_t *counter)
{
    even_noise(own, base, n, counter);
    for (int i = 0; i < n; i++) {
        own[i] += spike(counter);
        base[i] += spike(counter);
    }
}

/* Student's distribution with two degrees of freedom has no variance; but no run is e times slower. */
static double heavy(uint32_t *counter)
{
    double u = 2 * uniform(counter) - 1, t = u * sqrt(2 / (1 - u * u));
    return fmax(-1, fmin(1, 0.03 * t));
}

static void heavy_noise(double *own, double *base, int n, uint32_t *counter)
{
    for (int i = 0; i < n; i++) {
        own[i] = heavy(counter);
        base[i] = heavy(counter);
    }
}

static void drifting_noise(double *own, double *base, int n, uint32_t *counter)
{
    even_noise(own, base, n, counter);
    for (int i = 0; i < n; i++) {
        own[i] += 0.3 * i / n;
        base[i] += 0.3 * i / n;
    }
}

/* Each run's noise is four fifths of the previous run's, plus new noise. */
static void lasting_noise(double *own, double *base, int n, uint32_t *counter)
{
    double now = 0.1 * normal(counter);
    for (int i = 0; i < 2 * n; i++) {
        *(i % 2 ? &base[i / 2] : &own[i / 2]) = now;
        now = 0.8 * now + 0.6 * 0.1 * normal(counter);
    }
}

/* The gain differs from prompt to prompt: the true ratio of expected rates is exp(-0.3^2 / 2). */
static void prompts_differ(double *own, double *base, int n, uint32_t *counter)
{
    even_noise(own, base, n, counter);
    for (int i = 0; i < n; i++)
        own[i] += 0.3 * normal(counter);
}

static void make_pairs(struct stats_pair *pairs, int n, noise_maker *noise, double lengths, uint32_t *counter)
{
    double own[PROMPTS_MAX], base[PROMPTS_MAX];
    noise(own, base, n, counter);
    for (int i = 0; i < n; i++) {
        double tokens = 20 + 100 * uniform(counter), seconds = tokens * 0.01 * exp(lengths * normal(counter));
        pairs[i] = (struct stats_pair){tokens, seconds * exp(own[i]), tokens, seconds * exp(base[i])};
    }
}

static void intervals_hold_the_truth(void **state)
{
    static const struct { const char *name; noise_maker *noise; double lengths, truth; } kinds[] = {
        {"even", even_noise, 0.4, 1}, {"spikes", spiky_noise, 0.4, 1}, {"heavy tails", heavy_noise, 0.4, 1},
        {"drift", drifting_noise, 0.4, 1}, {"lasting", lasting_noise, 0.4, 1}, {"very unequal lengths", even_noise, 1.1, 1},
        {"prompts that differ", prompts_differ, 0.4, 0.955997},
    };
    static const struct { int prompts, min, max; } sizes[] = {{5, 910, 960}, {10, 920, 990}, {40, 920, 990}};
    uint32_t counter = 0;
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            int held = 0;
            for (int i = 0; i < TRIALS; i++) {
                struct stats_pair pairs[PROMPTS_MAX];
                struct stats_ratio ratio;
                make_pairs(pairs, sizes[s].prompts, kinds[k].noise, kinds[k].lengths, &counter);
                assert_int_equal(stats_ratio(pairs, (size_t)sizes[s].prompts, 0.05, &ratio, NULL), 0);
                held += ratio.low <= kinds[k].truth && kinds[k].truth <= ratio.high;
            }
            printf("# %s, %d prompts: held %d of %d\n", kinds[k].name, sizes[s].prompts, held, TRIALS);
            if (held < sizes[s].min || held > sizes[s].max)
                fail_msg("%s, %d prompts: %d of %d intervals hold the truth", kinds[k].name, sizes[s].prompts, held, TRIALS);
        }
}

/* Draws `count` times of one prompt, of repetitions that the other side does not get, and returns their median. */
static double draw_us(const struct run_times *times, int prompt, int count, bool *taken, uint32_t *counter)
{
    double us[REPEATS_MAX];
    for (int i = 0; i < count; ) {
        int repeat = (int)(uniform(counter) * times->repeats);
        if (taken[repeat])
            continue;
        taken[repeat] = true;
        us[i++] = times->us[prompt][repeat];
    }
    return stats_quantile(us, (size_t)count, 0.5);
}

static void a_binary_seldom_differs_from_itself(void **state)
{
    static struct run_times times;
    static const int parts[] = {1, 2, 4}, medians[] = {1, 3};
    (void)state;
    run_times_read(&times);
    for (size_t m = 0; m < sizeof medians / sizeof *medians; m++)
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            uint32_t counter = 0;
            int differences = 0, slower = 0, count = times.prompts / parts[k];
            for (int i = 0; i < COMPARISONS; i++) {
                struct stats_pair pairs[PROMPTS_MAX];
                struct stats_ratio ratio;
                for (int p = 0; p < count; p++) {
                    bool taken[REPEATS_MAX] = {false};
                    int prompt = (int)(uniform(&counter) * times.prompts);      /* the prompts are a sample, too */
                    double tokens = times.tokens[prompt][0];
                    pairs[p] = (struct stats_pair){tokens, draw_us(&times, prompt, medians[m], taken, &counter), tokens,
                                                   draw_us(&times, prompt, medians[m], taken, &counter)};
                }
                assert_int_equal(stats_ratio(pairs, (size_t)count, 0.05, &ratio, NULL), 0);
                differences += ratio.low > 1 || ratio.high < 1;
                slower += compare_judge(&ratio, ratio.high, (size_t)count, 0) == COMPARE_SLOWER;
            }
            printf("# %d prompts, median of %d: %d of %d differ, %d seem slower\n", count, medians[m], differences, COMPARISONS,
                   slower);
            if (differences > DIFFERENCES_MAX)
                fail_msg("%d prompts, median of %d: %d of %d comparisons with itself differ", count, medians[m], differences,
                         COMPARISONS);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_hold_the_truth), cmocka_unit_test(a_binary_seldom_differs_from_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
