/* Vocabularies in tiktoken's form: one token per line, in base64, a space and the rank. Such a file contains neither the
 * pattern that splits text nor the special tokens; Python code beside the file contains both, so the file's name decides
 * here.
 *
 * In:  the file, and tokenizer_config.json (may be empty).
 * Out: the same tokenizer as the text of a tokenizer.json. A token has one merge, of the two pieces that byte pair encoding
 *      with the lower ranks alone leaves of it. If more pieces are left, it has a merge for each pair of tokens that it
 *      consists of (byte pair encoding hardly ever learns such a token), and a word that is a token is not split
 *      (ignore_merges). Ids are then equal to tiktoken's.
 * Fails if the file is damaged, or if tokenizer_config.json names another class of tokenizers. */
#ifndef MOE_TOKENIZER_TIKTOKEN_H
#define MOE_TOKENIZER_TIKTOKEN_H

#include "common/base/text.h"

enum tiktoken_model {
    TIKTOKEN_KIMI,          /* tiktoken.model: Kimi K2, Kimi Linear, Moonlight */
    TIKTOKEN_HUNYUAN        /* hy.tiktoken: Hunyuan-A13B */
};

int tiktoken_json(struct text *out, enum tiktoken_model model, const struct text *ranks, const struct text *config,
                  struct err *err);

#endif
