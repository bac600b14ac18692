/* kernels/learn.h: mix and mix_back. One block of 256 threads per row. Its first warp computes the softmax, two columns per
 * lane, added by halves; then each thread computes some columns of the row. In mix_back each warp processes every eighth
 * slot: the output of the slot's expert is read once for both the slope (32 chains, added by halves) and the gradient.
 * Memory-bound. */
#include "kernels/cuda/learn.h"

static_assert((int)LEARN_EXPERTS_MAX == 2 * WARP, "a lane has two columns");

struct mix_row {
    float weight[LEARN_EXPERTS_MAX];     /* of the softmax's columns */
    float sign[LEARN_EXPERTS_MAX];       /* of slots */
};

DEVICE int mix_columns(const struct learn_mix_args &a) { return a.kind == LEARN_MIX_SUM ? a.experts : 2; }

/* Returns the index in the router's row of column c of the softmax. */
DEVICE int mix_column(const struct learn_mix_args &a, const int32_t *choice, int c)
{
    return a.first + (a.kind == LEARN_MIX_SUM ? c : choice[c]);
}

/* Returns the column of the softmax that weights a slot. */
DEVICE int mix_slot(const struct learn_mix_args &a, const int32_t *choice, int slot)
{
    return a.kind == LEARN_MIX_SUM ? choice[slot] : slot;
}

/* Computes the row's weights with all threads of the block. All threads may read the row when this returns. */
DEVICE void mix_weigh(const struct learn_mix_args &a, const int32_t *choice, struct mix_row *row)
{
    const float *router = device_pointer<float>(a.router) + (int64_t)blockIdx.x * a.router_width;
    const int count = mix_columns(a), c = lane_id();
    if (warp_id() == 0) {
        const float x = c < count ? router[mix_column(a, choice, c)] : -INFINITY;
        const float y = c + WARP < count ? router[mix_column(a, choice, c + WARP)] : -INFINITY;
        const float largest = warp_max(fmaxf(x, y)), p = plain_exp(x - largest), q = plain_exp(y - largest);
        const float sum = warp_sum(p + q);
        row->weight[c] = p / sum;
        row->weight[c + WARP] = q / sum;
        int less = -1;
        if (a.kind == LEARN_MIX_CONTRAST)
            less = router[mix_column(a, choice, 0)] > router[mix_column(a, choice, 1)];
        row->sign[c] = c == less ? -1 : 1;
        row->sign[c + WARP] = 1;
    }
    __syncthreads();
}

__global__ void __launch_bounds__(LEARN_THREADS) learn_mix_kernel(struct learn_mix_args a)
{
    SHARED(struct mix_row, row, 1);
    const int32_t *choice = device_pointer<int32_t>(a.choice) + (int64_t)blockIdx.x * a.slots;
    const int32_t *place = device_pointer<int32_t>(a.place) + (int64_t)blockIdx.x * a.slots;
    const int64_t at = (int64_t)blockIdx.x * a.width;
    mix_weigh(a, choice, row);
    for (int i = (int)threadIdx.x; i < a.width; i += LEARN_THREADS) {
        float sum = device_pointer<float>(a.u)[at + i];
        for (int slot = 0; slot < a.used; slot++)
            sum = fmaf(row->sign[slot] * row->weight[mix_slot(a, choice, slot)],
                       device_pointer<float>(a.made[choice[slot]])[(int64_t)place[slot] * a.width + i], sum);
        device_pointer<float>(a.out)[at + i] = sum;
    }
}

void cuda_learn_mix(struct queue *queue, const struct learn_mix_args *a)
{
    if (a->rows && a->width)
        LAUNCH(learn_mix_kernel, dim3((unsigned)a->rows), dim3(LEARN_THREADS), 0, cuda_stream(queue), *a);
}

__global__ void __launch_bounds__(LEARN_THREADS) learn_mix_back_kernel(struct learn_mix_args a)
{
    SHARED(struct mix_row, row, 1);
    SHARED(float, slopes, LEARN_EXPERTS_MAX);            /* of the softmax's columns; 0 for columns that no slot uses */
    const int32_t *choice = device_pointer<int32_t>(a.choice) + (int64_t)blockIdx.x * a.slots;
    const int32_t *place = device_pointer<int32_t>(a.place) + (int64_t)blockIdx.x * a.slots;
    const int64_t at = (int64_t)blockIdx.x * a.width;
    const float *g = device_pointer<float>(a.gradient) + at;
    if (threadIdx.x < LEARN_EXPERTS_MAX)
        slopes[threadIdx.x] = 0;
    mix_weigh(a, choice, row);
    for (int slot = warp_id(); slot < a.used; slot += LEARN_WARPS) {
        const int c = mix_slot(a, choice, slot);
        const float sign = row->sign[slot], share = sign * row->weight[c];
        const float *made = device_pointer<float>(a.made[choice[slot]]) + (int64_t)place[slot] * a.width;
        float *to = device_pointer<float>(a.made_to[choice[slot]]), slope = 0;
        if (to)
            to += (int64_t)place[slot] * a.width;
        for (int i = lane_id(); i < a.width; i += WARP) {
            slope = fmaf(g[i], made[i], slope);
            if (to)
                to[i] = fmaf(share, g[i], to[i]);
        }
        slope = warp_sum(slope);
        if (lane_id() == 0)
            slopes[c] = sign * slope;
    }
    for (int i = (int)threadIdx.x; a.u_to.address && i < a.width; i += LEARN_THREADS)
        device_pointer<float>(a.u_to)[at + i] += g[i];
    __syncthreads();
    if (warp_id() || !a.router_to.address)
        return;
    const int c = lane_id();
    float *to = device_pointer<float>(a.router_to) + (int64_t)blockIdx.x * a.router_width;
    const float mean = warp_sum(row->weight[c] * slopes[c] + row->weight[c + WARP] * slopes[c + WARP]);
    for (int i = c; i < mix_columns(a); i += WARP)
        to[mix_column(a, choice, i)] += row->weight[i] * (slopes[i] - mean);
}

void cuda_learn_mix_back(struct queue *queue, const struct learn_mix_args *a)
{
    if (a->rows && a->width)
        LAUNCH(learn_mix_back_kernel, dim3((unsigned)a->rows), dim3(LEARN_THREADS), 0, cuda_stream(queue), *a);
}
