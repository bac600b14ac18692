/* Pseudorandom numbers of a seed: splitmix64 (Steele and others, OOPSLA 2014). Draws for texts are philox.h's. */
#ifndef MOE_BASE_SPLITMIX_H
#define MOE_BASE_SPLITMIX_H

#include <stdint.h>

/* Maps 64 bits one-to-one, without visible pattern. */
static inline uint64_t splitmix_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint64_t splitmix_next(uint64_t *state) { return splitmix_mix(*state += 0x9e3779b97f4a7c15u); }

/* Returns a number from 0 to below 1. */
static inline double splitmix_uniform(uint64_t *state) { return (double)(splitmix_next(state) >> 11) * 0x1p-53; }

#endif
