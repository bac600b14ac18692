/* Any bytes as tokenizer.json, then as text for the resulting tokenizer. The first zero byte separates the JSON from the
 * text. */
#include <string.h>

#include "common/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *text = bytes ? memchr(data, 0, bytes) : NULL;
    size_t json_bytes = text ? (size_t)(text - (const char *)data) : bytes;
    struct tokenizer *t = NULL;
    struct tokens tokens = {0};
    struct text out = {0};
    struct text_segment segments[2];
    if (tokenizer_new(&t, (const char *)data, json_bytes, NULL))
        return 0;
    text = text ? text + 1 : (const char *)data;
    size_t text_bytes = json_bytes < bytes ? bytes - json_bytes - 1 : bytes;
    segments[0] = (struct text_segment){ text_bytes / 2, true };
    segments[1] = (struct text_segment){ text_bytes - text_bytes / 2, false };
    if (!tokenizer_encode_segments(t, text, segments, 2, TOKENIZER_FRAME, &tokens, NULL))
        tokenizer_decode(t, tokens.ids, tokens.n, TOKENIZER_SHOW_SPECIAL, &out, NULL);
    tokens_free(&tokens);
    text_free(&out);
    tokenizer_free(&t);
    return 0;
}
