/* kernels/expert_ffn.h for a slab. The host reads the routing of its rows once per layer, and groups the rows, because a
 * library requires sizes. (Its products of groups also require sizes from the host, and round sums to bf16.)
 *
 * An ITEM is SLAB_ITEM pairs (row * slots + slot) that request the same expert, in ascending order; the last item of an expert
 * is padded with rows of zeros. With a single expert, one item contains all pairs. All items have the same size, so one call of
 * the library multiplies those of many experts. A BATCH is as many consecutive items as fit into the slab's memory, with their
 * experts: gate and up are unpacked and multiplied, then down. */
#include <stdlib.h>

#include "kernels/cuda/slab.h"
#include "kernels/cuda/weights.h"
#include "kernels/plain/glu.h"

enum { SLAB_ITEM = 64, BATCH_ITEMS = 512 };

/* Computes inner = glu(gate, up) of a pair: one thread per inner width. */
__global__ void slab_gate_up_kernel(struct expert_ffn_args a, const float *sums, int outputs, const int32_t *pairs)
{
    pdl_begin();
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), row = (int)blockIdx.y, pair = pairs[row];
    if (i >= a.inner_width || pair < 0)
        return;
    const float *sum = sums + (size_t)row * SLAB_PARTS * (size_t)outputs + i / UNIT_INNER * UNIT_OUTPUTS + i % UNIT_INNER;
    float gate = sum[0] + sum[outputs], up = sum[UNIT_INNER] + sum[outputs + UNIT_INNER];
    if (a.gate_up_bias.address) {
        int64_t e = a.expert.address ? device_pointer<int32_t>(a.expert)[pair] : 0;
        const float *bias = device_pointer<float>(a.gate_up_bias) + e * 2 * a.inner_width;
        gate = gate + bias[i];
        up = up + bias[a.inner_width + i];
    }
    device_pointer<float>(a.inner)[(int64_t)pair * a.inner_width + i] = plain_glu(a.glu, gate, up, a.limit, a.alpha);
}

/* Computes partial of a pair: one thread per output. */
__global__ void slab_down_kernel(struct expert_ffn_args a, const float *sums, int outputs, const int32_t *pairs)
{
    pdl_begin();
    int o = (int)(blockIdx.x * blockDim.x + threadIdx.x), row = (int)blockIdx.y, pair = pairs[row];
    if (o >= a.hidden || pair < 0)
        return;
    const float *sum = sums + (size_t)row * SLAB_PARTS * (size_t)outputs + o;
    float y = sum[0] + sum[outputs];
    if (a.down_bias.address)
        y = y + device_pointer<float>(a.down_bias)[(a.expert.address ? device_pointer<int32_t>(a.expert)[pair] : 0) *
                                                       (int64_t)a.hidden + o];
    device_pointer<float>(a.partial)[(int64_t)pair * a.hidden + o] = y;
}

/* The shape of one of the two products (gate and up, or down) of all items. */
struct product_shape {
    enum weight_format format;
    int units, inputs, width, outputs;
};

/* Items and their pairs. On the device: for both products, pointers of items into their batch; then pairs and experts. The
 * lists here are the host's copies. */
struct grouping {
    int items, rows, experts;            /* rows of an item; number of selected experts */
    uint64_t *pointer[2][3];             /* [items] each: in, weight, sums */
    int32_t *pair;                       /* [items][rows], -1: padding */
    int32_t *expert;                     /* [experts] ascending */
    int32_t *own;                        /* [items] index of the item's expert in `expert`; on the host only */
    void *memory;
    size_t bytes;                        /* size of the part that is copied to the device */
};

static struct product_shape product_shape_of(enum weight_format format, int units, int inputs)
{
    return {format, units, inputs, slab_width(inputs), units * UNIT_OUTPUTS};
}

static size_t matrix_size(const struct product_shape *shape)
{
    return (size_t)shape->outputs * (size_t)shape->width * sizeof(uint16_t);
}

static size_t in_size(const struct product_shape *shape, int rows)
{
    return (size_t)rows * SLAB_PARTS * (size_t)shape->width * sizeof(uint16_t);
}

static size_t sums_size(const struct product_shape *shape, int rows)
{
    return (size_t)rows * SLAB_PARTS * (size_t)shape->outputs * sizeof(float);
}

