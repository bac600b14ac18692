#include "common/train/stored.h"

#include "common/base/mem.h"

/* A block has at most WEIGHTS_MAX weights (32 MiB of f32), but at least ROWS_MIN rows, as many as a product's block has
 * columns. PIECE: bytes per upload. */
enum { WEIGHTS_MAX = 8 << 20, ROWS_MIN = 512, PIECE = 8 << 20 };
/* Rows per embedding operation. ROWS_HELD on a mapped file: its pages are released after each operation, because each row may
 * have brought in 2 MiB of the file. */
enum { ROWS_HELD = 16, EMBED_ROWS = 512 };

struct stored_matrix {
    const struct model *model;
    const struct tensor *tensor;
    struct device *device;
    bool mapped;                /* `packed` is the mapped file */
    bool owned;                 /* `packed` is this matrix's own copy */
    struct buffer packed, block;
    int rows;                   /* per block; a multiple of UNIT_OUTPUTS */
    int first;                  /* first row of the current block; -1: none */
};

/* Uploads piece by piece and releases the file's pages, so that only one piece is in memory. */
static int copy_file(struct stored_matrix *m, struct err *err)
{
    const char *data = model_data(m->model, m->tensor);
    m->owned = true;
    if (device_alloc(m->device, m->tensor->bytes, &m->packed, err))
        return -1;
    for (size_t at = 0; at < m->tensor->bytes; at += PIECE) {
        const size_t bytes = m->tensor->bytes - at < PIECE ? m->tensor->bytes - at : PIECE;
        queue_upload(m->device, buffer_part(m->packed, at, bytes), data + at, bytes);
        model_forget(m->model, m->tensor);
    }
    return 0;
}

int stored_open(struct stored_matrix **out, const struct stored_setup *setup, struct err *err)
{
    const struct tensor *tensor = setup->tensor;
    struct device *device = setup->device;
    struct stored_matrix *m = mem_alloc(1, sizeof *m, err);
    size_t bytes;
    if (!m)
        return -1;
    const int fit = WEIGHTS_MAX / tensor->inputs / ROWS_MIN * ROWS_MIN, rows = fit < ROWS_MIN ? ROWS_MIN : fit;
    *m = (struct stored_matrix){.model = setup->model, .tensor = tensor, .device = device, .first = -1, .packed = setup->there,
                                .mapped = device_info(device)->host_memory,
                                .rows = rows < tensor->outputs ? rows : tensor->outputs};
    if (!size_mul((size_t)m->rows * sizeof(float), (size_t)tensor->inputs, &bytes)) {
        err_memory(err);
        goto failed;
    }
    if (setup->blocks && device_alloc(device, bytes, &m->block, err))
        goto failed;
    if (m->mapped)
        m->packed = device_map(device, model_data(m->model, tensor), tensor->bytes);
    else if (!m->packed.address && copy_file(m, err))
        goto failed;
    *out = m;
    return 0;
failed:
    stored_close(&m);
    return -1;
}

void stored_close(struct stored_matrix **matrix)
{
    struct stored_matrix *m = *matrix;
    if (m) {
        device_free(m->device, &m->block);
        if (m->owned)
            device_free(m->device, &m->packed);
    }
    mem_free(matrix);
}

struct buffer stored_on_device(const struct stored_matrix *matrix) { return matrix->packed; }

int stored_rows(const struct stored_matrix *matrix) { return matrix->rows; }

struct buffer stored_block(struct stored_matrix *m, const struct learn_ops *ops, int first)
{
    const struct tensor *t = m->tensor;
    const int left = t->outputs - first;
    if (m->first != first) {
        ops->unpack(device_queue(m->device), &(struct learn_unpack_args){
            m->packed, m->block, t->format, t->outputs, t->inputs, first, left < m->rows ? left : m->rows});
        if (m->mapped)
            model_forget(m->model, t);
        m->first = first;
    }
    return m->block;
}

void stored_embed(const struct stored_matrix *m, struct buffer token, int rows, struct buffer out)
{
    const struct tensor *t = m->tensor;
    const uint64_t width = (uint64_t)t->inputs * sizeof(float);
    const int each = m->mapped ? ROWS_HELD : EMBED_ROWS;
    for (int first = 0; first < rows; first += each) {
        const int count = rows - first < each ? rows - first : each;
        device_ops(m->device)->embed(device_queue(m->device), &(struct embed_args){
            .token = buffer_part(token, (uint64_t)first * sizeof(int32_t), (uint64_t)count * sizeof(int32_t)),
            .table = m->packed,
            .out = buffer_part(out, (uint64_t)first * width, (uint64_t)count * width), .format = t->format, .rows = count,
            .vocab = t->outputs, .hidden = t->inputs});
        if (m->mapped)
            model_forget(m->model, t);
    }
}
