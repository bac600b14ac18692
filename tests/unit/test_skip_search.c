/* SWIFT's search: the Gaussian process compared with scikit-learn, candidates with bayes_opt and scipy
 * (tests/golden/skip/make.py), and the conditions for its end. */
#include <math.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/draft/gaussian.h"
#include "common/draft/skip_search.h"
#include "tests/unit/unit.h"

/* Calls `check` with each line of a golden file. */
static void each_line(const char *name, void (*check)(const json_t *line))
{
    struct err err = {0};
    struct text text = {0};
    json_error_t fault;
    char path[1200];
    int lines = 0;
    snprintf(path, sizeof path, "%s/../golden/skip/%s", unit_models(), name);
    if (file_read(&text, path, 1 << 20, &err))
        fail_msg("%s", err.text);
    for (char *at = text.data, *end; (end = strchr(at, '\n')); at = end + 1, lines++) {
        json_t *line = json_read(at, (size_t)(end - at), 0, &fault);
        assert_non_null(line);
        check(line);
        json_decref(line);
    }
    assert_true(lines >= 2);
    text_free(&text);
}

static double number(const json_t *map, const char *key) { return json_number_value(json_object_get(map, key)); }

static double number_at(const json_t *map, const char *key, size_t at)
{
    return json_number_value(json_array_get(json_object_get(map, key), at));
}

static void read_point(const json_t *points, size_t which, double *out)
{
    const json_t *point = json_array_get(points, which);
    for (size_t at = 0; at < json_array_size(point); at++)
        out[at] = json_number_value(json_array_get(point, at));
}

static void near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance * fmax(1, fabs(expected))))
        fail_msg("%.9g, not %.9g", value, expected);
}

static void check_process(const json_t *line)
{
    struct err err = {0};
    struct gaussian *gaussian = NULL;
    const json_t *points = json_object_get(line, "points"), *probes = json_object_get(line, "probes");
    int width = (int)json_array_size(json_array_get(points, 0));
    double point[64], gradient[128], around[2];
    assert_int_equal(gaussian_open(&gaussian, width, number(line, "noise"), &err), 0);
    assert_int_equal(gaussian_fit(gaussian, &err), -1);
    err_clear(&err);
    for (size_t i = 0; i < json_array_size(points); i++) {
        read_point(points, i, point);
        assert_int_equal(gaussian_add(gaussian, point, number_at(line, "scores", i), &err), 0);
    }
    assert_int_equal(gaussian_fit(gaussian, &err), 0);
    near(gaussian_log_likelihood(gaussian), number(line, "likelihood"), 1e-4);
    if (number(line, "length") < 100)               /* beyond this limit all lengths give the same result */
        near(gaussian_length(gaussian), number(line, "length"), 0.01);
    for (size_t i = 0; i < json_array_size(probes); i++) {
        read_point(probes, i, point);
        struct expectation now = gaussian_expect(gaussian, point, gradient), side;
        near(now.mean, number_at(line, "mean", i), 1e-3);
        near(now.deviation, number_at(line, "deviation", i), 1e-3);
        near(now.mean + 2.5 * now.deviation, number_at(line, "hope", i), 2e-3);
        for (int at = 0; at < width && gaussian_points(gaussian) > 1; at++) {
            double kept = point[at];
            for (int way = 0; way < 2; way++) {
                point[at] = kept + (way ? 1e-5 : -1e-5);
                side = gaussian_expect(gaussian, point, NULL);
                around[way] = side.mean + 2.5 * side.deviation;
            }
            point[at] = kept;
            near(gradient[at] + 2.5 * gradient[width + at], (around[1] - around[0]) / 2e-5, 1e-4);
        }
    }
    gaussian_close(&gaussian);
}

static void expects_what_scikit_learn_does(void **state)
{
    (void)state;
    each_line("gaussian.jsonl", check_process);
}

static void check_candidates(const json_t *line)
{
    struct err err = {0};
    struct skip_search_setup setup = SKIP_SEARCH_SWIFT;
    struct skip_search *search = NULL;
    struct skip_set first, candidate;
    struct skip_found found = {0};
    const json_t *candidates = json_object_get(line, "candidates"), *expected;
    double best = -1;
    int kept = 0, bayesian = 0;
    size_t number_of;
    setup.seed = (uint64_t)json_integer_value(json_object_get(line, "seed"));
    setup.bayes_interval = (int)number(line, "interval");
    setup.max_score = 1;
    assert_int_equal(skip_set_first(&first, (int)number(line, "layers"), 0.5, &err), 0);
    assert_int_equal(skip_search_open(&search, &setup, &first, &err), 0);
    json_array_foreach((json_t *)(uintptr_t)candidates, number_of, expected) {
        const json_t *parts = json_object_get(expected, "parts");
        struct skip_set wanted = {.layers = first.layers};
        double score = number(expected, "score");
        for (size_t i = 0; i < json_array_size(parts); i++)
            skip_part_set(&wanted, (int)json_integer_value(json_array_get(parts, i)), true);
        assert_int_equal(skip_search_next(search, &candidate, &err), 1);
        if (memcmp(&candidate, &wanted, sizeof wanted) != 0)
            fail_msg("candidate %zu is another", number_of);
        assert_int_equal(skip_search_next(search, &candidate, &err), 1);       /* until it is scored */
        assert_memory_equal(&candidate, &wanted, sizeof wanted);
        assert_int_equal(skip_search_score(search, score, &err), 0);
        bayesian += !json_is_null(json_object_get(expected, "gap"));
        kept += score > best;
        best = fmax(best, score);
        skip_search_result(search, &found);
        assert_true(found.matchness == best);
        if (score == best)
            assert_memory_equal(skip_search_best(search), &wanted, sizeof wanted);
    }
    assert_int_equal(found.search.kept, kept);
    assert_int_equal(found.search.bayesian, bayesian);
    assert_int_equal(found.search.candidates, json_array_size(candidates));
    assert_null(found.search.ended);
    skip_search_close(&search);
}

