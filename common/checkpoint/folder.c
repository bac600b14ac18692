/* Opens checkpoints on disk: a folder, or one file with its texts in the same folder. */
#include "common/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/shard.h"
#include "common/checkpoint/torch.h"

static int join(char out[PATH_MAX], const char *folder, const char *name, struct err *err)
{
    if (snprintf(out, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return err_set(err, ERR_INPUT, "the path of %.100s is too long; move the folder", name);
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
        if (!rc)
            cp->files[cp->file_count - 1].identity = file_identify(path);
        text_free(&text);
        if (rc)
            return -1;
    }
    return 0;
}

static int add_weights(struct checkpoint *cp, const char *folder, const char *name, struct err *err)
{
    char path[PATH_MAX];
    if (join(path, folder, name, err) || checkpoint_add_opened(cp, path, name, err))
        return -1;
    return checkpoint_read_header(cp, (int)cp->file_count - 1, err) ? err_at(err, "%s", name) : 0;
}

/* Adds one shard. by: the file whose text or name refers to this shard, for messages. */
static int add_shard(struct checkpoint *cp, const char *folder, const char *name, const char *by, struct err *err)
{
    char path[PATH_MAX];
    if (join(path, folder, name, err) || shard_check(path, name, by, err))
        return -1;
    return add_weights(cp, folder, name, err);
}

/* Adds one weight file, or all shards of the set to which its name belongs. */
static int add_named(struct checkpoint *cp, const char *folder, const char *name, struct err *err)
{
    char shard[SOURCE_NAME];
    int number, count = shard_count(name, &number), rc = 0;
    if (!count)
        return add_weights(cp, folder, name, err);
    for (int i = 1; i <= count && !rc; i++) {
        shard_name(shard, name, i);
        rc = add_shard(cp, folder, shard, name, err);
    }
    return rc;
}

static int add_shards(struct checkpoint *cp, const char *folder, struct err *err)
{
    char **names = NULL;
    size_t count = 0;
    int rc = checkpoint_shards(cp, &names, &count, err);
    for (size_t i = 0; i < count; i++) {
        if (!rc)
            rc = add_shard(cp, folder, names[i], source_text_kinds[checkpoint_index(cp)].name, err);
        mem_free(&names[i]);
    }
    mem_free(&names);
    return rc;
}

/* Finds the only .safetensors file of a folder without index, or the first shard if all .safetensors files are one set;
 * `found` stays empty if there is none. If the folder has other weights, only the usual name is accepted. */
static int find_weights(const char *folder, bool others, char found[SOURCE_NAME], struct err *err)
{
    struct shard_search search = {.begin = "", .ending = ".safetensors"};
    DIR *dir = opendir(folder);
    int count = 0;
    if (!dir)
        return err_errno(err, "cannot be read");
    found[0] = '\0';
    for (struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        if (length >= SOURCE_NAME || !text_ends(entry->d_name, ".safetensors"))
            continue;
        bool usual = strcmp(entry->d_name, "model.safetensors") == 0;
        if (others && !usual)
            continue;
        count++;
        shard_offer(&search, entry->d_name);
        memcpy(found, entry->d_name, length + 1);
        if (usual) {
            count = 1;
            break;
        }
    }
    closedir(dir);
    if (count > 1 && (search.others || !*search.first))
        return err_set(err, ERR_INPUT, "has %d .safetensors files, but no %s that lists their tensors; name one of the files, "
                       "or add the list", count,
                       source_text_kinds[TEXT_INDEX].name);
    return 0;
}

/* Finds a file of weights whose name has what download programs append until the download has ended. */
static bool find_unfinished(const char *folder, char found[SOURCE_NAME])
{
    static const char *const endings[] = {".incomplete", ".part", ".partial", ".aria2", ".crdownload", ".download", ".tmp"};
    static const char *const weights[] = {".safetensors", ".gguf", ".bin"};
    DIR *dir = opendir(folder);
    found[0] = '\0';
    for (struct dirent *entry; dir && !*found && (entry = readdir(dir));)
        for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
            for (size_t w = 0; w < sizeof weights / sizeof *weights; w++)
                if (text_ends(entry->d_name, endings[i]) && strstr(entry->d_name, weights[w]) &&
                    strlen(entry->d_name) < SOURCE_NAME)
                    memcpy(found, entry->d_name, strlen(entry->d_name) + 1);
    if (dir)
        closedir(dir);
    return *found;
}

/* Opens the .gguf files of a folder. The texts of the folder are used, except config.json, which often belongs to something
 * else. */
static int open_gguf(struct checkpoint *cp, const char *folder, struct err *err)
{
    char name[SOURCE_NAME], path[PATH_MAX];
    if (gguf_find_file(folder, name, err))
        return -1;
    if (!*name && find_unfinished(folder, name))
        return err_set(err, ERR_INPUT, "%s is a download that has not ended, and no other weights are here; end it", name);
    if (!*name)
        return err_set(err, ERR_INPUT, "has no .safetensors, " TORCH_NAME " or .gguf file; other formats of weights are not "
                       "supported");
    checkpoint_drop_text(cp, TEXT_CONFIG);
    return join(path, folder, name, err) || checkpoint_open_gguf(cp, path, err) ? -1 : 0;
}

/* Finds the first of several torch.save files without index whose names are one set; `found` stays empty if there is none. */
static int find_torch_shard(const char *folder, char found[SOURCE_NAME], struct err *err)
{
    struct shard_search search = {.begin = "pytorch_model", .ending = ".bin"};
    DIR *dir = opendir(folder);
    if (!dir)
        return err_errno(err, "cannot be read");
    for (struct dirent *entry; (entry = readdir(dir));)
        shard_offer(&search, entry->d_name);
    closedir(dir);
    memcpy(found, search.others ? "" : search.first, search.others ? 1 : SOURCE_NAME);
    return 0;
}

/* Finds the first weight file with one of PyTorch's usual names; `found` stays empty if there is none. */
static int find_torch(const char *folder, char found[SOURCE_NAME], struct err *err)
{
    char path[PATH_MAX];
    found[0] = '\0';
    for (int i = 0; i < TORCH_NAMES && !*found; i++) {
        if (join(path, folder, torch_names[i], err))
            return -1;
        if (access(path, F_OK) == 0)
            memcpy(found, torch_names[i], strlen(torch_names[i]) + 1);
    }
    return 0;
}

/* Opens a folder by the usual names of weight files. A .safetensors file of another name is used only if no file has a usual
 * name: beside a pytorch_model.bin it would be something else. */
int checkpoint_open_folder(struct checkpoint *cp, const char *folder, struct err *err)
{
    char name[SOURCE_NAME] = "", torch[SOURCE_NAME];
    if (read_texts(cp, folder, err) || find_torch(folder, torch, err))
        return -1;
    if (!cp->torch && !cp->texts[TEXT_INDEX].length) {
        if (find_weights(folder, *torch || cp->texts[TEXT_TORCH_INDEX].length, name, err))
            return -1;
        cp->torch = !*name;
        if (cp->torch && !*torch && find_torch_shard(folder, torch, err))
            return -1;
    }
    checkpoint_drop_text(cp, cp->torch ? TEXT_INDEX : TEXT_TORCH_INDEX);
    if (cp->texts[checkpoint_index(cp)].length)
        return add_shards(cp, folder, err);
    if (*name)
        return add_named(cp, folder, name, err);
    return *torch ? add_named(cp, folder, torch, err) : open_gguf(cp, folder, err);
}

int checkpoint_open_weights(struct checkpoint *cp, const char *file, struct err *err)
{
    const char *slash = strrchr(file, '/');
    char folder[PATH_MAX];
    if (snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - file) : 1, slash ? file : ".") >= PATH_MAX)
        return err_set(err, ERR_INPUT, "the path is too long; move the folder");
    if (read_texts(cp, *folder ? folder : "/", err))
        return -1;
    checkpoint_drop_text(cp, TEXT_TORCH_INDEX);
    checkpoint_drop_text(cp, TEXT_INDEX);       /* the user named the file; an index in its folder is not its own */
    return add_named(cp, *folder ? folder : "/", slash ? slash + 1 : file, err);
}
