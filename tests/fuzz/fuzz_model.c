/* Any bytes as a model file, and as the index of one whose digest has been made to match: all that is let through lies in
 * the file. Built with -fsanitize=fuzzer it is
 * driven by the fuzzer; with -DFUZZ_FILES it reads the files it is given, as often as seeds and crashes need. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/model/model_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_index(const uint8_t *data, size_t bytes)
{
    enum { DATA_END = 1 << 20 };
    static struct model_facts facts;
    struct layout layout = {0};
    if (model_index_read(&facts, &layout, data, bytes, DATA_END, NULL))
        return;
    for (int i = 0; i < layout.count; i++)
        if (layout.tensors[i].offset < MODEL_PAGE || layout.tensors[i].offset + layout.tensors[i].bytes > DATA_END)
            __builtin_trap();
    layout_free(&layout);
    model_facts_free(&facts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    struct model *model = NULL;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    read_index(data, bytes);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (!model_open(&model, path, NULL))
        (void)model_verify(model, NULL);
    model_close(&model);
    close(fd);
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
