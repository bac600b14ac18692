/* kernels/loop.h. Each step of a draft's path depends on the previous one, so one thread drafts, and one thread accepts and
 * commits, with the functions of kernels/plain/loop.h; all threads of the block make the copies before and after. One block per
 * layer counts experts. The block of loop_accept writes before its barrier, so one fence of one thread after the barrier,
 * before `head` changes, orders all writes of the block for the host. */
#include "kernels/cuda/cuda.h"

enum { LOOP_THREADS = 128 };

DEVICE struct ngram_index index_of(const struct loop_args &a)
{
    struct ngram_index index = {device_pointer<struct ngram_slot>(a.ngram), a.ngram_slots, 0,
                                device_pointer<int32_t>(a.earlier)};
    return index;
}

__global__ void __launch_bounds__(LOOP_THREADS, 1) loop_draft_kernel(struct loop_args a)
{
    pdl_begin();
    struct loop_state *state = device_pointer<struct loop_state>(a.state);
    int32_t *token = device_pointer<int32_t>(a.token);
    if (threadIdx.x == 0) {
        struct ngram_index index = index_of(a);
        state->start = state->stamp = device_clock();
        loop_draft(device_pointer<struct loop_rules>(a.rules), state, &index, device_pointer<int32_t>(a.text), token);
        *device_pointer<int32_t>(a.rows) = state->rows;
    }
    __syncthreads();
    for (int row = (int)threadIdx.x; row < state->rows; row += LOOP_THREADS) {
        int position = state->length - 1 + row;
        device_pointer<int32_t>(a.position)[row] = position;
        device_pointer<int32_t>(a.slot)[row] = position;
        device_pointer<int32_t>(a.prefix)[row] = position + 1;
        device_pointer<int32_t>(a.next_position)[row] = position + 1;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        loop_stamp(state, LOOP_DRAFT, device_clock());
}

void cuda_loop_draft(struct queue *queue, const struct loop_args *args)
{
    LAUNCH_PDL(loop_draft_kernel, dim3(1), dim3(LOOP_THREADS), 0, cuda_stream(queue), *args);
}

DEVICE void count_distinct(const int32_t *expert, int pairs, uint32_t *mark, int *count)
{
    for (int i = (int)threadIdx.x; i < ROUTE_EXPERTS_MAX / 32; i += LOOP_THREADS)
        mark[i] = 0;
    if (threadIdx.x == 0)
        *count = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < pairs; i += LOOP_THREADS)
        if (expert[i] >= 0 && !(atomicOr(&mark[expert[i] / 32], 1u << expert[i] % 32) >> expert[i] % 32 & 1u))
            atomicAdd(count, 1);
    __syncthreads();
}

/* Grid: number of layers with experts, at least 1. The first block also records the end of the forward's time. */
__global__ void __launch_bounds__(LOOP_THREADS, 1) loop_facts_kernel(struct loop_args a)
{
    SHARED(uint32_t, mark, ROUTE_EXPERTS_MAX / 32);
    SHARED(int, count, 1);
    pdl_begin();
    struct loop_state *state = device_pointer<struct loop_state>(a.state);
    int layer = (int)blockIdx.x, pairs = *device_pointer<int32_t>(a.rows) * a.top_k;
    int64_t first = (int64_t)layer * a.rows_max * a.top_k;
    for (int which = 0; which < 2 && layer < a.moe_layers; which++) {
        count_distinct(device_pointer<int32_t>(which ? a.expert : a.wanted) + first, pairs, mark, count);
        if (threadIdx.x == 0)
            device_pointer<int32_t>(a.counts)[which * a.moe_layers + layer] = *count;
    }
    if (layer == 0 && threadIdx.x == 0)
        loop_stamp(state, LOOP_VERIFY, device_clock());
}

void cuda_loop_facts(struct queue *queue, const struct loop_args *args)
{
    unsigned blocks = args->moe_layers ? (unsigned)args->moe_layers : 1;
    LAUNCH_PDL(loop_facts_kernel, dim3(blocks), dim3(LOOP_THREADS), 0, cuda_stream(queue), *args);
}

__global__ void __launch_bounds__(LOOP_THREADS, 1) loop_accept_kernel(struct loop_args a)
{
    pdl_begin();
    struct loop_state *state = device_pointer<struct loop_state>(a.state);
    const struct loop_rules *rules = device_pointer<struct loop_rules>(a.rules);
    int64_t bytes = loop_record_bytes(a.rows_max, a.moe_layers);
    unsigned char *ring = device_pointer<unsigned char>(a.ring);
    struct loop_record *record = (struct loop_record *)(ring + bytes * (state->iterations % a.ring_records));
    const int32_t *token = device_pointer<int32_t>(a.token), *counts = device_pointer<int32_t>(a.counts);
    int32_t *experts = loop_record_experts(record, a.rows_max);
    for (int row = (int)threadIdx.x; row < state->rows; row += LOOP_THREADS)
        loop_record_tokens(record)[row] = token[row];
    for (int i = (int)threadIdx.x; i < 2 * a.moe_layers; i += LOOP_THREADS)
        experts[i] = counts[i];
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    struct ngram_index index = index_of(a);
    loop_accept(rules, state, &index, device_pointer<int32_t>(a.text), token, device_pointer<int32_t>(a.parent),
                device_pointer<int32_t>(a.choice), device_pointer<int32_t>(a.path), loop_record_emitted(record, a.rows_max),
                record);
    loop_stamp(state, LOOP_ACCEPT, device_clock());
    loop_stamp(state, LOOP_OTHER, device_clock());
    loop_decide(rules, state, record);
    *device_pointer<int32_t>(a.more) = state->end == LOOP_CONTINUES && state->iterations % a.ring_records != 0;
    __threadfence_system();
    *(volatile int32_t *)device_pointer<int32_t>(a.head) = state->iterations;
}

void cuda_loop_accept(struct queue *queue, const struct loop_args *args)
{
    LAUNCH_PDL(loop_accept_kernel, dim3(1), dim3(LOOP_THREADS), 0, cuda_stream(queue), *args);
}
