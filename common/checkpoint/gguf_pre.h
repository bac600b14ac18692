/* What tokenizer.ggml.pre names: how text is cut before merging, as the tokenizer.json of the first model with such a tokenizer
 * says it. The name is all that a GGUF file has of it. */
#ifndef MOE_CHECKPOINT_GGUF_PRE_H
#define MOE_CHECKPOINT_GGUF_PRE_H

#include "common/checkpoint/gguf.h"

enum { PRE_PATTERNS = 5 };

struct pre_tokenizer {
    const char *names[8];
    bool composed;                          /* NFC first */
    bool punctuation;                       /* runs of punctuation apart, before all else */
    const char *patterns[PRE_PATTERNS];     /* matches apart, one pattern after the other */
    bool digits;                            /* then each digit apart */
    bool words;                             /* then GPT-2's pattern */
    const char *after;                      /* then runs of digits apart, and matches of this in them */
    bool whole_words;                       /* a word that is a token is not merged */
    bool begins;                            /* bos in front, where the file does not say */
};

/* NULL, with err set: the name is not known, or there is none. */
const struct pre_tokenizer *pre_tokenizer_find(const struct gguf *gguf, struct err *err);

#endif
