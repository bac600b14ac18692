#include "common/engine/rope.h"

#include <math.h>

#include "common/base/mem.h"

static const double two_pi = 6.283185307179586476925;

/* Returns the (real) index of the pair that makes `rotations` rotations within the original positions. */
static double pair_with_rotations(const struct rope_shape *shape, double rotations)
{
    return shape->rotary * log(shape->original_positions / (rotations * two_pi)) / (2 * log(shape->theta));
}

/* Returns a YaRN frequency: pairs below `low` are kept, those above `high` interpolated; arXiv 2309.00071 section 3.2.
 * Computed in f32 as in the published models. */
static float yarn_frequency(const struct rope_shape *shape, int i)
{
    double low = pair_with_rotations(shape, shape->beta_fast), high = pair_with_rotations(shape, shape->beta_slow);
    if (shape->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0 ? low : 0;
    high = high < shape->rotary - 1 ? high : shape->rotary - 1;
    float wave = (float)pow(shape->theta, 2.0 * i / shape->rotary);
    float ramp = (float)((i - low) / (high == low ? 0.001 : high - low));
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    float kept = 1.0f - ramp;
    return 1.0f / ((float)shape->factor * wave) * (1.0f - kept) + 1.0f / wave * kept;
}

/* Returns the base that maps positions up to this one into the original range, by the common "NTK-aware" formula. */
static double grown_theta(const struct rope_shape *shape, int position)
{
    double growth = shape->factor * (position + 1) / shape->original_positions - (shape->factor - 1);
    return shape->theta * pow(growth, shape->rotary / (shape->rotary - 2.0));
}

/* Returns the inverse frequency of pair i. Llama 3's rule: long wavelengths are stretched by factor, short ones kept, those
 * between blended. */
static float inverse_frequency(const struct rope_shape *shape, int i)
{
    if (shape->kind == ROPE_SCALE)
        return 0;
    float plain = (float)(1.0 / pow(shape->theta, 2.0 * i / shape->rotary));
    if (shape->rotated_pairs && i >= shape->rotated_pairs)
        return 0;
    if (shape->kind == ROPE_LINEAR)
        return (float)(plain / shape->factor);
    if (shape->kind == ROPE_YARN)
        return yarn_frequency(shape, i);
    if (shape->kind == ROPE_STRETCHED)
        return 1.0f / ((float)shape->stretch[i] * (float)pow(shape->theta, 2.0 * i / shape->rotary));
    if (shape->kind == ROPE_LLAMA3) {
        double wave = two_pi / plain;
        double turns = shape->original_positions / wave;
        if (turns > shape->high_factor)
            return plain;
        if (turns < shape->low_factor || shape->high_factor == shape->low_factor)
            return (float)(plain / shape->factor);
        double smooth = (turns - shape->low_factor) / (shape->high_factor - shape->low_factor);
        return (float)((1 - smooth) * plain / shape->factor + smooth * plain);
    }
    return plain;
}

static float amplitude_at(const struct rope_shape *shape, int position)
{
    if (shape->kind == ROPE_SCALE)
        return log1pf(floorf(((float)position + 1.0f) / (float)shape->original_positions)) * (float)shape->factor + 1.0f;
    if (shape->amplitude == 0)
        return 1;
    const bool far = shape->long_amplitude != 0 && position >= shape->original_positions;
    return (float)(far ? shape->long_amplitude : shape->amplitude);
}

void rope_table(const struct rope_shape *shape, int first, int positions, float *table)
{
    int pairs = shape->rotary / 2;
    for (int i = 0; i < pairs; i++) {
        float frequency = inverse_frequency(shape, i);
        for (int position = first; position < positions; position++) {
            if (shape->kind == ROPE_DYNAMIC && position >= shape->original_positions)
                frequency = (float)pow(grown_theta(shape, position), -2.0 * i / shape->rotary);
            float angle = (float)position * frequency;
            float *entry = table + 2 * ((int64_t)(position - first) * pairs + i);
            const float amplitude = amplitude_at(shape, position);
            entry[0] = (float)cos((double)angle) * amplitude;
            entry[1] = (float)sin((double)angle) * amplitude;
        }
    }
}

int rope_cover(struct rope_positions *rope, const struct rope_shape *shape, struct device *device, int positions,
               struct err *err)
{
    const size_t floats = 2 * ((size_t)shape->rotary / 2) * (size_t)positions;
    struct buffer larger;
    int rc = -1;
    if (positions <= rope->positions)
        return 0;
    float *table = mem_alloc(floats, sizeof *table, err);
    if (!table || device_alloc(device, floats * sizeof *table, &larger, err))
        goto done;
    rope_table(shape, 0, positions, table);
    queue_upload(device, larger, table, floats * sizeof *table);
    rc = queue_wait(device, err);
    if (rc) {
        device_free(device, &larger);
        goto done;
    }
    device_free(device, &rope->table);
    *rope = (struct rope_positions){larger, positions};
done:
    mem_free(&table);
    return rc;
}
