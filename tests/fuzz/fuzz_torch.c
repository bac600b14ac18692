/* Any bytes as a pytorch_model.bin: what is let through can be read from its first byte to its last. */
#include "common/base/mem.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    struct checkpoint *cp = mem_alloc(1, sizeof *cp, NULL);
    struct source_file *file = cp ? checkpoint_add_file(cp, "pytorch_model.bin", NULL) : NULL;
    if (!file)
        abort();
    file->fd = fuzz_file(data, bytes, path);
    file->bytes = bytes;
    if (!checkpoint_read_header(cp, 0, NULL) && !checkpoint_finish(cp, NULL))
        for (size_t i = 0; i < cp->tensor_count; i++) {
            const struct source_tensor *tensor = &cp->tensors[i];
            const int64_t columns = tensor->dim_count ? tensor->dims[tensor->dim_count - 1] : 1;
            struct source_reading reading = {0};
            uint8_t byte = 0;
            float row[4096];
            if (tensor->bytes && (checkpoint_read(cp, tensor, 0, &byte, 1, NULL) ||
                                  (!tensor->parts && checkpoint_read(cp, tensor, tensor->bytes - 1, &byte, 1, NULL))))
                abort();
            if (tensor->bytes && tensor->parts && columns <= 4096 &&
                tensor->coding->read(cp, tensor, (tensor->dims[0] - 1) * columns, columns, &reading, row, NULL))
                abort();
            source_reading_free(&reading);
        }
    checkpoint_close(&cp);
    return 0;
}
