/* Rows are grouped by expert, so that one pass over the weights of a requested expert serves all of its rows. Three steps on
 * the thread pool: gate and up, or up alone (with the activation in registers at the end of a unit) into `inner`; down into
 * `partial`, which is the result with `apart`; then every row adds its partial results in slot order. With q8 and q4 the inputs
 * of each of the first two steps are quantised before it. */
#include <string.h>

#include "common/base/stop.h"
#include "kernels/cpu/operand.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/unit.h"
#include "kernels/cpu/work.h"
#include "kernels/plain/glu.h"

/* A PAIR is row * slots + slot, the index of a (row, slot) in inner and partial. */
struct ffn {
    const struct expert_ffn_args *args;
    struct operand in;              /* inputs of the current step: [rows] for gate and up, [pairs] for down */
    const float *weight, *gate_up_bias, *down_bias;
    float *out, *inner, *partial;
    const int32_t *expert;
    const uint64_t *table;
    int32_t *start;                 /* [experts + 1]: expert e's pairs are pair[start[e]] .. pair[start[e + 1] - 1] */
    int32_t *pair;                  /* [rows * slots] pairs grouped by expert */
    int32_t *wanted;                /* experts with pairs, ascending */
    int wanted_count;
    int first_unit, units, task_units, tasks;   /* in the current step: units per expert, units per task, tasks per expert */
    size_t bytes;                   /* weights that the step reads, counted once per pass */
    struct work work;
};

static void ffn_group(struct ffn *f)
{
    const struct expert_ffn_args *a = f->args;
    int pairs = a->rows * a->slots, count = 0;
    if (!f->expert) {
        for (int i = 0; i < pairs; i++)
            f->pair[i] = i;
        f->start[0] = 0;
        f->start[1] = pairs;
        f->wanted[0] = 0;
        f->wanted_count = pairs > 0;
        return;
    }
    memset(f->start, 0, ((size_t)a->experts + 1) * sizeof *f->start);
    for (int i = 0; i < pairs; i++)
        if (f->expert[i] >= 0)
            f->start[f->expert[i] + 1]++;
    for (int e = 0; e < a->experts; e++) {
        if (f->start[e + 1] > 0)
            f->wanted[count++] = e;
        f->start[e + 1] += f->start[e];
    }
    /* The loop advances each start to the expert's end, which is the next expert's start; the shift afterwards restores all
     * starts. */
    for (int i = 0; i < pairs; i++)
        if (f->expert[i] >= 0)
            f->pair[f->start[f->expert[i]]++] = i;
    memmove(f->start + 1, f->start, (size_t)a->experts * sizeof *f->start);
    f->start[0] = 0;
    f->wanted_count = count;
}

/* Divides the step's tasks into parts with about the same work: units times passes over them. The step has `width` outputs, and
 * `each` of them per unit. */
static void ffn_share(struct ffn *f, struct queue *queue, enum weight_format format, int width, int each, size_t unit)
{
    const int part = f->args->part, parts = f->args->parts;
    const int units = (expert_part_first(width, each, part + 1, parts) + each - 1) / each -
                      expert_part_first(width, each, part, parts) / each;
    size_t step = WORK_TASK_BYTES / unit + 1, passes = 0, seen = 0;
    f->first_unit = expert_part_first(width, each, part, parts) / each;
    f->units = units;
    if (units <= 0)
        return;
    f->task_units = step < (size_t)units ? (int)step : units;
    f->tasks = (units + f->task_units - 1) / f->task_units;
    for (int w = 0; w < f->wanted_count; w++)
        passes += (size_t)work_passes(format, f->start[f->wanted[w] + 1] - f->start[f->wanted[w]]);
    f->bytes = passes * unit * (size_t)units;
    int members = work_members(queue, f->bytes), member = 0;
    uint32_t first = 0, task = 0;
    for (int w = 0; w < f->wanted_count; w++) {
        size_t weight = (size_t)work_passes(format, f->start[f->wanted[w] + 1] - f->start[f->wanted[w]]);
        for (int t = 0; t < f->tasks; t++, task++, seen += weight)
            if (seen * (size_t)members >= passes * (size_t)f->tasks * ((size_t)member + 1)) {
                work_assign(&f->work, member++, first, task);
                first = task;
            }
    }
    for (; member < members; member++, first = task)
        work_assign(&f->work, member, first, task);
}

