#include <math.h>

#include "kernels/plain/math.h"
#include "kernels/ref/ref_internal.h"

/* inner = silu(gate) * up. With q8 and q4 every step is in f32, as the contract orders them: a rounding that goes the other way
 * would become a whole step of an integer. `x` has room for a row of either width. */
static void run_gate_up(const struct expert_ffn_args *a, const void *block, const float *in, struct quantised *x, float *inner)
{
    if (format_quantised(a->format))
        ref_quantise(in, a->hidden, x);
    for (int i = 0; i < a->inner_width; i++) {
        int at = i / UNIT_INNER * UNIT_OUTPUTS + i % UNIT_INNER;
        if (format_quantised(a->format)) {
            inner[i] = plain_silu(ref_quantised_product(a->format, block, a->hidden, at, x)) *
                       ref_quantised_product(a->format, block, a->hidden, at + UNIT_INNER, x);
            continue;
        }
        double gate = 0, up = 0;
        for (int k = 0; k < a->hidden; k++) {
            gate += (double)expert_gate_at(a->format, block, a->hidden, a->inner_width, i, k) * in[k];
            up += (double)expert_up_at(a->format, block, a->hidden, a->inner_width, i, k) * in[k];
        }
        inner[i] = (float)(gate / (1 + exp(-gate)) * up);
    }
}

/* out += weight * down(inner) */
static void run_down(const struct expert_ffn_args *a, const void *down, const float *inner, float weight, struct quantised *x,
                     float *out)
{
    if (format_quantised(a->down_format))
        ref_quantise(inner, a->inner_width, x);
    for (int o = 0; o < a->hidden; o++) {
        double sum = 0;
        if (format_quantised(a->down_format)) {
            out[o] = fmaf(weight, ref_quantised_product(a->down_format, down, a->inner_width, o, x), out[o]);
            continue;
        }
        for (int i = 0; i < a->inner_width; i++)
            sum += (double)matrix_at(a->down_format, down, a->inner_width, o, i) * inner[i];
        out[o] = (float)(out[o] + weight * sum);
    }
}

void ref_expert_ffn(struct queue *queue, const struct expert_ffn_args *a)
{
    int64_t places = (int64_t)a->rows * a->slots;
    const float *in = ref_floats(queue, a->in, (int64_t)a->rows * a->hidden);
    float *out = ref_floats(queue, a->out, (int64_t)a->rows * a->hidden);
    const int32_t *expert = a->expert.address ? ref_integers(queue, a->expert, places) : NULL;
    const float *weight = a->weight.address ? ref_floats(queue, a->weight, places) : NULL;
    const uint64_t *table = ref_bytes(queue, a->table, (uint64_t)a->experts * sizeof *table);
    float *inner = ref_floats(queue, a->inner, places * a->inner_width);
    struct quantised *x = NULL;
    const size_t offset = expert_down_offset(a->format, a->hidden, a->inner_width);
    size_t bytes = 0;
    int64_t wide = format_quantised(a->format) ? (int64_t)a->rows * quantised_blocks(a->hidden) : 0;
    int64_t deep = format_quantised(a->down_format) ? places * quantised_blocks(a->inner_width) : 0;
    if (wide || deep)
        x = ref_bytes(queue, a->quantised, (uint64_t)(wide > deep ? wide : deep) * sizeof *x);
    matrix_bytes(a->down_format, a->hidden, a->inner_width, &bytes);
    bytes += offset;
    for (int64_t place = 0; place < places; place++) {
        int chosen = expert ? expert[place] : 0;
        if (chosen < 0)
            continue;
        const void *block = ref_bytes(queue, (struct buffer){table[chosen], bytes}, bytes);
        const float *row = in + place / a->slots * a->hidden;
        float share = weight ? weight[place] : 1.0f, *own = inner + place * a->inner_width;
        share = a->scale != 0 ? share * a->scale : share;
        run_gate_up(a, block, row, x, own);
        run_down(a, (const unsigned char *)block + offset, own, share, x, out + place / a->slots * a->hidden);
    }
}
