#include "kernels/cpu/quantise.h"

#include "kernels/cpu/work.h"
#include "kernels/plain/quantise.h"

_Static_assert((int)PLAIN_BLOCK == (int)BLOCK_INPUTS, "blocks of activations are those of weights");

static void quantise_row(const float *in, int inputs, struct quantised *out)
{
    for (int k = 0; k < inputs; k += BLOCK_INPUTS, out++)
        plain_quantise(in + k, inputs - k < BLOCK_INPUTS ? inputs - k : BLOCK_INPUTS, out->q, &out->scale, &out->sum);
}

static void quantise_rows(void *argument, int member, int members)
{
    const struct quantise_job *job = argument;
    size_t begin, end, blocks = (size_t)quantised_blocks(job->inputs);
    team_part((size_t)job->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++)
        if (!job->expert || job->expert[r] >= 0)
            quantise_row(job->in + r * job->stride, job->inputs, job->out + r * blocks);
}

void cpu_quantise(struct queue *queue, struct quantise_job *job)
{
    work_run(queue, (size_t)job->rows * (size_t)job->inputs * sizeof(float), quantise_rows, job);
}