/* The range of one task. */
struct ffn_task {
    const unsigned char *block;
    const int32_t *pair;
    int expert, start, rows, first, end;    /* its `rows` pairs begin at `start`; its units are first .. end-1 */
};

static int ffn_next(struct ffn *f, int member, int members, struct ffn_task *task)
{
    int64_t number = stop_asked(f->args->stop) ? -1 : work_take(&f->work, member, members);
    if (number < 0)
        return 0;
    int expert = f->wanted[number / f->tasks];
    task->expert = expert;
    task->block = (const unsigned char *)(uintptr_t)f->table[expert];
    task->pair = f->pair + f->start[expert];
    task->start = f->start[expert];
    task->rows = f->start[expert + 1] - f->start[expert];
    const int first = (int)(number % f->tasks) * f->task_units;
    task->first = f->first_unit + first;
    task->end = f->first_unit + (f->units - first < f->task_units ? f->units : first + f->task_units);
    return 1;
}

/* Collects the inputs of rows first .. first+rows-1 of the task's expert. */
static inline void ffn_rows(const struct ffn *f, const struct ffn_task *task, int slots, int first, int rows, const void **in)
{
    for (int r = 0; r < rows; r++)
        in[r] = operand_at(&f->in, (size_t)(f->in.by_pair ? task->start + first + r : task->pair[first + r] / slots));
}

/* Computes the inner activations of one unit from its gate and up sums, with biases, in place of gate; the first `used` are
 * valid. */
static inline void activate_gated_unit(const struct ffn *f, int expert, int u, size_t used, float *gate)
{
    const struct expert_ffn_args *a = f->args;
    float *up = gate + UNIT_INNER;
    if (f->gate_up_bias) {
        const size_t width = (size_t)a->inner_width;
        const float *bias = f->gate_up_bias + 2 * width * (size_t)expert + (size_t)u * UNIT_INNER;
        for (size_t i = 0; i < used; i++) {
            gate[i] += bias[i];
            up[i] += bias[width + i];
        }
    }
    if (a->glu == GLU_GELU_TANH)
        for (int i = 0; i < UNIT_INNER; i++)
            gate[i] = plain_glu(GLU_GELU_TANH, gate[i], up[i], 0, 0);
    else if (a->limit == 0)                             /* branches outside the loops: else all forms would be computed */
        for (int i = 0; i < UNIT_INNER; i++)
            gate[i] = plain_glu(GLU_SILU, gate[i], up[i], 0, 0);
    else if (a->alpha == 0)
        for (int i = 0; i < UNIT_INNER; i++)
            gate[i] = plain_glu(GLU_SILU, gate[i], up[i], a->limit, 0);
    else
        for (int i = 0; i < UNIT_INNER; i++)
            gate[i] = plain_glu(GLU_SILU, gate[i], up[i], a->limit, a->alpha);
}

/* Replaces the 32 sums of a unit of up by the inner activations. */
static inline void activate_ungated_unit(float *up)
{
    for (int i = 0; i < UNIT_OUTPUTS; i++)
        up[i] = plain_relu2(up[i]);
}

