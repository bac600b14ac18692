/* An open checkpoint (open.c): its texts, files, shards named by the index, and tensors sorted by name. */
#include "common/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/json_walk.h"
#include "common/base/mem.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/shard.h"
#include "common/checkpoint/torch.h"

/* An empty file is left when a disk was full or a download was interrupted. It is an error, not a missing text: otherwise
 * the model would silently lose its tokenizer. An empty chat template is valid; an empty config.json is found where it
 * is parsed. */
const struct source_text_kind source_text_kinds[TEXT_COUNT] = {
    [TEXT_CONFIG] = {"config.json", 4u << 20, true},
    [TEXT_GENERATION] = {"generation_config.json", 1u << 20},
    [TEXT_TOKENIZER] = {"tokenizer.json", 128u << 20},
    [TEXT_TOKENIZER_MODEL] = {"tokenizer.model", 64u << 20},
    [TEXT_TOKENIZER_CONFIG] = {"tokenizer_config.json", 8u << 20},
    [TEXT_CHAT_TEMPLATE] = {"chat_template.jinja", 4u << 20, true},
    [TEXT_INDEX] = {"model.safetensors.index.json", 64u << 20},
    [TEXT_TORCH_INDEX] = {"pytorch_model.bin.index.json", 64u << 20},
    [TEXT_TIKTOKEN] = {"tiktoken.model", 64u << 20},
    [TEXT_TIKTOKEN_HUNYUAN] = {"hy.tiktoken", 64u << 20},
};

enum source_text checkpoint_index(const struct checkpoint *cp) { return cp->torch ? TEXT_TORCH_INDEX : TEXT_INDEX; }

int source_text_of(const char *name)
{
    for (int i = 0; i < TEXT_COUNT; i++)
        if (strcmp(source_text_kinds[i].name, name) == 0)
            return i;
    return -1;
}

static void source_tensor_clear(struct source_tensor *tensor)
{
    for (int i = 0; i < tensor->part_count; i++)
        mem_free(&tensor->parts[i].name);
    mem_free(&tensor->parts);
    mem_free(&tensor->name);
}

void checkpoint_close(struct checkpoint **address)
{
    struct checkpoint *cp = *address;
    if (cp) {
        for (size_t i = 0; i < cp->file_count; i++) {
            int fd = cp->files[i].fd;
            if (fd < 0)
                continue;
            close(fd);
            for (size_t k = i; k < cp->file_count; k++)
                if (cp->files[k].fd == fd)
                    cp->files[k].fd = -1;
        }
        for (size_t i = 0; i < cp->tensor_count; i++)
            source_tensor_clear(&cp->tensors[i]);
        for (int i = 0; i < TEXT_COUNT; i++)
            text_free(&cp->texts[i]);
        mem_free(&cp->files);
        mem_free(&cp->tensors);
        mem_free(&cp->path);
    }
    mem_free(address);
}

struct source_file *checkpoint_add_file(struct checkpoint *cp, const char *name, struct err *err)
{
    if (strlen(name) >= SOURCE_NAME) {
        err_set(err, ERR_INPUT, "the name of a file has more than %d bytes; rename it", SOURCE_NAME - 1);
        return NULL;
    }
    if (mem_grow(&cp->files, &cp->file_room, cp->file_count + 1, sizeof *cp->files, err))
        return NULL;
    struct source_file *file = &cp->files[cp->file_count++];
    *file = (struct source_file){.fd = -1};
    memcpy(file->name, name, strlen(name) + 1);
    return file;
}

int checkpoint_add_opened(struct checkpoint *cp, const char *path, const char *name, struct err *err)
{
    struct stat status;
    struct source_file *file = checkpoint_add_file(cp, name, err);
    if (!file)
        return -1;
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &status)) {
        err_errno(err, "cannot be read");
        return err_at(err, "%s", name);
    }
    if (!S_ISREG(status.st_mode)) {
        err_set(err, ERR_INPUT, "is not a regular file; name a file on disk");
        return err_at(err, "%s", name);
    }
    char first[64];
    const ssize_t got = pread(file->fd, first, sizeof first, 0);
    if (got > 0 && file_is_pointer(first, (size_t)got)) {
        err_set(err, ERR_INPUT, FILE_POINTER_FAULT);
        return err_at(err, "%s", name);
    }
    file->bytes = (uint64_t)status.st_size;
    file->identity = file_identify_descriptor(file->fd);
    return 0;
}

