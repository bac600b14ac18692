#include "common/checkpoint/coding_strided.h"

#include <string.h>

#include "common/base/mem.h"

/* Reads rows of a matrix with strides in elements: block[0] between rows, block[1] between columns. One of the two is 1. */
static int read_strided(const struct checkpoint *cp, const struct source_tensor *t, int64_t first, int64_t count,
                        struct source_reading *reading, float *values, struct err *err)
{
    const struct source_tensor *part = &t->parts[0];
    const int64_t columns = t->dims[1], row = first / columns, rows = count / columns;
    if (t->block[1] == 1) {
        for (int64_t i = 0; i < rows; i++)
            if (part->coding->read(cp, part, (row + i) * t->block[0], columns, reading, values + i * columns, err))
                return -1;
        return 0;
    }
    float *column = mem_alloc((size_t)rows, sizeof *column, err);
    int rc = column ? 0 : -1;
    for (int64_t k = 0; k < columns && !rc; k++) {
        rc = part->coding->read(cp, part, k * t->block[1] + row, rows, reading, column, err);
        for (int64_t i = 0; i < rows && !rc; i++)
            values[i * columns + k] = column[i];
    }
    mem_free(&column);
    return rc;
}

static const struct source_coding strided_f32 = {"F32", FORMAT_F32, read_strided, NULL};
static const struct source_coding strided_f16 = {"F16", FORMAT_F16, read_strided, NULL};
static const struct source_coding strided_bf16 = {"BF16", FORMAT_BF16, read_strided, NULL};

static const struct { const char *name; const struct source_coding *plain, *strided; } DTYPES[] = {
    {"F32", &coding_f32, &strided_f32}, {"F16", &coding_f16, &strided_f16}, {"BF16", &coding_bf16, &strided_bf16},
};

int strided_tensor(struct source_tensor *t, const int64_t *strides, struct err *err)
{
    if (t->dim_count != 2 || (strides[0] != 1 && strides[1] != 1) || strides[0] < 1 || strides[1] < 1)
        return err_set(err, ERR_INPUT, "the strides of its elements are not supported; save tensor.contiguous() instead");
    if (!(t->parts = mem_alloc(1, sizeof *t->parts, err)))
        return -1;
    t->part_count = 1;
    t->parts[0] = (struct source_tensor){.file = t->file, .offset = t->offset, .bytes = t->bytes};
    t->block[0] = strides[0];
    t->block[1] = strides[1];
    return 0;
}

void strided_dtype(struct source_tensor *t)
{
    for (size_t i = 0; i < sizeof DTYPES / sizeof *DTYPES; i++)
        if (strcmp(DTYPES[i].name, t->dtype_name) == 0) {
            t->coding = t->part_count ? DTYPES[i].strided : DTYPES[i].plain;
            if (t->part_count)
                t->parts[0].coding = DTYPES[i].plain;
        }
}
