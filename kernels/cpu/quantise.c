#include <string.h>

#include "kernels/cpu/operand.h"
#include "kernels/cpu/vector.h"
#include "kernels/cpu/work.h"
#include "kernels/plain/quantise.h"

_Static_assert((int)PLAIN_BLOCK == (int)BLOCK_INPUTS, "blocks of activations are those of weights");

/* Complete blocks are handled separately, so that their number of inputs is a constant. */
static void quantise_row(const float *in, int inputs, struct quantised *out)
{
    const int whole = inputs / BLOCK_INPUTS * BLOCK_INPUTS;
    for (int k = 0; k < whole; k += BLOCK_INPUTS, out++)
        plain_quantise(in + k, BLOCK_INPUTS, out->q, &out->scale, &out->total, out->sum);
    if (whole < inputs)
        plain_quantise(in + whole, inputs - whole, out->q, &out->scale, &out->total, out->sum);
}

/* Rearranges the integers of blocks: place i gets input order[i]. */
#if defined(ISA_AVX512) || defined(ISA_AVX2)

static void order_blocks(const uint8_t *order, size_t blocks, struct quantised *out)
{
    const __m256i index = _mm256_loadu_si256((const void *)order), upper = _mm256_slli_epi16(index, 3);
    for (size_t b = 0; b < blocks; b++) {
        const __m256i q = _mm256_loadu_si256((const void *)out[b].q);
        const __m256i first = _mm256_shuffle_epi8(_mm256_permute2x128_si256(q, q, 0x00), index);
        const __m256i second = _mm256_shuffle_epi8(_mm256_permute2x128_si256(q, q, 0x11), index);
        _mm256_storeu_si256((void *)out[b].q, _mm256_blendv_epi8(first, second, upper));
    }
}

#else

static void order_blocks(const uint8_t *order, size_t blocks, struct quantised *out)
{
    for (size_t b = 0; b < blocks; b++) {
        int8_t q[BLOCK_INPUTS];
        memcpy(q, out[b].q, sizeof q);
        for (int i = 0; i < BLOCK_INPUTS; i++)
            out[b].q[i] = q[order[i]];
    }
}

#endif

static void quantise_rows(void *argument, int member, int members)
{
    const struct operand_rows *rows = argument;
    struct quantised *out = rows->scratch;
    size_t begin, end, blocks = (size_t)quantised_blocks(rows->inputs);
    thread_pool_part(operand_count(rows), member, members, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const float *in = operand_source(rows, i);
        if (!in)
            continue;
        quantise_row(in, rows->inputs, out + i * blocks);
        if (rows->order)
            order_blocks(rows->order, blocks, out + i * blocks);
    }
}

void cpu_quantise(struct queue *queue, struct operand_rows *rows)
{
    work_run(queue, operand_count(rows) * (size_t)rows->inputs * sizeof(float), quantise_rows, rows);
}