static void candidates_are_those_of_bayes_opt(void **state)
{
    (void)state;
    each_line("search.jsonl", check_candidates);
}

/* Returns the share of skipped parts that are in the second half of the attentions: a score whose maximum is known. */
static double score_of(const struct skip_set *set, int *left_out)
{
    int good = 0, parts = skip_parts(set->layers);
    *left_out = 0;
    for (int part = 0; part < parts; part++) {
        *left_out += skip_part(set, part);
        good += skip_part(set, part) && part >= parts / 4 && part < parts / 2;
    }
    return (double)good / *left_out;
}

/* Runs a search to its end; returns the number of candidates. */
static int run(const struct skip_search_setup *setup, int layers, double ratio, double constant, const char *ended,
               double *best)
{
    struct err err = {0};
    struct skip_search *search = NULL;
    struct skip_set first, candidate;
    struct skip_found found = {0};
    int rounds = 0, left_out;
    assert_int_equal(skip_set_first(&first, layers, ratio, &err), 0);
    assert_int_equal(skip_search_open(&search, setup, &first, &err), 0);
    for (; skip_search_next(search, &candidate, &err) == 1; rounds++) {
        double score = score_of(&candidate, &left_out);
        assert_int_equal(left_out, skip_count(layers, ratio));
        assert_int_equal(skip_search_score(search, constant >= 0 ? constant : score, &err), 0);
    }
    skip_search_result(search, &found);
    assert_string_equal(found.search.ended, ended);
    assert_int_equal(found.search.candidates, rounds);
    assert_int_equal(skip_search_next(search, &candidate, &err), 0);
    *best = found.matchness;
    skip_search_close(&search);
    return rounds;
}

static void it_ends_by_its_rules(void **state)
{
    (void)state;
    struct skip_search_setup setup = SKIP_SEARCH_SWIFT;
    double best;
    assert_int_equal(run(&setup, 14, 0.25, 0.93, "patience", &best), 301);       /* not above max_score */
    assert_int_equal(run(&setup, 14, 0.25, 0.94, "score", &best), 1);
    setup.iterations = 40;
    assert_int_equal(run(&setup, 14, 0.25, 0.5, "iterations", &best), 40);
    setup = (struct skip_search_setup){.max_score = 2, .patience = 300, .iterations = 1000, .fixed_texts = true};
    assert_int_equal(run(&setup, 5, 0.5, 0.5, "all", &best), 6 * 5 * 4 / 6);     /* each of the sets once */
    setup.bayes_interval = 4;
    assert_int_equal(run(&setup, 5, 0.5, 0.5, "all", &best), 6 * 5 * 4 / 6);
}

/* 6 of 24 parts, of which 6 score: 134,596 sets, one of them the best */
static void the_process_finds_more_than_chance(void **state)
{
    (void)state;
    double with = 0, without = 0, best;
    uint64_t seeds = unit_brief() ? 1 : 3;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct skip_search_setup setup = {
            .seed = seed, .bayes_interval = 5, .max_score = 0.99, .patience = 300, .iterations = 60};
        struct err err = {0};
        struct skip_search *search = NULL;
        struct skip_set first = {.layers = 14}, candidate;
        struct skip_found found = {0};
        int left_out;
        for (int layer = 1; layer <= 6; layer++)
            first.ffn[layer] = true;
        assert_int_equal(skip_search_open(&search, &setup, &first, &err), 0);
        while (skip_search_next(search, &candidate, &err) == 1)
            assert_int_equal(skip_search_score(search, score_of(&candidate, &left_out), &err), 0);
        skip_search_result(search, &found);
        with += found.matchness;
        setup.bayes_interval = 0;
        run(&setup, 14, 0.25, -1, "iterations", &best);
        without += best;
        skip_search_close(&search);
    }
    with /= (double)seeds;
    without /= (double)seeds;
    if (!(with >= 0.95 && with > without + 0.15))
        fail_msg("the process found %.3f, chance %.3f", with, without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expects_what_scikit_learn_does),
        cmocka_unit_test(candidates_are_those_of_bayes_opt),
        cmocka_unit_test(it_ends_by_its_rules),
        cmocka_unit_test(the_process_finds_more_than_chance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
