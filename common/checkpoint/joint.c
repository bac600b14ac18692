#include "common/checkpoint/joint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/float.h"
#include "common/base/mem.h"
#include "common/checkpoint/coding_packed.h"
#include "common/checkpoint/coding_scaled.h"
#include "common/checkpoint/quantisation.h"

/* Returns the tensor whose name is `name` with the last `cut` bytes replaced by `end`; NULL if there is none. */
static struct source_tensor *sibling(const struct checkpoint *cp, const char *name, size_t cut, const char *end)
{
    char other[SOURCE_NAME + 32];
    size_t length = strlen(name) - cut;
    if (length + strlen(end) >= sizeof other)
        return NULL;
    memcpy(other, name, length);
    memcpy(other + length, end, strlen(end) + 1);
    return checkpoint_find(cp, other);
}

static int no_sibling(const struct checkpoint *cp, const struct source_tensor *t, size_t cut, const char *end,
                      struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: tensor %s cannot be dequantised, because tensor %.*s%s is missing; convert the "
                   "complete checkpoint", cp->files[t->file].name, t->name, (int)(strlen(t->name) - cut), t->name, end);
}

static int packs_experts(const struct checkpoint *cp, const struct source_tensor *t, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: tensor %s contains the weights of all experts, which is not supported for this "
                   "format; save each expert's matrices as separate tensors", cp->files[t->file].name, t->name);
}

static int wrong_shape(const struct checkpoint *cp, const struct source_tensor *scale, const char *expected, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: tensor %s has the wrong shape; %s", cp->files[scale->file].name, scale->name,
                   expected);
}

/* Makes `tensor` a joined tensor: its first part is a copy of itself, `others` are its further parts. NULL in `others`: a
 * part without a name. */
static int take_parts(struct source_tensor *tensor, struct source_tensor *const *others, int count, struct err *err)
{
    struct source_tensor *parts = mem_alloc((size_t)count + 1, sizeof *parts, err);
    if (!parts)
        return -1;
    for (int i = 0; i <= count; i++) {
        const struct source_tensor *from = i ? others[i - 1] : tensor;
        if (!from)
            continue;
        parts[i] = *from;
        parts[i].name = mem_string(from->name, err);
        if (parts[i].name)
            continue;
        while (i-- > 0)
            mem_free(&parts[i].name);
        mem_free(&parts);
        return -1;
    }
    for (int i = 0; i < count; i++)
        if (others[i])
            others[i]->used = true;                     /* until it is removed from the list */
    tensor->parts = parts;
    tensor->part_count = count + 1;
    return 0;
}

static int64_t parts_of(int64_t size, int64_t block) { return size / block + (size % block != 0); }

/* Computes how many rows and columns share a scale: from the shape of the scales, except for the size of blocks, which
 * config.json states. */
static int fit_scales(const struct checkpoint *cp, const struct quantisation *q, const struct source_tensor *t,
                      const struct source_tensor *scale, bool blocks, int64_t block[2], struct err *err)
{
    int n = t->dim_count, m = scale->dim_count;
    int64_t rows = n > 1 ? t->dims[n - 2] : 1, columns = n ? t->dims[n - 1] : 1, elements = 1, matrices = 1;
    for (int i = 0; i < m; i++)
        elements *= scale->dims[i] < 1 << 30 && elements < 1 << 30 ? scale->dims[i] : 1 << 30;
    for (int i = 0; i + 2 < n; i++)
        matrices *= t->dims[i] < 1 << 30 && matrices < 1 << 30 ? t->dims[i] : 1 << 30;
    block[0] = q->block[0];
    block[1] = q->block[1];
    if (blocks) {
        if (n < 2 || m != n || memcmp(t->dims, scale->dims, (size_t)(n - 2) * sizeof *t->dims) ||
            scale->dims[m - 2] != parts_of(rows, block[0]) || scale->dims[m - 1] != parts_of(columns, block[1]))
            return wrong_shape(cp, scale, "expected a scale for each block of weight_block_size", err);
        return 0;
    }
    block[1] = columns > 0 ? columns : 1;
    block[0] = rows > 0 ? rows : 1;
    if (elements == matrices)
        return 0;
    block[0] = 1;
    return elements == matrices * rows ? 0 : wrong_shape(cp, scale, "expected one scale, or one for each row", err);
}

/* Suffixes of scales of activations and KV caches, which do not affect weights. */
static const char *const ACTIVATIONS[] = {
    ".input_scale", ".input_global_scale", ".input_zero_point", ".output_scale", ".output_zero_point", ".k_scale",
    ".v_scale", ".q_scale", ".k_zero_point", ".v_zero_point"};

