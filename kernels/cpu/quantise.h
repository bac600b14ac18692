/* Rows of activations made into integers before a product with q8 or q4 weights (formats.h). */
#ifndef MOE_KERNELS_CPU_QUANTISE_H
#define MOE_KERNELS_CPU_QUANTISE_H

#include "kernels/cpu/isa.h"
#include "kernels/formats.h"
#include "kernels/ops.h"

struct quantise_job {
    const float *in;                    /* [rows] of `stride` floats, the first `inputs` used */
    const int32_t *expert;              /* [rows]: rows with -1 are left out; or NULL */
    struct quantised *out;              /* [rows][quantised_blocks(inputs)] */
    size_t stride;
    int rows, inputs;
};

#define cpu_quantise ISA_NAME(cpu_quantise)

/* A step of the queue's team. */
void cpu_quantise(struct queue *queue, struct quantise_job *job);

/* How unit_product takes rows: where they begin and how far apart they are, in bytes. */
struct product_rows {
    const unsigned char *data;
    size_t stride;
};

static inline struct product_rows rows_of_floats(const float *data, size_t stride)
{
    return (struct product_rows){(const unsigned char *)data, stride * sizeof *data};
}

static inline struct product_rows rows_of_blocks(const struct quantised *data, int inputs)
{
    return (struct product_rows){(const unsigned char *)data, (size_t)quantised_blocks(inputs) * sizeof *data};
}

static inline const void *product_row(const struct product_rows *rows, size_t row) { return rows->data + row * rows->stride; }

#endif
