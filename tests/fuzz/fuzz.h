/* What a fuzz driver is: one function that takes any bytes and must return 0 without a fault. Built by `make fuzz` it is
 * driven by libFuzzer; by `make tests` it gets runner.c, which feeds it files and what small damage makes of them. */
#ifndef MOE_TESTS_FUZZ_H
#define MOE_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Bytes that the input was unpacked to: twice as many may be held in memory, too. With libFuzzer neither is there. */
extern size_t fuzz_unpacked __attribute__((weak));

/* Address space that a driver's library may reserve, of which only what input has filled becomes memory. */
extern size_t fuzz_reserved __attribute__((weak));

/* A file without a name that holds these bytes, to be read from its start; path names it. */
static inline int fuzz_file(const uint8_t *data, size_t bytes, char path[64])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || lseek(fd, 0, SEEK_SET))
        abort();
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
