/* Recognises files without prompts by their first bytes, for messages. */
#ifndef MOE_PROMPTS_MAGIC_H
#define MOE_PROMPTS_MAGIC_H

#include <stddef.h>

/* Returns "is a stream, ..."; NULL if unknown. Some kinds need 512 bytes. */
const char *magic_no_prompts(const void *bytes, size_t count);

#endif
