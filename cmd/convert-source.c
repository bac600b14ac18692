#include "cmd/convert-source.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/text.h"

enum { PART = 128 };

struct repository {
    char organisation[PART], name[PART], revision[PART], file[2 * PART];    /* revision, file: empty if not given */
};

static bool is_word(const char *word)
{
    return *word && *word != '-' && strcmp(word, ".") && strcmp(word, "..") &&
           !word[strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")];
}

/* Copies the text before the first of `ends` and returns the rest; NULL: the text is empty or too long. */
static const char *copy_until(char out[PART], const char *from, const char *ends)
{
    size_t length = strcspn(from, ends);
    if (length >= PART)
        return NULL;
    memcpy(out, from, length);
    out[length] = '\0';
    return is_word(out) ? from + length : NULL;
}

/* Parses the rest of a hub address after ORG/NAME: nothing, or /tree/, /blob/ or /resolve/, then REVISION, and possibly
 * /FILE. A query and a fragment are ignored. */
static bool parse_address(struct repository *out, const char *from)
{
    static const char *const kinds[] = {"/tree/", "/blob/", "/resolve/"};
    const size_t end = strcspn(from, "?#");
    if (!end || (end == 1 && *from == '/'))
        return true;
    for (int i = 0; i < 3; i++) {
        if (strncmp(from, kinds[i], strlen(kinds[i])))
            continue;
        from = copy_until(out->revision, from + strlen(kinds[i]), "/?#");
        if (!from || *from != '/')
            return from != NULL;
        snprintf(out->file, sizeof out->file, "%.*s", (int)strcspn(from + 1, "?#"), from + 1);
        return strlen(out->file) < sizeof out->file - 1 && !strstr(out->file, "..") &&
               !out->file[strspn(out->file, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/")];
    }
    return false;
}

static const char *skip_prefix(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0 ? text + strlen(start) : NULL;
}

/* Parses the name of a repository on the hub. *named: the hub is named explicitly, so that `given` cannot be a local path. */
static bool read_repository(struct repository *out, const char *given, bool *named)
{
    static const char *const starts[] = {"hf://", "hf:", "https://huggingface.co/", "http://huggingface.co/", "https://hf.co/",
                                         "huggingface.co/"};
    const char *rest = NULL;
    *out = (struct repository){.revision = ""};
    *named = false;
    for (size_t i = 0; i < sizeof starts / sizeof *starts && !rest; i++)
        rest = skip_prefix(given, starts[i]);
    *named = rest != NULL;
    rest = copy_until(out->organisation, rest ? rest : given, "/");
    if (!rest || *rest != '/' || !(rest = copy_until(out->name, rest + 1, "/@?#")))
        return false;
    if (*rest == '@')
        return copy_until(out->revision, rest + 1, "") != NULL;
    return *named ? parse_address(out, rest) : !*rest;
}

/* Stores the path of the repositories' cache folder; empty: unknown. */
static void find_hub(char out[PATH_MAX])
{
    static const struct { const char *variable, *below; } places[] = {
        {"HF_HUB_CACHE", ""}, {"HF_HOME", "/hub"}, {"XDG_CACHE_HOME", "/huggingface/hub"}, {"HOME", "/.cache/huggingface/hub"}};
    *out = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places && !*out; i++) {
        const char *value = getenv(places[i].variable);
        if (value && *value && snprintf(out, PATH_MAX, "%s%s", value, places[i].below) >= PATH_MAX)
            *out = '\0';
    }
}

static bool join(char out[PATH_MAX], const char *folder, const char *name)
{
    return snprintf(out, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

/* Finds the only snapshot of a repository without refs; empty: none, or several. */
static void only_snapshot(char out[PART], const char *folder)
{
    char snapshots[PATH_MAX];
    DIR *entries = join(snapshots, folder, "snapshots") ? opendir(snapshots) : NULL;
    int count = 0;
    *out = '\0';
    for (const struct dirent *entry; entries && (entry = readdir(entries));)
        if (*entry->d_name != '.' && ++count == 1)
            (void)!copy_until(out, entry->d_name, "");
    if (entries)
        closedir(entries);
    if (count != 1)
        *out = '\0';
}

/* Finds the snapshot of a revision: a branch or tag named by a file in refs, or a commit. */
static bool find_snapshot(char out[PATH_MAX], const char *folder, const char *revision)
{
    char name[PART], path[PATH_MAX], below[2 * PART];
    struct text text = {0};
    snprintf(below, sizeof below, "refs/%s", *revision ? revision : "main");
    if (!join(path, folder, below) || file_read(&text, path, PART - 1, NULL) || !text.length ||
        !copy_until(name, text.data, " \n"))
        snprintf(name, sizeof name, "%s", revision);
    text_free(&text);
    if (!*name)
        only_snapshot(name, folder);
    snprintf(below, sizeof below, "snapshots/%s", name);
    return *name && join(out, folder, below) && access(out, F_OK) == 0;
}

/* Sets the error for a repository that is not downloaded, with the download command. */
static int set_not_downloaded(const struct repository *from, const char *given, bool named, const char *hub, struct err *err)
{
    const char *revision = *from->revision ? " --revision " : "", *file = *from->file ? " " : "";
    return err_set(err, ERR_INPUT, "%s: is %s the Hugging Face cache %s; download it with `hf download %s/%s%s%s%s%s`, then "
                   "repeat this command", given, named ? "not in" : "neither a local file or folder nor in", hub,
                   from->organisation, from->name, file, from->file, revision, from->revision);
}

/* Returns the name of the repository whose snapshot contains the path; a snapshot's folder is named by a commit. */
static void repository_name(char out[64], const char *path)
{
    static const char start[] = "/models--";
    char resolved[PATH_MAX];
    const char *at = realpath(path, resolved) ? strstr(resolved, start) : NULL, *name;
    *out = '\0';
    if (!at || !strstr(at, "/snapshots/") || !(name = strstr(at + sizeof start - 1, "--")))
        return;
    snprintf(out, 64, "%.*s", (int)strcspn(name + 2, "/"), name + 2);
}

bool convert_source_is_repository(const char *given)
{
    struct repository from;
    bool named;
    return access(given, F_OK) && read_repository(&from, given, &named) && (named || !text_ends(given, ".moe"));
}

int convert_source_find(struct convert_source *out, const char *given, struct err *err)
{
    struct repository from;
    char hub[PATH_MAX], folder[PATH_MAX], below[3 * PART];
    bool named;
    if (snprintf(out->path, sizeof out->path, "%s", given) >= PATH_MAX)
        return err_set(err, ERR_INPUT, "the path of SOURCE is too long; give a shorter one");
    *out->name = '\0';
    if (strcmp(given, "-") == 0)
        return 0;
    if (access(given, F_OK) == 0) {
        char config[PATH_MAX];
        if (!join(config, given, "config.json") || access(config, F_OK))
            (void)find_snapshot(out->path, given, "");
        repository_name(out->name, out->path);
        return 0;
    }
    if (!read_repository(&from, given, &named))
        return !named && !strstr(given, "://") ? 0 :
               err_set(err, ERR_INPUT, "%s: moe-convert downloads nothing; use `curl -LO %s` for a file, or `hf download "
                       "ORG/NAME` for a repository of the Hugging Face hub", given, strstr(given, "://") ? given : "ADDRESS");
    find_hub(hub);
    snprintf(below, sizeof below, "models--%s--%s", from.organisation, from.name);
    if (!*hub || !join(folder, hub, below) || !find_snapshot(out->path, folder, from.revision) ||
        (*from.file && (!join(folder, out->path, from.file) || access(folder, F_OK))))
        return set_not_downloaded(&from, given, named, hub, err);
    if (*from.file)
        memcpy(out->path, folder, sizeof folder);
    snprintf(out->name, sizeof out->name, "%.63s", from.name);
    return 0;
}
