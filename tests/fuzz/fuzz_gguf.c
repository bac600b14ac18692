/* Any bytes as a GGUF file: accepted tensors can be read completely, and the texts made from the metadata are accepted by
 * their readers as a shape and a tokenizer, or rejected. */
#include "common/arch/arch.h"
#include "common/base/mem.h"
#include "common/checkpoint/gguf.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static void use_texts(const struct checkpoint *cp)
{
    static struct hparams shape;
    const struct text *config = &cp->texts[TEXT_CONFIG], *json = &cp->texts[TEXT_TOKENIZER];
    struct tokenizer *tokenizer = NULL;
    struct tokens ids = {0};
    if (config->length && !arch_read_text(config->data, config->length, 0, &shape, NULL) && hparams_check(&shape, NULL))
        abort();
    if (!json->length)
        json = &cp->texts[TEXT_TOKENIZER_MODEL];
    if (json->length && !tokenizer_new(&tokenizer, json->data, json->length, NULL))
        (void)tokenizer_encode(tokenizer, "ab 11", 5, TOKENIZER_FRAME, &ids, NULL);
    tokens_free(&ids);
    tokenizer_free(&tokenizer);
}

static void use_tensors(const struct checkpoint *cp)
{
    struct source_reading reading = {0};
    for (size_t i = 0; i < cp->tensor_count; i++) {
        const struct source_tensor *tensor = &cp->tensors[i];
        const int64_t columns = tensor->dims[tensor->dim_count - 1];
        uint8_t byte = 0;
        if (checkpoint_read(cp, tensor, 0, &byte, 1, NULL) || checkpoint_read(cp, tensor, tensor->bytes - 1, &byte, 1, NULL))
            abort();
        float *values = tensor->coding && columns <= 1 << 16 ? mem_alloc((size_t)columns, sizeof *values, NULL) : NULL;
        if (values && tensor->coding->read(cp, tensor, 0, columns, &reading, values, NULL))
            abort();
        mem_free(&values);
    }
    source_reading_free(&reading);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    struct checkpoint *cp = mem_alloc(1, sizeof *cp, NULL);
    struct source_file *file = cp ? checkpoint_add_file(cp, "x.gguf", NULL) : NULL;
    struct gguf gguf = {0};
    if (!file)
        abort();
    file->fd = fuzz_file(data, bytes, path);
    file->bytes = bytes;
    if (!gguf_read(&gguf, cp, 0, NULL) && !checkpoint_finish(cp, NULL)) {
        (void)gguf_make_config(&gguf, cp, NULL);
        (void)gguf_make_tokenizer(&gguf, cp, NULL);
        use_texts(cp);
        use_tensors(cp);
    }
    gguf_free(&gguf);
    checkpoint_close(&cp);
    return 0;
}
