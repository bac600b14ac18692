/* Uses the routed experts of another file in place of the model's own. */
#include <string.h>

#include "common/base/mem.h"
#include "common/engine/internal.h"

struct experts_copy {
    struct model *model;
    struct expert_source *source;
    struct layer_experts *layer;         /* [layers] */
    int64_t bytes;
};

static bool same_layers(const struct hparams *shape, const struct hparams *like)
{
    bool same = shape->layers == like->layers && shape->router.experts == like->router.experts;
    for (int n = 0; same && n < shape->layers; n++)
        same = shape->layer[n].ffn == like->layer[n].ffn;
    return same;
}

bool experts_alike(const struct model *model, const struct model *other)
{
    const struct model_identity *mine = model_identity(model), *its = model_identity(other);
    static const struct sha256 none;
    return memcmp(&mine->source, &its->source, sizeof none) == 0 && memcmp(&its->source, &none, sizeof none) != 0 &&
           same_layers(model_hparams(model), model_hparams(other));
}

/* Checks that the copy was made from the same weights and has the same shape. */
static int check_copy(const struct model *copy, const struct model *model, struct err *err)
{
    const struct model_identity *mine = model_identity(copy), *its = model_identity(model);
    const struct hparams *shape = model_hparams(copy), *like = model_hparams(model);
    static const struct sha256 none;
    if (memcmp(&mine->source, &its->source, sizeof none) != 0 || memcmp(&its->source, &none, sizeof none) == 0)
        return err_set(err, ERR_INPUT, "%s: is not a copy of %s, because its weights come from another source; convert the "
                       "same checkpoint into another format", model_path(copy), model_path(model));
    if (shape->hidden != like->hidden || shape->expert_inner != like->expert_inner || !same_layers(shape, like) ||
        mine->inflated_from != its->inflated_from)
        return err_set(err, ERR_INPUT, "%s: its experts have another shape than those of %s; use a copy that is inflated to "
                       "the same width", model_path(copy), model_path(model));
    return 0;
}

static int open_parts(struct experts_copy *copy, struct engine *engine, const char *file, struct err *err)
{
    const struct hparams *shape = engine->shape;
    if (model_open(&copy->model, file, err))
        return -1;
    if (!engine->moe_layers)
        return err_set(err, ERR_INPUT, "%s: cannot replace experts of %s, which has none; leave experts= out", file,
                       model_path(engine->setup.model));
    if (check_copy(copy->model, engine->setup.model, err) || workspace_suit(&engine->space, copy->model, err) ||
        !(copy->layer = mem_alloc((size_t)shape->layers, sizeof *copy->layer, err)) ||
        expert_source_open(&copy->source, copy->model, engine->device, err))
        return -1;
    for (int n = 0; n < shape->layers; n++) {
        if (shape->layer[n].ffn != FFN_EXPERTS)
            continue;
        const struct tensor *tensor = model_tensor(copy->model, err, "layers.%d.experts", n);
        if (!tensor)
            return -1;
        copy->layer[n] = (struct layer_experts){copy->source, tensor->format, tensor_last_format(tensor),
                                                (int64_t)tensor->bytes / tensor->count};
        copy->bytes += copy->layer[n].bytes;
    }
    copy->bytes /= engine->moe_layers;
    return 0;
}

int experts_copy_open(struct experts_copy **out, struct engine *engine, const char *file, struct err *err)
{
    struct experts_copy *copy = mem_alloc(1, sizeof *copy, err);
    if (!copy)
        return -1;
    if (open_parts(copy, engine, file, err)) {
        experts_copy_close(&copy);
        return -1;
    }
    *out = copy;
    return 0;
}

void experts_copy_close(struct experts_copy **copy)
{
    if (!*copy)
        return;
    expert_source_close(&(*copy)->source);
    mem_free(&(*copy)->layer);
    model_close(&(*copy)->model);
    mem_free(copy);
}

struct layer_experts experts_copy_layer(const struct experts_copy *copy, int n) { return copy->layer[n]; }
int64_t experts_copy_bytes(const struct experts_copy *copy) { return copy->bytes; }
