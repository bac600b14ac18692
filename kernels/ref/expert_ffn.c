#include <math.h>

#include "kernels/plain/glu.h"
#include "kernels/ref/ref_internal.h"

/* One expert: its weights; its biases, which may be NULL; and whether its products convert activations (ref_converts). */
struct expert {
    bool converts, down_converts;
    const void *block, *down;
    const float *gate_up_bias, *down_bias;
};

static double glu(const struct expert_ffn_args *a, double gate, double up)
{
    if (a->glu == GLU_GELU_TANH)
        return 0.5 * gate * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (gate + 0.044715 * gate * gate * gate))) * up;
    if (a->limit == 0)
        return gate / (1 + exp(-gate)) * up;
    up = fmax(fmin(up, (double)a->limit), -(double)a->limit);
    if (a->alpha == 0)
        return fmin(gate / (1 + exp(-gate)), (double)a->limit) * up;
    gate = fmin(gate, (double)a->limit);
    return (up + 1) * gate / (1 + exp(-(double)a->alpha * gate));
}

/* Computes inner = glu(gate, up). With converted activations every step is in f32 and in the order of the contract, because a
 * different rounding could change a quantised integer by one. `x`: scratch for a converted row of either width. */
static void run_gate_up(const struct expert_ffn_args *a, const struct expert *expert, const float *in, void *x, float *inner)
{
    const void *block = expert->block;
    const float *bias = expert->gate_up_bias;
    const int end = expert_part_first(a->inner_width, UNIT_INNER, a->part + 1, a->parts);
    if (expert->converts)
        ref_convert(a->format, in, a->hidden, x);
    for (int i = expert_part_first(a->inner_width, UNIT_INNER, a->part, a->parts); i < end; i++) {
        if (expert->converts) {
            int row = i / UNIT_INNER * UNIT_OUTPUTS + i % UNIT_INNER;
            float gate = ref_converted_product(a->format, block, a->hidden, row, x);
            float up = ref_converted_product(a->format, block, a->hidden, row + UNIT_INNER, x);
            inner[i] = bias ? plain_glu((int)a->glu, gate + bias[i], up + bias[a->inner_width + i], a->limit, a->alpha)
                            : plain_glu((int)a->glu, gate, up, a->limit, a->alpha);
            continue;
        }
        double gate = bias ? (double)bias[i] : 0, up = bias ? (double)bias[a->inner_width + i] : 0;
        for (int k = 0; k < a->hidden; k++) {
            gate += (double)expert_gate_at(a->format, block, a->hidden, a->inner_width, i, k) * in[k];
            up += (double)expert_up_at(a->format, block, a->hidden, a->inner_width, i, k) * in[k];
        }
        inner[i] = (float)glu(a, gate, up);
    }
}

/* Computes the inner activations of an expert without a gate: relu2(up). */
static void run_up(const struct expert_ffn_args *a, const struct expert *expert, const float *in, void *x, float *inner)
{
    const int end = expert_part_first(a->inner_width, UNIT_OUTPUTS, a->part + 1, a->parts);
    if (expert->converts)
        ref_convert(a->format, in, a->hidden, x);
    for (int i = expert_part_first(a->inner_width, UNIT_OUTPUTS, a->part, a->parts); i < end; i++) {
        if (expert->converts) {
            inner[i] = plain_relu2(ref_converted_product(a->format, expert->block, a->hidden, i, x));
            continue;
        }
        double up = 0;
        for (int k = 0; k < a->hidden; k++)
            up += (double)matrix_at(a->format, expert->block, a->hidden, i, k) * in[k];
        inner[i] = (float)(up < 0 ? 0 : up * up);
    }
}

/* Adds weight * down(inner) to out; with apart: out = down(inner), of this part of the outputs. */
static void run_down(const struct expert_ffn_args *a, const struct expert *expert, const float *inner, float weight,
                     void *x, float *out)
{
    const float *bias = expert->down_bias;
    const int end = expert_part_first(a->hidden, UNIT_OUTPUTS, a->part + 1, a->parts);
    if (expert->down_converts)
        ref_convert(a->down_format, inner, a->inner_width, x);
    for (int o = expert_part_first(a->hidden, UNIT_OUTPUTS, a->part, a->parts); o < end; o++) {
        if (expert->down_converts) {
            float sum = ref_converted_product(a->down_format, expert->down, a->inner_width, o, x);
            sum = bias ? sum + bias[o] : sum;
            out[o] = a->apart ? sum : fmaf(weight, sum, out[o]);
            continue;
        }
        double sum = bias ? (double)bias[o] : 0;
        for (int i = 0; i < a->inner_width; i++)
            sum += (double)matrix_at(a->down_format, expert->down, a->inner_width, o, i) * inner[i];
        out[o] = a->apart ? (float)sum : (float)(out[o] + (double)weight * (float)sum);
    }
}

