/* MoE-Spec's oracle with equation 6 as printed: every expert is computed for every row, weighted by the row's score (eq. 1:
 * the softmax over all experts, before renormalisation), and all experts take part in the choice. */
#include "common/base/mem.h"
#include "common/engine/internal.h"
#include "common/engine/oracle.h"

/* All pairs of a row and an expert, row by row; at most oracle_pairs of them at a time on the device. */
struct pairs {
    struct buffer row, expert, weight;               /* [oracle_pairs] */
    int32_t *index, *id;                             /* [rows * experts] */
    float *score, *contribution;                     /* [rows * experts], and [rows * experts][hidden] */
    uint8_t *routed;                                 /* [rows * experts] */
    int32_t *chosen;                                 /* [rows][top_k] the natural routing */
};

static void pairs_free(struct pairs *pairs, struct device *device)
{
    device_free(device, &pairs->row);
    device_free(device, &pairs->expert);
    device_free(device, &pairs->weight);
    mem_free(&pairs->index);
    mem_free(&pairs->id);
    mem_free(&pairs->score);
    mem_free(&pairs->contribution);
    mem_free(&pairs->routed);
    mem_free(&pairs->chosen);
}

/* Downloads scores and natural routing, and lists all pairs; `routed` marks the pairs of the natural routing. */
static int pairs_make(struct pairs *pairs, const struct layer *at, struct err *err)
{
    struct workspace *space = at->space;
    const struct hparams *shape = space->shape;
    const size_t experts = (size_t)shape->router.experts, top_k = (size_t)at->routing.top_k;
    const size_t rows = (size_t)at->rows->rows, count = rows * experts, part = oracle_pairs(space) * sizeof(int32_t);
    if (!(pairs->index = mem_alloc(count, sizeof *pairs->index, err)) ||
        !(pairs->id = mem_alloc(count, sizeof *pairs->id, err)) ||
        !(pairs->score = mem_alloc(count, sizeof *pairs->score, err)) ||
        !(pairs->contribution = mem_alloc(count * (size_t)shape->hidden, sizeof *pairs->contribution, err)) ||
        !(pairs->routed = mem_alloc(count, 1, err)) ||
        !(pairs->chosen = mem_alloc(rows * top_k, sizeof *pairs->chosen, err)) ||
        device_alloc(space->device, part, &pairs->row, err) || device_alloc(space->device, part, &pairs->expert, err) ||
        device_alloc(space->device, part, &pairs->weight, err))
        return -1;
    queue_download(space->device, pairs->score, at->routing.score, count * sizeof *pairs->score);
    queue_download(space->device, pairs->chosen, at->routing.expert, rows * top_k * sizeof *pairs->chosen);
    if (queue_wait(space->device, err))
        return -1;
    for (size_t i = 0; i < count; i++) {
        pairs->index[i] = (int32_t)(i / experts);
        pairs->id[i] = (int32_t)(i % experts);
    }
    for (size_t i = 0; i < rows * top_k; i++)
        if (pairs->chosen[i] >= 0)
            pairs->routed[i / top_k * experts + (size_t)pairs->chosen[i]] = 1;
    return 0;
}

static int compute_pairs(struct pairs *pairs, const struct layer *at, struct err *err)
{
    struct workspace *space = at->space;
    const size_t count = (size_t)at->rows->rows * (size_t)space->shape->router.experts, max = oracle_pairs(space);
    for (size_t first = 0; first < count; first += max) {
        const size_t part = count - first < max ? count - first : max, bytes = part * sizeof(int32_t);
        const struct apart_rows apart = {pairs->row, pairs->expert, pairs->weight, pairs->id + first, (int)part};
        queue_upload(space->device, pairs->row, pairs->index + first, bytes);
        queue_upload(space->device, pairs->expert, pairs->id + first, bytes);
        queue_upload(space->device, pairs->weight, pairs->score + first, bytes);
        if (oracle_compute(at, &apart, pairs->contribution + first * (size_t)space->shape->hidden, err))
            return -1;
    }
    return 0;
}

/* Makes the choice. The ids of the first row are those of all experts. */
static int choose(struct pairs *pairs, const struct layer *at, int budget, struct err *err)
{
    struct workspace *space = at->space;
    const int experts = space->shape->router.experts;
    if (compute_pairs(pairs, at, err) ||
        oracle_choose(&(struct oracle){pairs->contribution, pairs->id, pairs->routed, at->rows->rows, experts,
                                       space->shape->hidden, experts, budget}, space->mark, err))
        return -1;
    queue_upload(space->device, at->routing.mask, space->mark, (size_t)experts);
    return 0;
}

int oracle_mask_printed(const struct layer *at, int budget, struct err *err)
{
    struct workspace *space = at->space;
    struct pairs pairs = {.index = NULL};
    int rc = oracle_alloc(space, err) || pairs_make(&pairs, at, err) || choose(&pairs, at, budget, err) ? -1 : 0;
    pairs_free(&pairs, space->device);
    return rc;
}