static bool is_activation_scale(const char *name)
{
    bool found = false;
    for (size_t i = 0; i < sizeof ACTIVATIONS / sizeof *ACTIVATIONS; i++)
        found |= text_ends(name, ACTIVATIONS[i]);
    return found;
}

static int join_scaled(const struct checkpoint *cp, const struct quantisation *q, struct source_tensor *t, struct err *err)
{
    bool fp8 = strcmp(t->dtype_name, "F8_E4M3") == 0;
    struct source_tensor *scale = sibling(cp, t->name, 0, "_scale_inv");
    bool blocks = scale || q->scales_of_blocks;
    int64_t block[2];
    if (!scale && !(scale = sibling(cp, t->name, 0, "_scale")))
        return 0;
    if (scale->coding != &coding_f32 && scale->coding != &coding_bf16 && scale->coding != &coding_f16)
        return err_set(err, ERR_INPUT, "%s: tensor %s is %s; scales in F32, F16 and BF16 are supported",
                       cp->files[scale->file].name, scale->name, scale->dtype_name);
    if (fit_scales(cp, q, t, scale, blocks, block, err) || take_parts(t, &scale, 1, err))
        return -1;
    t->block[0] = block[0];
    t->block[1] = block[1];
    bool wide = block[1] % FP8_BLOCK_INPUTS == 0 || block[1] >= t->dims[t->dim_count - 1];
    t->coding = !fp8 ? &coding_i8 : wide ? &coding_fp8 : &coding_fp8_narrow;
    /* config.json declares the quantisation symmetric: zero points, if stored, have no effect */
    if (q->method == QUANTISED_COMPRESSED && (scale = sibling(cp, t->name, 0, "_zero_point")))
        scale->used = true;
    return 0;
}

static int join_blocks(const struct checkpoint *cp, struct source_tensor *t, struct err *err)
{
    struct source_tensor *scale = sibling(cp, t->name, strlen("blocks"), "scales");
    int n = t->dim_count;
    if (strcmp(t->dtype_name, "U8"))
        return 0;
    if (!scale)
        return no_sibling(cp, t, strlen("blocks"), "scales", err);
    if (n < 3 || t->dims[n - 1] != 16 || strcmp(scale->dtype_name, "U8") || scale->dim_count != n - 1 ||
        memcmp(t->dims, scale->dims, (size_t)(n - 1) * sizeof *t->dims) || t->dims[n - 2] > INT32_MAX / 32)
        return wrong_shape(cp, scale, "expected a byte for each 16 bytes of blocks", err);
    if (take_parts(t, &scale, 1, err))
        return -1;
    t->dim_count = n - 1;
    t->dims[n - 2] *= 32;
    t->coding = &coding_mxfp4;
    snprintf(t->dtype_name, sizeof t->dtype_name, "MXFP4");
    return 0;
}

/* ---- 4-bit floats ---- */

static bool has_shape(const struct source_tensor *t, const char *dtype, int count, int64_t a, int64_t b)
{
    return (!dtype || strcmp(t->dtype_name, dtype) == 0) && t->dim_count == count && t->dims[0] == a &&
           (count < 2 || t->dims[1] == b);
}

/* Checks the scales of whole matrices. divides: the values are divided by them, so that 0 is wrong, too. Sets whether every
 * scale is 1 and need not be applied; false without data (headers only). */
static int check_whole_scales(const struct checkpoint *cp, const struct source_tensor *scale, bool divides, bool *ones,
                              struct err *err)
{
    float value;
    *ones = !cp->headers_only;
    for (uint64_t at = 0; at < scale->bytes && !cp->headers_only; at += sizeof value) {
        if (checkpoint_read(cp, scale, at, &value, sizeof value, err))
            return -1;
        if (!isfinite(value) || value < 0 || (divides && value == 0))
            return err_set(err, ERR_INPUT, "%s: tensor %s has the scale %g, but the scale of a matrix must be finite and %s; "
                           "the checkpoint is damaged, so download it again", cp->files[scale->file].name, scale->name,
                           (double)value, divides ? "above 0" : "not negative");
        *ones &= value == 1;
    }
    return 0;
}

