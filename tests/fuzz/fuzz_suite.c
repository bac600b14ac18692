/* Reads any bytes as a suite of moe-bench run, and parses the options of its settings. */
#include "common/bench/suite.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct suite *suite = NULL;
    char path[64];
    int fd = fuzz_file(data, bytes, path), order[SUITE_SETTINGS_MAX];
    if (!suite_read(&suite, path, NULL)) {
        for (int prompt = 0; prompt < 3; prompt++)
            suite_turn(suite, prompt, 1, order);
        for (int i = 0; i < suite->setting_count; i++)
            if (order[i] < 0 || order[i] >= suite->setting_count || suite->settings[i].model >= suite->model_count)
                abort();
    }
    suite_free(&suite);
    close(fd);
    return 0;
}
