/* Any bytes as model.safetensors.index.json, of a checkpoint with the two files that the corpus names. */
#include <string.h>

#include "common/base/mem.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/fuzz/fuzz.h"

static void add_tensor(struct checkpoint *cp, const char *file_name, char *header)
{
    uint8_t data[256] = {0};
    size_t length = strlen(header);
    char path[64];
    data[0] = (uint8_t)length;
    memcpy(data + 8, header, length);
    struct source_file *file = checkpoint_add_file(cp, file_name, NULL);
    if (!file)
        abort();
    file->fd = fuzz_file(data, 8 + length + 4, path);
    file->bytes = 8 + length + 4;
    if (checkpoint_read_header(cp, (int)cp->file_count - 1, NULL))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct checkpoint *cp = mem_alloc(1, sizeof *cp, NULL);
    char **names = NULL;
    size_t count = 0;
    if (!cp)
        abort();
    add_tensor(cp, "one.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
    add_tensor(cp, "two.safetensors", "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[0,4]}}");
    if (!checkpoint_add_text(cp, TEXT_INDEX, (const char *)data, bytes, NULL)) {
        if (!checkpoint_shards(cp, &names, &count, NULL))
            for (size_t i = 0; i < count; i++)
                if (strchr(names[i], '/') || !*names[i])
                    abort();                    /* it could lead out of the folder */
        (void)checkpoint_finish(cp, NULL);
    }
    for (size_t i = 0; i < count; i++)
        mem_free(&names[i]);
    mem_free(&names);
    checkpoint_close(&cp);
    return 0;
}
