#include "kernels/cpu/quantise.h"

#include "kernels/cpu/work.h"
#include "kernels/plain/quantise.h"

static void quantise_rows(void *argument, int member, int members)
{
    const struct quantise_job *job = argument;
    size_t begin, end, blocks = (size_t)quantised_blocks(job->inputs);
    team_part((size_t)job->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++)
        if (!job->expert || job->expert[r] >= 0)
            plain_quantise(job->in + r * job->stride, job->inputs, job->out + r * blocks);
}

void cpu_quantise(struct queue *queue, struct quantise_job *job)
{
    work_run(queue, (size_t)job->rows * (size_t)job->inputs * sizeof(float), quantise_rows, job);
}
