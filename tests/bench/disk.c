/* disk FILE BYTES READS [bursts]: bytes per second of a file without the page cache, all of it once, in READS concurrent
 * reads of BYTES bytes: the yardstick of tests/bench-disk.sh. With `bursts` the next reads begin when all previous ones have
 * ended, and belong to another layer's experts; READS must then divide 32. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/large_pages.h"
#include "common/store/reads.h"

enum { LAYER = 32 };                    /* pieces of a file among which a burst reads, like a layer's experts */

/* Returns the piece that a read is for: one after the other; or in bursts, which go from layer to layer, each piece once. */
static uint64_t piece(uint64_t number, uint64_t count, int depth, bool bursts)
{
    uint64_t layers = count / LAYER, burst = number / (uint64_t)depth;
    uint64_t inside = burst / (bursts ? layers : 1) * (uint64_t)depth + number % (uint64_t)depth;
    return bursts ? burst % layers * LAYER + inside * 13 % LAYER : number;
}

static int measure(const char *path, size_t bytes, int depth, bool bursts, double *speed, struct err *err)
{
    struct direct_file file = {0};
    struct reads *reads = NULL;
    char *memory = NULL;
    const size_t room = (size_t)depth * bytes;
    int tag, rc = -1;
    if (direct_open(&file, path, err) || reads_open(&reads, &file, depth, false, err))
        goto done;
    if (!(memory = large_pages_alloc(room))) {
        err_memory(err);
        goto done;
    }
    memset(memory, 1, room);
    const uint64_t pieces = file.bytes / bytes, count = bursts ? pieces / LAYER * LAYER : pieces;
    const double start = clock_seconds();
    uint64_t started = 0, ended = 0;
    for (; started < count && started < (uint64_t)depth; started++)
        if (reads_start(reads, (int)started, memory + started * bytes, piece(started, count, depth, bursts) * bytes, bytes,
                        err))
            goto done;
    for (; ended < count; ended++) {
        if (reads_next(reads, true, &tag, err) < 0)
            goto done;
        if (bursts && ended + 1 < started)
            continue;
        for (int i = 0; i < (bursts ? depth : 1) && started < count; i++, started++) {
            size_t slot = bursts ? (size_t)i : (size_t)tag;
            if (reads_start(reads, (int)slot, memory + slot * bytes, piece(started, count, depth, bursts) * bytes, bytes, err))
                goto done;
        }
    }
    *speed = (double)(count * bytes) / (clock_seconds() - start);
    rc = 0;
done:
    reads_close(&reads);
    large_pages_free(&memory, room);
    direct_close(&file);
    return rc;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    double speed = 0;
    bool bursts = argc == 5 && !strcmp(argv[4], "bursts");
    size_t bytes = argc == 4 || bursts ? strtoull(argv[2], NULL, 10) / DIRECT_STEP * DIRECT_STEP : 0;
    int depth = bytes ? atoi(argv[3]) : 0;
    if (!bytes || depth < 1 || depth > READS_DEPTH_MAX || (bursts && LAYER % depth)) {
        fprintf(stderr, "disk FILE BYTES READS [bursts]\n");
        return 2;
    }
    if (measure(argv[1], bytes, depth, bursts, &speed, &err)) {
        fprintf(stderr, "disk: %s\n", err.text);
        return 2;
    }
    printf("%.0f\n", speed);
    return 0;
}
