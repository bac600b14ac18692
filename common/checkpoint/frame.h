/* What transformers and llama.cpp put around a text because tokenizer_config.json says add_bos_token or add_eos_token, though
 * tokenizer.json itself puts nothing there (DeepSeek): written into the text of tokenizer.json as a TemplateProcessing, so that
 * a model file's tokenizer says all of it. */
#ifndef MOE_CHECKPOINT_FRAME_H
#define MOE_CHECKPOINT_FRAME_H

#include "common/tokenizer/config.h"
#include "common/tokenizer/tokenizer.h"

/* The post-processor to be put, as JSON, to be freed with mem_free. NULL: there is none, as the tokenizer has a frame of its
 * own, or nothing is asked for, or what is asked for is not in the vocabulary. */
int frame_make(char **out, const struct tokenizer *tokenizer, const struct tokenizer_config *config, struct err *err);

/* The text of a tokenizer.json with it, after the post-processor that is there. */
int frame_put(struct text *out, const struct text *json, const char *frame, struct err *err);

#endif
