#include "common/model/requant.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

struct requantiser {
    const struct model *model;
    float *values[THREAD_POOL_MAX];         /* one row per member */
};

int requant_plan(struct layout *out, const struct model *model, const struct requant_options *options, struct err *err)
{
    const struct head_params *head = model_head(model);
    struct layout layout = {0};
    if (head ? layout_make_head(&layout, head, model_hparams(model), err) : layout_make(&layout, model_hparams(model), err))
        return err_at(err, "%s", model_path(model));
    for (int i = 0; i < layout.count; i++) {
        const struct tensor *from = model_tensor_at(model, i);
        struct tensor *t = &layout.tensors[i];
        const struct requant_choice *choice = t->role == ROLE_EXPERTS ? &options->experts : &options->dense;
        t->format = choice->keep ? from->format : tensor_format(&layout, t, choice->format, from->format);
        t->mixed = from->mixed && (choice->keep || t->format != choice->format);
        t->last_format = from->last_format;
    }
    *out = layout;
    return 0;
}

static float value_at(const struct tensor *t, const unsigned char *block, enum block_part part, int row, int column)
{
    const int first = t->outputs - t->last;
    switch (part) {
    case BLOCK_GATE: return expert_gate_at(t->format, block, t->outputs, t->inputs, row, column);
    case BLOCK_UP: return t->ungated ? matrix_at(t->format, block, t->outputs, row, column)
                                     : expert_up_at(t->format, block, t->outputs, t->inputs, row, column);
    case BLOCK_DOWN: return matrix_at(tensor_last_format(t), block + tensor_last_offset(t), t->inputs, row, column);
    default: break;
    }
    return t->mixed && row >= first ? matrix_at(t->last_format, block + tensor_last_offset(t), t->inputs, row - first, column)
                                    : matrix_at(t->format, block, t->inputs, row, column);
}

/* Converts one part of a block of `from` to the format of job->tensor. values: scratch, a row of `columns`. */
static int remake_part(const struct tensor *from, const unsigned char *old, struct block_job *job, enum block_part part,
                       int rows, int columns, float *values, struct err *err)
{
    const struct tensor *t = job->tensor;
    const float limit = format_limit(t->format);
    for (int row = 0; row < rows; row++) {
        for (int k = 0; k < columns; k++) {
            values[k] = value_at(from, old, part, row, k);
            if (!(fabsf(values[k]) < limit))
                return err_set(err, ERR_INPUT, "tensor %s: element [%d][%d] is %g, too large for %s; use --dtype bf16 or f32",
                               t->name, row, k, (double)values[k], format_name(t->format));
        }
        block_pack(t, job->packed, part, row, 1, values);
    }
    return 0;
}

/* Makes one block of the new file. Runs in several threads; `member` numbers them. */
static int remake_block(void *context, int member, struct block_job *job, struct err *err)
{
    struct requantiser *r = context;
    const struct tensor *t = job->tensor, *from = model_tensor(r->model, err, "%s", t->name);
    if (!from || (!r->values[member] && !(r->values[member] = mem_alloc(WIDTH_MAX, sizeof(float), err))))
        return -1;
    const unsigned char *old = (const unsigned char *)model_data(r->model, from) + from->stride * (uint64_t)job->block;
    float *values = r->values[member];
    if (t->format == from->format && t->mixed == from->mixed) {
        memcpy(job->packed, old, t->stride);
        return 0;
    }
    memset(job->packed, 0, t->stride);
    int rc = t->kind == TENSOR_EXPERTS
                 ? (!t->ungated && remake_part(from, old, job, BLOCK_GATE, t->inputs, t->outputs, values, err)) ||
                       remake_part(from, old, job, BLOCK_UP, t->inputs, t->outputs, values, err) ||
                       remake_part(from, old, job, BLOCK_DOWN, t->outputs, t->inputs, values, err)
                 : remake_part(from, old, job, BLOCK_ROWS, t->outputs, t->inputs, values, err);
    return rc ? err_at(err, "%s", model_path(r->model)) : 0;
}

int requant_write(const char *path, const struct model *model, const struct requant_options *options, struct thread_pool *pool,
                  struct progress *bar, struct err *err)
{
    struct requantiser *r = mem_alloc(1, sizeof *r, err);
    struct model_facts facts = {0};
    struct layout layout = {0};
    struct sha256 unused;
    int rc = -1;
    /* The copy gets new digests, so undetected damage would pass as valid in the copy. */
    if (!r || requant_plan(&layout, model, options, err) || model_verify(model, err) ||
        model_facts_copy(&facts, model_facts(model), err))
        goto done;
    r->model = model;
    if (options->name)
        model_facts_name(&facts, options->name);
    snprintf(facts.producer, sizeof facts.producer, "%s", options->producer);
    rc = model_write_all(path, &layout, &facts, &(struct block_maker){remake_block, r}, &unused, pool, bar, err);
done:
    for (int i = 0; r && i < THREAD_POOL_MAX; i++)
        mem_free(&r->values[i]);
    mem_free(&r);
    layout_free(&layout);
    model_facts_free(&facts);
    return rc;
}
