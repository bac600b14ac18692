/* Where a checkpoint lies that moe-convert is given by the name of its repository on the Hugging Face hub.
 *
 *     ORG/NAME   hf:ORG/NAME[@REVISION]   https://huggingface.co/ORG/NAME[/tree/REVISION | /blob/REVISION/FILE]
 *
 * Nothing is downloaded here: the repository is looked for where `hf download` puts it, which is the first that is set of
 * $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub and $HOME/.cache/huggingface/hub. A repository that is not
 * there, and any other address, is an error with the command that downloads it. A file or folder of the given name comes
 * first. */
#ifndef MOE_CMD_CONVERT_SOURCE_H
#define MOE_CMD_CONVERT_SOURCE_H

#include <limits.h>

#include "common/base/err.h"

struct convert_source {
    char path[PATH_MAX];        /* what is to be opened: the given name, or what the cache has */
    char name[64];              /* of the repository; empty: the path's own name counts */
};

int convert_source_find(struct convert_source *out, const char *given, struct err *err);

#endif