/* Joins NVFP4 of GGUF, whose scale of the whole matrix is a separate tensor. */
static int join_gguf(const struct checkpoint *cp, struct source_tensor *t, struct err *err)
{
    struct source_tensor *scale = sibling(cp, t->name, strlen("weight"), "scale");
    const int64_t matrices = t->dim_count > 2 ? t->dims[0] : 1;
    bool ones;
    if (!scale)
        return 0;
    if (scale->coding != &coding_f32 || scale->dim_count > 1 || t->dim_count > 3 ||
        (scale->bytes != sizeof(float) && scale->bytes != (uint64_t)matrices * sizeof(float)))
        return wrong_shape(cp, scale, "expected one scale in F32, or one for each expert", err);
    if (check_whole_scales(cp, scale, false, &ones, err) || (!ones && take_parts(t, &scale, 1, err)))
        return -1;
    t->coding = ones ? t->coding : &coding_gguf_scaled;
    scale->used = true;
    return 0;
}

/* Joins bytes of two 4-bit floats each, [outputs][inputs / 2], and their scales. whole: the end of the name of the scale of the
 * whole matrix; NULL: MXFP4, which has none. */
static int join_floats(const struct checkpoint *cp, struct source_tensor *t, const char *codes, const char *whole,
                       const struct source_coding *coding, struct err *err)
{
    const int64_t width = whole ? 16 : 32;
    bool ones;
    struct source_tensor *scales[2] = {sibling(cp, t->name, strlen(codes), "weight_scale"),
                                       whole ? sibling(cp, t->name, strlen(codes), whole) : NULL};
    for (int i = 0; i < 1 + (whole != NULL); i++)
        if (!scales[i])
            return no_sibling(cp, t, strlen(codes), i ? whole : "weight_scale", err);
    if (t->dim_count != 2)
        return packs_experts(cp, t, err);
    if (strcmp(t->dtype_name, "U8") || t->dims[0] < 1 || t->dims[1] < 1 || t->dims[1] > INT32_MAX / 2 ||
        t->dims[1] * 2 % width)
        return wrong_shape(cp, t, "expected a matrix of bytes in U8", err);
    if (!has_shape(scales[0], whole ? "F8_E4M3" : "U8", 2, t->dims[0], t->dims[1] * 2 / width))
        return wrong_shape(cp, scales[0], whole ? "expected a scale in F8_E4M3 for each 16 inputs"
                                                : "expected a scale in U8 for each 32 inputs", err);
    if (whole && (scales[1]->coding != &coding_f32 || scales[1]->bytes != sizeof(float)))
        return wrong_shape(cp, scales[1], "expected one scale in F32", err);
    if (whole && check_whole_scales(cp, scales[1], coding == &coding_nvfp4_divided, &ones, err))
        return -1;
    if (take_parts(t, scales, 1 + (whole != NULL), err))
        return -1;
    t->dims[1] *= 2;
    if (coding->format == FORMAT_NVFP4_S && !format_fits(FORMAT_NVFP4_S, t->dims[1]))
        coding = coding == &coding_nvfp4 ? &coding_nvfp4_narrow : &coding_nvfp4_divided_narrow;
    t->coding = coding;
    snprintf(t->dtype_name, sizeof t->dtype_name, "%s", coding->name);
    return 0;
}

/* ---- integers in words ---- */

/* Names of the tensors of a module that contain its packed weight. */
static const struct packing {
    const char *codes, *scales, *zeros, *order;         /* suffixes after the module's name */
    const struct source_coding *coding, *kept;          /* kept: coding for q4, where that is exact; NULL: never */
    bool zeros_needed;
} PACKINGS[] = {
    [QUANTISED_GPTQ] = {"qweight", "scales", "qzeros", "g_idx", &coding_gptq, &coding_gptq_q4, true},
    [QUANTISED_AWQ] = {"qweight", "scales", "qzeros", NULL, &coding_awq, NULL, true},
    [QUANTISED_COMPRESSED] = {"weight_packed", "weight_scale", "weight_zero_point", "weight_g_idx", &coding_packed,
                              &coding_packed_q4, false},
};

/* Sets *fit if all scales are exact in f16, as q4 needs. Without data (headers only) they are assumed to be. */
static int scales_fit(const struct checkpoint *cp, const struct source_tensor *scales, bool *fit, struct err *err)
{
    enum { STEP = 1 << 15 };
    struct source_reading reading = {0};
    float *values = NULL;
    int64_t count = scales->dims[0] * scales->dims[1];
    int rc = -1;
    *fit = true;
    if (scales->coding == &coding_f16 || cp->headers_only)
        return 0;
    if (!(values = mem_alloc(STEP, sizeof *values, err)))
        return -1;
    for (int64_t at = 0, step; at < count && *fit; at += step) {
        step = count - at < STEP ? count - at : STEP;
        if (scales->coding->read(cp, scales, at, step, &reading, values, err))
            goto done;
        for (int64_t i = 0; i < step; i++)
            *fit &= f16_to_f32(f32_to_f16(values[i])) == values[i];
    }
    rc = 0;
done:
    mem_free(&values);
    source_reading_free(&reading);
    return rc;
}

