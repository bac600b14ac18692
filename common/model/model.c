#include "common/model/model.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/model/model_index.h"
#include "common/model/resident.h"

struct model {
    char *path;
    struct file_map map;
    struct resident resident;        /* contains the data if the file is not mapped */
    uint64_t data_end;
    struct model_facts facts;
    struct layout layout;
    struct model_identity identity;
};

/* Returns the format with the most bytes among the tensors of one kind; tensors that are never quantised do not count. */
static enum weight_format main_format(const struct layout *layout, enum tensor_kind kind, uint64_t *max)
{
    uint64_t bytes[FORMAT_COUNT] = {0};
    int best = 0;
    for (int i = 0; i < layout->count; i++)
        if (layout->tensors[i].kind == kind && !role_unquantised(layout->tensors[i].role))
            bytes[layout->tensors[i].format] += layout->tensors[i].bytes;
    for (int f = 1; f < FORMAT_COUNT; f++)
        if (bytes[f] > bytes[best])
            best = f;
    *max = bytes[best];
    return (enum weight_format)best;
}

static void identify(struct model *model, const struct sha256 *index)
{
    struct model_identity *id = &model->identity;
    const struct hparams *shape = &model->facts.shape;
    uint64_t bytes;
    const char *dense = format_name(main_format(&model->layout, TENSOR_MATRIX, &bytes));
    const char *experts = format_name(main_format(&model->layout, TENSOR_EXPERTS, &bytes));
    id->index = *index;
    id->source = model->facts.source;
    id->tokenizer = model->facts.tokenizer;
    memcpy(id->name, model->facts.name, sizeof id->name);
    if (bytes && strcmp(dense, experts))
        snprintf(id->dtype, sizeof id->dtype, "%s, experts %s", dense, experts);
    else
        snprintf(id->dtype, sizeof id->dtype, "%s", dense);
    id->layers = shape->layers;
    id->moe_layers = hparams_moe_layers(shape);
    id->experts = shape->router.experts;
    id->top_k = shape->router.top_k;
    id->vocab = shape->vocab;
    id->hidden = shape->hidden;
    id->inflated_from = model->facts.inflated_from;
    id->synthetic = model->facts.synthetic;
}

static int read_index(struct model *model, struct err *err)
{
    struct model_head head;
    struct sha256 digest;
    if (model_head_read(&head, model->map.data, model->map.bytes, err))
        return -1;
    const uint8_t *index = model->map.data + head.index_offset;
    if (hash_sha256(index, head.index_bytes, &digest, err))
        return -1;
    if (memcmp(&digest, &head.index, sizeof digest))
        return err_set(err, ERR_INPUT, "the index does not match its digest; the file is damaged, so convert again");
    if (model_index_read(&model->facts, &model->layout, index, head.index_bytes, head.index_offset, err))
        return -1;
    model->data_end = head.index_offset;
    identify(model, &digest);
    return 0;
}

/* Sets the error for a model path that is not a file: a checkpoint's folder, or nothing. */
static int refuse_name(const char *path, struct err *err)
{
    struct stat status;
    if (!*path)
        return err_set(err, ERR_INPUT, "the name of the model file is empty; name one");
    if (stat(path, &status))
        return errno != ENOENT ? 0 : err_set(err, ERR_IO, "%s: No such file or directory; name an existing model file, or "
                                             "make one with `moe-convert CHECKPOINT -o FILE`", path);
    return !S_ISDIR(status.st_mode) ? 0 : err_set(err, ERR_INPUT, "%s: is a folder, not a model file; convert the checkpoint "
                                                  "with `moe-convert %s -o FILE`", path, path);
}

static int open_by(struct model **out, const char *path, int (*read)(struct model *model, struct err *err), struct err *err)
{
    struct model *model = mem_alloc(1, sizeof *model, err);
    if (!model)
        return -1;
    model->path = mem_string(path, err);
    if (!model->path || read(model, err)) {
        model_close(&model);
        return -1;
    }
    *out = model;
    return 0;
}

static int read_mapped(struct model *model, struct err *err)
{
    if (refuse_name(model->path, err) || file_map_open(&model->map, model->path, err))
        return -1;
    return read_index(model, err) ? err_at(err, "%s", model->path) : 0;
}

int model_open_any(struct model **out, const char *path, struct err *err) { return open_by(out, path, read_mapped, err); }

/* Reads all tensors except routed experts, adjacent tensors by one read. */
static int read_dense(struct model *model, struct err *err)
{
    uint64_t begin = 0, end = 0;
    for (int i = 0; i < model->layout.count; i++) {
        const struct tensor *tensor = &model->layout.tensors[i];
        if (tensor->role == ROLE_EXPERTS)
            continue;
        if (tensor->offset >= end + MODEL_PAGE) {
            if (resident_read(&model->resident, begin, end - begin, err))
                return -1;
            begin = tensor->offset;
        }
        end = tensor->offset + tensor->bytes;
    }
    return resident_read(&model->resident, begin, end - begin, err);
}

static int read_parts(struct model *model, struct err *err)
{
    struct resident *resident = &model->resident;
    struct model_head head;
    if (refuse_name(model->path, err) || resident_open(resident, model->path, err))
        return -1;
    model->map = (struct file_map){resident->data, resident->bytes};
    if (resident_read(resident, 0, resident->bytes < MODEL_PAGE ? resident->bytes : MODEL_PAGE, err))
        return -1;
    if (model_head_read(&head, resident->data, resident->bytes, err))
        return err_at(err, "%s", model->path);
    if (resident_read(resident, head.index_offset, head.index_bytes, err))
        return -1;
    if (read_index(model, err))
        return err_at(err, "%s", model->path);
    resident_drop(resident, head.index_offset, head.index_bytes);
    return read_dense(model, err);
}

