/* Rows of activations as the products of unit.h take them:
 *
 *   with q8 and q4 weights     blocks of integers (quantise.h)
 *   with bf16 weights on tiles parts (parts.h)
 *   with other weights         the floats themselves
 *
 * Blocks and parts are made once for all products with the same rows, by all threads. */
#ifndef MOE_KERNELS_CPU_OPERAND_H
#define MOE_KERNELS_CPU_OPERAND_H

#include <stdbool.h>

#include "kernels/cpu/parts.h"
#include "kernels/cpu/quantise.h"
#include "kernels/formats.h"

#if defined(ISA_AMX)
enum { TILES = 1 };
#else
enum { TILES = 0 };
#endif

/* Up to so many rows of q8 and q4 the vector unit is faster than tiles. */
enum { VECTOR_ROWS = 8 };

/* Products with such weights may be made by matrix tiles, which take rows that lie one after the other. */
static inline bool format_tiled(enum weight_format format)
{
    return TILES && (format == FORMAT_BF16 || format_quantised(format));
}

struct operand_rows {
    const float *in;                    /* [rows] of `stride` floats, the first `inputs` used */
    size_t stride;
    int rows, inputs;
    void *scratch;                      /* operand_bytes for each row, and for each pair if these are given */
    /* Where experts want rows: pair p (row * slots + slot) takes row p / slots. */
    const int32_t *expert;              /* [rows]: rows with -1 are not wanted; or NULL. With slots 1 only */
    const int32_t *pair;                /* [pairs]: the wanted pairs, in the order in which products take them; or NULL */
    int pairs, slots;
};

/* What becomes of the rows in scratch: the pairs', in their order, if these are given, else the rows themselves. */
static inline size_t operand_count(const struct operand_rows *rows)
{
    return (size_t)(rows->pair ? rows->pairs : rows->rows);
}

/* The row that the i-th of them is made of; NULL: none, as nobody wants it. */
static inline const float *operand_source(const struct operand_rows *rows, size_t i)
{
    size_t row = rows->pair ? (size_t)(rows->pair[i] / rows->slots) : i;
    return rows->expert && rows->expert[row] < 0 ? NULL : rows->in + row * rows->stride;
}

/* Where row r, or of given pairs the i-th, begins: data + r * stride. */
struct operand {
    const unsigned char *data;
    size_t stride;
    bool by_pair;
};

/* Only tiles want rows in the order of pairs; where no expert can have enough of them for tiles, a row is made once for all
 * of its pairs. */
static inline struct operand operand_make(struct queue *queue, enum weight_format format, const struct operand_rows *wanted)
{
    struct operand_rows rows = *wanted;
    if (!format_tiled(format) || (format_quantised(format) && rows.rows <= VECTOR_ROWS))
        rows.pair = NULL;
    if (format_quantised(format))
        cpu_quantise(queue, &rows);
    else if (format_tiled(format))
        cpu_parts(queue, &rows);
    else
        return (struct operand){(const unsigned char *)rows.in, rows.stride * sizeof *rows.in, false};
    return (struct operand){rows.scratch, operand_bytes(format, rows.inputs), rows.pair != NULL};
}

static inline const void *operand_at(const struct operand *operand, size_t row)
{
    return operand->data + row * operand->stride;
}

#endif
