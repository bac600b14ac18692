/* Checkpoints on disk: a folder, or one file with its texts beside it. */
#include "common/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/arch/config.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/checkpoint/safetensors.h"

static int join(char out[PATH_MAX], const char *folder, const char *name, struct err *err)
{
    if (snprintf(out, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return err_set(err, ERR_INPUT, "the name of %.100s is too long", name);
    return 0;
}

static int read_texts(struct checkpoint *cp, const char *folder, struct err *err)
{
    for (int i = 0; i < TEXT_COUNT; i++) {
        char path[PATH_MAX];
        struct text text = {0};
        if (join(path, folder, source_text_kinds[i].name, err))
            return -1;
        if (access(path, F_OK) && errno == ENOENT)
            continue;
        int rc = file_read(&text, path, source_text_kinds[i].limit, err);
        if (!rc)
            rc = checkpoint_add_text(cp, (enum source_text)i, text.data, text.length, err);
        text_free(&text);
        if (rc)
            return -1;
    }
    return 0;
}

static int read_header(struct checkpoint *cp, int index, struct err *err)
{
    struct source_file *file = &cp->files[index];
    struct source_tensor whole = {.file = index};
    uint8_t prefix[SAFETENSORS_PREFIX] = {0};
    uint64_t data_bytes;
    size_t bytes;
    int rc = -1;
    char *header = NULL;
    if ((file->bytes >= sizeof prefix && checkpoint_read(cp, &whole, 0, prefix, sizeof prefix, err)) ||
        safetensors_header_bytes(prefix, file->bytes, &bytes, err) || !(header = mem_alloc(bytes, 1, err)) ||
        checkpoint_read(cp, &whole, sizeof prefix, header, bytes, err) ||
        safetensors_parse(cp, index, header, bytes, &data_bytes, err))
        goto done;
    if (data_bytes != file->bytes - sizeof prefix - bytes) {
        err_set(err, ERR_INPUT, "its tensors need %llu bytes of data, but %llu follow the header; it is cut off or damaged",
                (unsigned long long)data_bytes, (unsigned long long)(file->bytes - sizeof prefix - bytes));
        goto done;
    }
    rc = 0;
done:
    mem_free(&header);
    return rc;
}

static int add_weights(struct checkpoint *cp, const char *folder, const char *name, struct err *err)
{
    char path[PATH_MAX];
    struct stat status;
    struct source_file *file = checkpoint_add_file(cp, name, err);
    if (!file || join(path, folder, name, err))
        return -1;
    file->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (file->fd < 0 || fstat(file->fd, &status)) {
        err_errno(err, "cannot be read");
        return err_at(err, "%s", name);
    }
    if (!S_ISREG(status.st_mode)) {
        err_set(err, ERR_INPUT, "is not a regular file");
        return err_at(err, "%s", name);
    }
    file->bytes = (uint64_t)status.st_size;
    return read_header(cp, (int)cp->file_count - 1, err) ? err_at(err, "%s", name) : 0;
}

/* All shards that the index names. A name with a slash could lead anywhere. */
static int add_shards(struct checkpoint *cp, const char *folder, struct err *err)
{
    json_t *index = NULL;
    const json_t *file, *map;
    const char *tensor;
    int rc = -1;
    if (config_parse(&index, cp->texts[TEXT_INDEX].data, cp->texts[TEXT_INDEX].length, err)) {
        err_at(err, "%s", source_text_kinds[TEXT_INDEX].name);
        goto done;
    }
    map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || !json_object_size(map)) {
        err_set(err, ERR_INPUT, "%s: has no weight_map", source_text_kinds[TEXT_INDEX].name);
        goto done;
    }
    json_object_foreach((json_t *)(uintptr_t)map, tensor, file) {
        const char *name = json_is_string(file) ? json_string_value(file) : "";
        bool known = false;
        if (!*name || strchr(name, '/')) {
            err_set(err, ERR_INPUT, "%s: tensor %.200s: \"%.200s\" is not the name of a file beside it",
                    source_text_kinds[TEXT_INDEX].name, tensor, name);
            goto done;
        }
        for (size_t i = 0; i < cp->file_count && !known; i++)
            known = strcmp(cp->files[i].name, name) == 0;
        if (!known && add_weights(cp, folder, name, err))
            goto done;
    }
    rc = 0;
done:
    json_decref(index);
    return rc;
}

/* The one file of weights in a folder without an index. */
static int find_weights(const char *folder, char found[SOURCE_NAME], struct err *err)
{
    DIR *dir = opendir(folder);
    int count = 0;
    if (!dir)
        return err_errno(err, "cannot be read");
    found[0] = '\0';
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        if (length < 12 || length >= SOURCE_NAME || strcmp(entry->d_name + length - 12, ".safetensors"))
            continue;
        bool usual = strcmp(entry->d_name, "model.safetensors") == 0;
        count++;
        memcpy(found, entry->d_name, length + 1);
        if (usual) {
            count = 1;
            break;
        }
    }
    closedir(dir);
    if (count == 0)
        return err_set(err, ERR_INPUT, "has no .safetensors file; other formats of weights are not supported");
    if (count > 1)
        return err_set(err, ERR_INPUT, "has %d .safetensors files and no %s; name one of them", count,
                       source_text_kinds[TEXT_INDEX].name);
    return 0;
}

int checkpoint_open_folder(struct checkpoint *cp, const char *folder, struct err *err)
{
    char name[SOURCE_NAME];
    if (read_texts(cp, folder, err))
        return -1;
    if (cp->texts[TEXT_INDEX].length)
        return add_shards(cp, folder, err);
    return find_weights(folder, name, err) || add_weights(cp, folder, name, err) ? -1 : 0;
}

int checkpoint_open_safetensors(struct checkpoint *cp, const char *file, struct err *err)
{
    const char *slash = strrchr(file, '/');
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - file) : 1, slash ? file : ".") >= PATH_MAX)
        return err_set(err, ERR_INPUT, "the name is too long");
    if (read_texts(cp, *folder ? folder : "/", err))
        return -1;
    text_free(&cp->texts[TEXT_INDEX]);          /* the file was named: an index beside it is of something else */
    for (size_t i = 0; i < cp->file_count; i++)
        if (source_text_of(cp->files[i].name) == TEXT_INDEX)
            cp->files[i] = cp->files[--cp->file_count];
    return add_weights(cp, *folder ? folder : "/", slash ? slash + 1 : file, err);
}
