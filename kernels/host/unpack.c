#include <string.h>

#include "common/base/float.h"
#include "kernels/host/internal.h"

enum { TILE = 32 };

/* Dequantises a unit of bf16 in pieces of inputs that fit into the first-level cache. */
static void unpack_bf16(const uint32_t *unit, int rows, int inputs, float *out)
{
    for (int from = 0; from < inputs; from += TILE) {
        const int count = inputs - from < TILE ? inputs - from : TILE;
        for (int row = 0; row < rows; row++) {
            const uint32_t *at = unit + (size_t)(from / 2) * UNIT_OUTPUTS + row;
            float *to = out + (size_t)row * (size_t)inputs + from;
            for (int i = 0; i + 1 < count; i += 2) {
                const uint32_t pair = at[(size_t)(i / 2) * UNIT_OUTPUTS];
                const uint64_t both = (uint64_t)(pair & 0xffff0000u) << 32 | (uint32_t)(pair << 16);     /* of two floats */
                memcpy(to + i, &both, sizeof both);
            }
            if (count % 2)
                to[count - 1] = float_from_bits(at[(size_t)(count / 2) * UNIT_OUTPUTS] << 16);
        }
    }
}

static void unpack_f32(const float *unit, int rows, int inputs, float *out)
{
    for (int from = 0; from < inputs; from += TILE)
        for (int row = 0; row < rows; row++)
            for (int i = from; i < inputs && i < from + TILE; i++)
                out[(size_t)row * (size_t)inputs + (size_t)i] = unit[(size_t)i * UNIT_OUTPUTS + (size_t)row];
}

static void unpack_units(const void *context, size_t begin, size_t end)
{
    const struct learn_unpack_args *u = context;
    const char *data = host_at(u->matrix);
    const size_t unit = unit_bytes(u->format, u->inputs);
    for (size_t at = begin; at < end; at++) {
        const int row = (int)at * UNIT_OUTPUTS, rows = u->rows - row < UNIT_OUTPUTS ? u->rows - row : UNIT_OUTPUTS;
        const void *from = data + ((size_t)u->first / UNIT_OUTPUTS + at) * unit;
        float *to = (float *)host_at(u->out) + (size_t)row * (size_t)u->inputs;
        if (u->format == FORMAT_BF16)
            unpack_bf16(from, rows, u->inputs, to);
        else if (u->format == FORMAT_F32)
            unpack_f32(from, rows, u->inputs, to);
        else
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < u->inputs; i++)
                    to[(size_t)r * (size_t)u->inputs + (size_t)i] =
                        matrix_at(u->format, data, u->inputs, u->first + row + r, i);
    }
}

void host_learn_unpack(struct queue *queue, const struct learn_unpack_args *u)
{
    host_spread(queue, ((size_t)u->rows + UNIT_OUTPUTS - 1) / UNIT_OUTPUTS, (size_t)u->inputs * UNIT_OUTPUTS, unpack_units, u);
}