/* Closes the model and fails if the file is not of the requested kind. */
static int check_kind(struct model **address, const char *path, bool head, struct err *err)
{
    const struct model *model = *address;
    if (head == (model_head(model) != NULL))
        return 0;
    if (head)
        err_set(err, ERR_INPUT, "%s: is a model, not a draft head; convert a draft head with `moe-convert head`", path);
    else
        err_set(err, ERR_INPUT, "%s: is a draft head (%s) for %s, not a model; name a model file", path,
                head_kind_name(model->facts.head.kind), model->facts.head.target.name);
    model_close(address);
    return -1;
}

int model_open_dense(struct model **out, const char *path, struct err *err)
{
    struct model *model = NULL;
    if (open_by(&model, path, read_parts, err) || check_kind(&model, path, false, err))
        return -1;
    *out = model;
    return 0;
}

static int open_wanted(struct model **out, const char *path, bool head, struct err *err)
{
    struct model *model = NULL;
    if (model_open_any(&model, path, err) || check_kind(&model, path, head, err))
        return -1;
    *out = model;
    return 0;
}

int model_open(struct model **out, const char *path, struct err *err) { return open_wanted(out, path, false, err); }
int model_open_head(struct model **out, const char *path, struct err *err) { return open_wanted(out, path, true, err); }

void model_close(struct model **address)
{
    struct model *model = *address;
    if (model) {
        if (model->resident.file.path)
            resident_close(&model->resident);
        else
            file_map_close(&model->map);
        layout_free(&model->layout);
        model_facts_free(&model->facts);
        mem_free(&model->path);
    }
    mem_free(address);
}

/* Checks that the bytes between two tensors are zeros: nothing reads them, but other values show that the file is damaged. */
static int check_gap(const struct model *model, uint64_t begin, uint64_t end, struct err *err)
{
    for (uint64_t at = begin; at < end; at++)
        if (model->map.data[at])
            return err_set(err, ERR_INPUT, "%s: byte %llu between tensors is not zero; the file is damaged, so convert again",
                           model->path, (unsigned long long)at);
    return 0;
}

int model_verify(const struct model *model, struct err *err)
{
    uint64_t at = MODEL_PAGE;
    for (int i = 0; i < model->layout.count; i++) {
        const struct tensor *t = &model->layout.tensors[i];
        if (check_gap(model, at, t->offset, err))
            return -1;
        struct digest128 digest = hash_xxh3(model->map.data + t->offset, t->bytes);
        if (digest.low != t->digest.low || digest.high != t->digest.high)
            return err_set(err, ERR_INPUT, "%s: tensor %s: the bytes do not match their digest; the file is damaged, so "
                           "convert again", model->path, t->name);
        at = t->offset + t->bytes;
    }
    return check_gap(model, at, model->data_end, err);
}

const char *model_path(const struct model *model) { return model->path; }
const struct hparams *model_hparams(const struct model *model) { return &model->facts.shape; }

const struct head_params *model_head(const struct model *model)
{
    return model->facts.head.kind != HEAD_NONE ? &model->facts.head : NULL;
}

const struct model_identity *model_identity(const struct model *model) { return &model->identity; }
const struct model_facts *model_facts(const struct model *model) { return &model->facts; }
int model_tensor_count(const struct model *model) { return model->layout.count; }
const struct tensor *model_tensor_at(const struct model *model, int index) { return &model->layout.tensors[index]; }

const struct tensor *model_tensor(const struct model *model, struct err *err, const char *format, ...)
{
    char name[128];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    for (int i = 0; i < model->layout.count; i++)
        if (strcmp(model->layout.tensors[i].name, name) == 0)
            return &model->layout.tensors[i];
    err_set(err, ERR_INPUT, "%s: has no tensor %s", model->path, name);
    return NULL;
}

const struct direct_file *model_file(const struct model *model)
{
    return model->resident.file.path ? &model->resident.file : NULL;
}

int model_bring(const struct model *model, const struct tensor *tensor, struct err *err)
{
    const bool there = !model_file(model) || tensor->role != ROLE_EXPERTS;
    return there ? 0 : resident_read(&model->resident, tensor->offset, tensor->bytes, err);
}

const void *model_data(const struct model *model, const struct tensor *tensor) { return model->map.data + tensor->offset; }

void model_forget(const struct model *model, const struct tensor *tensor)
{
    if (!model->resident.file.path)
        file_map_forget(&model->map, tensor->offset, tensor->bytes);
}

static const char *text_of(const struct text *text, size_t *bytes)
{
    if (bytes)
        *bytes = text->length;
    return text->length ? text->data : NULL;
}

void model_leave_out(const struct model *model, const struct tensor *tensor, int block)
{
    if (!model->resident.file.path)
        file_map_leave_out(&model->map, tensor->offset + (uint64_t)block * tensor->stride, tensor->stride);
}

const char *model_tokenizer_json(const struct model *model, size_t *bytes)
{
    return text_of(&model->facts.tokenizer_json, bytes);
}

const char *model_chat_template(const struct model *model, size_t *bytes)
{
    return text_of(&model->facts.chat_template, bytes);
}
