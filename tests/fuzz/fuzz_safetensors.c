/* Any bytes as a .safetensors file: what is let through can be read from its first byte to its last. */
#include "common/base/mem.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    struct checkpoint *cp = mem_alloc(1, sizeof *cp, NULL);
    struct source_file *file = cp ? checkpoint_add_file(cp, "x.safetensors", NULL) : NULL;
    if (!file)
        abort();
    file->fd = fuzz_file(data, bytes, path);
    file->bytes = bytes;
    if (!checkpoint_read_header(cp, 0, NULL) && !checkpoint_finish(cp, NULL))
        for (size_t i = 0; i < cp->tensor_count; i++) {
            const struct source_tensor *tensor = &cp->tensors[i];
            uint8_t byte = 0;
            if (tensor->bytes && (checkpoint_read(cp, tensor, 0, &byte, 1, NULL) ||
                                  checkpoint_read(cp, tensor, tensor->bytes - 1, &byte, 1, NULL)))
                abort();
        }
    checkpoint_close(&cp);
    return 0;
}
