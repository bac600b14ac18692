/* Chooses the reader for a path (a folder, weight file, index, GGUF file or archive) and names the checkpoint. */
#include "common/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/joint.h"
#include "common/checkpoint/shard.h"
#include "common/checkpoint/torch.h"
#include "common/model/model_index.h"
#include "common/stream/frame.h"

/* Writes the last component of a path, without the given ending, as the model's name. */
static void set_model_name(char out[64], const char *path)
{
    char resolved[PATH_MAX];
    const char *full = realpath(path, resolved) ? resolved : path, *slash = strrchr(full, '/');
    const char *dot = strrchr(full, '.'), *last = slash ? slash + 1 : full;
    int number, length = shard_count(last, &number) ? (int)(dot - last) - SHARD_PART : (int)strlen(last);
    snprintf(out, 64, "%.*s", length, last);
    static const char *const endings[] = {
        ".safetensors", ".bin", ".gguf", ".zip", ".gz", ".zst", ".xz", ".bz2", ".tgz", ".tar"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t rest = strlen(out), ending = strlen(endings[i]);
        if (rest > ending && strcmp(out + rest - ending, endings[i]) == 0)
            out[rest - ending] = '\0';
    }
}

/* Rejects a path to one text of a checkpoint, or to prompts: the user meant its folder. */
static int refuse_text(const char *path, struct err *err)
{
    const char *slash = strrchr(path, '/');
    char config[PATH_MAX];
    const int folder = slash ? (int)(slash - path) : 1;
    snprintf(config, sizeof config, "%.*s/%s", folder, slash ? path : ".", source_text_kinds[TEXT_CONFIG].name);
    if (access(config, F_OK))
        return err_set(err, ERR_INPUT, "is a text file, not a checkpoint; name the folder that contains config.json and the "
                       "weights");
    return err_set(err, ERR_INPUT, "is a text file of a checkpoint; name its folder: %.*s", folder, slash ? path : ".");
}

/* Opens by file name where the ending is known, else by the first bytes. An index file is opened through its folder. */
static int open_named(struct checkpoint *cp, const char *path, const char *beside, struct err *err)
{
    struct stat status;
    if (strcmp(path, "-") == 0 && isatty(STDIN_FILENO))
        return err_set(err, ERR_INPUT, "standard input is a terminal; name a checkpoint, or pipe in a tar or zip archive of "
                       "one");
    if (strcmp(path, "-") == 0)
        return checkpoint_open_archive(cp, STDIN_FILENO, beside, err);
    if (stat(path, &status))
        return err_errno(err, "cannot be read");
    set_model_name(cp->name, path);
    if (S_ISDIR(status.st_mode))
        return checkpoint_open_folder(cp, path, err);
    cp->torch = text_ends(path, source_text_kinds[TEXT_TORCH_INDEX].name);
    if (cp->torch || text_ends(path, source_text_kinds[TEXT_INDEX].name)) {
        char folder[PATH_MAX];
        const char *slash = strrchr(path, '/');
        snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
        set_model_name(cp->name, folder);
        return checkpoint_open_folder(cp, folder, err);
    }
    if (text_ends(path, ".safetensors"))
        return checkpoint_open_weights(cp, path, err);
    if (text_ends(path, ".gguf"))
        return checkpoint_open_gguf(cp, path, err);
    if (text_ends(path, ".json") || text_ends(path, ".jsonl"))
        return refuse_text(path, err);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, "cannot be read");
    uint8_t magic[TORCH_MAGIC_BYTES];
    ssize_t got = pread(fd, magic, sizeof magic, 0);
    bool known = got >= 8;
    if (known && torch_is_file(magic, (size_t)got)) {
        close(fd);
        return checkpoint_open_weights(cp, path, err);
    }
    if (known && memcmp(magic, gguf_magic, GGUF_MAGIC_BYTES) == 0) {
        close(fd);
        return checkpoint_open_gguf(cp, path, err);
    }
    int rc = known && memcmp(magic, MODEL_MAGIC, 8) == 0
           ? err_set(err, ERR_INPUT, "is a model file already, so it needs no conversion; `moe-view` shows its contents")
           : got >= FRAME_GUARD_BYTES && memcmp(magic, FRAME_GUARD, FRAME_GUARD_BYTES) == 0
           ? err_set(err, ERR_INPUT, "is a stream, not a checkpoint; `moe-view` shows its contents")
           : checkpoint_open_archive(cp, fd, beside, err);
    close(fd);
    return rc;
}

int checkpoint_open(struct checkpoint **out, const char *path, const char *beside, struct err *err)
{
    struct checkpoint *cp = mem_alloc(1, sizeof *cp, err);
    if (!cp)
        return -1;
    cp->path = mem_string(strcmp(path, "-") ? path : "standard input", err);
    if (!cp->path || open_named(cp, path, beside, err) || checkpoint_finish(cp, err) || checkpoint_join(cp, err)) {
        if (cp->path)
            err_at(err, "%s", cp->path);
        checkpoint_close(&cp);
        return -1;
    }
    *out = cp;
    return 0;
}