int checkpoint_add_text(struct checkpoint *cp, enum source_text which, const char *text, size_t bytes, struct err *err)
{
    if (!bytes && !source_text_kinds[which].may_be_empty)
        return err_set(err, ERR_INPUT, "%s is empty; download it again, or remove it if the checkpoint has none",
                       source_text_kinds[which].name);
    if (file_is_pointer(text, bytes))
        return err_set(err, ERR_INPUT, "%s " FILE_POINTER_FAULT, source_text_kinds[which].name);
    struct source_file *file = checkpoint_add_file(cp, source_text_kinds[which].name, err);
    if (!file || text_put(&cp->texts[which], text, bytes, err) || hash_sha256(text, bytes, &file->digest, err))
        return -1;
    file->bytes = bytes;
    file->digested = true;
    return 0;
}

void checkpoint_drop_text(struct checkpoint *cp, enum source_text which)
{
    text_free(&cp->texts[which]);
    for (size_t i = cp->file_count; i-- > 0;)
        if (source_text_of(cp->files[i].name) == (int)which)
            cp->files[i] = cp->files[--cp->file_count];
}

/* ---- reading ---- */

static int read_at(const struct source_file *file, uint64_t offset, void *data, size_t bytes, struct err *err)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file->fd, (char *)data + done, bytes - done, (off_t)(file->base + offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno(err, "%s", file->name);
        if (got == 0)
            return err_set(err, ERR_INPUT, "%s: ended at byte %llu while it was read; it was truncated meanwhile", file->name,
                           (unsigned long long)(offset + done));
        done += (size_t)got;
    }
    return 0;
}

int checkpoint_read(const struct checkpoint *cp, const struct source_tensor *tensor, uint64_t offset, void *data, size_t bytes,
                    struct err *err)
{
    return read_at(&cp->files[tensor->file], tensor->offset + offset, data, bytes, err);
}

int checkpoint_read_header(struct checkpoint *cp, int index, struct err *err)
{
    struct source_file *file = &cp->files[index];
    struct source_tensor whole = {.file = index};
    uint8_t prefix[SAFETENSORS_PREFIX] = {0};
    uint64_t data_bytes;
    size_t bytes;
    int rc = -1;
    char *header = NULL;
    if (!text_ends(file->name, ".safetensors"))
        return torch_read_header(cp, index, err);
    if ((file->bytes >= sizeof prefix && checkpoint_read(cp, &whole, 0, prefix, sizeof prefix, err)) ||
        safetensors_header_bytes(prefix, file->bytes, &bytes, err) || !(header = mem_alloc(bytes, 1, err)) ||
        checkpoint_read(cp, &whole, sizeof prefix, header, bytes, err) ||
        safetensors_parse(cp, index, header, bytes, &data_bytes, err))
        goto done;
    if (data_bytes != file->bytes - sizeof prefix - bytes) {
        err_set(err, ERR_INPUT, "its header declares %llu bytes of tensors, but the file contains %llu; it is truncated or "
                "damaged",
                (unsigned long long)data_bytes, (unsigned long long)(file->bytes - sizeof prefix - bytes));
        goto done;
    }
    rc = 0;
done:
    mem_free(&header);
    return rc;
}

/* Finds the index's object "weight_map", which maps tensor names to file names. */
static int index_map(const struct checkpoint *cp, struct json_part *map, struct err *err)
{
    static const char *const names[] = {"weight_map"};
    const struct text *text = &cp->texts[checkpoint_index(cp)];
    struct json_part whole;
    json_t *rest = NULL;
    if (json_whole(&whole, text->length ? text->data : "", text->length, err))
        return -1;
    if (!json_part_is(whole, '{'))
        return err_set(err, ERR_INPUT, "must be one JSON object");
    if (json_split(whole, names, 1, map, &rest, err))
        return -1;
    json_decref(rest);
    return json_part_is(*map, '{') ? 0 : err_set(err, ERR_INPUT, "has no \"weight_map\", which lists the tensors; download it "
                                                 "again");
}

/* Reads one entry of the weight map: a tensor name and its file name. `file` stays empty if the value is not a string. */
static int index_entry(const struct json_walk *walk, struct text *tensor, struct text *file, struct err *err)
{
    if (json_part_string(walk->key, tensor, err))
        return -1;
    text_clear(file);
    return json_part_is(walk->value, '"') ? json_part_string(walk->value, file, err) : text_puts(file, "", err);
}

