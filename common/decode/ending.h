/* Finds the end of an answer, and the part of its text that is final. Works token by token, so that an answer ends at the same
 * position whatever the number of tokens per iteration.
 *
 * A token ends the answer, in this order, if it is an end token (kept among the tokens, not in the text), if it completes a
 * stop string (the text is cut before the first one), or if it is the last one that the limit allows. Text that may be the
 * beginning of a stop string, and bytes of an incomplete character, are not final yet. */
#ifndef MOE_DECODE_ENDING_H
#define MOE_DECODE_ENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/cli/opt.h"
#include "common/stream/decode.h"
#include "common/tokenizer/tokenizer.h"

struct ending {
    const struct tokenizer *tokenizer;      /* NULL: no text and no stop strings */
    const struct strings *stop;
    const int *eos;
    int eos_count;                          /* 0: no token ends the answer */

    int limit, tokens;
    bool ended;
    enum finish_reason reason;
    struct token_decoder decoder;
    struct text text;
    size_t certain;                         /* bytes of text that are final */
};

/* Checks that stop strings are not empty and valid text, and that there is a tokenizer for them. */
int ending_check(const struct strings *stop, const struct tokenizer *tokenizer, struct err *err);

/* Begins an answer of at most `limit` tokens, 0 or more. The caller has set the first four members. */
void ending_begin(struct ending *ending, int limit);
int ending_put(struct ending *ending, int32_t token, struct err *err);      /* only while not ended */
void ending_free(struct ending *ending);

#endif
