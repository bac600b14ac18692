#include "common/bench/network.h"

#include <math.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/report/stats.h"

enum { SIZES = 6, SMALLEST = 1 << 10, FACTOR = 8, ROUNDS_MIN = 5, ROUNDS_MAX = 512 };      /* sizes up to 32 MiB in all */

double network_gather(const struct transfer_speed *network, int ranks, double bytes)
{
    return (ranks - 1) * (network->latency_s + bytes / ranks / network->bytes_per_second);
}

void network_fit(struct transfer_speed *out, int ranks, const double *bytes, const double *seconds, int count)
{
    speeds_fit(out, bytes, seconds, count);
    out->latency_s /= ranks - 1;
    out->bytes_per_second *= (double)(ranks - 1) / ranks;
}

/* Times exchanges of SIZES sizes, in rounds with one of each; returns median times. Process 0 decides for all whether another
 * round begins. */
static int measure(struct ranks *ranks, char *data, size_t *cut, double limit, double *bytes, double *seconds, struct err *err)
{
    const int size = ranks_size(ranks);
    const double end = clock_seconds() + limit;
    double taken[SIZES][ROUNDS_MAX];
    int rounds = 0, more = 1;
    for (; more; rounds++) {
        size_t all = SMALLEST;
        for (int i = 0; i < SIZES; i++, all *= FACTOR) {
            for (int r = 0; r <= size; r++)
                cut[r] = all / (size_t)size * (size_t)r;
            bytes[i] = (double)cut[size];
            if (ranks_agree(ranks, false, NULL, err))       /* all begin together */
                return -1;
            const double begin = clock_seconds();
            if (ranks_share(ranks, data, cut, err))
                return -1;
            taken[i][rounds] = clock_seconds() - begin;
        }
        more = rounds + 1 < ROUNDS_MIN || (rounds + 1 < ROUNDS_MAX && clock_seconds() < end);
        if (ranks_broadcast(ranks, &more, sizeof more, err))
            return -1;
    }
    for (int i = 0; i < SIZES; i++)
        seconds[i] = stats_quantile(taken[i], (size_t)rounds, 0.5);
    return 0;
}

int network_measure(struct transfer_speed *out, struct ranks *ranks, double seconds, struct err *err)
{
    const int size = ranks_size(ranks);
    double bytes[SIZES], taken[SIZES];
    size_t largest = SMALLEST, *cut = mem_alloc((size_t)size + 1, sizeof *cut, err);
    for (int i = 1; i < SIZES; i++)
        largest *= FACTOR;
    char *data = cut ? mem_alloc(largest, 1, err) : NULL;
    int rc = !data || measure(ranks, data, cut, seconds, bytes, taken, err) ? -1 : 0;
    if (!rc)
        network_fit(out, size, bytes, taken, SIZES);
    mem_free(&data);
    mem_free(&cut);
    return rc;
}
