/* Any bytes as a .safetensors file, and as an archive from a pipe: opened without a fault and within memory. Built with -fsanitize=fuzzer it is
 * driven by the fuzzer; with -DFUZZ_FILES it reads the files it is given, as often as seeds and crashes need. */
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/checkpoint/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int file_of(const uint8_t *data, size_t bytes)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd >= 0 && write(fd, data, bytes) != (ssize_t)bytes) {
        close(fd);
        return -1;
    }
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct checkpoint *cp = mem_alloc(1, sizeof *cp, NULL), *packed = mem_alloc(1, sizeof *packed, NULL);
    int fd = file_of(data, bytes);
    if (!cp || !packed || fd < 0)
        return 0;
    struct source_file *file = checkpoint_add_file(cp, "x.safetensors", NULL);
    if (file) {
        file->fd = dup(fd);
        file->bytes = bytes;
        if (!checkpoint_read_header(cp, 0, NULL) && !checkpoint_settle(cp, NULL))
            for (size_t i = 0; i < cp->tensor_count; i++) {
                uint8_t last = 0;
                if (cp->tensors[i].bytes && checkpoint_read(cp, &cp->tensors[i], cp->tensors[i].bytes - 1, &last, 1, NULL))
                    __builtin_trap();           /* a checked tensor lies in its file */
            }
    }
    lseek(fd, 0, SEEK_SET);
    checkpoint_open_archive(packed, fd, NULL, NULL);
    checkpoint_close(&cp);
    checkpoint_close(&packed);
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
