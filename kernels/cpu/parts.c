#include <string.h>

#include "kernels/cpu/operand.h"
#include "kernels/cpu/work.h"

/* Splits the inputs of one step; written so that the compiler can vectorise it. */
static inline void split(const float *in, uint16_t *out)
{
    for (int i = 0; i < BLOCK_INPUTS; i++) {
        float left = in[i];
        for (int part = 0; part < PARTS; part++) {
            uint32_t bits;
            memcpy(&bits, &left, sizeof bits);
            bits &= 0xffff0000u;
            float value;
            memcpy(&value, &bits, sizeof value);
            out[part * BLOCK_INPUTS + i] = (uint16_t)(bits >> 16);
            left -= value;
        }
    }
}

static void split_row(const float *in, int inputs, unsigned char *out)
{
    int whole = inputs / BLOCK_INPUTS * BLOCK_INPUTS;
    for (int k = 0; k < whole; k += BLOCK_INPUTS, out += PARTS_STEP)
        split(in + k, (uint16_t *)(void *)out);
    if (whole == inputs)
        return;
    float rest[BLOCK_INPUTS] = {0};
    memcpy(rest, in + whole, (size_t)(inputs - whole) * sizeof *rest);
    split(rest, (uint16_t *)(void *)out);
}

static void split_rows(void *argument, int member, int members)
{
    const struct operand_rows *rows = argument;
    const size_t bytes = operand_bytes(FORMAT_BF16, rows->inputs);
    size_t begin, end;
    thread_pool_part(operand_count(rows), member, members, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const float *in = operand_source(rows, i);
        if (in)
            split_row(in, rows->inputs, (unsigned char *)rows->scratch + i * bytes);
    }
}

void cpu_parts(struct queue *queue, struct operand_rows *rows)
{
    work_run(queue, operand_count(rows) * operand_bytes(FORMAT_BF16, rows->inputs), split_rows, rows);
}
