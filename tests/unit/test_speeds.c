/* Measured speeds: of products, corrected if more rows were faster; of a network and a disk, fitted. */
#include "tests/unit/unit.h"

#include <math.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "common/bench/disk.h"
#include "common/bench/network.h"
#include "common/bench/speeds.h"

static void check(const double *measured, const double *want, int points)
{
    struct product_speed product = {.points = points};
    for (int i = 0; i < points; i++) {
        product.point[i].rows = 1 + i;
        product.point[i].bytes_per_second = measured[i];
    }
    speeds_pool(&product);
    for (int i = 0; i < points; i++)
        if (fabs(product.point[i].bytes_per_second / want[i] - 1) > 1e-12)
            fail_msg("point %d: %g, expected %g", i, product.point[i].bytes_per_second, want[i]);
}

static void speeds_that_fall_are_left(void **state)
{
    (void)state;
    check((const double[]){20, 20, 10, 5}, (const double[]){20, 20, 10, 5}, 4);
    check((const double[]){7}, (const double[]){7}, 1);
}

/* 10 and 40 take 1/10 and 1/40 of a second per byte, 16 on average. */
static void speeds_that_rise_are_pooled(void **state)
{
    (void)state;
    check((const double[]){10, 40, 5}, (const double[]){16, 16, 5}, 3);
    check((const double[]){10, 10, 20}, (const double[]){12, 12, 12}, 3);       /* the last correction reaches the first */
    check((const double[]){20, 10, 15, 5}, (const double[]){20, 12, 12, 5}, 4);
}

/* Six row counts with one true speed and random disturbances: the pooled speed of one row is near the true one, the fastest
 * is not. */
static void the_least_disturbed_point_does_not_decide(void **state)
{
    enum { POINTS = 6, RUNS = 2000 };
    uint32_t random = 1;
    double sum = 0, fastest = 0;
    (void)state;
    for (int run = 0; run < RUNS; run++) {
        struct product_speed product = {.points = POINTS};
        double most = 0;
        for (int i = 0; i < POINTS; i++) {
            random = random * 1664525 + 1013904223;
            product.point[i].rows = 1 + i;
            product.point[i].bytes_per_second = 1 / (1 + 0.4 * (random >> 8) / (1 << 24) - 0.2);
            most = fmax(most, product.point[i].bytes_per_second);
        }
        speeds_pool(&product);
        sum += product.point[0].bytes_per_second / RUNS;
        fastest += most / RUNS;
    }
    assert_true(sum > 0.97 && sum < 1.1 && fastest > 1.13);
}

/* Times of three processes with 20 us per message and 2 GB/s are fitted exactly; without a latency, or with nothing else,
 * one of the two explains them. */
static void latency_and_bandwidth_are_fitted(void **state)
{
    const struct transfer_speed network = {.latency_s = 20e-6, .bytes_per_second = 2e9};
    double bytes[6], seconds[6];
    struct transfer_speed found;
    (void)state;
    for (int i = 0; i < 6; i++) {
        bytes[i] = pow(8, i) * 1024;
        seconds[i] = 2 * (20e-6 + bytes[i] / 3 / 2e9);
        assert_true(fabs(network_gather(&network, 3, bytes[i]) / seconds[i] - 1) < 1e-12);
    }
    network_fit(&found, 3, bytes, seconds, 6);
    assert_true(fabs(found.latency_s / 20e-6 - 1) < 1e-9 && fabs(found.bytes_per_second / 2e9 - 1) < 1e-9);
    for (int i = 0; i < 6; i++)
        seconds[i] *= 1 + 0.1 * (i % 2 ? 1 : -1);
    network_fit(&found, 3, bytes, seconds, 6);
    assert_true(fabs(found.latency_s / 20e-6 - 1) < 0.2 && fabs(found.bytes_per_second / 2e9 - 1) < 0.2);
    for (int i = 0; i < 6; i++)
        seconds[i] = 1e-3 / (i + 1);
    network_fit(&found, 3, bytes, seconds, 6);
    assert_true(found.latency_s > 0 && found.bytes_per_second > 1e17);
}

static size_t large;                    /* bytes for which large pages were requested */

/* Replaces the C library's function. */
int madvise(void *memory, size_t bytes, int advice)
{
    large += advice == MADV_HUGEPAGE ? bytes : 0;
    return (int)syscall(SYS_madvise, memory, bytes, advice);
}

/* The disk is measured with reads into large pages, like those of the cache of experts: many disks are twice as fast then. */
static void disks_are_read_into_large_pages(void **state)
{
    char *folder = unit_folder(), path[512];
    struct transfer_speed found = {0};
    struct err err = {0};
    (void)state;
    snprintf(path, sizeof path, "%s/file", folder);
    for (int i = 1; i >= 0; i--) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(ftruncate(fileno(file), DISK_BURST - i), 0);
        fclose(file);
        large = 0;
        assert_int_equal(disk_measure(path, 0, &found, &err), -i);
        assert_int_equal(large, i ? 0 : DISK_BURST);
    }
    assert_non_null(strstr(err.text, "with a file of at least 32 MiB"));
    assert_true(found.bytes_per_second > 1 && found.bytes_per_second < 1e18 && found.latency_s >= 0);
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(disks_are_read_into_large_pages),
        cmocka_unit_test(speeds_that_fall_are_left),
        cmocka_unit_test(speeds_that_rise_are_pooled),
        cmocka_unit_test(latency_and_bandwidth_are_fitted),
        cmocka_unit_test(the_least_disturbed_point_does_not_decide),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
