#include "common/checkpoint/joint.h"

#include <stdio.h>
#include <string.h>

#include "common/arch/config.h"
#include "common/base/mem.h"
#include "common/checkpoint/coding_scaled.h"

/* What quantization_config says of all weights. */
struct quantisation {
    int block[2];                   /* rows and columns that share a scale */
};

/* ---- config.json ---- */

static const char *const FP8_KEYS[] = {"quant_method", "weight_block_size", "activation_scheme", "modules_to_not_convert",
                                       "fmt", "scale_fmt", "ignored_layers", NULL};
static const char *const MXFP4_KEYS[] = {"quant_method", "modules_to_not_convert", NULL};

static int check_keys(const json_t *object, const char *const *known, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        int at = 0;
        while (known[at] && strcmp(known[at], key))
            at++;
        if (!known[at] && !json_is_null(value))
            return config_refuse(object, key, err, "what it means is not known here");
    }
    return 0;
}

static int read_block(const json_t *object, struct quantisation *out, struct err *err)
{
    const json_t *size = config_get(object, "weight_block_size");
    const char *format = "e4m3";
    if (config_text(object, "fmt", false, &format, err))
        return -1;
    if (strcmp(format, "e4m3"))
        return config_refuse(object, "fmt", err, "only e4m3 is supported");
    for (size_t i = 0; size && i < 2; i++) {
        json_int_t value = json_integer_value(json_array_get(size, i));
        if (json_array_size(size) != 2 || value < 1 || value > 1 << 20)
            return config_refuse(object, "weight_block_size", err, "two sizes are expected");
        out->block[i] = (int)value;
    }
    return 0;
}

static int read_method(const json_t *object, struct quantisation *out, struct err *err)
{
    const char *method = "";
    if (!json_is_object(object))
        return err_set(err, ERR_INPUT, "must be an object");
    if (config_text(object, "quant_method", true, &method, err))
        return -1;
    if (strcmp(method, "fp8") == 0)
        return check_keys(object, FP8_KEYS, err) || read_block(object, out, err) ? -1 : 0;
    if (strcmp(method, "mxfp4") == 0)
        return check_keys(object, MXFP4_KEYS, err);
    return config_refuse(object, "quant_method", err, "supported are fp8 and mxfp4");
}

static int read_quantisation(const struct checkpoint *cp, struct quantisation *out, struct err *err)
{
    const struct text *text = &cp->texts[TEXT_CONFIG];
    json_t *config = NULL;
    const json_t *object;
    int rc = 0;
    *out = (struct quantisation){{128, 128}};
    if (!text->length)
        return 0;
    if (config_parse(&config, text->data, text->length, err))
        return err_at(err, "config.json");
    object = config_get(config, "quantization_config");
    if (object && read_method(object, out, err)) {
        err_at(err, "quantization_config");
        rc = err_at(err, "config.json");
    }
    json_decref(config);
    return rc;
}

/* ---- tensors ---- */

static bool ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), tail = strlen(end);
    return length > tail && strcmp(name + length - tail, end) == 0;
}

/* The tensor named like `name`, its last `cut` bytes replaced by `end`. */
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

static int wrong_shape(const struct checkpoint *cp, const struct source_tensor *scale, const char *expected, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: tensor %s has a shape that does not fit; %s", cp->files[scale->file].name, scale->name,
                   expected);
}

/* `tensor` takes `scale` as its second part and itself, as it was, as the first. */
static int take_parts(struct source_tensor *tensor, struct source_tensor *scale, struct err *err)
{
    struct source_tensor *parts = mem_alloc(2, sizeof *parts, err);
    if (!parts)
        return -1;
    parts[0] = *tensor;
    parts[1] = *scale;
    parts[0].name = mem_string(tensor->name, err);
    parts[1].name = parts[0].name ? mem_string(scale->name, err) : NULL;
    tensor->parts = parts;
    tensor->part_count = 2;
    scale->used = true;                                 /* until it is taken out of the list */
    return parts[1].name ? 0 : -1;
}

