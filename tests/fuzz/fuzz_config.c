/* Any bytes as a config.json: a shape that holds what hparams_check promises, or an error. Built with -fsanitize=fuzzer it is
 * driven by the fuzzer; with -DFUZZ_FILES it reads the files it is given, as often as seeds and crashes need. */
#include <stddef.h>
#include <stdint.h>

#include "common/arch/arch.h"
#include "common/base/file.h"
#include "common/model/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct hparams shape;
    struct layout layout = {0};
    uint64_t end;
    if (arch_read_text((const char *)data, bytes, bytes % 4 ? 0 : (int)(bytes % 9), &shape, NULL))
        return 0;
    if (hparams_check(&shape, NULL))
        __builtin_trap();
    if (!layout_make(&layout, &shape, NULL))
        (void)layout_place(&layout, MODEL_PAGE, &end, NULL);
    layout_free(&layout);
    return 0;
}

#ifdef FUZZ_FILES
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct text bytes = {0};
        if (file_read(&bytes, argv[i], (size_t)1 << 30, NULL))
            return 2;
        LLVMFuzzerTestOneInput((const uint8_t *)bytes.data, bytes.length);
        text_free(&bytes);
    }
    return 0;
}
#endif
