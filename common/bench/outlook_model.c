/* The bytes of a model, by format and by who reads them. */
#include "common/bench/outlook.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/arch/arch.h"
#include "common/model/layout.h"
#include "common/model/step.h"
#include "common/model/synthetic.h"

/* Adds one block of a tensor, `times` times. Blocks whose last part has a format of its own are divided. */
static void add_block(struct outlook_bytes *to, const struct tensor *t, double times)
{
    const double bytes = (double)t->bytes / t->count, first = t->mixed ? (double)tensor_last_offset(t) : bytes;
    to->of[t->format] += times * first;
    to->of[tensor_last_format(t)] += times * (bytes - first);
}

/* Adds the bytes that drafting by the first predictor reads: its layer, and its own output head if it has one. */
static void add_predictor(struct outlook_model *out, const struct tensor *t)
{
    if (t->layer == out->shape.layers && t->role != ROLE_PREDICT_EMBED)
        add_block(&out->predictor, t, t->role == ROLE_EXPERTS ? out->shape.router.top_k : 1);
}

static void add_tensor(struct outlook_model *out, const struct tensor *t, bool head)
{
    const enum step_part part = step_part(t, &out->shape, head);
    out->weights += (double)t->bytes;
    if (!head && t->layer >= out->shape.layers)
        add_predictor(out, t);
    else if (t->role == ROLE_EXPERTS && !head) {
        out->experts += (double)t->bytes;
        out->slot = (double)t->stride > out->slot ? (double)t->stride : out->slot;
        add_block(&out->expert, t, 1);
    } else if (part != STEP_NOTHING)
        add_block(&out->dense, t, t->role == ROLE_EXPERTS ? out->shape.router.top_k : 1);
    if (part == STEP_HEAD)
        add_block(&out->head, t, 1);
}

static void start(struct outlook_model *out, const char *name, const struct hparams *shape, bool file)
{
    *out = (struct outlook_model){.file = file, .layers = shape->layers, .moe_layers = hparams_moe_layers(shape)};
    snprintf(out->name, sizeof out->name, "%s", name);
    out->shape = *shape;
}

static int read_file(struct outlook_model *out, const char *path, bool head, struct err *err)
{
    struct model *model = NULL;
    if (head ? model_open_head(&model, path, err) : model_open(&model, path, err))
        return -1;
    start(out, model_identity(model)->name, model_hparams(model), true);
    for (int i = 0; i < model_tensor_count(model); i++)
        add_tensor(out, model_tensor_at(model, i), head);
    if (head) {
        const enum head_kind kind = model_head(model)->kind;
        out->own_head = kind == HEAD_EAGLE3 || kind == HEAD_MEDUSA || kind == HEAD_HYDRA;
        /* Each of several heads guesses one token. */
        for (int f = 0; f < FORMAT_COUNT && model_head(model)->heads > 1; f++)
            out->dense.of[f] /= model_head(model)->heads;
    }
    model_close(&model);
    return 0;
}

bool outlook_multiplies(const struct outlook_bytes *bytes, int format)
{
    double sum = 0;
    for (int f = 0; f < FORMAT_COUNT; f++)
        sum += bytes->of[f];
    return bytes->of[format] > 0.01 * sum;
}

/* ---- config.json */

/* Computes the formats in which moe-convert would store a published checkpoint, from its config.json. */
static int published_formats(const json_t *config, const char *path, struct synthetic_options *options, struct err *err)
{
    const json_t *quantised = config_get(config, "quantization_config"), *text = config_get(config, "text_config");
    const char *method = json_string_value(json_object_get(quantised, "quant_method"));
    const char *dtype = json_string_value(config_get(config, config_get(config, "torch_dtype") ? "torch_dtype" : "dtype"));
    if (!dtype)
        dtype = json_string_value(config_get(text, config_get(text, "torch_dtype") ? "torch_dtype" : "dtype"));
    options->dense = dtype && !strcmp(dtype, "float32") ? FORMAT_F32 : dtype && !strcmp(dtype, "float16") ? FORMAT_F16
                                                                                                         : FORMAT_BF16;
    options->experts = options->dense;
    if (method && !strcmp(method, "fp8"))
        options->dense = options->experts = FORMAT_FP8;
    else if (method && !strcmp(method, "mxfp4"))
        options->experts = FORMAT_MXFP4;
    else if (quantised)
        return err_set(err, ERR_INPUT, "%s: its weights are quantised by '%.40s', whose size is unknown; give the nearest "
                       "format, such as --dtype q4", path, method ? method : "no known method");
    return 0;
}

static int choose_formats(struct synthetic_options *options, const struct outlook_formats *formats, const char *path,
                          const struct text *text, struct err *err)
{
    json_t *config = NULL;
    int rc = 0;
    if (formats->dense < 0) {
        rc = config_parse(&config, text->data, text->length, err) || published_formats(config, path, options, err) ? -1 : 0;
        json_decref(config);
    } else {
        options->dense = options->experts = (enum weight_format)formats->dense;
    }
    if (formats->experts >= 0)
        options->experts = (enum weight_format)formats->experts;
    return rc;
}

static int read_config(struct outlook_model *out, const char *path, const struct outlook_formats *formats, struct err *err)
{
    struct synthetic_options options = {.dense = FORMAT_BF16};
    struct layout layout = {0};
    struct hparams shape;
    struct text text = {0};
    uint64_t end;
    int rc = -1;
    if (known_shape_read(path, "-m", 0, &text, &shape, err) || choose_formats(&options, formats, path, &text, err) ||
        synthetic_plan(&layout, &shape, &options, err) || layout_arrange(&layout, MODEL_PAGE, &end, err))
        goto done;
    start(out, path, &shape, false);
    for (int i = 0; i < layout.count; i++)
        add_tensor(out, &layout.tensors[i], false);
    rc = 0;
done:
    layout_free(&layout);
    text_free(&text);
    return rc;
}

int outlook_model_read(struct outlook_model *out, const char *path, const struct outlook_formats *formats, struct err *err)
{
    char inside[1024];
    struct stat status;
    const bool there = stat(path, &status) == 0, folder = there && S_ISDIR(status.st_mode);
    snprintf(inside, sizeof inside, "%s/config.json", path);
    if (known_shape(path) || folder || text_ends(path, ".json") || (!there && !strchr(path, '/') && !text_ends(path, ".moe")))
        return read_config(out, folder ? inside : path, formats, err);
    if (formats->dense >= 0 || formats->experts >= 0)
        return err_set(err, ERR_INPUT, "%s: is a model file, which defines its own formats; leave out --dtype and "
                       "--expert-dtype",
                       path);
    return read_file(out, path, false, err);
}

int outlook_model_read_head(struct outlook_model *out, const char *path, struct err *err)
{
    return read_file(out, path, true, err);
}
