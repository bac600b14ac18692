#include <math.h>

#include "kernels/plain/bf16.h"
#include "kernels/ref/ref_internal.h"

void ref_quantise(const float *in, int inputs, struct quantised *out)
{
    for (int b = 0; b < quantised_blocks(inputs); b++) {
        const int first = b * BLOCK_INPUTS, count = inputs - first < BLOCK_INPUTS ? inputs - first : BLOCK_INPUTS;
        float m = 0;
        for (int i = 0; i < count; i++)
            if (!(fabsf(in[first + i]) <= m))
                m = isnan(m) ? m : fabsf(in[first + i]);
        out[b] = (struct quantised){.scale = !isfinite(m) ? NAN : m < 0x1p-100f ? 0 : m / 127};
        out[b].total = out[b].scale;
        if (!isfinite(m) || m < 0x1p-100f)
            continue;
        for (int i = 0; i < count; i++) {
            out[b].q[i] = (int8_t)rintf(in[first + i] * (127 / m));
            out[b].sum[i / (BLOCK_INPUTS / 2)] = (int16_t)(out[b].sum[i / (BLOCK_INPUTS / 2)] + out[b].q[i]);
        }
        out[b].total = out[b].scale * (float)(out[b].sum[0] + out[b].sum[1]);
    }
}

float ref_quantised_product(enum weight_format format, const void *matrix, int inputs, int output, const struct quantised *in)
{
    const int width = format_steps(format) ? BLOCK_INPUTS / 2 : BLOCK_INPUTS;
    const int minima = format == FORMAT_Q4_K || format == FORMAT_Q5_K ? 1 : format == FORMAT_Q2_K ? 2 : 0;
    float y = 0;
    for (int k = 0; k < inputs; k += width) {
        const struct quantised *x = in + k / BLOCK_INPUTS;
        int sum = 0;
        float scale = 0;
        for (int i = k; i < k + width && i < inputs; i++)
            sum += matrix_integer(format, matrix, inputs, output, i, &scale) * x->q[i % BLOCK_INPUTS];
        y = fmaf((float)sum, scale * x->scale, y);
        for (int i = 0; i < minima; i++) {
            const float less = matrix_less(format, matrix, inputs, output, k + i * BLOCK_INPUTS / 2);
            y = fmaf(-less, minima == 1 ? x->total : x->scale * (float)x->sum[i], y);
        }
    }
    return y;
}

void ref_convert(enum weight_format format, const float *in, int inputs, void *operand)
{
    uint16_t *out = operand;
    if (format_integers(format)) {
        ref_quantise(in, inputs, operand);
        return;
    }
    for (int k = 0; k < inputs; k++)
        out[k] = f32_to_bf16(in[k]);
    out[inputs] = 0;
}

float ref_converted_product(enum weight_format format, const void *matrix, int inputs, int output, const void *operand)
{
    const uint16_t *in = operand;
    float y = 0;
    if (format_integers(format))
        return ref_quantised_product(format, matrix, inputs, output, operand);
    for (int k = 0; k < inputs; k += 2) {
        const uint16_t weight[2] = {f32_to_bf16(matrix_at(format, matrix, inputs, output, k)),
                                    k + 1 < inputs ? f32_to_bf16(matrix_at(format, matrix, inputs, output, k + 1)) : 0};
        y = plain_pair(weight, in + k, y);
    }
    return y;
}
