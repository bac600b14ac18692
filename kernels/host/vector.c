#include "kernels/host/vector.h"

#include <math.h>

#include "kernels/plain/math.h"

/* One source, compiled for several instruction sets; the loader selects one at start. Sanitisers do not support such
 * functions. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define CLONES
#endif

enum { LANES = 16, STRETCH = 1024 };

CLONES float vector_largest(const float *x, size_t count)
{
    float lane[LANES], largest = x[0];
    size_t i = 0;
    for (int l = 0; l < LANES; l++)
        lane[l] = x[0];
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] = x[i + (size_t)l] > lane[l] ? x[i + (size_t)l] : lane[l];
    for (; i < count; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (int l = 0; l < LANES; l++)
        largest = lane[l] > largest ? lane[l] : largest;
    return largest;
}

CLONES double vector_dot(const float *a, const float *b, size_t count)
{
    double sum = 0;
    for (size_t begin = 0; begin < count; begin += STRETCH) {
        const size_t end = count - begin < STRETCH ? count : begin + STRETCH;
        float lane[LANES] = {0};
        size_t i = begin;
        for (; i + LANES <= end; i += LANES)
            for (int l = 0; l < LANES; l++)
                lane[l] += a[i + (size_t)l] * b[i + (size_t)l];
        for (; i < end; i++)
            lane[0] += a[i] * b[i];
        for (int l = 0; l < LANES; l++)
            sum += (double)lane[l];
    }
    return sum;
}

CLONES double vector_exp(float *x, size_t count, float shift)
{
    double sum = 0;
    for (size_t begin = 0; begin < count; begin += STRETCH) {
        const size_t end = count - begin < STRETCH ? count : begin + STRETCH;
        float lane[LANES] = {0};
        size_t i = begin;
        for (; i + LANES <= end; i += LANES)
            for (int l = 0; l < LANES; l++) {
                x[i + (size_t)l] = plain_exp(x[i + (size_t)l] - shift);
                lane[l] += x[i + (size_t)l];
            }
        for (; i < end; i++) {
            x[i] = plain_exp(x[i] - shift);
            lane[0] += x[i];
        }
        for (int l = 0; l < LANES; l++)
            sum += (double)lane[l];
    }
    return sum;
}

CLONES void vector_scale(float *x, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        x[i] *= factor;
}

CLONES void vector_add(float *restrict to, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += x[i];
}

CLONES void vector_add_scaled(float *restrict to, const float *restrict x, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        to[i] += factor * x[i];
}

CLONES void vector_silu(float *restrict out, const float *restrict x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = plain_silu(x[i]);
}

CLONES void vector_silu_back(float *restrict to, const float *restrict x, const float *restrict gradient, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float s = plain_sigmoid(x[i]);
        to[i] += gradient[i] * s * (1 + x[i] * (1 - s));
    }
}

CLONES void vector_gated(float *restrict out, const float *restrict gate, const float *restrict up, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = plain_silu(gate[i]) * up[i];
}

CLONES void vector_gated_back(float *restrict to_gate, float *restrict to_up, const float *restrict gate,
                              const float *restrict up, const float *restrict gradient, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float s = plain_sigmoid(gate[i]);
        to_gate[i] += gradient[i] * up[i] * s * (1 + gate[i] * (1 - s));
        to_up[i] += gradient[i] * gate[i] * s;
    }
}

CLONES void vector_adam(const struct learn_adam *step, float *restrict weight, float *restrict first, float *restrict second,
                        const float *restrict gradient, size_t count)
{
    const struct learn_adam s = *step;
    for (size_t i = 0; i < count; i++) {
        float g = gradient[i] * s.factor;
        g = g > s.bound ? s.bound : g;
        g = g < -s.bound ? -s.bound : g;
        const float m = s.beta1 * first[i] + (1 - s.beta1) * g, v = s.beta2 * second[i] + (1 - s.beta2) * g * g;
        first[i] = m;
        second[i] = v;
        weight[i] = weight[i] * s.keep - s.rate * m / (sqrtf(v) * s.root + s.epsilon);
    }
}
