#include "common/session/attached.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/cli/keys.h"
#include "common/engine/companion.h"

enum { FILE_VERSION = 1, FILE_LIMIT = 1 << 20 };

void attached_free(struct attached *attached)
{
    for (int i = 0; i < ATTACHED_MAX; i++) {
        mem_free(&attached->file[i]);
        mem_free(&attached->draft[i]);
    }
    mem_free(&attached->path);
    *attached = (struct attached){0};
}

static char *drafters_path(const char *model, struct err *err)
{
    struct text text = {0};
    char *path = text_printf(&text, err, "%s.drafters", model) ? NULL : mem_string(text.data, err);
    text_free(&text);
    return path;
}

/* Adds a file: its path from the folder of this process, and its --draft, in which , and \ need a backslash. */
static int add(struct attached *out, const char *model, const char *kind, const char *name, struct err *err)
{
    const char *slash = strrchr(model, '/');
    struct text file = {0}, draft = {0};
    int rc = -1;
    if ((*name != '/' && slash && text_put(&file, model, (size_t)(slash + 1 - model), err)) || text_puts(&file, name, err) ||
        text_printf(&draft, err, "%s:file=", kind))
        goto done;
    for (const char *at = file.data; *at; at++)
        if (((*at == ',' || *at == '\\') && text_putc(&draft, '\\', err)) || text_putc(&draft, *at, err))
            goto done;
    out->file[out->count] = mem_string(file.data, err);
    out->draft[out->count] = mem_string(draft.data, err);
    rc = out->file[out->count] && out->draft[out->count] ? 0 : -1;
    out->count++;
done:
    text_free(&file);
    text_free(&draft);
    return rc;
}

static int read_item(struct attached *out, const char *model, const json_t *item, struct err *err)
{
    static const char *const keys[] = {"kind", "file", NULL};
    const char *kind = json_string_value(json_object_get(item, "kind"));
    const json_t *name = json_object_get(item, "file");
    const char *file = json_string_value(name);
    if (!json_is_object(item))
        return err_set(err, ERR_INPUT, "expected a JSON object with kind and file");
    if (keys_known(item, keys, err))
        return -1;
    if (!kind || (strcmp(kind, "head") && strcmp(kind, "model")))
        return err_set(err, ERR_INPUT, "\"kind\": expected head or model");
    if (!file || !*file || strlen(file) != json_string_length(name))
        return err_set(err, ERR_INPUT, "\"file\": expected the name of a file");
    return add(out, model, kind, file, err);
}

static int read_map(struct attached *out, const char *model, const json_t *map, struct err *err)
{
    static const char *const keys[] = {"drafters", "source", "files", NULL};
    const json_t *files = json_object_get(map, "files"), *item;
    const char *source = json_string_value(json_object_get(map, "source"));
    int version;
    size_t at;
    if (!json_is_object(map))
        return err_set(err, ERR_INPUT, "expected a JSON object");
    if (keys_known(map, keys, err) || keys_int(map, "drafters", 0, 1, FILE_VERSION, &version, err))
        return -1;
    if (version != FILE_VERSION)
        return err_set(err, ERR_INPUT, "\"drafters\": expected the version, %d", FILE_VERSION);
    if (!source || strlen(source) != 64 || strspn(source, "0123456789abcdef") != 64)
        return err_set(err, ERR_INPUT, "\"source\": expected 64 hexadecimal digits");
    if (!json_is_array(files) || json_array_size(files) > ATTACHED_MAX)
        return err_set(err, ERR_INPUT, "\"files\": expected a list of at most %d files", ATTACHED_MAX);
    memcpy(out->source, source, sizeof out->source);
    json_array_foreach((json_t *)(uintptr_t)files, at, item)
        if (read_item(out, model, item, err))
            return err_at(err, "\"files\": file %zu", at + 1);
    return 0;
}

int attached_read(struct attached *out, const char *model, struct err *err)
{
    struct attached made = {0};
    char *path = drafters_path(model, err);
    json_t *map = NULL;
    int rc = path ? 0 : -1;
    if (!rc && access(path, F_OK)) {
        mem_free(&path);
        *out = made;
        return 0;
    }
    if (!rc && (!(map = json_file(path, FILE_LIMIT, "a file of attached drafters", err)) || read_map(&made, model, map, err)))
        rc = err_at(err, "%s", path);
    json_decref(map);
    made.path = path;
    if (rc)
        attached_free(&made);
    else
        *out = made;
    return rc;
}

int attached_check(const struct attached *attached, const struct model *model, struct err *err)
{
    char source[65];
    sha256_hex(&model_identity(model)->source, source);
    if (!attached->path || !strcmp(source, attached->source))
        return 0;
    return err_set(err, ERR_INPUT, "%s: lists drafters for a model whose weights differ from those of %s; attach them again "
                   "with moe-convert attach, or remove the file", attached->path, model_path(model));
}