/* Computes `inner`. each: inner indices of a unit, a constant in both callers. */
static inline void compute_inner(struct ffn *f, int member, int members, int each)
{
    const struct expert_ffn_args *a = f->args;
    const size_t unit = unit_bytes(a->format, a->hidden), width = (size_t)a->inner_width;
    struct ffn_task task;
    while (ffn_next(f, member, members, &task)) {
        int passes = pass_count(&f->in, a->format, task.rows);
        for (int u = task.first; u < task.end; u++)
            for (int p = 0; p < passes; p++) {
                int first = pass_first(task.rows, passes, p), rows = pass_first(task.rows, passes, p + 1) - first;
                _Alignas(64) float product[MAX_ROWS * UNIT_OUTPUTS];
                const void *in[MAX_ROWS];
                ffn_rows(f, &task, a->slots, first, rows, in);
                float *inner = f->inner + (size_t)(u * each);
                for (int r = 0; r < rows; r++)
                    unit_expect(inner + (size_t)task.pair[first + r] * width, each);
                operand_product(&f->in, a->format, task.block + unit * (size_t)u, a->hidden, rows, in, product);
                size_t left = width - (size_t)(u * each), used = left < (size_t)each ? left : (size_t)each;
                for (int r = 0; r < rows; r++) {
                    float *sums = product + r * UNIT_OUTPUTS;
                    if (each == UNIT_INNER)
                        activate_gated_unit(f, task.expert, u, used, sums);
                    else
                        activate_ungated_unit(sums);
                    unit_store(inner + (size_t)task.pair[first + r] * width, sums, (int)used, each);
                }
            }
    }
}

static void compute_gated_inner(void *argument, int member, int members)
{
    compute_inner(argument, member, members, UNIT_INNER);
}

static void compute_ungated_inner(void *argument, int member, int members)
{
    compute_inner(argument, member, members, UNIT_OUTPUTS);
}

static void down(void *argument, int member, int members)
{
    struct ffn *f = argument;
    const struct expert_ffn_args *a = f->args;
    const size_t unit = unit_bytes(a->down_format, a->inner_width), hidden = (size_t)a->hidden;
    const size_t offset = (a->glu == GLU_NONE_RELU2 ? ungated_down_offset : expert_down_offset)(a->format, a->hidden,
                                                                                                a->inner_width);
    struct ffn_task task;
    while (ffn_next(f, member, members, &task)) {
        int passes = pass_count(&f->in, a->down_format, task.rows);
        for (int u = task.first; u < task.end; u++)
            for (int p = 0; p < passes; p++) {
                int first = pass_first(task.rows, passes, p), rows = pass_first(task.rows, passes, p + 1) - first;
                _Alignas(64) float product[MAX_ROWS * UNIT_OUTPUTS];
                const void *in[MAX_ROWS];
                ffn_rows(f, &task, 1, first, rows, in);
                float *partial = f->partial + (size_t)u * UNIT_OUTPUTS;
                for (int r = 0; r < rows; r++)
                    unit_expect(partial + (size_t)task.pair[first + r] * hidden, UNIT_OUTPUTS);
                operand_product(&f->in, a->down_format, task.block + offset + unit * (size_t)u, a->inner_width, rows, in,
                                product);
                size_t left = hidden - (size_t)u * UNIT_OUTPUTS, used = left < UNIT_OUTPUTS ? left : UNIT_OUTPUTS;
                if (f->down_bias) {
                    const float *bias = f->down_bias + hidden * (size_t)task.expert + (size_t)u * UNIT_OUTPUTS;
                    for (int r = 0; r < rows; r++)
                        for (size_t i = 0; i < used; i++)
                            product[(size_t)r * UNIT_OUTPUTS + i] += bias[i];
                }
                for (int r = 0; r < rows; r++)
                    unit_store(partial + (size_t)task.pair[first + r] * hidden, product + r * UNIT_OUTPUTS, (int)used,
                               UNIT_OUTPUTS);
            }
    }
}

/* Adds partial results to the rows. Each member of the pool adds some columns of all rows, so that even a single row occupies
 * all members. */