/* Counts the pairs of each expert; `wanted` [pairs] is the host's copy of the routing, NULL: all select expert 0. */
static int count_items(const struct expert_ffn_args *a, const int32_t *wanted, int rows, int *count, int *experts)
{
    int items = 0;
    *experts = 0;
    for (int e = 0; e < a->experts; e++)
        count[e] = wanted ? 0 : a->rows;
    for (int i = 0; wanted && i < a->rows * a->slots; i++)
        if (wanted[i] >= 0)
            count[wanted[i]]++;
    for (int e = 0; e < a->experts; e++) {
        items += (count[e] + rows - 1) / rows;
        *experts += count[e] > 0;
    }
    return items;
}

/* Sorts pairs by their experts into items. */
static bool group(const struct expert_ffn_args *a, const int32_t *wanted, struct grouping *to)
{
    int count[ROUTE_EXPERTS_MAX], next[ROUTE_EXPERTS_MAX], item = 0, index = 0;
    to->rows = a->experts == 1 ? a->rows : SLAB_ITEM;
    to->items = count_items(a, wanted, to->rows, count, &to->experts);
    size_t items = (size_t)to->items, pairs = items * (size_t)to->rows;
    to->bytes = 6 * items * sizeof(uint64_t) + (pairs + (size_t)to->experts) * sizeof(int32_t);
    to->memory = malloc(to->bytes + items * sizeof(int32_t) + 1);
    if (!to->memory)
        return false;
    for (int i = 0; i < 6; i++)
        to->pointer[i / 3][i % 3] = (uint64_t *)to->memory + (size_t)i * items;
    to->pair = (int32_t *)((uint64_t *)to->memory + 6 * items);
    to->expert = to->pair + pairs;
    to->own = to->expert + to->experts;
    for (size_t i = 0; i < pairs; i++)
        to->pair[i] = -1;
    for (int e = 0; e < a->experts; e++) {
        next[e] = item * to->rows;
        for (int i = 0; i < count[e]; i += to->rows)
            to->own[item++] = index;
        if (count[e])
            to->expert[index++] = e;
    }
    for (int i = 0; i < a->rows * a->slots; i++) {
        int e = wanted ? wanted[i] : 0;
        if (e >= 0)
            to->pair[next[e]++] = i;
    }
    return true;
}

/* Returns the number of items in the batch that begins at `first`: as many as fit, with their experts. */
static int batch_items(const struct grouping *all, const struct product_shape *shape, size_t room, int first)
{
    size_t wide = sums_size(&shape[0], all->rows), deep = sums_size(&shape[1], all->rows);
    size_t matrix = matrix_size(&shape[0]) > matrix_size(&shape[1]) ? matrix_size(&shape[0]) : matrix_size(&shape[1]);
    size_t max = room / (wide > deep ? wide : deep), experts = room / matrix ? room / matrix : 1;
    int items = 1;
    while (first + items < all->items && items < BATCH_ITEMS && (size_t)items < max &&
           (size_t)(all->own[first + items] - all->own[first]) < experts)
        items++;
    return items;
}

/* Allocates memory for the largest batch, and computes the addresses of each item's matrices in that memory. */
static bool pair_items(struct queue *queue, const struct grouping *all, const struct product_shape *shape)
{
    struct slab *slab = ((struct cuda_context *)queue->state)->slab;
    for (int first = 0, items; first < all->items; first += items) {
        items = batch_items(all, shape, slab->room, first);
        int experts = all->own[first + items - 1] - all->own[first] + 1;
        for (int h = 0; h < 2; h++)
            if (!slab_need(queue, &slab->weights, (size_t)experts * matrix_size(&shape[h])) ||
                !slab_need(queue, &slab->in, (size_t)items * in_size(&shape[h], all->rows)) ||
                !slab_need(queue, &slab->sums, (size_t)items * sums_size(&shape[h], all->rows)))
                return false;
    }
    for (int first = 0, items; first < all->items; first += items) {
        items = batch_items(all, shape, slab->room, first);
        for (int i = first; i < first + items; i++)
            for (int h = 0; h < 2; h++) {
                all->pointer[h][0][i] = slab->in.address + (size_t)(i - first) * in_size(&shape[h], all->rows);
                all->pointer[h][1][i] = slab->weights.address +
                                        (size_t)(all->own[i] - all->own[first]) * matrix_size(&shape[h]);
                all->pointer[h][2][i] = slab->sums.address + (size_t)(i - first) * sums_size(&shape[h], all->rows);
            }
    }
    return true;
}