/* Checks that a file is a head of the model, or a model with the same tokens. */
static int check_file(const struct model *model, const char *file, const char **kind, struct err *err)
{
    struct model *other = NULL;
    int rc = model_open_any(&other, file, err);
    if (rc)
        return -1;
    const struct head_params *head = model_head(other);
    if (head)
        rc = head_check_target(head, model_identity(model), false, err) ? err_at(err, "%s", file) : 0;
    else if (!memcmp(&model_identity(other)->index, &model_identity(model)->index, sizeof(struct sha256)))
        rc = err_set(err, ERR_INPUT, "%s: is the model itself, which -d auto always considers as `self'; name another model "
                     "or a head", file);
    else
        rc = companion_check_tokens(other, model, err);
    *kind = head ? "head" : "model";
    model_close(&other);
    return rc;
}

/* Returns the file's name relative to the model's folder if the file is in or below that folder, else its absolute path. */
static char *name_from(const char *model, const char *file, struct err *err)
{
    char *base = mem_string(file, err), *own = mem_string(model, err), *folder = NULL, *beside = NULL, *name = NULL;
    struct text text = {0};
    if (!base || !own)
        goto done;
    char *cut = strrchr(base, '/'), *own_cut = strrchr(own, '/');
    const char *last = cut ? file + (cut + 1 - base) : file;
    if (cut)
        *cut = '\0';
    if (own_cut)
        *own_cut = '\0';
    folder = realpath(!cut ? "." : cut == base ? "/" : base, NULL);
    beside = realpath(!own_cut ? "." : own_cut == own ? "/" : own, NULL);
    if (!folder || !beside) {
        err_errno(err, "%s", file);
        goto done;
    }
    size_t common = strcmp(beside, "/") ? strlen(beside) : 0;
    bool below = !strncmp(folder, beside, common) && (folder[common] == '/' || !folder[common]);
    const char *rest = below ? folder + common + (folder[common] == '/') : folder;
    if (!text_printf(&text, err, *rest && strcmp(rest, "/") ? "%s/%s" : "%s%s", rest, last))
        name = mem_string(text.data, err);
done:
    text_free(&text);
    free(folder);
    free(beside);
    mem_free(&base);
    mem_free(&own);
    return name;
}

static int add_file(json_t *files, const struct model *model, const char *file, struct err *err)
{
    const char *kind;
    char *name = NULL;
    if (check_file(model, file, &kind, err) || !(name = name_from(model_path(model), file, err)))
        return -1;
    json_t *item = json_pack("{s:s,s:s}", "kind", kind, "file", name);
    int rc = item ? 0 : err_set(err, ERR_INPUT, "%s: its name is not UTF-8; rename it", file);
    if (!rc && json_array_append_new(files, item))
        rc = err_memory(err);
    mem_free(&name);
    return rc;
}

/* Rejects a file that is named twice, or that the list would overwrite. */
static int check_twice(const char *const *file, int number, const char *list, struct err *err)
{
    const struct file_identity own = file_identify(file[number]), written = file_identify(list);
    if (file_same(&own, &written))
        return err_set(err, ERR_INPUT, "%s: has the name of the file that will list the drafters; rename the drafter",
                       file[number]);
    for (int i = 0; i < number; i++) {
        const struct file_identity other = file_identify(file[i]);
        if (file_same(&own, &other))
            return err_set(err, ERR_INPUT, "%s: is given twice; name each drafter once", file[number]);
    }
    return 0;
}

int attached_write(const struct model *model, const char *const *file, int count, struct err *err)
{
    json_t *files = json_array(), *map = NULL;
    char *path = drafters_path(model_path(model), err), source[65];
    int rc = files && path ? 0 : -1;
    if (!files)
        err_memory(err);
    if (!rc && count > ATTACHED_MAX)
        rc = err_set(err, ERR_INPUT, "%d files are given, more than the maximum of %d; leave some out", count, ATTACHED_MAX);
    for (int i = 0; !rc && i < count; i++)
        rc = check_twice(file, i, path, err) || add_file(files, model, file[i], err) ? -1 : 0;
    sha256_hex(&model_identity(model)->source, source);
    if (!rc && !(map = json_pack("{s:i,s:s,s:O}", "drafters", FILE_VERSION, "source", source, "files", files)))
        rc = err_memory(err);
    if (!rc)
        rc = json_write(path, map, JSON_INDENT(2), err);
    json_decref(map);
    json_decref(files);
    mem_free(&path);
    return rc;
}
