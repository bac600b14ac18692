/* Interface of a fuzz driver: one function that takes any bytes and must return 0 without a fault. `make fuzz` builds it
 * with libFuzzer. The check links all drivers with runner.c, which feeds them files and slightly damaged copies; there the
 * makefile renames the function to fuzz_NAME_input. */
#ifndef MOE_TESTS_FUZZ_H
#define MOE_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Bytes to which the input was unpacked: twice as many may be in memory, too. libFuzzer sets no such limit. */
extern size_t fuzz_unpacked __attribute__((weak));

/* Address space that a driver's library may reserve; only the part that input fills becomes memory. */
extern size_t fuzz_reserved __attribute__((weak));

/* Makes an unnamed file with these bytes, positioned at its start; path gets a name for it. */
static inline int fuzz_file(const uint8_t *data, size_t bytes, char path[64])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || lseek(fd, 0, SEEK_SET))
        abort();
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