/* Converts a host address within the grouping to the device's address. */
template <typename T> static const T *device_address(const struct slab *slab, const struct grouping *all, const T *host)
{
    return (const T *)(uintptr_t)(slab->lists.address + (uint64_t)((const char *)host - (const char *)all->memory));
}

static void run_product(struct queue *queue, const struct expert_ffn_args *a, const struct grouping *all,
                        const struct product_shape *shape, int h, int first, int items)
{
    struct slab *slab = ((struct cuda_context *)queue->state)->slab;
    int experts = all->own[first + items - 1] - all->own[first] + 1, rows = items * all->rows;
    const int32_t *pairs = device_address(slab, all, all->pair) + (size_t)first * (size_t)all->rows;
    const struct slab_matrices matrices = {
        0, device_pointer<uint64_t>(a->table), device_address(slab, all, all->expert) + all->own[first],
        h ? unit_bytes_of(a->format, a->hidden) * blocks_for(a->inner_width, UNIT_INNER) : 0, experts, shape->units,
        shape->inputs};
    const struct slab_rows in = {device_pointer<float>(h ? a->inner : a->in), shape->inputs, pairs, h ? 1 : a->slots, rows,
                                 shape->inputs};
    struct gemm_args product = {device_address(slab, all, all->pointer[h][0]) + first,
                                device_address(slab, all, all->pointer[h][1]) + first,
                                (void *)(device_address(slab, all, all->pointer[h][2]) + first), items, all->rows * SLAB_PARTS,
                                shape->width, shape->outputs, false};
    slab_split(queue, &in, slab->in);
    for (int piece = 0; piece < slab_pieces(shape->format); piece++) {
        slab_unpack(queue, shape->format, piece, &matrices, slab->weights);
        product.add = piece > 0;
        gemm_run(slab->gemm, &product);
    }
    dim3 grid(blocks_for(h ? a->hidden : a->inner_width, JOIN_THREADS), (unsigned)rows), threads(JOIN_THREADS);
    const float *sums = device_pointer<float>(slab->sums);
    if (h)
        LAUNCH_PDL(slab_down_kernel, grid, threads, 0, cuda_stream(queue), *a, sums, shape->outputs, pairs);
    else
        LAUNCH_PDL(slab_gate_up_kernel, grid, threads, 0, cuda_stream(queue), *a, sums, shape->outputs, pairs);
}

/* Returns the host's copy of the routing; NULL: the routing is not given, or the download failed and sets `error`. */
static int32_t *routing(struct queue *queue, const struct expert_ffn_args *a, int *error)
{
    size_t bytes = (size_t)a->rows * (size_t)a->slots * sizeof(int32_t);
    *error = 0;
    if (!a->expert.address)
        return nullptr;
    int32_t *wanted = (int32_t *)malloc(bytes);
    *error = wanted ? dev_download(wanted, device_pointer<void>(a->expert), bytes, cuda_stream(queue)) : 2;
    if (!*error)
        *error = dev_wait(cuda_stream(queue));
    if (*error) {
        free(wanted);
        wanted = nullptr;
    }
    return wanted;
}

void slab_expert_ffn(struct queue *queue, const struct expert_ffn_args *a)
{
    struct slab *slab = ((struct cuda_context *)queue->state)->slab;
    const struct product_shape shape[2] = {
        product_shape_of(a->format, (int)blocks_for(a->inner_width, UNIT_INNER), a->hidden),
        product_shape_of(a->down_format, (int)blocks_for(a->hidden, UNIT_OUTPUTS), a->inner_width)};
    struct grouping all = {};
    int error;
    int32_t *wanted = routing(queue, a, &error);
    if (!error && !group(a, wanted, &all))
        error = 2;
    if (!error && all.items && pair_items(queue, &all, shape) && slab_need(queue, &slab->lists, all.bytes)) {
        error = dev_upload(device_pointer<void>(slab->lists), all.memory, all.bytes, cuda_stream(queue));
        for (int first = 0, items; !error && first < all.items; first += items) {
            items = batch_items(&all, shape, slab->room, first);
            for (int h = 0; h < 2; h++)
                run_product(queue, a, &all, &shape[h], h, first, items);
        }
        if (!a->apart)
            cuda_expert_sum(queue, a);
    }
    if (error)
        dev_launched(cuda_stream(queue), error, "the experts of a slab", __FILE__, __LINE__);
    free(wanted);
    free(all.memory);
}
