/* Reads the chat settings of tokenizer_config.json: the template and the special strings that templates refer to; and whether
 * bos and eos are put around a text.
 *
 * In:  the text of tokenizer_config.json. chat_template is a string, or a list of {name, template} of which "default" is taken.
 * Out: the template's source (NULL if the file has none) and an object with bos_token, eos_token, pad_token, unk_token as
 * strings, where given
 *      (the file may also spell them as objects with "content"). Pass `tokens` to template_render as `trusted`. */
#ifndef MOE_TOKENIZER_CONFIG_H
#define MOE_TOKENIZER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "common/base/err.h"

struct tokenizer_config {
    char *chat_template;
    json_t *tokens;
    bool add_bos, add_eos;              /* add_bos_token, add_eos_token; false where not given */
};
int tokenizer_config_read(struct tokenizer_config *out, const char *json, size_t bytes, struct err *err);
void tokenizer_config_free(struct tokenizer_config *config);

#endif
