/* Data for tests of intervals and comparisons: random numbers that are the same everywhere, and the times of a real run
 * (tests/bench/itself.txt), read relative to the repository's root. */
#ifndef MOE_TESTS_RUN_TIMES_H
#define MOE_TESTS_RUN_TIMES_H

#include "tests/unit/unit.h"

#include <math.h>

#include "kernels/plain/philox.h"

enum { PROMPTS_MAX = 64, REPEATS_MAX = 32 };

/* Returns the next uniform number in (0, 1). */
static inline double uniform(uint32_t *counter)
{
    struct philox random = philox((struct philox){{(*counter)++, 0, 0, 0}}, 77);
    return (random.word[0] + 0.5) / 4294967296.0;
}

static inline double normal(uint32_t *counter)
{
    double radius = sqrt(-2 * log(uniform(counter)));
    return radius * cos(2 * acos(-1) * uniform(counter));
}

struct run_times {
    double tokens[PROMPTS_MAX][REPEATS_MAX], us[PROMPTS_MAX][REPEATS_MAX];
    int prompts, repeats;
};

static inline void run_times_read(struct run_times *times)
{
    char line[256];
    FILE *file = fopen("tests/bench/itself.txt", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        int prompt, repeat;
        double tokens, us;
        if (*line == '#')
            continue;
        assert_int_equal(sscanf(line, "%d %d %lf %lf", &prompt, &repeat, &tokens, &us), 4);
        assert_in_range(prompt, 0, PROMPTS_MAX - 1);
        assert_in_range(repeat, 0, REPEATS_MAX - 1);
        times->tokens[prompt][repeat] = tokens;
        times->us[prompt][repeat] = us;
        times->prompts = prompt + 1 > times->prompts ? prompt + 1 : times->prompts;
        times->repeats = repeat + 1 > times->repeats ? repeat + 1 : times->repeats;
    }
    fclose(file);
    assert_int_equal(times->prompts, 32);
    assert_int_equal(times->repeats, 16);
}

#endif
