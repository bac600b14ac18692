#include <string.h>

#include "kernels/cpu/operand.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/unit.h"
#include "kernels/cpu/work.h"

/* Rows for which a task processes all its units before it continues with the next rows, so that rows and units stay in the
 * second-level cache. */
enum { BLOCK_ROWS = 64 };

struct linear {
    const struct linear_args *args;
    struct operand in;
    int units, tasks;
    struct work work;
};

static void put_unit(const struct linear_args *a, int unit, int first, int rows, const float *product)
{
    const float *bias = work_pointer(a->bias);
    int output = unit * UNIT_OUTPUTS, used = a->outputs - output < UNIT_OUTPUTS ? a->outputs - output : UNIT_OUTPUTS;
    for (int r = 0; r < rows; r++) {
        float value[UNIT_OUTPUTS];
        float *out = (float *)work_pointer(a->out) + (size_t)(first + r) * (size_t)a->out_stride + output;
        memcpy(value, product + r * UNIT_OUTPUTS, sizeof value);
        if (bias)
            for (int i = 0; i < used; i++)
                value[i] += bias[output + i];
        if (a->scale != 0)
            for (int i = 0; i < used; i++)
                value[i] *= a->scale;
        if (a->add)
            for (int i = 0; i < used; i++)
                value[i] += out[i];
        unit_store(out, value, used, UNIT_OUTPUTS);
    }
}

static void linear_units(void *argument, int member, int members)
{
    struct linear *l = argument;
    const struct linear_args *a = l->args;
    const unsigned char *weight = work_pointer(a->weight);
    const size_t bytes = unit_bytes(a->format, a->inputs);
    for (int64_t task; (task = work_take(&l->work, member, members)) >= 0;) {
        size_t begin, end;
        thread_pool_part((size_t)l->units, (int)task, l->tasks, &begin, &end);
        for (int block = 0; block < a->rows; block += BLOCK_ROWS) {
            int count = a->rows - block < BLOCK_ROWS ? a->rows - block : BLOCK_ROWS;
            int passes = pass_count(&l->in, a->format, count);
            for (size_t u = begin; u < end; u++)
                for (int p = 0; p < passes; p++) {
                    int first = block + pass_first(count, passes, p), rows = block + pass_first(count, passes, p + 1) - first;
                    _Alignas(64) float product[MAX_ROWS * UNIT_OUTPUTS];
                    const void *in[MAX_ROWS];
                    for (int r = 0; r < rows; r++)
                        in[r] = operand_at(&l->in, (size_t)(first + r));
                    operand_product(&l->in, a->format, weight + bytes * u, a->inputs, rows, in, product);
                    put_unit(a, (int)u, first, rows, product);
                }
        }
    }
}

/* Returns the number of tasks: a multiple of the members if there are enough units, so that all members have the same work. */
static int linear_tasks(int units, size_t unit, int members)
{
    const int step = (int)(WORK_TASK_BYTES / unit) + 1, tasks = (units + step - 1) / step;
    const int even = (tasks + members - 1) / members * members;
    return even < units ? even : units;
}

void cpu_linear(struct queue *queue, const struct linear_args *args)
{
    struct linear l;
    size_t unit = unit_bytes(args->format, args->inputs);
    l.args = args;
    l.in = operand_make(queue, args->format, &(struct operand_rows){
        .in = work_pointer(args->in), .stride = (size_t)args->in_stride, .rows = args->rows, .inputs = args->inputs,
        .scratch = work_pointer(args->operand)});
    l.units = (args->outputs + UNIT_OUTPUTS - 1) / UNIT_OUTPUTS;
    size_t bytes = unit * (size_t)l.units * (size_t)work_passes(args->format, args->rows);
    int members = work_members(queue, bytes);
    l.tasks = linear_tasks(l.units, unit, members);
    work_assign_evenly(&l.work, members, (uint32_t)l.tasks);
    work_run(queue, bytes, linear_units, &l);
}
