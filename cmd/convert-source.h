/* Finds the local files of a checkpoint that is named by its repository on the Hugging Face hub.
 *
 *     ORG/NAME   hf:ORG/NAME[@REVISION]   https://huggingface.co/ORG/NAME[/tree/REVISION | /blob/REVISION/FILE]
 *
 * Nothing is downloaded: the repository must be in the cache that `hf download` fills, the first that is set of $HF_HUB_CACHE,
 * $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub and $HOME/.cache/huggingface/hub. For a missing repository, and for any other
 * address, the error names the download command. A local file or folder of the given name has priority. */
#ifndef MOE_CMD_CONVERT_SOURCE_H
#define MOE_CMD_CONVERT_SOURCE_H

#include <limits.h>
#include <stdbool.h>

#include "common/base/err.h"

struct convert_source {
    char path[PATH_MAX];        /* the path to open: the given name, or a path in the cache */
    char name[64];              /* name of the repository; empty: use the path's own name */
};

/* Returns whether the name is that of a repository on the hub, not of a file or folder here. */
bool convert_source_is_repository(const char *given);

int convert_source_find(struct convert_source *out, const char *given, struct err *err);

#endif
