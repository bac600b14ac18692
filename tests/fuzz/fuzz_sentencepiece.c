/* Any bytes as tokenizer.model, then texts through the resulting tokenizer, and its tokens back to text. */
#include <string.h>

#include "common/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char text[] = "  ab  abc\t<s>aab\n dog"
                               "\xEF\xBC\xA1\xCC\x8A e\xCC\x81 \xE4\xB8\xAD\xF0\x9F\x98\x80</s> \0 aaaaaaaa ";
    struct text_segment segments[2] = { { 20, true }, { sizeof text - 1 - 20, false } };
    struct tokenizer *t = NULL;
    struct tokens tokens = {0};
    struct text out = {0};
    if (tokenizer_new(&t, (const char *)data, bytes, NULL))
        return 0;
    if (!tokenizer_encode_segments(t, text, segments, 2, TOKENIZER_FRAME, &tokens, NULL))
        tokenizer_decode(t, tokens.ids, tokens.n, TOKENIZER_SHOW_SPECIAL, &out, NULL);
    for (int32_t id = -1; id < 300; id++)
        tokenizer_decode(t, &id, 1, 0, &out, NULL);
    tokens_free(&tokens);
    text_free(&out);
    tokenizer_free(&t);
    return 0;
}
