#include "common/engine/peers.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/engine/layer.h"

enum { EXPERTS_LEFT = 12000 };

struct peers {
    struct peers_link link;
    const struct hparams *shape;
    struct device *device;
    int32_t *owner;                      /* [moe_layers][experts]; NULL: experts are assigned in turn */
    uint64_t placement;                  /* hash of `owner` */
    uint64_t tokens;                     /* hash of the tokens of all forwards so far */
    size_t *cut, *next;                  /* cut [size + 1]: offset in `outputs` of each process's bytes; next: scratch */
    /* The current layer; arrays grow to the largest one: */
    int pairs;
    int32_t *ids, *mine;                 /* [pairs] ids: the layer's choice; mine: the same without the experts of other
                                          * processes */
    float *outputs;                      /* [pairs][hidden] ordered by owner, then by pair */
    struct buffer expert;                /* `mine` on the device */
    size_t ids_room, mine_room, outputs_room;
};

/* Returns the process that computes an expert. moe: index of the layer among those with experts. */
static int owner_of(const struct peers *peers, int moe, int expert)
{
    return peers->owner ? peers->owner[moe * peers->shape->router.experts + expert] : (expert + moe) % peers->link.size;
}

/* Copies and hashes the placement, so that processes with different placements notice it. */
static int copy_owners(struct peers *peers, const int32_t *owner, struct err *err)
{
    const size_t bytes = (size_t)hparams_moe_layers(peers->shape) * (size_t)peers->shape->router.experts * sizeof *owner;
    if (!owner)
        return 0;
    peers->placement = hash_xxh3(owner, bytes).low;
    return (peers->owner = mem_copy(owner, bytes, err)) ? 0 : -1;
}

bool peers_divides(const struct peers *peers, uint64_t bytes)
{
    return peers && peers->link.divides && bytes >= peers->link.min_bytes;
}

bool peers_own_experts(const struct peers *peers, uint64_t bytes) { return peers && !peers_divides(peers, bytes); }

