#include "common/cli/claims.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static struct file_identity folder_of(const char *path)
{
    struct stat status;
    char folder[PATH_MAX];
    int bytes = (int)(last_name(path) - path);
    if (snprintf(folder, sizeof folder, "%.*s", bytes ? bytes : 1, bytes ? path : ".") >= PATH_MAX || stat(folder, &status))
        return (struct file_identity){0};
    return (struct file_identity){true, status.st_dev, status.st_ino};
}

/* Names of descriptors refer to open files, whatever folder they are in. */
static bool names_descriptor(const char *path) { return !strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6); }

static bool same_output(const struct claim *a, const struct claim *b)
{
    if (!a->path || !b->path)                   /* a name like /dev/stdout may refer to it */
        return false;
    if (file_same(&a->file, &b->file))
        return true;
    if (a->file.known != b->file.known || names_descriptor(a->path) || names_descriptor(b->path))
        return false;
    if (!file_same(&a->folder, &b->folder))
        return false;
    const char *x = last_name(a->path), *y = last_name(b->path);
    size_t x_bytes = strlen(x), y_bytes = strlen(y);
    char first[PATH_MAX], second[PATH_MAX];
    if (x_bytes + strlen(a->ending) >= PATH_MAX || y_bytes + strlen(b->ending) >= PATH_MAX)
        return false;
    snprintf(first, sizeof first, "%s%s", x, a->ending);
    snprintf(second, sizeof second, "%s%s", y, b->ending);
    return !strcmp(first, second);
}

/* Uses the path itself as the name if no name was given. */
static int refuse(const struct claim *claim, const char *name, const char *path, struct err *err)
{
    if (!strcmp(name, path))
        return err_set(err, ERR_INPUT, "%s is the same file as %s%s%s%s%s; an output needs a file of its own", path,
                       claim->path ? claim->path : claim->name, claim->ending, claim->path ? ", " : "",
                       !claim->path ? "" : *claim->ending ? "used by " : "named by ", claim->path ? claim->name : "");
    if (!claim->path)
        return err_set(err, ERR_INPUT, "%s, named by %s, is the file that standard output goes to; an output needs a file of "
                       "its own", path, name);
    if (!*claim->ending && !strcmp(claim->path, path))
        return err_set(err, ERR_INPUT, "%s is named twice, by %s and by %s; an output needs a file of its own", path, name,
                       claim->name);
    return err_set(err, ERR_INPUT, "%s, named by %s, is the same file as %s%s, %s by %s; an output needs a file of its own",
                   path, name, claim->path, claim->ending, *claim->ending ? "used" : "named", claim->name);
}

static int add(struct claims *claims, const struct claim *made, struct err *err)
{
    for (int i = 0; i < claims->count; i++)
        if (same_output(&claims->item[i], made))
            return refuse(made, claims->item[i].name, claims->item[i].path, err);
    if (claims->count == CLAIMS_MAX)
        return err_set(err, ERR_INPUT, "more than %d output files are named; name fewer", CLAIMS_MAX);
    claims->item[claims->count++] = *made;
    return 0;
}

int claims_standard_output(struct claims *claims, struct err *err)
{
    const struct claim made = {.name = "standard output", .ending = "", .file = file_identify_descriptor(STDOUT_FILENO)};
    return add(claims, &made, err);
}

int claims_output(struct claims *claims, const char *name, const char *path, bool kept, struct err *err)
{
    static const char *const endings[] = {"", ".part", ".part.old"};
    if (!strcmp(path, "-"))
        return 0;
    char *real = kept ? realpath(path, NULL) : NULL;        /* the other two files are beside the target of the link */
    int rc = 0;
    for (int i = 0; !rc && i < (kept ? 3 : 1); i++) {
        char full[PATH_MAX];
        struct claim made = {.name = name, .path = path, .ending = endings[i], .kept = kept, .folder = folder_of(path)};
        if (snprintf(full, sizeof full, "%s%s", real ? real : path, endings[i]) < PATH_MAX)
            made.file = file_identify(full);
        rc = add(claims, &made, err);
    }
    mem_free(&real);
    return rc;
}

static int check_identity(const struct claims *claims, const char *name, const char *path, const struct file_identity *file,
                          bool resumed, struct err *err)
{
    for (int i = 0; i < claims->count; i++)
        if (!(resumed && claims->item[i].kept) && file_same(&claims->item[i].file, file))
            return refuse(&claims->item[i], name, path, err);
    return 0;
}

int claims_identity(const struct claims *claims, const char *name, const char *path, const struct file_identity *file,
                    struct err *err)
{
    return check_identity(claims, name, path, file, false, err);
}

/* Fails if a missing input is also an output: the path can only be an input by mistake, and once the output exists, the file
 * would be both. */
static int check_missing(const struct claims *claims, const char *name, const char *path, bool resumed, struct err *err)
{
    for (int i = 0; i < claims->count; i++)
        if (!(resumed && claims->item[i].kept) && claims->item[i].path && !strcmp(claims->item[i].path, path) &&
            access(path, F_OK))
            return refuse(&claims->item[i], name, path, err);
    return 0;
}

static int check_input(const struct claims *claims, const char *name, const char *path, bool resumed, struct err *err)
{
    const bool standard = !strcmp(path, "-");
    const struct file_identity file = standard ? file_identify_descriptor(STDIN_FILENO) : file_identify(path);
    if (!standard && check_missing(claims, name, path, resumed, err))
        return -1;
    return check_identity(claims, name, standard ? "standard input" : path, &file, resumed, err);
}

int claims_input(const struct claims *claims, const char *name, const char *path, struct err *err)
{
    return check_input(claims, name, path, false, err);
}

int claims_see(const void *context, const char *name, const char *path, struct err *err)
{
    return claims_input(context, name, path, err);
}

int claims_resumed(const struct claims *claims, const char *name, const char *path, struct err *err)
{
    return check_input(claims, name, path, true, err);
}
