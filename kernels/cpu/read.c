#include "kernels/cpu/read.h"

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/fetch.h"

typedef uint64_t line __attribute__((vector_size(64), aligned(64), may_alias));

/* Eight independent accumulators keep more loads in flight than a single chain of exclusive-ors would. */
uint64_t cpu_read(const void *data, size_t bytes, int streams)
{
    const line *from = data;
    size_t lines = bytes / sizeof(line), part = lines / (size_t)streams;
    line sum[8] = {{0}};
    for (size_t i = 0; i < part; i += 8)
        for (size_t s = 0; s < (size_t)streams; s++)
            for (size_t j = 0; j < 8; j++) {
                fetch_ahead(from + s * part + i + j);
                sum[j] ^= from[s * part + i + j];
            }
    uint64_t total = 0;
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 8; i++)
            total ^= sum[j][i];
    return total;
}
