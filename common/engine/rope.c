#include "common/engine/rope.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925;

/* Inverse frequency of pair i. Llama 3's rule: long waves are stretched by factor, short ones kept, blended between. */
static float inverse_frequency(const struct rope_shape *shape, int i)
{
    float plain = (float)(1.0 / pow(shape->theta, 2.0 * i / shape->rotary));
    if (shape->kind == ROPE_LINEAR)
        return (float)(plain / shape->factor);
    if (shape->kind == ROPE_LLAMA3) {
        double wave = two_pi / plain;
        double turns = shape->original_positions / wave;
        if (turns > shape->high_factor)
            return plain;
        if (turns < shape->low_factor)
            return (float)(plain / shape->factor);
        double smooth = (turns - shape->low_factor) / (shape->high_factor - shape->low_factor);
        return (float)((1 - smooth) * plain / shape->factor + smooth * plain);
    }
    return plain;
}

void rope_table(const struct rope_shape *shape, int first, int positions, float *table)
{
    int pairs = shape->rotary / 2;
    for (int i = 0; i < pairs; i++) {
        float frequency = inverse_frequency(shape, i);
        for (int position = first; position < positions; position++) {
            float angle = (float)position * frequency;
            float *entry = table + 2 * ((int64_t)(position - first) * pairs + i);
            entry[0] = (float)cos((double)angle);
            entry[1] = (float)sin((double)angle);
        }
    }
}
