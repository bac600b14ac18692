/* Any bytes as a draft head's config.json and, after a NUL, its .safetensors file: a description with the properties that
 * head_check promises, whose tensors have a layout, or an error. */
#include <string.h>

#include "common/base/mem.h"
#include "common/checkpoint/convert_head.h"
#include "common/model/synthetic.h"
#include "tests/fuzz/fuzz.h"

static const char SHAPE[] =
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":4,\"num_hidden_layers\":6,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"rms_norm_eps\":1e-5,\"vocab_size\":12,\"max_position_embeddings\":64}";

/* Made once per process; its file is removed once it is mapped. */
static struct model *make_target(void)
{
    static struct hparams shape;
    const char *base = getenv("TMPDIR");
    const struct synthetic_options options = {.dense = FORMAT_BF16, .experts = FORMAT_BF16, .name = "t", .producer = "fuzz"};
    struct thread_pool *pool = NULL;
    struct model *target = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s/moe-fuzz-%ld.moe", base && *base ? base : "/tmp", (long)getpid());
    if (arch_read_text(SHAPE, sizeof SHAPE - 1, 0, &shape, NULL) || thread_pool_new(&pool, 1, NULL) ||
        synthetic_write(path, &shape, &options, pool, NULL, NULL) || model_open(&target, path, NULL))
        abort();
    unlink(path);
    thread_pool_free(&pool);
    return target;
}

static void plan(struct checkpoint *cp, const struct model *target, unsigned choice)
{
    const struct head_options options = {.format = {.keep = true}, .kind = (enum head_kind)(choice % HEAD_KINDS),
                                         .exit_layer = (int)(choice / 8 % 3), .layer_ids = (enum layer_ids)(choice / 32 % 3),
                                         .producer = "fuzz"};
    struct conversion conversion = {0};
    struct text notes = {0};
    uint64_t end;
    if (!conversion_plan_head(&conversion, cp, target, &options, &notes, NULL)) {
        if (head_check(&conversion.facts.head, &conversion.facts.shape, NULL))
            abort();
        (void)layout_arrange(&conversion.layout, MODEL_PAGE, &end, NULL);
    }
    conversion_free(&conversion);
    text_free(&notes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct model *target;
    const uint8_t *nul = bytes ? memchr(data, 0, bytes) : NULL;
    char path[64];
    if (!target)
        target = make_target();
    if (!nul)
        return 0;
    struct checkpoint *cp = mem_alloc(1, sizeof *cp, NULL);
    if (!cp || !(cp->path = mem_string("head", NULL)))
        abort();
    const size_t config = (size_t)(nul - data);
    if (config && checkpoint_add_text(cp, TEXT_CONFIG, (const char *)data, config, NULL))
        abort();
    struct source_file *file = checkpoint_add_file(cp, "x.safetensors", NULL);
    if (!file)
        abort();
    file->bytes = bytes - config - 1;
    file->fd = fuzz_file(nul + 1, (size_t)file->bytes, path);
    if (!checkpoint_read_header(cp, (int)cp->file_count - 1, NULL) && !checkpoint_finish(cp, NULL)) {
        plan(cp, target, 0);
        for (size_t i = 0; i < cp->tensor_count; i++)
            cp->tensors[i].used = false;
        plan(cp, target, bytes % 96);
    }
    checkpoint_close(&cp);
    return 0;
}
