/* Opens any bytes as a file of weights: every tensor of an accepted file can be read from its first byte to its last. */
#ifndef MOE_TESTS_FUZZ_WEIGHTS_H
#define MOE_TESTS_FUZZ_WEIGHTS_H

#include "common/base/mem.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/fuzz/fuzz.h"

static void fuzz_tensor(struct checkpoint *cp, const struct source_tensor *tensor)
{
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

/* name: file name, which decides the format. */
static int fuzz_weights(const char *name, const uint8_t *data, size_t bytes)
{
    char path[64];
    struct checkpoint *cp = mem_alloc(1, sizeof *cp, NULL);
    struct source_file *file = cp ? checkpoint_add_file(cp, name, NULL) : NULL;
    if (!file)
        abort();
    file->fd = fuzz_file(data, bytes, path);
    file->bytes = bytes;
    if (!checkpoint_read_header(cp, 0, NULL) && !checkpoint_finish(cp, NULL))
        for (size_t i = 0; i < cp->tensor_count; i++)
            fuzz_tensor(cp, &cp->tensors[i]);
    checkpoint_close(&cp);
    return 0;
}

#endif
