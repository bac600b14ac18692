#include "cmd/decode-convert.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/convert-source.h"
#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/thread_pool.h"
#include "common/base/version.h"
#include "common/checkpoint/convert.h"
#include "common/model/model_index.h"

enum { KEY_DIGITS = 16 };

/* Creates the folder and its parents, and writes its name to *out. */
static int make_folder(struct text *out, const char *source, struct err *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool named = cache && *cache == '/';            /* the specification ignores relative ones */
    if (!named && (!home || !*home))
        return err_set(err, ERR_INPUT, "--convert: neither XDG_CACHE_HOME nor HOME names a folder for the converted model; "
                       "set one of them, or run `moe-convert %s -o FILE`", source);
    if (text_printf(out, err, "%s%s/moekit", named ? cache : home, named ? "" : "/.cache"))
        return -1;
    int fault = 0;
    for (char *slash = out->data; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        if (mkdir(out->data, 0777) && errno != EEXIST && !fault)
            fault = errno;                          /* the first one: the others follow from it */
        *slash = '/';
    }
    if (!mkdir(out->data, 0777) || errno == EEXIST)
        return 0;
    return err_set(err, ERR_IO, "--convert: %s: the folder for the converted model cannot be made: %s; set XDG_CACHE_HOME to "
                   "another folder, or run `moe-convert %s -o FILE`", out->data, strerror(fault ? fault : errno), source);
}

/* Combines digests by exclusive or, so that the order of files does not matter. Digests do not cancel, because names differ. */
static int add_digest(uint8_t sum[32], const void *data, size_t bytes, struct err *err)
{
    struct sha256 digest;
    if (hash_sha256(data, bytes, &digest, err))
        return -1;
    for (int i = 0; i < 32; i++)
        sum[i] ^= digest.bytes[i];
    return 0;
}

static int add_file(uint8_t sum[32], const struct source_file *file, struct err *err)
{
    struct text line = {0};
    struct stat status;
    if (file->fd < 0 || fstat(file->fd, &status))
        return 0;
    int rc = text_printf(&line, err, "%s %lld %lld.%09ld", file->name, (long long)status.st_size,
                         (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    if (!rc)
        rc = add_digest(sum, line.data, line.length, err);
    text_free(&line);
    return rc;
}

static int add_text(uint8_t sum[32], int which, const struct text *text, struct err *err)
{
    struct text line = {0};
    int rc = text_printf(&line, err, "%s ", source_text_kinds[which].name) ||
             text_put(&line, text->data ? text->data : "", text->length, err) ||
             add_digest(sum, line.data, line.length, err) ? -1 : 0;
    text_free(&line);
    return rc;
}

static int make_key(char key[KEY_DIGITS + 1], const struct checkpoint *checkpoint, struct err *err)
{
    static const char version[] = MOE_VERSION;
    struct sha256 sum = {{0}};
    char hex[65];
    sum.bytes[0] = MODEL_VERSION;
    int rc = add_digest(sum.bytes, version, sizeof version, err);
    for (size_t i = 0; !rc && i < checkpoint->file_count; i++)
        rc = add_file(sum.bytes, &checkpoint->files[i], err);
    for (int i = 0; !rc && i < TEXT_COUNT; i++)
        rc = add_text(sum.bytes, i, &checkpoint->texts[i], err);
    sha256_hex(&sum, hex);
    memcpy(key, hex, KEY_DIGITS);
    key[KEY_DIGITS] = '\0';
    return rc;
}

static int write_model(struct checkpoint *checkpoint, const char *path, const char *name, int threads,
                       const struct console *console, struct err *err)
{
    const struct convert_options options = {.dense.keep = true, .experts.keep = true, .name = name,
                                            .producer = "moe-convert " MOE_VERSION};
    struct conversion plan = {0};
    struct thread_pool *pool = NULL;
    struct progress bar;
    int rc = conversion_plan(&plan, checkpoint, &options, err) ||
             thread_pool_new(&pool, threads ? threads : thread_pool_cores(), err) ? -1 : 0;
    if (!rc) {
        console_note(console, "%s: is being converted to %s; later runs reuse that file", checkpoint->path, path);
        console_progress(console, &bar, "bytes", 0);
        rc = conversion_write(&plan, path, pool, &bar, err);
        progress_end(&bar);
        const struct err first = *err;
        if (rc && first.code == ERR_IO) {
            err_clear(err);
            err_set(err, ERR_IO, "%s; --convert writes the model below XDG_CACHE_HOME, so set that to another folder",
                    first.text);
        }
    }
    thread_pool_free(&pool);
    conversion_free(&plan);
    return rc;
}

static int refuse_source(const char *given, struct err *err)
{
    return err_set(err, ERR_INPUT, "--convert: %s is not a folder, .safetensors, .gguf or pytorch_model.bin file; convert "
                   "archives and pipes with `moe-convert %s -o FILE`", given, given);
}

/* Refuses archives: each run would read an archive from front to back, only to check whether it has changed. */
static int check_source(const char *given, const char *path, struct err *err)
{
    static const char *const endings[] = {".safetensors", ".gguf", ".bin", ".json"};
    struct stat status;
    if (stat(path, &status))
        return err_errno(err, "%s", given);
    if (S_ISDIR(status.st_mode))
        return 0;
    for (size_t i = 0; S_ISREG(status.st_mode) && i < sizeof endings / sizeof *endings; i++)
        if (text_ends(path, endings[i]))
            return 0;
    return refuse_source(given, err);
}

int decode_convert(struct text *out, const char *source, int threads, const struct console *console, struct err *err)
{
    struct checkpoint *checkpoint = NULL;
    struct convert_source found;
    char key[KEY_DIGITS + 1];
    int rc = -1;
    if (text_ends(source, ".moe"))
        return text_puts(out, source, err);
    if (convert_source_find(&found, source, err) || check_source(source, found.path, err) ||
        checkpoint_open(&checkpoint, found.path, NULL, err) || (checkpoint->headers_only && refuse_source(source, err)) ||
        make_key(key, checkpoint, err) || make_folder(out, source, err))
        goto done;
    const char *name = *found.name ? found.name : *checkpoint->name ? checkpoint->name : "model";
    if (text_printf(out, err, "/%s-%s.moe", name, key))
        goto done;
    for (size_t i = 0; i < checkpoint->file_count; i++)
        if (claims_identity(&console->claims, "model", checkpoint->files[i].name, &checkpoint->files[i].identity, err))
            goto done;
    if (console_reads(console, "model", out->data, err) ||
        (access(out->data, F_OK) && write_model(checkpoint, out->data, name, threads, console, err)))
        goto done;
    rc = 0;
done:
    checkpoint_close(&checkpoint);
    return rc;
}
