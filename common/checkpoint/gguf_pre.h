/* Pre-tokenizers by name (tokenizer.ggml.pre): how text is split before merging, according to the tokenizer.json of the
 * first model with such a tokenizer. A GGUF file contains only the name. */
#ifndef MOE_CHECKPOINT_GGUF_PRE_H
#define MOE_CHECKPOINT_GGUF_PRE_H

#include "common/checkpoint/gguf.h"

enum { PRE_PATTERNS = 5 };

struct pre_tokenizer {
    const char *names[8];
    bool composed;                          /* first normalise to NFC */
    bool punctuation;                       /* split off runs of punctuation, before all other splits */
    const char *patterns[PRE_PATTERNS];     /* split off matches, one pattern after the other */
    bool digits;                            /* then split into single digits */
    bool words;                             /* then split by GPT-2's pattern */
    const char *after;                      /* then split off runs of digits, and matches of this pattern within them */
    bool whole_words;                       /* a word that is a token is not merged further */
    bool begins;                            /* add bos unless the file says otherwise */
};

/* Returns the pre-tokenizer; NULL, with err set, if the name is unknown or missing. */
const struct pre_tokenizer *pre_tokenizer_find(const struct gguf *gguf, struct err *err);

#endif