/* Returns the index of a name in a sorted list, or the index at which to insert it (binary search). */
static size_t index_of(char *const *names, size_t count, const char *name)
{
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        if (strcmp(names[middle], name) < 0)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

static int take_shard(char ***names, size_t *count, size_t *room, const char *tensor, const char *name, struct err *err)
{
    if (!*name || strchr(name, '/') || strlen(name) >= SOURCE_NAME)
        return err_set(err, ERR_INPUT, "tensor %.200s: \"%.200s\" is not the name of a file in the same folder; the index is "
                       "damaged", tensor, name);
    const size_t index = index_of(*names, *count, name);
    if (index < *count && strcmp((*names)[index], name) == 0)
        return 0;
    if (*count == SHARDS_MAX)
        return err_set(err, ERR_INPUT, "names more than %d files; the index is damaged", SHARDS_MAX);
    char *copy = mem_string(name, err);
    if (!copy || mem_grow(names, room, *count + 1, sizeof **names, err)) {
        mem_free(&copy);
        return -1;
    }
    memmove(*names + index + 1, *names + index, (*count - index) * sizeof **names);
    (*names)[index] = copy;
    ++*count;
    return 0;
}

int checkpoint_shards(const struct checkpoint *cp, char ***names, size_t *count, struct err *err)
{
    struct json_part map;
    struct json_walk walk;
    struct text tensor = {0}, file = {0};
    size_t room = 0;
    int more = index_map(cp, &map, err) ? -1 : 1;
    if (more > 0)
        json_walk_start(&walk, map);
    while (more > 0 && (more = json_walk_next(&walk, err)) > 0)
        if (index_entry(&walk, &tensor, &file, err) ||
            take_shard(names, count, &room, tensor.data, file.data, err))
            more = -1;
    if (!more && !*count)
        more = err_set(err, ERR_INPUT, "has no \"weight_map\", which lists the tensors; download it again");
    text_free(&tensor);
    text_free(&file);
    return more ? err_at(err, "%s", source_text_kinds[checkpoint_index(cp)].name) : 0;
}

static int by_name(const void *a, const void *b)
{
    const struct source_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int compare_name(const void *key, const void *element)
{
    const struct source_tensor *tensor = element;
    return strcmp(key, tensor->name);
}

int source_by_offset(const void *a, const void *b)
{
    const struct source_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

struct source_tensor *checkpoint_find(const struct checkpoint *cp, const char *name)
{
    return cp->tensor_count ? bsearch(name, cp->tensors, cp->tensor_count, sizeof *cp->tensors, compare_name) : NULL;
}

static int check_index(const struct checkpoint *cp, struct err *err)
{
    struct json_part map;
    struct json_walk walk;
    struct text name = {0}, file = {0};
    if (!cp->texts[checkpoint_index(cp)].length)
        return 0;
    int more = index_map(cp, &map, err) ? -1 : 1;
    if (more > 0)
        json_walk_start(&walk, map);
    while (more > 0 && (more = json_walk_next(&walk, err)) > 0) {
        if (index_entry(&walk, &name, &file, err)) {
            more = -1;
            continue;
        }
        const struct source_tensor *tensor = checkpoint_find(cp, name.data);
        if (!tensor || strcmp(cp->files[tensor->file].name, file.data))
            more = err_set(err, ERR_INPUT, "tensor %.200s should be in %.200s, but is %s%s; download the checkpoint again",
                           name.data, file.data,
                           tensor ? "in " : "nowhere", tensor ? cp->files[tensor->file].name : "");
    }
    text_free(&name);
    text_free(&file);
    return more ? err_at(err, "%s", source_text_kinds[checkpoint_index(cp)].name) : 0;
}

int checkpoint_sort(struct checkpoint *cp, struct err *err)
{
    if (cp->tensor_count)
        qsort(cp->tensors, cp->tensor_count, sizeof *cp->tensors, by_name);
    for (size_t i = 1; i < cp->tensor_count; i++)
        if (strcmp(cp->tensors[i - 1].name, cp->tensors[i].name) == 0)
            return err_set(err, ERR_INPUT, "tensor %.200s is in %s and in %s; keep one of the two",
                           cp->tensors[i].name,
                           cp->files[cp->tensors[i - 1].file].name, cp->files[cp->tensors[i].file].name);
    return 0;
}

int checkpoint_finish(struct checkpoint *cp, struct err *err)
{
    return checkpoint_sort(cp, err) || check_index(cp, err) ? -1 : 0;
}
