/* Any bytes as a prompt file, or as standard input, with a small tokenizer and template. */
#include <string.h>

#include "common/prompts/prompts.h"
#include "tests/fuzz/fuzz.h"

static const char tokenizer_json[] =
    "{\"added_tokens\":[{\"id\":3,\"content\":\"<|\",\"special\":true}],\"normalizer\":{\"type\":\"NFC\"},"
    "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";
static const char chat[] = "{% for m in messages %}<|{{ m.role }}{{ m.content|trim }}{% endfor %}";

static void read_note(void *context, const char *text)
{
    *(size_t *)context += strlen(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    size_t noted = 0;
    static struct tokenizer *tokenizer;
    static struct template *t;
    struct prompts *prompts = NULL;
    struct prompt prompt = {0};
    if (!tokenizer) {
        if (tokenizer_new(&tokenizer, tokenizer_json, sizeof tokenizer_json - 1, NULL) ||
            template_new(&t, chat, sizeof chat - 1, NULL))
            abort();
    }
    int fd = fuzz_file(data, bytes, path);
    const char *files[] = { path };
    static const int end = 2;
    struct prompts_options options = { .chat_template = t, .line_limit = 4096, .chat = bytes % 2,
      .parse_special = bytes % 3 == 0, .answers = (enum prompts_answers)(bytes / 2 % 3), .unanswered = bytes % 7 == 0,
      .each = bytes % 11 < 5, .system = bytes % 13 < 4 ? "s" : NULL, .notes = {read_note, &noted},
      .ends = &end, .n_ends = 1 };
    bool standard = bytes % 5 < 2;
    if (standard && dup2(fd, STDIN_FILENO) < 0)
        abort();
    if (!prompts_open(&prompts, &options, files, !standard, tokenizer, NULL))
        /* Each call but the last two reads at least one byte, so more calls mean that prompts_next never ends. */
        for (size_t calls = 0; ; calls++) {
            struct err err = {0};
            if (calls > bytes + 2)
                abort();
            int rc = prompts_next(prompts, &prompt, &err);
            if (!rc || (rc < 0 && err.code != ERR_INPUT))
                break;
            while (rc > 0 && prompt_next_turn(prompts, &prompt, "answer", 6, NULL) > 0)
                ;
            prompt_free(&prompt);
        }
    prompts_close(&prompts);
    close(fd);
    return 0;
}
