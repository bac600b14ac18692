#include "common/checkpoint/export_head.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/float.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/checkpoint/tensor_file.h"

/* A tensor of the folder: a part of a tensor of the head, or one derived from its vocabulary map. */
enum entry_kind { ENTRY_PART, ENTRY_OFFSETS, ENTRY_MARKS };

struct entry {
    enum entry_kind kind;
    struct part part;
    const struct tensor *tensor;
    int block;
    const char *dtype;
    size_t element;                 /* bytes of one element */
    uint64_t bytes;
};

struct head_export {
    const struct model *head;
    struct entry *list;
    size_t count, room;
    enum weight_format format;      /* of matrices */
    json_t *config;
    enum tensor_form form;          /* form of the file with the weights */
    const char *weights;            /* its name */
};

/* ---- values ---- */

/* Returns an element of a part, by row and column of the published tensor. */
static float value_at(const struct model *head, const struct entry *entry, int row, int column)
{
    const struct tensor *t = entry->tensor;
    const char *data = (const char *)model_data(head, t) + (size_t)entry->block * t->stride;
    enum weight_format format = t->format;
    if (entry->part.role == PART_GATE)
        return expert_gate_at(format, data, t->outputs, t->inputs, row, column);
    if (entry->part.role == PART_UP)
        return expert_up_at(format, data, t->outputs, t->inputs, row, column);
    if (entry->part.role == PART_DOWN)
        return matrix_at(tensor_last_format(t), data + tensor_last_offset(t), t->inputs, row, column);
    row += entry->part.first;
    if (t->kind == TENSOR_VECTOR) {
        float value;
        memcpy(&value, data + (size_t)row * sizeof value, sizeof value);
        return value;
    }
    if (t->mixed && row >= t->outputs - t->last) {
        data += tensor_last_offset(t);
        row -= t->outputs - t->last;
        format = t->last_format;
    }
    return matrix_at(format, data, t->inputs, row, column);
}

static bool format_holds(enum weight_format format, float value)
{
    const float back = format == FORMAT_BF16 ? bf16_to_f32(f32_to_bf16(value))
                     : format == FORMAT_F16 ? f16_to_f32(f32_to_f16(value)) : value;
    return !memcmp(&back, &value, sizeof back);
}

static void put_value(const struct entry *entry, float value, unsigned char *to)
{
    const uint16_t half = entry->dtype[0] == 'B' ? f32_to_bf16(value) : entry->dtype[0] == 'F' ? f32_to_f16(value) : 0;
    if (entry->element == sizeof half)
        memcpy(to, &half, sizeof half);
    else
        memcpy(to, &value, sizeof value);
}

/* ---- the plan ---- */

static enum weight_format format_of(const struct entry *entry)
{
    const struct tensor *t = entry->tensor;
    const bool last = entry->part.role == PART_DOWN || (t->mixed && t->last && entry->part.first >= t->outputs - t->last);
    return last ? tensor_last_format(t) : t->format;
}

/* Returns the format in which a part is written. Vectors, which are f32 in a head file, are written in the format of the
 * matrices if that is exact for each of their values. */
static enum weight_format format_for(const struct head_export *export, const struct entry *entry)
{
    if (entry->tensor->kind != TENSOR_VECTOR)
        return format_of(entry);
    for (int row = 0; row < entry->part.rows; row++)
        if (!format_holds(export->format, value_at(export->head, entry, row, 0)))
            return FORMAT_F32;
    return export->format;
}

static int set_dtype(const struct head_export *export, struct entry *entry, struct err *err)
{
    const enum weight_format format = format_for(export, entry);
    if (format != FORMAT_F32 && format != FORMAT_F16 && format != FORMAT_BF16)
        return err_set(err, ERR_INPUT, "its weights are stored as %s, which the published programs cannot read; convert the "
                       "head's source with --dtype keep, then export that", format_name(format));
    entry->dtype = format == FORMAT_F32 ? "F32" : format == FORMAT_F16 ? "F16" : "BF16";
    entry->element = format == FORMAT_F32 ? 4 : 2;
    return 0;
}

static int add_entry(struct head_export *export, const struct entry *entry, struct err *err)
{
    if (mem_grow(&export->list, &export->room, export->count + 1, sizeof *export->list, err))
        return -1;
    struct entry *added = &export->list[export->count++];
    *added = *entry;
    added->bytes = entry->element;
    for (int i = 0; i < entry->part.dim_count; i++)
        added->bytes *= (uint64_t)entry->part.dims[i];
    return 0;
}