/* Reads the shape that compressed-tensors stores; otherwise it would be known only up to whole words. */
static int take_shape(const struct checkpoint *cp, const struct source_tensor *codes, int64_t per, int64_t dims[2],
                      struct err *err)
{
    struct source_tensor *shape = sibling(cp, codes->name, strlen("packed"), "shape");
    int64_t stored[2];
    if (!shape)
        return 0;
    shape->used = true;
    if (!has_shape(shape, "I64", 1, 2, 0))
        return wrong_shape(cp, shape, "expected two numbers in I64", err);
    if (cp->headers_only)
        return 0;
    if (checkpoint_read(cp, shape, 0, stored, sizeof stored, err))
        return -1;
    if (stored[0] != dims[0] || stored[1] > dims[1] || stored[1] <= dims[1] - per)
        return err_set(err, ERR_INPUT, "%s: tensor %s declares the shape [%lld][%lld], but the packed weights have "
                       "[%lld][%lld]; the checkpoint is damaged",
                       cp->files[shape->file].name, shape->name, (long long)stored[0], (long long)stored[1], (long long)dims[0],
                       (long long)dims[1]);
    dims[1] = stored[1];
    return 0;
}

static int fit_packed(const struct checkpoint *cp, const struct quantisation *q, const struct source_tensor *t,
                      struct source_tensor *const parts[PACKED_PARTS - 1], const int64_t dims[2], int64_t *group,
                      struct err *err)
{
    const struct source_tensor *scales = parts[PACKED_SCALES - 1], *zeros = parts[PACKED_ZEROS - 1],
                               *order = parts[PACKED_ORDER - 1];
    const bool packed = q->method == QUANTISED_COMPRESSED;
    const int64_t per = 32 / q->bits, outputs = dims[0], inputs = dims[1];
    if (scales->coding != &coding_f32 && scales->coding != &coding_bf16 && scales->coding != &coding_f16)
        return err_set(err, ERR_INPUT, "%s: tensor %s is %s; scales in F32, F16 and BF16 are supported",
                       cp->files[scales->file].name, scales->name, scales->dtype_name);
    if (outputs < 1 || inputs < 1 || (!packed && (outputs % per || inputs % per)))
        return wrong_shape(cp, t, "expected a matrix of whole words", err);
    const int64_t groups = scales->dim_count == 2 ? scales->dims[packed] : 0;
    if (groups < 1 || groups > inputs || !has_shape(scales, NULL, 2, packed ? outputs : groups, packed ? groups : outputs))
        return wrong_shape(cp, scales, "expected a scale for each group of each output", err);
    *group = q->group ? q->group : parts_of(inputs, groups);
    if (parts_of(inputs, *group) != groups && !order)
        return wrong_shape(cp, scales, "expected a scale for each group_size inputs of each output", err);
    if (zeros && !has_shape(zeros, "I32", 2, packed ? parts_of(outputs, per) : groups, packed ? groups : outputs / per))
        return wrong_shape(cp, zeros, "expected a zero for each scale, in words of I32", err);
    if (order && !has_shape(order, "I32", 1, inputs, 0))
        return wrong_shape(cp, order, "expected the group of each input, in I32", err);
    return 0;
}

/* Joins codes, scales, zero points and group order of a matrix. It is kept as q4 only if that is exact: 4 bits,
 * groups of a multiple of 32 neighbouring inputs or one group per row, zero points in the middle, and scales exact in f16. */
