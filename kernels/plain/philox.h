/* Philox4x32-10, a counter-based random generator: it maps a 128-bit counter and a 64-bit key to 128 random bits and has no
 * state. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#ifndef MOE_KERNELS_PLAIN_PHILOX_H
#define MOE_KERNELS_PLAIN_PHILOX_H

#include "kernels/plain/plain.h"

struct philox { uint32_t word[4]; };

#ifdef __cplusplus                              /* C++ compilers warn about a function with the name of its struct */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#endif

PLAIN struct philox philox(struct philox counter, uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    struct philox c = counter;
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c.word[0], b = (uint64_t)0xcd9e8d57u * c.word[2];
        struct philox next = {{(uint32_t)(b >> 32) ^ c.word[1] ^ k0, (uint32_t)b,
                               (uint32_t)(a >> 32) ^ c.word[3] ^ k1, (uint32_t)a}};
        c = next;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return c;
}

#ifdef __cplusplus
#pragma GCC diagnostic pop
#endif

/* Returns a number strictly between 0 and 1: the middle of one of 2^52 equal parts. Exact, so all machines agree. */
PLAIN double philox_uniform(uint32_t high, uint32_t low)
{
    uint64_t bits = ((uint64_t)high << 32 | low) >> 12;
    return ((double)bits + 0.5) * 0x1p-52;
}

#endif
