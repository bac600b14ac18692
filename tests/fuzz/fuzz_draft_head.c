/* Any change of the index of a draft head's file, with a digest that fits: it is rejected, or its network runs on its
 * target. The first byte is the kind of head; then three bytes per change, a position in the index and a value. */
#include <string.h>

#include "common/arch/arch.h"
#include "common/arch/head.h"
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/head/head.h"
#include "common/model/model_index.h"
#include "common/model/synthetic.h"
#include "common/store/expert_source.h"
#include "tests/fuzz/fuzz.h"

enum { ROWS = 4 };

static const char SHAPE[] =
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":4,\"num_hidden_layers\":6,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"rms_norm_eps\":1e-5,\"vocab_size\":12,\"max_position_embeddings\":64}";

static struct {
    struct model *model;
    struct device *device;
    struct engine *engine;
    struct thread_pool *pool;
    struct text head[HEAD_KINDS];       /* files */
} rig;

static void must(int rc)
{
    if (rc)
        abort();
}

static void name_file(char path[512], const char *what)
{
    const char *base = getenv("TMPDIR");
    snprintf(path, 512, "%s/moe-fuzz-%s-%ld.moe", base && *base ? base : "/tmp", what, (long)getpid());
}

static void open_rig(void)
{
    static struct hparams shape;
    const struct synthetic_options options = {.dense = FORMAT_F32, .experts = FORMAT_F32, .name = "t", .producer = "fuzz"};
    char path[512];
    name_file(path, "target");
    must(arch_read_text(SHAPE, sizeof SHAPE - 1, 0, &shape, NULL) || thread_pool_new(&rig.pool, 1, NULL) ||
         synthetic_write(path, &shape, &options, rig.pool, NULL, NULL) || model_open(&rig.model, path, NULL));
    unlink(path);
    must(device_open(&rig.device, &(struct device_setup){.name = "host", .threads = 1}, NULL));
    const struct engine_setup setup = {.model = rig.model, .device = rig.device, .max_rows = ROWS, .max_logit_rows = ROWS};
    must(engine_open(&rig.engine, &setup, NULL));
}

static void make_head(enum head_kind kind)
{
    struct head_reading reading = {.notes = {0}};
    const struct synthetic_options options = {.dense = FORMAT_F32, .experts = FORMAT_F32, .seed = 1, .name = "h",
                                              .producer = "fuzz", .head = &reading.head};
    char path[512];
    name_file(path, head_kind_name(kind));
    must(head_invent(&reading, kind, NULL, rig.model, NULL) ||
         synthetic_write(path, &reading.shape, &options, rig.pool, NULL, NULL) ||
         file_read(&rig.head[kind], path, 1 << 24, NULL));
    unlink(path);
    head_reading_free(&reading);
}

/* States of rows, with any numbers. */
static struct buffer states_of(const struct head_params *params)
{
    const size_t values = (size_t)params->states * ROWS * (size_t)params->target.hidden;
    struct buffer out = {0, 0};
    float *number = mem_alloc(values, sizeof *number, NULL);
    if (!number || device_alloc(rig.device, values * sizeof *number, &out, NULL))
        abort();
    for (size_t i = 0; i < values; i++)
        number[i] = (float)(i % 7) - 3;
    queue_upload(rig.device, out, number, values * sizeof *number);
    must(queue_wait(rig.device, NULL));
    mem_free(&number);
    return out;
}

static void run(const struct model *model)
{
    static const int32_t token[ROWS] = {1, 2, 3, 4}, row[ROWS] = {0, 1, 2, 3};
    const struct head_params *params = model_head(model);
    const struct head_setup setup = {.model = model, .target = rig.engine, .max_rows = ROWS, .max_logit_rows = ROWS};
    struct head *head = NULL;
    struct head_forward out;
    if (head_check_target(params, model_identity(rig.model), true, NULL) || head_open(&head, &setup, NULL))
        return;
    struct buffer states = states_of(params);
    const struct head_batch batch = {.rows = ROWS, .token = token, .state = states, .state_rows = ROWS, .state_row = row,
                                     .logit_rows = ROWS, .branches = head_branches(head)};
    if (!head_begin(head, 8, NULL) && !head_run(head, &batch, &out, NULL)) {
        float sum = 0;
        for (int branch = 0; branch < head_branches(head); branch++)
            for (int i = 0; i < ROWS * out.vocab; i++)
                sum += out.logits[branch][i];
        (void)sum;
        must(head_commit(head, row, ROWS, NULL));
    }
    device_free(rig.device, &states);
    head_close(&head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!rig.engine)
        open_rig();
    if (!bytes)
        return 0;
    const enum head_kind kind = (enum head_kind)(HEAD_NONE + 1 + data[0] % (HEAD_KINDS - HEAD_NONE - 1));
    if (!rig.head[kind].data)
        make_head(kind);
    struct text file = {0};
    struct model_head head;
    struct model *model = NULL;
    char path[64];
    if (text_put(&file, rig.head[kind].data, rig.head[kind].length, NULL) ||
        model_head_read(&head, (const uint8_t *)file.data, file.length, NULL))
        abort();
    uint8_t *index = (uint8_t *)file.data + head.index_offset;
    for (size_t at = 1; at + 3 <= bytes; at += 3)
        index[(data[at] | (size_t)data[at + 1] << 8) % head.index_bytes] = data[at + 2];
    must(hash_sha256(index, head.index_bytes, &head.index, NULL));
    model_head_write((uint8_t *)file.data, &head);
    int fd = fuzz_file((const uint8_t *)file.data, file.length, path);
    if (!model_open_head(&model, path, NULL))
        run(model);
    model_close(&model);
    close(fd);
    text_free(&file);
    return 0;
}
