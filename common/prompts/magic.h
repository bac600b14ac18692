/* What kind of file one is that holds no prompts, by its first bytes: for messages. */
#ifndef MOE_PROMPTS_MAGIC_H
#define MOE_PROMPTS_MAGIC_H

#include <stddef.h>

/* "is a stream, ..."; NULL: nothing that is known. Of fewer bytes than 512 less is known. */
const char *magic_no_prompts(const void *bytes, size_t count);

#endif
