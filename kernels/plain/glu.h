/* The activation between the products with Wgate, Wup and Wdown of a feed-forward network, or without Wgate. */
#ifndef MOE_KERNELS_PLAIN_GLU_H
#define MOE_KERNELS_PLAIN_GLU_H

#include "kernels/plain/math.h"

enum glu_kind {
    GLU_SILU,                           /* SwiGLU (arXiv 2002.05202) */
    GLU_GELU_TANH,                      /* GEGLU there, with the tanh approximation of gelu: plain_gelu_tanh(gate) * up */
    GLU_NONE_RELU2                      /* no gate: plain_relu2(up) (squared ReLU, arXiv 2109.08668; Nemotron) */
};

PLAIN float plain_relu2(float up)
{
    const float part = up < 0 ? 0 : up;
    return part * part;
}

/* With a limit and an alpha this is the SwiGLU of gpt-oss: inputs are clamped, the sigmoid has slope alpha, and 1 is added to
 * up. With a limit alone silu(gate) and up are clamped (Ling 3.0). */
PLAIN float plain_glu(int kind, float gate, float up, float limit, float alpha)
{
    if (kind == GLU_GELU_TANH)
        return plain_gelu_tanh(gate) * up;
    if (limit == 0)
        return plain_silu(gate) * up;
    gate = alpha == 0 ? plain_silu(gate) : gate;
    gate = gate < limit ? gate : limit;
    up = up < limit ? up : limit;
    up = up > -limit ? up : -limit;
    if (alpha == 0)
        return gate * up;
    return (up + 1.0f) * (gate / (1.0f + plain_exp(-(alpha * gate))));
}

#endif
