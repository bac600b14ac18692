/* Any bytes as a prompt file, with a small tokenizer and template. Built with -fsanitize=fuzzer, or with -DFUZZ_FILES to
 * read files. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/decode/prompts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char tokenizer_json[] =
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<|\",\"special\":true}],\"normalizer\":{\"type\":\"NFC\"},"
    "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";
static const char chat[] = "{% for m in messages %}<|{{ m.role }}{{ m.content|trim }}{% endfor %}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char path[64];
    static struct tokenizer *tokenizer;
    static struct template *t;
    struct prompts *prompts = NULL;
    struct prompt prompt = {0};
    if (!tokenizer) {
        snprintf(path, sizeof path, "/tmp/fuzz-prompts-%ld.jsonl", (long)getpid());
        if (tokenizer_new(&tokenizer, tokenizer_json, sizeof tokenizer_json - 1, NULL) ||
            template_new(&t, chat, sizeof chat - 1, NULL))
            abort();
    }
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file))
        abort();
    const char *files[] = { path };
    struct prompts_options options = { .chat_template = t, .line_limit = 4096, .chat = bytes % 2,
      .parse_special = bytes % 3 == 0 };
    if (!prompts_open(&prompts, &options, files, 1, tokenizer, NULL))
        while (prompts_next(prompts, &prompt, NULL) > 0) {
            while (prompt_next_turn(prompts, &prompt, "answer", 6, NULL) > 0)
                ;
            prompt_free(&prompt);
        }
    prompts_close(&prompts);
    unlink(path);
    return 0;
}

#ifdef FUZZ_FILES
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct text bytes = {0};
        if (file_read(&bytes, argv[i], (size_t)1 << 30, NULL))
            return 2;
        LLVMFuzzerTestOneInput((const uint8_t *)bytes.data, bytes.length);
        text_free(&bytes);
    }
    return 0;
}
#endif
