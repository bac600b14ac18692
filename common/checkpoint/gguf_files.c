/* Finds the files that form one GGUF checkpoint. Large checkpoints are divided into NAME-00001-of-00003.gguf and so on, with
 * the metadata in the first file. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/shard.h"

/* by: the file whose name refers to this one. */
static int add_file(struct checkpoint *cp, const char *folder, const char *name, const char *by, struct err *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s%s", folder, name) >= PATH_MAX)
        return err_set(err, ERR_INPUT, "the path of %.100s is too long; move the folder", name);
    if (strcmp(name, by) && shard_check(path, name, by, err))
        return -1;
    return checkpoint_add_opened(cp, path, name, err);
}

int checkpoint_open_gguf(struct checkpoint *cp, const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char folder[PATH_MAX], other[SOURCE_NAME];
    const size_t first = cp->file_count;
    int number, count;
    if (snprintf(folder, sizeof folder, "%.*s", (int)(name - path), path) >= PATH_MAX || strlen(name) >= SOURCE_NAME)
        return err_set(err, ERR_INPUT, "the path is too long; move the folder");
    if (!(count = text_ends(name, ".gguf") ? shard_count(name, &number) : 0))
        return add_file(cp, folder, name, name, err) || gguf_read_files(cp, first, err) ? -1 : 0;
    for (int i = 1; i <= count; i++) {
        shard_name(other, name, i);
        if (add_file(cp, folder, other, name, err))
            return -1;
    }
    return gguf_read_files(cp, first, err);
}

int gguf_find_file(const char *folder, char found[SOURCE_NAME], struct err *err)
{
    DIR *dir = opendir(folder);
    int others = 0;
    if (!dir)
        return err_errno(err, "cannot be read");
    found[0] = '\0';
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        int number = 1;
        if (length >= SOURCE_NAME || entry->d_name[0] == '.' || !text_ends(entry->d_name, ".gguf"))
            continue;
        if (shard_count(entry->d_name, &number) && number > 1)
            continue;
        others += found[0] != '\0';
        memcpy(found, entry->d_name, length + 1);
    }
    closedir(dir);
    if (others)
        return err_set(err, ERR_INPUT, "contains %d GGUF models; name the file of one", others + 1);
    return 0;
}

/* Reads which one of several files this is: *number from 0. */
static int read_split(const struct gguf *g, size_t files, int64_t *number, struct err *err)
{
    int64_t count = 1;
    *number = 0;
    if (gguf_integer(g, "split.count", false, &count, err) || gguf_integer(g, "split.no", false, number, err))
        return -1;
    count = count ? count : 1;
    if (count < 1 || (uint64_t)count != files)
        return err_set(err, ERR_INPUT, "is one of %lld files of a model, but %s", (long long)count,
                       files == 1 ? "the others are missing; put all into one folder or archive, under their original names "
                       "(-00001-of-00003.gguf)" : "another number of files was found; put only these files into the folder or "
                       "archive");
    if (*number < 0 || *number >= count)
        return err_set(err, ERR_INPUT, "split.no is %lld, but split.count is %lld; the file is damaged", (long long)*number,
                       (long long)count);
    return 0;
}

/* Turns the gates of shared experts into matrices of one row; some files store them as vectors. */
static void widen_rows(struct checkpoint *cp)
{
    for (size_t i = 0; i < cp->tensor_count; i++) {
        struct source_tensor *t = &cp->tensors[i];
        const char *tail = strstr(t->name, "ffn_gate_inp_shexp.weight");
        if (tail && t->dim_count == 1) {
            t->dims[1] = t->dims[0];
            t->dims[0] = 1;
            t->dim_count = 2;
        }
    }
}

static int make_texts(const struct gguf *g, struct checkpoint *cp, struct err *err)
{
    struct gguf_string name = {"", 0};
    widen_rows(cp);
    if (checkpoint_finish(cp, err) || gguf_make_config(g, cp, err) || gguf_make_tokenizer(g, cp, err) ||
        gguf_text(g, "general.name", false, &name, err))
        return -1;
    if (!*cp->name)
        snprintf(cp->name, sizeof cp->name, "%.*s", name.bytes < 63 ? (int)name.bytes : 63, name.data);
    cp->config_name = "the metadata";
    return 0;
}

/* Returns whether the path ends with this file name, so that messages name the file already. */
static bool is_named(const char *path, const char *name)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return path && strcmp(slash ? slash + 1 : path, name) == 0;
}

int gguf_read_files(struct checkpoint *cp, size_t first, struct err *err)
{
    const size_t files = cp->file_count - first;
    struct gguf main = {0};
    bool *seen = mem_alloc(files, sizeof *seen, err);
    int rc = seen ? 0 : -1;
    for (size_t i = 0; i < files && !rc; i++) {
        struct gguf g = {0};
        int64_t number = 0;
        rc = gguf_read(&g, cp, (int)(first + i), err) || read_split(&g, files, &number, err) ? -1 : 0;
        if (!rc && seen[number])
            rc = err_set(err, ERR_INPUT, "has part number %lld, which another file has, too; replace one of the two",
                         (long long)number + 1);
        if (!rc)
            seen[number] = true;
        else if (!is_named(cp->path, cp->files[first + i].name))
            err_at(err, "%s", cp->files[first + i].name);
        if (!rc && number == 0)
            main = g;
        else
            gguf_free(&g);
    }
    if (!rc)
        rc = make_texts(&main, cp, err);
    gguf_free(&main);
    mem_free(&seen);
    return rc;
}
