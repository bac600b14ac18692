/* kernels/cuda/gemm.h without a library: one chain of fused multiply-adds per output, from 0 or from the existing value. The
 * input at which the chain begins depends on the number of rows, like a library's order: so tests can detect whether a row
 * was computed by tiles or here, and among how many rows. */
#include "kernels/cuda/gemm.h"

#include "tests/emu/inside.h"

struct gemm {
    dev_stream stream;
};

struct gemm *gemm_open(dev_stream stream, char *why, size_t room)
{
    struct gemm *gemm = new struct gemm();
    gemm->stream = stream;
    snprintf(why, room, "%s", "");
    return gemm;
}

void gemm_close(struct gemm **gemm)
{
    delete *gemm;
    *gemm = nullptr;
}

/* A library's handle and memory belong to the current device. */
static void begin(const struct gemm *gemm)
{
    if (gemm->stream && dev_device_of(gemm->stream) != emu::device_in_use())
        emu::finding_add("a product goes to a stream of device %d while device %d is in use", dev_device_of(gemm->stream),
                         emu::device_in_use());
    dev_wait(gemm->stream);
}

static float widened(uint16_t half) { return float_from_bits((uint32_t)half << 16); }

static void product(const struct gemm_args *a, const uint16_t *in, const uint16_t *weight, float *out)
{
    for (int r = 0; r < a->rows; r++)
        for (int o = 0; o < a->outputs; o++) {
            const uint16_t *x = in + (size_t)r * (size_t)a->inputs, *w = weight + (size_t)o * (size_t)a->inputs;
            float *to = out + (size_t)r * (size_t)a->outputs + o, sum = a->add ? *to : 0;
            for (int i = 0; i < a->inputs; i++) {
                int k = (i + a->rows) % a->inputs;
                sum = fmaf(widened(x[k]), widened(w[k]), sum);
            }
            *to = sum;
        }
}

void gemm_run(struct gemm *gemm, const struct gemm_args *a)
{
    begin(gemm);
    if (!a->count)
        product(a, (const uint16_t *)a->in, (const uint16_t *)a->weight, (float *)a->out);
    for (int i = 0; i < a->count; i++)
        product(a, ((const uint16_t *const *)a->in)[i], ((const uint16_t *const *)a->weight)[i], ((float *const *)a->out)[i]);
}

static float factor(const float *from, int stride, bool turned, int i, int k)
{
    return turned ? from[(size_t)k * (size_t)stride + (size_t)i] : from[(size_t)i * (size_t)stride + (size_t)k];
}

void gemm_run_floats(struct gemm *gemm, const struct gemm_floats *g)
{
    begin(gemm);
    for (int r = 0; r < g->rows; r++)
        for (int o = 0; o < g->columns; o++) {
            float *to = g->c + (size_t)r * (size_t)g->c_stride + o, sum = g->add ? *to : 0;
            for (int i = 0; i < g->depth; i++) {
                const int k = (i + g->rows) % g->depth;
                sum = fmaf(factor(g->a, g->a_stride, g->a_turned, r, k), factor(g->b, g->b_stride, !g->b_turned, o, k), sum);
            }
            *to = sum;
        }
}
