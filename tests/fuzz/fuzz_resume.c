/* Any bytes as the stream of an interrupted run: a run with the prompts that the stream has copies its texts to another
 * stream. */
#include "common/base/mem.h"
#include "common/instruments/resume.h"
#include "common/stream/leftover.h"
#include "common/stream/writer.h"
#include "tests/fuzz/fuzz.h"

enum { TEXTS_MAX = 64 };

struct found {
    struct header header;
    bool has_header, has_machine;
    char *device, *isa, *cache, *options;
    struct prompt prompt[TEXTS_MAX];
    int prompts;
};

static char *copy(const char *text) { return text ? mem_string(text, NULL) : NULL; }

static int see(void *context, const struct reader *in, const struct record *record, struct err *err)
{
    struct found *found = context;
    if (!found->has_header && header_copy(&found->header, reader_header(in), err))
        return -1;
    found->has_header = true;
    if (record->kind == &decode_machine_kind && !found->has_machine) {
        const struct decode_machine *machine = record->body;
        found->device = copy(machine->device);
        found->isa = copy(machine->isa);
        found->cache = copy(machine->kv_dtype);
        found->options = copy(machine->options);
        found->has_machine = true;
    }
    if (record->kind == &decode_begin_kind && found->prompts < TEXTS_MAX) {
        const struct decode_begin *begin = record->body;
        struct prompt *prompt = &found->prompt[found->prompts];
        if (!begin->prompt || !begin->prompt_tokens)
            return 0;
        found->prompts++;
        prompt->id = copy("id");
        prompt->turns = 1;
        prompt->tokens.n = begin->prompt_tokens;
        prompt->tokens.ids = mem_copy(begin->prompt, (size_t)begin->prompt_tokens * sizeof *begin->prompt, err);
        return prompt->tokens.ids ? 0 : -1;
    }
    return 0;
}

static void take_all(struct decode_resume *resume, struct found *found, struct writer *writer)
{
    struct decode_recorder recorder = {.writer = writer};
    struct err err = {0};
    for (int i = 0; i < found->prompts; i++)
        if (decode_resume_expect(resume, &found->prompt[i], &err))
            return;
    decode_resume_checked(resume, &err);
    for (int i = 0; i < found->prompts; i++) {
        struct decode_taken taken;
        bool has;
        if (decode_resume_has(resume, &found->prompt[i], &has, &err) ||
            (has && decode_resume_take(resume, &found->prompt[i], &recorder, &taken, &err)))
            return;
        recorder.sequence += has;
        for (int t = 0; has && t < taken.tokens; t++)
            if (taken.token[t] == INT32_MIN)                    /* all of them can be read */
                recorder.flush = false;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    int fd = fuzz_file(data, bytes, path);
    struct found found = {0};
    struct decode_resume *resume = NULL;
    struct writer *writer = NULL;
    struct leftover left;
    if (!leftover_read(path, STREAM_DECODE, see, &found, &left, NULL) && found.has_header) {
        const struct decode_machine machine = {.device = found.device ? found.device : "", .isa = found.isa,
                                               .kv_dtype = found.cache, .options = found.options ? found.options : "{}"};
        struct header header = {0};
        if (!header_copy(&header, &found.header, NULL) && !writer_open(&writer, "/dev/null", &header, NULL) &&
            !decode_resume_open(&resume, path, &header, &machine, NULL))
            take_all(resume, &found, writer);
        header_free(&header);
    }
    decode_resume_close(&resume);
    writer_abort(&writer, NULL);
    for (int i = 0; i < found.prompts; i++)
        prompt_free(&found.prompt[i]);
    header_free(&found.header);
    mem_free(&found.device);
    mem_free(&found.isa);
    mem_free(&found.cache);
    mem_free(&found.options);
    close(fd);
    return 0;
}
