#include "cmd/draft-train-inputs.h"

#include <stdio.h>
#include <string.h>

#include "common/stream/frame.h"

/* Is it a stream? Standard input is one; a file tells by its first bytes. */
static bool is_stream(const char *path)
{
    uint8_t first[FRAME_GUARD_BYTES];
    FILE *file = strcmp(path, "-") ? fopen(path, "rb") : NULL;
    const bool yes = !strcmp(path, "-") || (file && fread(first, sizeof first, 1, file) == 1 &&
                                            !memcmp(first, FRAME_GUARD, sizeof first));
    if (file)
        fclose(file);
    return yes;
}

int inputs_find_stream(const struct strings *inputs, const struct strings *prompts, const char **path, struct err *err)
{
    const char *other = prompts->count ? "--prompt" : NULL;
    *path = !inputs->count && !prompts->count ? "-" : NULL;
    for (int i = 0; i < inputs->count; i++) {
        const char *input = inputs->items[i];
        if (!is_stream(input) || (*path && (!strcmp(input, "-") || !strcmp(*path, "-"))))
            other = input;
        else
            *path = input;
    }
    return !*path || !other ? 0
         : err_set(err, ERR_INPUT, "%s is a feature stream, and %s cannot go with it: of streams, files alone can be several",
                   *path, other);
}
