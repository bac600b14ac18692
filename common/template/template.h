/* Chat templates: the part of Jinja2 that published models use, evaluated under limits.
 *
 * Source:   `chat_template` of tokenizer_config.json. White space is treated as in transformers: trim_blocks and
 *           lstrip_blocks on, one newline at the end of the file dropped.
 * Offered:  for (else, if, loop.*, break, continue, unpacking), if, set (also as a block, and on namespaces), macro,
 *           generation; literals, slices, the operators of Jinja2, x if y else z, filters, tests and string methods as
 *           listed in filter.c, test.c and method.c; range, namespace, dict, raise_exception,
 *           and strftime_now, whose moment is the value `now` ("2025-08-05" or "2025-08-05 12:30:00"): no clock is read.
 * Limits:   steps, depth and bytes, in proportion to the values given. Anything else is an error that names line and
 *           construct.
 *
 * Provenance: each byte of the result is tracked to the template or to the values, through concatenation, slicing, joining
 * and every filter. A special token is therefore recognised where the template wrote it, and is plain text in a message
 * (tokenizer_encode_segments). These bytes belong to the template: its text and string literals, numbers, the strings in
 * `trusted` (bos_token and the like), and a message's "role" if it is system, developer, user, assistant, tool, function or
 * ipython, so that '<|' + role + '|>' works. Everything else is content. In the output of tojson and of printed lists and
 * mappings, a string is content if any of its bytes is; the punctuation belongs to the template. */
#ifndef MOE_TEMPLATE_TEMPLATE_H
#define MOE_TEMPLATE_TEMPLATE_H

#include <stddef.h>

#include <jansson.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/tokenizer/tokenizer.h"

struct template;

/* Parses the source, which is copied. A template is immutable and thread-safe. */
int template_new(struct template **out, const char *source, size_t bytes, struct err *err);
void template_free(struct template **t);

struct template_output {
    struct text text;
    struct text_segment *segments;      /* in order; their sizes add up to text.length; neighbours differ in origin */
    size_t n_segments, room;
};
void template_output_free(struct template_output *out);

/* values:  object: messages, add_generation_prompt, tools, further arguments; borrowed
 * trusted: object of names whose strings count as written by the template; borrowed, may be NULL. A name in `values` hides it.
 * out:     {0}; set on success only. */
int template_render(const struct template *t, const json_t *values, const json_t *trusted, struct template_output *out,
                    struct err *err);

#endif