/* Unmaps the whole pages from `begin` to `end`. */
static void leave_out(const char *begin, const char *end)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)begin + page - 1) & ~(page - 1), last = (uintptr_t)end & ~(page - 1);
    if (first < last)
        mmap((void *)first, last - first, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

static size_t first_unit(int width, int each, int part, int parts)
{
    return ((size_t)expert_part_first(width, each, part, parts) + (size_t)each - 1) / (size_t)each;
}

/* Unmaps the parts of the tensor's experts that other processes compute. Otherwise a read would map a whole huge page, and even
 * without huge pages the whole folio of the page cache. */
static void leave_other_parts(const struct peers *peers, const struct model *model, const struct tensor *tensor)
{
    const struct hparams *shape = peers->shape;
    const bool ungated = shape->glu == GLU_NONE_RELU2;
    const int each = ungated ? UNIT_OUTPUTS : UNIT_INNER, inner = shape->expert_inner;
    const int rank = peers->link.rank, size = peers->link.size;
    const size_t offset = (ungated ? ungated_down_offset : expert_down_offset)(tensor->format, shape->hidden, inner);
    const size_t unit = unit_bytes(tensor->format, shape->hidden), down = unit_bytes(tensor_last_format(tensor), inner);
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const char *data = model_data(model, tensor), *end = data;
    char *first = (char *)((uintptr_t)data & ~(page - 1));
    madvise(first, (size_t)(data + tensor->bytes - first), MADV_NOHUGEPAGE);
    for (int e = 0; e < tensor->count; e++) {
        const char *block = data + (size_t)e * tensor->stride;
        leave_out(end, block + unit * first_unit(inner, each, rank, size));
        leave_out(block + unit * first_unit(inner, each, rank + 1, size),
                  block + offset + down * first_unit(shape->hidden, UNIT_OUTPUTS, rank, size));
        end = block + offset + down * first_unit(shape->hidden, UNIT_OUTPUTS, rank + 1, size);
    }
    leave_out(end, data + tensor->bytes);
}

/* Unmaps the experts of the model, or parts of them, that other processes compute. */
static int leave_others(const struct peers *peers, const struct model *model, struct err *err)
{
    /* Each expert needs four mappings; Linux allows a process 65,530 of them. */
    const bool may_leave = !model_file(model) &&
                           hparams_moe_layers(peers->shape) * peers->shape->router.experts <= EXPERTS_LEFT;
    for (int n = 0, moe = 0; n < peers->shape->layers; n++) {
        if (peers->shape->layer[n].ffn != FFN_EXPERTS)
            continue;
        const struct tensor *tensor = model_tensor(model, err, "layers.%d.experts", n);
        const bool owned = tensor && peers_own_experts(peers, tensor->bytes / (uint64_t)tensor->count);
        if (tensor && !owned && may_leave)
            leave_other_parts(peers, model, tensor);
        for (int e = 0; owned && e < tensor->count; e++)
            if (owner_of(peers, moe, e) != peers->link.rank)
                model_leave_out(model, tensor, e);
        if (!tensor)
            return -1;
        moe++;
    }
    return 0;
}

int peers_open(struct peers **out, const struct peers_link *link, const int32_t *owner, const struct model *model,
               struct device *device, struct err *err)
{
    const struct device_info *info = device_info(device);
    if (!info->host_memory)
        return err_set(err, ERR_INPUT, "--ranks: device %s has its own memory, but experts can be shared between processors "
                       "only; give --device host", info->name);
    if (!model_identity(model)->moe_layers)
        return err_set(err, ERR_INPUT, "--ranks: %s has no routed experts to distribute over processes; leave --ranks out",
                       model_path(model));
    struct peers *peers = mem_alloc(1, sizeof *peers, err);
    if (!peers)
        return -1;
    peers->link = *link;
    peers->shape = model_hparams(model);
    peers->device = device;
    if (!(peers->cut = mem_alloc((size_t)link->size + 1, sizeof *peers->cut, err)) ||
        !(peers->next = mem_alloc((size_t)link->size + 1, sizeof *peers->next, err)) ||
        copy_owners(peers, owner, err) || leave_others(peers, model, err)) {
        peers_close(&peers);
        return -1;
    }
    *out = peers;
    return 0;
}

void peers_close(struct peers **address)
{
    struct peers *peers = *address;
    if (!peers)
        return;
    device_free(peers->device, &peers->expert);
    mem_free(&peers->owner);
    mem_free(&peers->cut);
    mem_free(&peers->next);
    mem_free(&peers->ids);
    mem_free(&peers->mine);
    mem_free(&peers->outputs);
    mem_free(address);
}

static int make_room(struct peers *peers, size_t pairs, struct err *err)
{
    const size_t before = peers->mine_room;
    if (mem_grow(&peers->ids, &peers->ids_room, pairs, sizeof *peers->ids, err) ||
        mem_grow(&peers->mine, &peers->mine_room, pairs, sizeof *peers->mine, err) ||
        mem_grow(&peers->outputs, &peers->outputs_room, pairs * (size_t)peers->shape->hidden, sizeof *peers->outputs, err))
        return -1;
    if (peers->mine_room == before && peers->expert.address)
        return 0;
    device_free(peers->device, &peers->expert);
    return device_alloc(peers->device, peers->mine_room * sizeof *peers->mine, &peers->expert, err);
}

int peers_mask(struct peers *peers, const struct layer *at, struct buffer *expert, struct err *err)
{
    const size_t pairs = (size_t)at->rows->rows * (size_t)at->routing.top_k;
    if (make_room(peers, pairs, err))
        return -1;
    peers->pairs = (int)pairs;
    queue_download(peers->device, peers->ids, at->routing.expert, pairs * sizeof *peers->ids);
    if (queue_wait(peers->device, err))
        return -1;
    for (size_t i = 0; i < pairs; i++) {
        const int32_t id = peers->ids[i];
        peers->mine[i] = id >= 0 && owner_of(peers, at->moe, id) == peers->link.rank ? id : -1;
    }
    queue_upload(peers->device, peers->expert, peers->mine, pairs * sizeof *peers->mine);
    *expert = peers->expert;
    return 0;
}

/* Copies outputs between the layer's pairs and `outputs`: with `pack` this process's outputs from the pairs, otherwise those
 * of the other processes to the pairs. */
static void copy_outputs(struct peers *peers, const struct layer *at, bool pack)
{
    const size_t row = (size_t)peers->shape->hidden * sizeof(float);
    char *partial = (char *)(uintptr_t)at->space->partial.address;
    memcpy(peers->next, peers->cut, (size_t)peers->link.size * sizeof *peers->next);
    for (int i = 0; i < peers->pairs; i++) {
        if (peers->ids[i] < 0)
            continue;
        const int owner = owner_of(peers, at->moe, peers->ids[i]);
        char *pair = partial + (size_t)i * row, *packed = (char *)peers->outputs + peers->next[owner];
        peers->next[owner] += row;
        if ((owner == peers->link.rank) == pack)
            memcpy(pack ? packed : pair, pack ? pair : packed, row);
    }
}

/* Computes the range of `outputs` that each process fills. */
static void cut_outputs(struct peers *peers, const struct layer *at)
{
    const size_t row = (size_t)peers->shape->hidden * sizeof(float);
    for (int r = 0; r <= peers->link.size; r++)
        peers->cut[r] = 0;
    for (int i = 0; i < peers->pairs; i++)
        if (peers->ids[i] >= 0)
            peers->cut[owner_of(peers, at->moe, peers->ids[i]) + 1] += row;
    for (int r = 0; r < peers->link.size; r++)
        peers->cut[r + 1] += peers->cut[r];
}

int peers_join(struct peers *peers, const struct layer *at, struct err *err)
{
    const struct peers_link *link = &peers->link;
    const uint64_t ids = hash_xxh3(peers->ids, (size_t)peers->pairs * sizeof *peers->ids).low;
    const uint64_t fingerprint = ids + (uint64_t)at->number + peers->placement;
    if (queue_wait(peers->device, err))
        return -1;
    cut_outputs(peers, at);
    copy_outputs(peers, at, true);
    if (link->share(link->context, fingerprint, peers->outputs, peers->cut, err))
        return -1;
    copy_outputs(peers, at, false);
    return 0;
}

int peers_part(const struct peers *peers, const struct matrix *matrix, struct matrix *part)
{
    const struct peers_link *link = &peers->link;
    const int first = expert_part_first(matrix->outputs, UNIT_OUTPUTS, link->rank, link->size);
    const int end = expert_part_first(matrix->outputs, UNIT_OUTPUTS, link->rank + 1, link->size);
    const uint64_t units = ((uint64_t)matrix->outputs + UNIT_OUTPUTS - 1) / UNIT_OUTPUTS, unit = matrix->data.bytes / units;
    *part = *matrix;
    part->outputs = end - first;
    part->data = buffer_part(matrix->data, (uint64_t)(first / UNIT_OUTPUTS) * unit,
                             ((uint64_t)part->outputs + UNIT_OUTPUTS - 1) / UNIT_OUTPUTS * unit);
    return first;
}

/* Rows whose columns are divided among all processes, in multiples of `unit` (expert_part_first). */
struct columns {
    struct buffer rows;
    int count, width, stride, unit;
};

/* Copies columns between the rows and peers->outputs, which stores [rows][columns of the process] for one process after
 * another. pack: copies this process's columns from the rows; otherwise copies those of the other processes to the rows. */
static void copy_columns(struct peers *peers, const struct columns *of, bool pack)
{
    float *rows = (float *)(uintptr_t)of->rows.address;
    for (int r = 0; r < peers->link.size; r++) {
        const size_t first = (size_t)expert_part_first(of->width, of->unit, r, peers->link.size);
        const size_t width = (size_t)expert_part_first(of->width, of->unit, r + 1, peers->link.size) - first;
        for (size_t row = 0; row < (size_t)of->count && width && (r == peers->link.rank) == pack; row++) {
            float *at = rows + row * (size_t)of->stride + first;
            float *packed = peers->outputs + first * (size_t)of->count + row * width;
            memcpy(pack ? packed : at, pack ? at : packed, width * sizeof *at);
        }
    }
}

/* Completes the rows: each process has computed its own columns. Waits for the queue. */
static int gather(struct peers *peers, const struct columns *of, struct err *err)
{
    const struct peers_link *link = &peers->link;
    const uint64_t fingerprint = peers->tokens + ((uint64_t)of->count << 32 | (uint64_t)of->width);
    if (mem_grow(&peers->outputs, &peers->outputs_room, (size_t)of->count * (size_t)of->width, sizeof *peers->outputs, err) ||
        queue_wait(peers->device, err))
        return -1;
    for (int r = 0; r <= link->size; r++)
        peers->cut[r] = (size_t)expert_part_first(of->width, of->unit, r, link->size) * (size_t)of->count * sizeof(float);
    copy_columns(peers, of, true);
    if (link->share(link->context, fingerprint, peers->outputs, peers->cut, err))
        return -1;
    copy_columns(peers, of, false);
    return 0;
}

int peers_gather(struct peers *peers, struct buffer out, int rows, int outputs, struct err *err)
{
    return gather(peers, &(struct columns){out, rows, outputs, outputs, UNIT_OUTPUTS}, err);
}

void peers_begin(struct peers *peers, const int32_t *token, int rows)
{
    peers->tokens = 31 * peers->tokens + hash_xxh3(token, (size_t)rows * sizeof *token).low;
}

int peers_linear(struct peers *peers, const struct workspace *space, const struct linear_args *args, struct err *err)
{
    const struct matrix whole = {
        .data = args->weight, .format = args->format, .inputs = args->inputs, .outputs = args->outputs};
    struct matrix part;
    struct linear_args own = *args;
    const int first = peers_part(peers, &whole, &part);
    own.weight = part.data;
    own.outputs = part.outputs;
    own.out = layer_row_part(args->out, first);
    if (args->bias.address)
        own.bias = layer_row_part(args->bias, first);
    if (own.outputs)
        space->ops->linear(space->queue, &own);
    return gather(peers, &(struct columns){args->out, args->rows, args->outputs, args->out_stride, UNIT_OUTPUTS}, err);
}

int peers_ffn(struct peers *peers, const struct workspace *space, const struct expert_ffn_args *args, struct err *err)
{
    const int pairs = args->rows * args->slots, unit = args->glu == GLU_NONE_RELU2 ? UNIT_OUTPUTS : UNIT_INNER;
    struct expert_ffn_args own = *args;
    own.part = peers->link.rank;
    own.parts = peers->link.size;
    own.step = FFN_INNER;
    space->ops->expert_ffn(space->queue, &own);
    if (gather(peers, &(struct columns){args->inner, pairs, args->inner_width, args->inner_width, unit}, err))
        return -1;
    own.step = FFN_PARTIAL;
    space->ops->expert_ffn(space->queue, &own);
    space->ops->expert_sum(space->queue, &own);
    return gather(peers, &(struct columns){args->out, args->rows, args->hidden, args->hidden, UNIT_OUTPUTS}, err);
}

int peers_times(struct peers *peers, double *time, int count, struct err *err)
{
    return peers->link.broadcast(peers->link.context, time, (size_t)count * sizeof *time, err);
}
