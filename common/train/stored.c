#include "common/train/stored.h"

#include <string.h>

#include "common/base/float.h"
#include "common/base/mem.h"
#include "kernels/formats.h"

/* A block has at most so many weights, 32 MiB, and no fewer rows than a product's block has columns. */
enum { WEIGHTS_MAX = 8 << 20, ROWS_LEAST = 512, TILE = 32 };

struct stored_matrix {
    const struct model *model;
    const struct tensor *tensor;
    int rows;                   /* of a block; a multiple of UNIT_OUTPUTS */
    int first;                  /* of the block at hand; -1: there is none */
    float *block;
};

int stored_open(struct stored_matrix **out, const struct model *model, const struct tensor *tensor, struct err *err)
{
    struct stored_matrix *m = mem_alloc(1, sizeof *m, err);
    size_t count;
    if (!m)
        return -1;
    const int fit = WEIGHTS_MAX / tensor->inputs / ROWS_LEAST * ROWS_LEAST, rows = fit < ROWS_LEAST ? ROWS_LEAST : fit;
    *m = (struct stored_matrix){.model = model, .tensor = tensor, .first = -1,
                                .rows = rows < tensor->outputs ? rows : tensor->outputs};
    if (!size_mul((size_t)m->rows, (size_t)tensor->inputs, &count)) {
        mem_free(&m);
        return err_memory(err);
    }
    if (!(m->block = mem_alloc_aligned(count, sizeof *m->block, err))) {
        mem_free(&m);
        return -1;
    }
    *out = m;
    return 0;
}

void stored_close(struct stored_matrix **matrix)
{
    if (*matrix)
        mem_free(&(*matrix)->block);
    mem_free(matrix);
}

int stored_rows(const struct stored_matrix *matrix) { return matrix->rows; }

/* A unit of bf16, in pieces of inputs that stay in the first cache. */
static void unpack_bf16(const uint32_t *unit, int rows, int inputs, float *out)
{
    for (int from = 0; from < inputs; from += TILE) {
        const int count = inputs - from < TILE ? inputs - from : TILE;
        for (int row = 0; row < rows; row++) {
            const uint32_t *at = unit + (size_t)(from / 2) * UNIT_OUTPUTS + row;
            float *to = out + (size_t)row * (size_t)inputs + from;
            for (int i = 0; i + 1 < count; i += 2) {
                const uint32_t pair = at[(size_t)(i / 2) * UNIT_OUTPUTS];
                const uint64_t both = (uint64_t)(pair & 0xffff0000u) << 32 | (uint32_t)(pair << 16);     /* of two floats */
                memcpy(to + i, &both, sizeof both);
            }
            if (count % 2)
                to[count - 1] = float_from_bits(at[(size_t)(count / 2) * UNIT_OUTPUTS] << 16);
        }
    }
}

static void unpack_f32(const float *unit, int rows, int inputs, float *out)
{
    for (int from = 0; from < inputs; from += TILE)
        for (int row = 0; row < rows; row++)
            for (int i = from; i < inputs && i < from + TILE; i++)
                out[(size_t)row * (size_t)inputs + (size_t)i] = unit[(size_t)i * UNIT_OUTPUTS + (size_t)row];
}

struct unpacking {
    const struct stored_matrix *matrix;
    int first, rows;
};

static void unpack_units(void *argument, int member, int members)
{
    const struct unpacking *u = argument;
    const struct stored_matrix *m = u->matrix;
    const struct tensor *t = m->tensor;
    const char *data = model_data(m->model, t);
    const size_t unit = unit_bytes(t->format, t->inputs);
    size_t begin, end;
    thread_pool_part(((size_t)u->rows + UNIT_OUTPUTS - 1) / UNIT_OUTPUTS, member, members, &begin, &end);
    for (size_t at = begin; at < end; at++) {
        const int row = (int)at * UNIT_OUTPUTS, rows = u->rows - row < UNIT_OUTPUTS ? u->rows - row : UNIT_OUTPUTS;
        const void *from = data + ((size_t)u->first / UNIT_OUTPUTS + at) * unit;
        float *to = m->block + (size_t)row * (size_t)t->inputs;
        if (t->format == FORMAT_BF16)
            unpack_bf16(from, rows, t->inputs, to);
        else if (t->format == FORMAT_F32)
            unpack_f32(from, rows, t->inputs, to);
        else
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < t->inputs; i++)
                    to[(size_t)r * (size_t)t->inputs + (size_t)i] =
                        matrix_at(t->format, data, t->inputs, u->first + row + r, i);
    }
}

const float *stored_block(struct stored_matrix *m, struct thread_pool *pool, int first)
{
    const int left = m->tensor->outputs - first;
    if (m->first != first) {
        thread_pool_run(pool, unpack_units, &(struct unpacking){m, first, left < m->rows ? left : m->rows});
        model_forget(m->model, m->tensor);
        m->first = first;
    }
    return m->block;
}