static int add_map(struct head_export *export, const struct head_params *params, struct err *err)
{
    const struct entry offsets = {.kind = ENTRY_OFFSETS, .dtype = "I64", .element = 8,
                                  .part = {.name = "d2t", .dims = {params->draft_vocab}, .dim_count = 1}};
    const struct entry marks = {.kind = ENTRY_MARKS, .dtype = "BOOL", .element = 1,
                                .part = {.name = "t2d", .dims = {params->target.vocab}, .dim_count = 1}};
    return params->target_id && (add_entry(export, &offsets, err) || add_entry(export, &marks, err)) ? -1 : 0;
}

static int plan_tensors(struct head_export *export, const struct naming *naming, struct err *err)
{
    const struct model *head = export->head;
    for (int i = model_tensor_count(head); i-- > 0;)
        if (model_tensor_at(head, i)->kind != TENSOR_VECTOR)
            export->format = model_tensor_at(head, i)->format;
    for (int i = 0; i < model_tensor_count(head); i++) {
        const struct tensor *t = model_tensor_at(head, i);
        for (int block = 0; block < t->count; block++) {
            struct part parts[PARTS_MAX];
            const int count = arch_parts(naming, model_hparams(head), t, block, parts);
            for (int p = 0; p < count; p++) {
                struct entry entry = {.part = parts[p], .tensor = t, .block = block};
                if (set_dtype(export, &entry, err) || add_entry(export, &entry, err))
                    return -1;
            }
        }
    }
    return add_map(export, model_head(head), err);
}

/* Returns whether blocks differ that are one module in the published program, which runs it several times: all blocks of a
 * Medusa head, those of a Hydra head from the second on. */
static bool blocks_differ(const struct model *head)
{
    const struct head_params *params = model_head(head);
    static const char *const parts[] = {"linear", "bias"};
    const int shared = params->kind == HEAD_MEDUSA ? 0 : 1;
    for (int i = 0; i < params->heads; i++)
        for (int block = shared + 1; block < params->blocks; block++)
            for (int part = 0; part < 2; part++) {
                const struct tensor *first = model_tensor(head, NULL, "heads.%d.blocks.%d.%s", i, shared, parts[part]);
                const struct tensor *other = model_tensor(head, NULL, "heads.%d.blocks.%d.%s", i, block, parts[part]);
                if (first && other && memcmp(model_data(head, first), model_data(head, other), first->stride))
                    return true;
            }
    return false;
}

/* File that each program's loader opens: EAGLE's and Jakiro's look for pytorch_model.bin first; Medusa's, Hydra's and
 * Kangaroo's only read their pickle; speculators are models of transformers. */
static const struct { enum tensor_form form; const char *torch, *safetensors; } files[PROGRAMS] = {
    [PROGRAM_EAGLE] = {TENSORS_TORCH, "pytorch_model.bin", "model.safetensors"},
    [PROGRAM_SPECULATORS] = {TENSORS_SAFETENSORS, "pytorch_model.bin", "model.safetensors"},
    [PROGRAM_MEDUSA] = {TENSORS_TORCH, "medusa_lm_head.pt", "medusa_lm_head.safetensors"},
    [PROGRAM_HYDRA] = {TENSORS_TORCH, "hydra_lm_head.pt", "hydra_lm_head.safetensors"},
    [PROGRAM_KANGAROO] = {TENSORS_TORCH, "pytorch_model.bin", "model.safetensors"},
    [PROGRAM_JAKIRO] = {TENSORS_TORCH, "pytorch_model.bin", "model.safetensors"}};

int head_export_open(struct head_export **out, const struct model *head, const struct head_export_request *request,
                     struct text *note, struct err *err)
{
    const enum head_program program = request->program;
    const struct naming *naming;
    struct head_export *export = mem_alloc(1, sizeof *export, err);
    if (!export)
        return -1;
    export->head = head;
    export->form = request->safetensors ? TENSORS_SAFETENSORS : files[program].form;
    export->weights = export->form == TENSORS_TORCH ? files[program].torch : files[program].safetensors;
    if (head_publish(&naming, &export->config, model_head(head), model_hparams(head), program, note, err) ||
        plan_tensors(export, naming, err) ||
        (blocks_differ(head) && text_printf(note, err, "its own program has these blocks as one, run several times, and would "
                                            "take the last for each\n"))) {
        head_export_close(&export);
        return -1;
    }
    *out = export;
    return 0;
}

void head_export_close(struct head_export **export)
{
    if (*export) {
        mem_free(&(*export)->list);
        json_decref((*export)->config);
    }
    mem_free(export);
}

int head_export_print(const struct head_export *export, struct text *out, struct err *err)
{
    for (size_t i = 0; i < export->count; i++) {
        const struct entry *entry = &export->list[i];
        if (text_printf(out, err, "%s %s ", entry->part.name, entry->dtype))
            return -1;
        for (int d = 0; d < entry->part.dim_count; d++)
            if (text_printf(out, err, "[%lld]", (long long)entry->part.dims[d]))
                return -1;
        if (text_putc(out, '\n', err))
            return -1;
    }
    return 0;
}

