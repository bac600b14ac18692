/* The end of an answer by token ids: at an end token, or at the token limit. */
#ifndef MOE_KERNELS_PLAIN_ENDING_H
#define MOE_KERNELS_PLAIN_ENDING_H

#include "kernels/plain/plain.h"

enum token_end { TOKEN_CONTINUES, TOKEN_IS_EOS, TOKEN_IS_LAST };

/* Returns whether an answer ends with `token`, its token number `tokens` of at most `limit`. */
PLAIN enum token_end ending_of(int32_t token, int tokens, int limit, const int32_t *eos, int eos_count)
{
    for (int i = 0; i < eos_count; i++)
        if (eos[i] == token)
            return TOKEN_IS_EOS;
    return tokens == limit ? TOKEN_IS_LAST : TOKEN_CONTINUES;
}

#endif
