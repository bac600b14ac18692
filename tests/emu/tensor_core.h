/* The sum that a tensor core computes from 16 products of bf16 and an existing sum, bit for bit (mma.cc). Has no
 * dependencies, so that tests on a GPU can compare. */
#ifndef MOE_EMU_TENSOR_CORE_H
#define MOE_EMU_TENSOR_CORE_H

#include <stdint.h>

namespace emu {

/* tensor_core: 80 (Ampere, Ada) or 90 (Hopper, Blackwell). */
float tensor_core_sum(const uint16_t *a, const uint16_t *b, float c, int tensor_core);

}

#endif
