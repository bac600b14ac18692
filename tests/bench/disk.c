/* disk FILE BYTES READS: bytes a second that a file gives past the page cache, all of it once, in reads of BYTES bytes, so many
 * at once: what tests/bench-disk.sh sets iterations against. Into memory like that of the store: with pages of 4 KiB a read
 * falls into many pieces, and some disks then give half. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/clock.h"
#include "common/store/reads.h"

static int measure(const char *path, size_t bytes, int depth, double *speed, struct err *err)
{
    struct direct_file file = {0};
    struct reads *reads = NULL;
    char *memory = MAP_FAILED;
    const size_t room = (size_t)depth * bytes;
    int tag, rc = -1;
    if (direct_open(&file, path, err) || reads_open(&reads, &file, depth, false, err))
        goto done;
    memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        err_memory(err);
        goto done;
    }
    madvise(memory, room, MADV_HUGEPAGE);
    memset(memory, 1, room);
    const uint64_t count = file.bytes / bytes;
    const double start = clock_seconds();
    uint64_t started = 0, ended = 0;
    for (; started < count && started < (uint64_t)depth; started++)
        if (reads_start(reads, (int)started, memory + started * bytes, started * bytes, bytes, err))
            goto done;
    for (; ended < count; ended++) {
        if (reads_next(reads, true, &tag, err) < 0)
            goto done;
        if (started < count && reads_start(reads, tag, memory + (size_t)tag * bytes, started++ * bytes, bytes, err))
            goto done;
    }
    *speed = (double)(count * bytes) / (clock_seconds() - start);
    rc = 0;
done:
    reads_close(&reads);
    if (memory != MAP_FAILED)
        munmap(memory, room);
    direct_close(&file);
    return rc;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    double speed = 0;
    size_t bytes = argc == 4 ? strtoull(argv[2], NULL, 10) / DIRECT_STEP * DIRECT_STEP : 0;
    int depth = argc == 4 ? atoi(argv[3]) : 0;
    if (!bytes || depth < 1 || depth > READS_DEPTH_MAX) {
        fprintf(stderr, "disk FILE BYTES READS\n");
        return 2;
    }
    if (measure(argv[1], bytes, depth, &speed, &err)) {
        fprintf(stderr, "disk: %s\n", err.text);
        return 2;
    }
    printf("%.0f\n", speed);
    return 0;
}