static void combine(void *argument, int member, int members)
{
    struct ffn *f = argument;
    const struct expert_ffn_args *a = f->args;
    const size_t hidden = (size_t)a->hidden;
    size_t begin, end;
    const size_t from = (size_t)expert_part_first(a->hidden, UNIT_OUTPUTS, a->part, a->parts);
    const size_t to = (size_t)expert_part_first(a->hidden, UNIT_OUTPUTS, a->part + 1, a->parts);
    thread_pool_part((to - from + 15) / 16, member, members, &begin, &end);
    begin = from + 16 * begin;
    end = from + 16 * end < to ? from + 16 * end : to;
    for (size_t r = 0; r < (size_t)a->rows; r++)
        for (size_t s = 0; s < (size_t)a->slots; s++) {
            size_t pair = r * (size_t)a->slots + s;
            if (f->expert && f->expert[pair] < 0)
                continue;
            float weight = f->weight ? f->weight[pair] : 1.0f;
            if (a->scale != 0)
                weight *= a->scale;
            const float *restrict partial = f->partial + pair * hidden;
            float *restrict out = f->out + r * hidden;
            for (size_t i = begin; i < end; i++)
                out[i] = __builtin_fmaf(weight, partial[i], out[i]);
        }
}

void cpu_expert_sum(struct queue *queue, const struct expert_ffn_args *args)
{
    struct ffn f = {.args = args, .weight = work_pointer(args->weight), .out = work_pointer(args->out),
                    .partial = work_pointer(args->partial), .expert = work_pointer(args->expert)};
    work_run(queue, (size_t)args->rows * (size_t)args->slots * (size_t)args->hidden * sizeof(float), combine, &f);
}

void cpu_expert_ffn(struct queue *queue, const struct expert_ffn_args *args)
{
    struct ffn f;
    f.args = args;
    f.weight = work_pointer(args->weight);
    f.gate_up_bias = args->gate_up_bias.address ? work_pointer(args->gate_up_bias) : NULL;
    f.down_bias = args->down_bias.address ? work_pointer(args->down_bias) : NULL;
    f.out = work_pointer(args->out);
    f.inner = work_pointer(args->inner);
    f.partial = work_pointer(args->partial);
    f.expert = work_pointer(args->expert);
    f.table = work_pointer(args->table);
    f.start = work_pointer(args->group);
    f.pair = f.start + args->experts + 1;
    f.wanted = f.pair + (size_t)args->rows * (size_t)args->slots;
    ffn_group(&f);
    struct operand_rows rows = {.in = work_pointer(args->in), .stride = (size_t)args->hidden, .rows = args->rows,
                                .inputs = args->hidden, .scratch = work_pointer(args->operand), .pair = f.pair,
                                .pairs = f.start[f.expert ? args->experts : 1], .slots = args->slots};
    if (args->step != FFN_PARTIAL) {
        const bool ungated = args->glu == GLU_NONE_RELU2;
        f.in = operand_make(queue, args->format, &rows);
        ffn_share(&f, queue, args->format, args->inner_width, ungated ? UNIT_OUTPUTS : UNIT_INNER,
                  unit_bytes(args->format, args->hidden));
        if (f.units > 0)
            work_run(queue, f.bytes, ungated ? compute_ungated_inner : compute_gated_inner, &f);
    }
    if (args->step == FFN_INNER)
        return;
    rows.in = f.inner;
    rows.stride = (size_t)args->inner_width;
    rows.inputs = args->inner_width;
    rows.rows = args->rows * args->slots;
    rows.expert = f.expert;
    rows.slots = 1;
    f.in = operand_make(queue, args->down_format, &rows);
    ffn_share(&f, queue, args->down_format, args->hidden, UNIT_OUTPUTS, unit_bytes(args->down_format, args->inner_width));
    if (f.units > 0)
        work_run(queue, f.bytes, down, &f);
    if (args->step == FFN_BOTH && !args->apart)
        cpu_expert_sum(queue, args);
}
