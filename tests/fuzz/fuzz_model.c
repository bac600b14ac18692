/* Any bytes as a model file, and as the index of one whose digest fits: all accepted tensors are within the file. */
#include "common/model/model_index.h"
#include "tests/fuzz/fuzz.h"

static void read_index(const uint8_t *data, size_t bytes)
{
    enum { DATA_END = 1 << 20 };
    static struct model_facts facts;
    struct layout layout = {0};
    if (model_index_read(&facts, &layout, data, bytes, DATA_END, NULL))
        return;
    for (int i = 0; i < layout.count; i++)
        if (layout.tensors[i].offset < MODEL_PAGE || layout.tensors[i].offset + layout.tensors[i].bytes > DATA_END)
            abort();
    layout_free(&layout);
    model_facts_free(&facts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    struct model *model = NULL;
    int fd = fuzz_file(data, bytes, path);
    read_index(data, bytes);
    if (!model_open(&model, path, NULL))
        (void)model_verify(model, NULL);
    model_close(&model);
    close(fd);
    return 0;
}