static int64_t parts_of(int64_t size, int64_t block) { return size / block + (size % block != 0); }

/* How many rows and columns share one of the scales; their shape says it, but for the size of blocks. */
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
            return wrong_shape(cp, scale, "a scale is expected for each block of weight_block_size", err);
        return 0;
    }
    block[1] = columns > 0 ? columns : 1;
    block[0] = rows > 0 ? rows : 1;
    if (elements == matrices)
        return 0;
    block[0] = 1;
    return elements == matrices * rows ? 0 : wrong_shape(cp, scale, "one scale, or one for each row, is expected", err);
}

static int join_scaled(const struct checkpoint *cp, const struct quantisation *q, struct source_tensor *t, struct err *err)
{
    bool fp8 = strcmp(t->dtype_name, "F8_E4M3") == 0;
    struct source_tensor *scale = sibling(cp, t->name, 0, "_scale_inv");
    bool blocks = scale != NULL;
    int64_t block[2];
    if (!scale && !(scale = sibling(cp, t->name, 0, "_scale")))
        return 0;
    if (scale->coding != &coding_f32 && scale->coding != &coding_bf16 && scale->coding != &coding_f16)
        return err_set(err, ERR_INPUT, "%s: tensor %s is %s; scales in F32, F16 and BF16 are supported",
                       cp->files[scale->file].name, scale->name, scale->dtype_name);
    if (fit_scales(cp, q, t, scale, blocks, block, err) || take_parts(t, scale, err))
        return -1;
    t->block[0] = block[0];
    t->block[1] = block[1];
    bool wide = block[1] % FP8_BLOCK_INPUTS == 0 || block[1] >= t->dims[t->dim_count - 1];
    t->coding = !fp8 ? &coding_i8 : wide ? &coding_fp8 : &coding_fp8_narrow;
    struct source_tensor *input = ends_in(t->name, ".weight") ? sibling(cp, t->name, strlen("weight"), "input_scale") : NULL;
    if (input)
        input->used = true;                             /* of activations */
    return 0;
}

static int join_blocks(const struct checkpoint *cp, struct source_tensor *t, struct err *err)
{
    struct source_tensor *scale = sibling(cp, t->name, strlen("blocks"), "scales");
    int n = t->dim_count;
    if (strcmp(t->dtype_name, "U8") || !scale)
        return 0;
    if (n < 3 || t->dims[n - 1] != 16 || strcmp(scale->dtype_name, "U8") || scale->dim_count != n - 1 ||
        memcmp(t->dims, scale->dims, (size_t)(n - 1) * sizeof *t->dims) || t->dims[n - 2] > INT32_MAX / 32)
        return wrong_shape(cp, scale, "a byte is expected for each 16 bytes of blocks", err);
    if (take_parts(t, scale, err))
        return -1;
    t->dim_count = n - 1;
    t->dims[n - 2] *= 32;
    t->coding = &coding_mxfp4;
    snprintf(t->dtype_name, sizeof t->dtype_name, "MXFP4");
    return 0;
}

int checkpoint_join(struct checkpoint *cp, struct err *err)
{
    struct quantisation quantisation;
    size_t kept = 0;
    if (read_quantisation(cp, &quantisation, err))
        return -1;
    for (size_t i = 0; i < cp->tensor_count; i++) {
        struct source_tensor *t = &cp->tensors[i];
        bool scaled = strcmp(t->dtype_name, "F8_E4M3") == 0 || strcmp(t->dtype_name, "I8") == 0;
        if ((scaled && join_scaled(cp, &quantisation, t, err)) ||
            (!scaled && ends_in(t->name, "_blocks") && join_blocks(cp, t, err)))
            return -1;
    }
    for (size_t i = 0; i < cp->tensor_count; i++) {
        struct source_tensor *t = &cp->tensors[i];
        if (t->used)
            mem_free(&t->name);
        else
            cp->tensors[kept++] = *t;
    }
    cp->tensor_count = kept;
    return 0;
}