/* ---- the files ---- */

static void put_i64(int64_t value, unsigned char *to)
{
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)((uint64_t)value >> 8 * i);
}

/* Writes d2t or t2d. d2t contains offsets: draft id i is the target's id i + d2t[i]. t2d marks these target ids. */
static void put_map(const struct head_params *params, enum entry_kind kind, unsigned char *to)
{
    for (int i = 0; i < params->draft_vocab; i++) {
        if (kind == ENTRY_OFFSETS)
            put_i64((int64_t)params->target_id[i] - i, to + (size_t)i * 8);
        else
            to[params->target_id[i]] = 1;
    }
}

static int write_entry(struct tensor_file *out, const struct head_export *export, const struct entry *entry, struct err *err)
{
    const bool map = entry->kind != ENTRY_PART;
    const size_t columns = map ? 1 : (size_t)entry->part.columns, row = map ? (size_t)entry->bytes : columns * entry->element;
    unsigned char *bytes = mem_alloc(row, 1, err);
    int rc = bytes ? 0 : -1;
    if (!rc && map) {
        put_map(model_head(export->head), entry->kind, bytes);
        rc = tensor_file_put(out, bytes, row, err);
    }
    for (int r = 0; !rc && !map && r < entry->part.rows; r++) {
        for (size_t c = 0; c < columns; c++)
            put_value(entry, value_at(export->head, entry, r, (int)c), bytes + c * entry->element);
        rc = tensor_file_put(out, bytes, row, err);
    }
    mem_free(&bytes);
    return rc;
}

static int write_weights(const struct head_export *export, const char *path, struct err *err)
{
    struct named_tensor *list = mem_alloc(export->count, sizeof *list, err);
    struct tensor_file *out = NULL;
    if (!list)
        return -1;
    for (size_t i = 0; i < export->count; i++) {
        const struct entry *e = &export->list[i];
        list[i] = (struct named_tensor){e->part.name, e->dtype, e->part.dims, e->part.dim_count, e->bytes};
    }
    int rc = tensor_file_open(&out, path, export->form, list, export->count, err);
    for (size_t i = 0; !rc && i < export->count; i++)
        rc = write_entry(out, export, &export->list[i], err);
    rc = rc || tensor_file_commit(&out, err) ? -1 : 0;
    tensor_file_discard(&out);
    mem_free(&list);
    return rc;
}

static int write_config(const struct head_export *export, const char *path, struct err *err)
{
    const char *name = export->format == FORMAT_F32 ? "float32" : export->format == FORMAT_F16 ? "float16" : "bfloat16";
    json_t *config = json_copy(export->config);
    int rc = !config || json_object_set_new(config, "torch_dtype", json_string(name))
                 ? err_memory(err) : json_write(path, config, JSON_INDENT(1) | JSON_PRESERVE_ORDER, err);
    json_decref(config);
    return rc;
}

static int path_in(struct text *out, const char *folder, const char *name, struct err *err)
{
    text_clear(out);
    return text_printf(out, err, "%s/%s", folder, name);
}

/* Writes both files to a temporary folder, which is renamed afterwards. */
static int write_folder(const struct head_export *export, const char *temporary, const char *folder, struct err *err)
{
    struct text weights = {0}, config = {0};
    int rc = path_in(&weights, temporary, export->weights, err) || path_in(&config, temporary, "config.json", err) ? -1 : 0;
    if (!rc && mkdir(temporary, 0777)) {
        rc = err_set(err, ERR_IO, "%s: this folder cannot be made: %s", temporary, strerror(errno));
    } else if (!rc) {
        rc = write_weights(export, weights.data, err) || write_config(export, config.data, err) ? -1 : 0;
        if (!rc && rename(temporary, folder))
            rc = err_set(err, ERR_IO, "%s: %s", folder, errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR
                         ? "already exists; remove it, or name another folder" : strerror(errno));
        if (rc) {
            unlink(weights.data);
            unlink(config.data);
            rmdir(temporary);
        }
    }
    text_free(&weights);
    text_free(&config);
    return rc;
}

int head_export_write(const struct head_export *export, const char *folder, struct err *err)
{
    struct text name = {0}, temporary = {0};
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    int rc = text_put(&name, folder, length, err) ||
             text_printf(&temporary, err, "%.*s.tmp.%ld", (int)length, folder, (long)getpid()) ||
             write_folder(export, temporary.data, name.data, err) ? -1 : 0;
    text_free(&name);
    text_free(&temporary);
    return rc;
}