static int join_packed(const struct checkpoint *cp, const struct quantisation *q, struct source_tensor *t, struct err *err)
{
    const struct packing *p = &PACKINGS[q->method];
    const size_t cut = strlen(p->codes);
    const char *const names[] = {p->scales, p->zeros, p->order};
    struct source_tensor *parts[PACKED_PARTS - 1] = {NULL};
    int64_t dims[2], group;
    bool fit = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        parts[i] = names[i] ? sibling(cp, t->name, cut, names[i]) : NULL;
    for (int i = 0; i < 1 + p->zeros_needed; i++)
        if (!parts[i])
            return no_sibling(cp, t, cut, names[i], err);
    if (strcmp(t->dtype_name, "I32") || t->dim_count != 2 || t->dims[0] > INT32_MAX || t->dims[1] > INT32_MAX)
        return wrong_shape(cp, t, "expected a matrix of words in I32", err);
    dims[0] = q->method == QUANTISED_COMPRESSED ? t->dims[0] : t->dims[1] * (q->method == QUANTISED_AWQ ? 32 / q->bits : 1);
    dims[1] = q->method == QUANTISED_COMPRESSED ? t->dims[1] * (32 / q->bits)
                                                : t->dims[0] * (q->method == QUANTISED_AWQ ? 1 : 32 / q->bits);
    if ((q->method == QUANTISED_COMPRESSED && take_shape(cp, t, 32 / q->bits, dims, err)) ||
        fit_packed(cp, q, t, parts, dims, &group, err))
        return -1;
    bool neighbours = group % BLOCK_INPUTS == 0 || group >= dims[1];
    bool middle = q->symmetric && !q->ordered && !(q->method == QUANTISED_COMPRESSED && (parts[PACKED_ZEROS - 1] ||
                                                                                         parts[PACKED_ORDER - 1]));
    if (q->bits == 4 && p->kept && neighbours && middle && scales_fit(cp, parts[PACKED_SCALES - 1], &fit, err))
        return -1;
    if (take_parts(t, parts, PACKED_PARTS - 1, err))
        return -1;
    t->dims[0] = dims[0];
    t->dims[1] = dims[1];
    t->block[0] = 1;
    t->block[1] = group;
    t->bits = q->bits;
    t->zero_add = q->zero_add;
    t->coding = fit ? p->kept : p->coding;
    snprintf(t->dtype_name, sizeof t->dtype_name, "%s %d bits", t->coding->name, q->bits);
    return 0;
}

/* ---- */

/* Replaces the name of the codes by the name of the matrix. */
static void rename_packed(struct source_tensor *t, const char *codes)
{
    static const char matrix[] = "weight";
    char *end = t->name + strlen(t->name) - strlen(codes);
    memcpy(end, matrix, sizeof matrix);
}

static int join(const struct checkpoint *cp, const struct quantisation *q, struct source_tensor *t, struct err *err)
{
    bool scaled = strcmp(t->dtype_name, "F8_E4M3") == 0 || strcmp(t->dtype_name, "I8") == 0;
    const char *codes = q->packed ? PACKINGS[q->method].codes : NULL;
    if (codes && t->dim_count == 3 && strcmp(t->dtype_name, "I32") == 0 &&
        (text_ends(t->name, codes) || text_ends(t->name, "_packed")))
        return packs_experts(cp, t, err);
    if (codes && text_ends(t->name, codes) && strlen(t->name) > strlen(codes) &&
        t->name[strlen(t->name) - strlen(codes) - 1] == '.')
        return join_packed(cp, q, t, err);
    if (q->floats && text_ends(t->name, ".weight_packed"))
        return q->floats == FOUR_BITS_MXFP4 ? join_floats(cp, t, "weight_packed", NULL, &coding_mxfp4, err)
                   : join_floats(cp, t, "weight_packed", "weight_global_scale", &coding_nvfp4_divided, err);
    if (strcmp(t->dtype_name, "U8") == 0 && text_ends(t->name, ".weight") && sibling(cp, t->name, 0, "_scale_2"))
        return join_floats(cp, t, "weight", "weight_scale_2", &coding_nvfp4, err);
    if (strcmp(t->dtype_name, "NVFP4") == 0 && text_ends(t->name, ".weight"))
        return join_gguf(cp, t, err);
    if (scaled)
        return join_scaled(cp, q, t, err);
    return text_ends(t->name, "_blocks") ? join_blocks(cp, t, err) : 0;
}

int checkpoint_join(struct checkpoint *cp, struct err *err)
{
    struct quantisation quantisation;
    size_t kept = 0;
    if (quantisation_read(cp, &quantisation, err))
        return -1;
    bool quantised = quantisation.method != QUANTISED_NOT; /* in GGUF and old ModelOpt files the tensors show it */
    for (size_t i = 0; i < cp->tensor_count; i++) {
        if (join(cp, &quantisation, &cp->tensors[i], err))
            return -1;
        quantised |= cp->tensors[i].used || cp->tensors[i].parts;
    }
    for (size_t i = 0; i < cp->tensor_count; i++) {
        struct source_tensor *t = &cp->tensors[i];
        if (t->used || (quantised && is_activation_scale(t->name))) {
            mem_free(&t->name);
            continue;
        }
        if (t->bits || (quantisation.floats && text_ends(t->name, ".weight_packed")))
            rename_packed(t, PACKINGS[quantisation.method].codes);
        cp->tensors[kept++] = *t;
    }
    cp->tensor_count = kept;
    return quantisation.packed || quantisation.floats ? checkpoint_sort(cp, err) : 0;
}
