#include "cmd/draft-train-inputs.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/stream/frame.h"

/* Returns whether the input is a stream: standard input, or a file that begins like a stream. Other pipes count as texts,
 * because bytes read here would be lost to the later reader. */
static int find_stream(const char *path, bool *yes, struct err *err)
{
    uint8_t first[FRAME_GUARD_BYTES];
    struct stat status;
    *yes = !strcmp(path, "-");
    if (*yes)
        return 0;
    if (stat(path, &status))
        return err_errno(err, "%s", path);
    if (!S_ISREG(status.st_mode))
        return 0;
    FILE *file = fopen(path, "rb");
    if (!file)
        return err_errno(err, "%s", path);
    *yes = fread(first, sizeof first, 1, file) == 1 && !memcmp(first, FRAME_GUARD, sizeof first);
    fclose(file);
    return 0;
}

int inputs_find_stream(const struct strings *inputs, const struct strings *prompts, const char **path, struct err *err)
{
    const char *other = prompts->count ? "--prompt" : NULL;
    *path = !inputs->count && !prompts->count ? "-" : NULL;
    for (int i = 0; i < inputs->count; i++) {
        const char *input = inputs->items[i];
        bool stream;
        if (find_stream(input, &stream, err))
            return -1;
        if (!stream || (*path && (!strcmp(input, "-") || !strcmp(*path, "-"))))
            other = input;
        else
            *path = input;
    }
    return !*path || !other ? 0
         : err_set(err, ERR_INPUT, "%s is a feature stream and cannot be combined with %s; give feature streams alone, each "
                   "as a file",
                   *path, other);
}
