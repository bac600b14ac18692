#include "common/bench/disk.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/large_pages.h"
#include "common/report/stats.h"
#include "common/store/reads.h"

enum { ROUNDS_MIN = 5, ROUNDS_MAX = 256, DEPTH = 8 };

static const struct { int reads; size_t each; } bursts[] = {
    {1, 1 << 20}, {4, 1 << 20}, {1, 4 << 20}, {2, 4 << 20}, {4, 4 << 20}, {DEPTH, DISK_BURST / DEPTH}};
enum { BURSTS = sizeof bursts / sizeof *bursts };

struct disk {
    struct direct_file file;
    struct reads *reads;
    char *memory;                       /* [DISK_BURST] */
    uint64_t random;
};

static int time_burst(struct disk *disk, int count, size_t each, double *seconds, struct err *err)
{
    const uint64_t places = (disk->file.bytes - each) / DIRECT_STEP + 1;
    const double begin = clock_seconds();
    int tag;
    for (int i = 0; i < count; i++) {
        disk->random = disk->random * 6364136223846793005 + 1442695040888963407;
        const uint64_t place = (disk->random >> 33) % places;
        if (reads_start(disk->reads, i, disk->memory + (size_t)i * each, place * DIRECT_STEP, each, err))
            return -1;
    }
    for (int i = 0; i < count; i++)
        if (reads_next(disk->reads, true, &tag, err) < 0)
            return -1;
    *seconds = clock_seconds() - begin;
    return 0;
}

/* Times bursts of all sizes, which take turns. */
static int time_bursts(struct disk *disk, double limit, struct transfer_speed *out, struct err *err)
{
    const double end = clock_seconds() + limit;
    double taken[BURSTS][ROUNDS_MAX], bytes[BURSTS], seconds[BURSTS];
    int rounds = 0;
    for (; rounds < ROUNDS_MIN || (rounds < ROUNDS_MAX && clock_seconds() < end); rounds++)
        for (int i = 0; i < BURSTS; i++)
            if (time_burst(disk, bursts[i].reads, bursts[i].each, &taken[i][rounds], err))
                return -1;
    for (int i = 0; i < BURSTS; i++) {
        bytes[i] = (double)bursts[i].reads * (double)bursts[i].each;
        seconds[i] = stats_quantile(taken[i], (size_t)rounds, 0.5);
    }
    speeds_fit(out, bytes, seconds, BURSTS);
    return 0;
}

static int open_reads(struct disk *disk, const char *path, struct err *err)
{
    if (disk->file.bytes < DISK_BURST)
        return err_set(err, ERR_INPUT, "%s: has only %llu bytes; the read bandwidth is measured with a file of at least %d "
                       "MiB, such as a model",
                       path, (unsigned long long)disk->file.bytes, DISK_BURST >> 20);
    if (!(disk->memory = large_pages_alloc(DISK_BURST)))
        return err_memory(err);
    memset(disk->memory, 1, DISK_BURST);
    return reads_open(&disk->reads, &disk->file, DEPTH, false, err);
}

int disk_measure(const char *path, double seconds, struct transfer_speed *out, struct err *err)
{
    struct disk disk = {.random = 1};
    if (direct_open(&disk.file, path, err))
        return -1;
    const int rc = open_reads(&disk, path, err) || time_bursts(&disk, seconds, out, err) ? -1 : 0;
    reads_close(&disk.reads);
    large_pages_free(&disk.memory, DISK_BURST);
    direct_close(&disk.file);
    return rc;
}
