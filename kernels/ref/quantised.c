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
        if (!isfinite(m) || m < 0x1p-100f)
            continue;
        for (int i = 0; i < count; i++) {
            out[b].q[i] = (int8_t)rintf(in[first + i] * (127 / m));
            out[b].start -= 8 * out[b].q[i];
        }
    }
}

float ref_quantised_product(enum weight_format format, const void *matrix, int inputs, int output, const struct quantised *in)
{
    float y = 0;
    for (int b = 0; b < quantised_blocks(inputs); b++) {
        int sum = 0;
        float scale = 0;
        for (int i = 0; i < BLOCK_INPUTS && b * BLOCK_INPUTS + i < inputs; i++)
            sum += matrix_integer(format, matrix, inputs, output, b * BLOCK_INPUTS + i, &scale) * in[b].q[i];
        y = fmaf((float)sum, scale * in[b].scale, y);
    }
    return y;
}

void ref_convert(enum weight_format format, const float *in, int inputs, void *operand)
{
    uint16_t *out = operand;
    if (format_quantised(format)) {
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
    if (format_quantised(format))
        return ref_quantised_product(format, matrix, inputs, output, operand);
    for (int k = 0; k < inputs; k += 2) {
        const uint16_t weight[2] = {f32_to_bf16(matrix_at(format, matrix, inputs, output, k)),
                                    k + 1 < inputs ? f32_to_bf16(matrix_at(format, matrix, inputs, output, k + 1)) : 0};
        y = plain_pair(weight, in + k, y);
    }
    return y;
}
