/* Philox4x32-10, the counter-based random generator: 128 bits of counter and 64 of key give 128 random bits, and no state
 * is kept. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011. */
#ifndef MOE_KERNELS_PLAIN_PHILOX_H
#define MOE_KERNELS_PLAIN_PHILOX_H

#include "kernels/plain/plain.h"

struct philox { uint32_t word[4]; };

#ifdef __cplusplus                              /* where a function that is named as its struct is worth a warning */
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

/* Strictly between 0 and 1: the middle of one of 2^52 equal parts. Exact, so every machine agrees. */
PLAIN double philox_uniform(uint32_t high, uint32_t low)
{
    uint64_t bits = ((uint64_t)high << 32 | low) >> 12;
    return ((double)bits + 0.5) * 0x1p-52;
}

#endif
