#include "kernels/cpu/rounded.h"

#include <string.h>

#include "common/base/float.h"
#include "kernels/cpu/operand.h"
#include "kernels/cpu/work.h"

static void round_row(const float *in, int inputs, uint16_t *out)
{
    const int padded = quantised_blocks(inputs) * BLOCK_INPUTS;
    for (int k = 0; k < inputs; k++)
        out[k] = f32_to_bf16(in[k]);
    memset(out + inputs, 0, (size_t)(padded - inputs) * sizeof *out);
}

static void round_rows(void *argument, int member, int members)
{
    const struct operand_rows *rows = argument;
    size_t begin, end, bytes = rounded_bytes(rows->inputs);
    thread_pool_part(operand_count(rows), member, members, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const float *in = operand_source(rows, i);
        if (in)
            round_row(in, rows->inputs, (uint16_t *)(void *)((unsigned char *)rows->scratch + i * bytes));
    }
}

void cpu_round(struct queue *queue, struct operand_rows *rows)
{
    work_run(queue, operand_count(rows) * (size_t)rows->inputs * sizeof(float), round_rows, rows);
}
