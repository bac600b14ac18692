/* Any change of a training checkpoint, with a digest that fits or with the old one, truncated or not: it is rejected in a
 * line, or training continues from an existing step. The first byte chooses among these; then three bytes per change, a
 * position and a value. */
#include <math.h>
#include <string.h>

#include "common/arch/arch.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/model/synthetic.h"
#include "common/train/start.h"
#include "common/train/trainer.h"
#include "tests/fuzz/fuzz.h"

enum { STEPS = 9, HEADER = 80, DIGEST_AT = 64, RESEALED = 1, CUT = 2 };

static const char SHAPE[] =
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":4,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"rms_norm_eps\":1e-5,\"vocab_size\":12,\"max_position_embeddings\":64}";
static const char RECIPE[] = "{\"arch\":\"medusa\",\"states\":[1],\"rate\":0.5,\"texts\":\"0123456789abcdef\"}";

static struct {
    struct model *model;
    struct thread_pool *pool;
    struct device *device;
    struct weights *weights;
    struct trainer *trainer;
    struct train_source source;
    struct train_settings settings;
    struct text good;                   /* a checkpoint */
} rig;

static void must(int rc)
{
    if (rc)
        abort();
}

static int read_nothing(void *self, int64_t index, int longest, struct train_text *out, struct err *err)
{
    (void)self, (void)index, (void)longest, (void)out;
    return err_set(err, ERR_INPUT, "there are no texts");
}

static void open_rig(void)
{
    static struct hparams shape;
    const struct synthetic_options options = {.dense = FORMAT_F32, .experts = FORMAT_F32, .name = "t", .producer = "fuzz"};
    const char *base = getenv("TMPDIR");
    struct start_options start = start_defaults;
    struct head_reading reading = {0};
    char path[512];
    snprintf(path, sizeof path, "%s/moe-fuzz-checkpoint-%ld", base && *base ? base : "/tmp", (long)getpid());
    start.kind = HEAD_MEDUSA;
    start.guesses = 1;
    rig.source = (struct train_source){.texts = 4, .read = read_nothing, .outline = read_nothing};
    rig.settings = (struct train_settings){.optimiser.steps = STEPS, .batch = 2, .longest = 8};
    must(arch_read_text(SHAPE, sizeof SHAPE - 1, 0, &shape, NULL) || thread_pool_new(&rig.pool, 1, NULL) ||
         synthetic_write(path, &shape, &options, rig.pool, NULL, NULL) || model_open(&rig.model, path, NULL));
    unlink(path);
    must(start_head(&reading, &start, rig.model, NULL) || weights_make(&rig.weights, &reading.head, &reading.shape, NULL) ||
         weights_start(rig.weights, rig.model, 1, NULL));
    head_reading_free(&reading);
    const struct trainer_setup setup = {.weights = rig.weights, .source = &rig.source, .settings = &rig.settings};
    must(device_open(&rig.device, &(struct device_setup){"host", 1, NULL, false}, NULL) ||
         weights_place(rig.weights, rig.device, NULL) || trainer_open(&rig.trainer, &setup, NULL) ||
         trainer_save(rig.trainer, path, RECIPE, NULL) ||
         file_read(&rig.good, path, 1 << 20, NULL) || rig.good.length <= HEADER + sizeof RECIPE);
    unlink(path);
}

static void reseal(char *data, size_t bytes)
{
    struct xxh3_stream *stream = NULL;
    must(bytes < HEADER || xxh3_stream_new(&stream, NULL));
    xxh3_stream_put(stream, data, DIGEST_AT);
    xxh3_stream_put(stream, data + HEADER, bytes - HEADER);
    const struct digest128 digest = xxh3_stream_digest(stream);
    memcpy(data + DIGEST_AT, &digest, sizeof digest);
    xxh3_stream_free(&stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct err err = {0};
    char path[64], *copy;
    if (!rig.model)
        open_rig();
    size_t length = rig.good.length;
    if (!bytes || !(copy = malloc(length)))
        return 0;
    memcpy(copy, rig.good.data, length);
    for (size_t i = 1; i + 3 <= bytes; i += 3)
        copy[(size_t)(data[i] << 8 | data[i + 1]) % (HEADER + sizeof RECIPE + 64)] = (char)data[i + 2];
    if (data[0] & RESEALED)
        reseal(copy, length);
    if (data[0] & CUT)
        length -= length * (data[0] >> 2) / 64;
    const int fd = fuzz_file((const uint8_t *)copy, length, path);
    if (!trainer_resume(rig.trainer, path, RECIPE, &err)) {
        const struct train_best *best = trainer_best(rig.trainer);
        const int64_t made = trainer_steps(rig.trainer);
        if (made < 0 || made > STEPS || best->evaluated > made || best->step > best->evaluated || isnan(best->loss))
            abort();
    } else if (!err.text[0] || strchr(err.text, '\n')) {
        abort();
    }
    close(fd);
    free(copy);
    return 0;
}
