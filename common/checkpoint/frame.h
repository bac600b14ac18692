/* Special tokens that transformers and llama.cpp add around a text because of add_bos_token or add_eos_token in
 * tokenizer_config.json, although tokenizer.json itself adds none (DeepSeek). They are written into the text of
 * tokenizer.json as a TemplateProcessing, so that the tokenizer in a model file is complete. */
#ifndef MOE_CHECKPOINT_FRAME_H
#define MOE_CHECKPOINT_FRAME_H

#include "common/tokenizer/config.h"
#include "common/tokenizer/tokenizer.h"

/* Makes the post-processor as JSON, which the caller frees with mem_free. *out is NULL if none is to be added: the tokenizer
 * adds such tokens itself, none is requested, or the requested token is not in the vocabulary. */
int frame_make(char **out, const struct tokenizer *tokenizer, const struct tokenizer_config *config, struct err *err);

/* Writes the text of tokenizer.json with `frame` after its own post-processor. */
int frame_put(struct text *out, const struct text *json, const char *frame, struct err *err);

#endif