void ref_expert_ffn(struct queue *queue, const struct expert_ffn_args *args)
{
    struct expert_ffn_args steps = *args;
    const struct expert_ffn_args *a = &steps;
    steps.apart |= a->step != FFN_BOTH;
    int64_t pairs = (int64_t)a->rows * a->slots;
    const float *in = ref_floats(queue, a->in, (int64_t)a->rows * a->hidden);
    float *out = a->apart ? ref_floats(queue, a->partial, pairs * a->hidden)
                          : ref_floats(queue, a->out, (int64_t)a->rows * a->hidden);
    const int32_t *expert = a->expert.address ? ref_integers(queue, a->expert, pairs) : NULL;
    const float *weight = a->weight.address && !a->apart ? ref_floats(queue, a->weight, pairs) : NULL;
    const uint64_t *table = ref_bytes(queue, a->table, (uint64_t)a->experts * sizeof *table);
    const float *up_bias = a->gate_up_bias.address
                         ? ref_floats(queue, a->gate_up_bias, (int64_t)a->experts * 2 * a->inner_width) : NULL;
    const float *down_bias = a->down_bias.address ? ref_floats(queue, a->down_bias, (int64_t)a->experts * a->hidden) : NULL;
    float *inner = ref_floats(queue, a->inner, pairs * a->inner_width);
    void *x = NULL;
    const bool converts = ref_converts(queue, a->format), down_converts = ref_converts(queue, a->down_format);
    const bool ungated = a->glu == GLU_NONE_RELU2;
    const size_t offset = (ungated ? ungated_down_offset : expert_down_offset)(a->format, a->hidden, a->inner_width);
    size_t bytes = 0;
    uint64_t wide = converts ? (uint64_t)a->rows * operand_bytes(a->format, a->hidden) : 0;
    uint64_t deep = down_converts ? (uint64_t)pairs * operand_bytes(a->down_format, a->inner_width) : 0;
    if (wide || deep)
        x = ref_bytes(queue, a->operand, wide > deep ? wide : deep);
    matrix_bytes(a->down_format, a->hidden, a->inner_width, &bytes);
    bytes += offset;
    for (int64_t pair = 0; pair < pairs; pair++) {
        int chosen = expert ? expert[pair] : 0;
        if (chosen < 0)
            continue;
        const void *block = ref_bytes(queue, (struct buffer){table[chosen], bytes}, bytes);
        const struct expert one = {converts, down_converts, block, (const unsigned char *)block + offset,
                                   up_bias ? up_bias + (int64_t)chosen * 2 * a->inner_width : NULL,
                                   down_bias ? down_bias + (int64_t)chosen * a->hidden : NULL};
        const float *row = in + pair / a->slots * a->hidden;
        float share = weight ? weight[pair] : 1.0f, *own = inner + pair * a->inner_width;
        share = a->scale != 0 ? share * a->scale : share;
        if (a->step != FFN_PARTIAL)
            (ungated ? run_up : run_gate_up)(a, &one, row, x, own);
        if (a->step != FFN_INNER)
            run_down(a, &one, own, share, x, out + (a->apart ? pair : pair / a->slots) * a->hidden);
    }
}

void ref_expert_sum(struct queue *queue, const struct expert_ffn_args *a)
{
    const int64_t pairs = (int64_t)a->rows * a->slots;
    const bool rounded = ref_converts(queue, a->down_format);
    const int32_t *expert = a->expert.address ? ref_integers(queue, a->expert, pairs) : NULL;
    const float *weight = a->weight.address ? ref_floats(queue, a->weight, pairs) : NULL;
    const float *partial = ref_floats(queue, a->partial, pairs * a->hidden);
    float *out = ref_floats(queue, a->out, (int64_t)a->rows * a->hidden);
    const int first = expert_part_first(a->hidden, UNIT_OUTPUTS, a->part, a->parts);
    const int end = expert_part_first(a->hidden, UNIT_OUTPUTS, a->part + 1, a->parts);
    for (int64_t pair = 0; pair < pairs; pair++) {
        float share = weight ? weight[pair] : 1.0f, *row = out + pair / a->slots * a->hidden;
        share = a->scale != 0 ? share * a->scale : share;
        for (int o = first; o < end && !(expert && expert[pair] < 0); o++) {
            const float part = partial[pair * a->hidden + o];
            row[o] = rounded ? fmaf(share, part, row[o]) : (float)(row[o] + (double)share * part);
        }
    }
}
