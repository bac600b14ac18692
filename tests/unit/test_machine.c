/* Facts about a machine, from folders that imitate /proc and /sys of others. */
#include "tests/unit/unit.h"

#include <math.h>
#include <sys/stat.h>

#include "common/bench/machine.h"

static void put(const char *root, const char *path, const char *text)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s", root, path);
    for (char *at = name + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        mkdir(name, 0700);
        *at = '/';
    }
    unit_write(name, text, strlen(text));
}

static void test_two_sockets(void **unused)
{
    (void)unused;
    char *root = unit_folder(), path[128], text[16];
    struct machine found;
    struct text out = {0};
    struct err err = {0};
    put(root, "/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU \033[1m@ 2 GHz  \n\nprocessor\t: 1\n"
        "model name\t: Some CPU\n");
    put(root, "/proc/meminfo", "MemTotal:       1024 kB\nMemFree: 1 kB\nMemAvailable:    512 kB\n");
    put(root, "/proc/sys/kernel/osrelease", "6.1.0\n");
    for (int i = 0; i < 8; i++) {           /* two sockets of two cores with two threads each */
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", i);
        snprintf(text, sizeof text, "%d\n", i / 4);
        put(root, path, text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", i);
        snprintf(text, sizeof text, "%d\n", i % 2);
        put(root, path, text);
    }
    put(root, "/sys/devices/system/node/node0/meminfo", "x\n");
    put(root, "/sys/devices/system/node/node1/meminfo", "x\n");
    put(root, "/sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
    put(root, "/sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n");
    put(root, "/sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n");
    put(root, "/sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list", "0,4\n");
    put(root, "/sys/devices/system/cpu/cpu0/cache/index1/level", "3\n");
    put(root, "/sys/devices/system/cpu/cpu0/cache/index1/type", "Unified\n");
    put(root, "/sys/devices/system/cpu/cpu0/cache/index1/size", "32M\n");
    put(root, "/sys/devices/system/cpu/cpu0/cache/index1/shared_cpu_list", "0-1,4-5\n");
    put(root, "/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 5\n");
    assert_int_equal(machine_find(&found, root, &err), 0);
    assert_string_equal(found.cpu, "Some CPU  [1m@ 2 GHz");
    assert_string_equal(found.kernel, "6.1.0");
    assert_true(found.processors == 8 && found.cores == 4 && found.sockets == 2 && found.nodes == 2);
    assert_true(found.memory == 1 << 20 && found.available == 1 << 19);
    assert_int_equal(found.cache_count, 2);
    assert_true(found.caches[0].level == 1 && found.caches[0].bytes == 48 << 10 && found.caches[0].shared == 2);
    assert_true(found.caches[1].level == 3 && found.caches[1].bytes == 32 << 20 && found.caches[1].shared == 4);
    assert_int_equal(found.gpu_count, 1);
    assert_string_equal(found.gpus[0], "NVIDIA H200");
    const struct roofline measured = { .device = "host", .isa = "avx2", .threads = 8, .bytes_per_second = 5e9,
                                       .one_thread = NAN };
    assert_int_equal(machine_json(&out, &found, &measured, NULL, &err), 0);
    assert_non_null(strstr(out.data, "\"gpus\":[\"NVIDIA H200\"]"));
    assert_non_null(strstr(out.data, "\"read_bandwidth_one_thread\":null"));
    text_free(&out);
    unit_remove(root);
}

static void test_nothing_is_told(void **unused)
{
    (void)unused;
    char *root = unit_folder();
    struct machine found;
    struct text out = {0};
    struct err err = {0};
    put(root, "/proc/meminfo", "MemTotal");
    put(root, "/sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
    put(root, "/sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list", "5-1,x\n");
    assert_int_equal(machine_find(&found, root, &err), 0);
    assert_true(!*found.cpu && !found.processors && !found.memory && found.cache_count == 1 && !found.caches[0].shared);
    assert_int_equal(machine_text(&out, &found, NULL, NULL, &err), 0);
    assert_non_null(strstr(out.data, "processor  unknown"));
    assert_non_null(strstr(out.data, "gpu        none"));
    text_free(&out);
    unit_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_two_sockets), cmocka_unit_test(test_nothing_is_told) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
