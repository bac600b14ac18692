/* Goldens of draft heads (tests/golden/heads): the pocket model as their target, heads converted from their published form,
 * and reference values computed by an independent program. A failure ends the test. */
#ifndef MOE_TESTS_HEADS_H
#define MOE_TESTS_HEADS_H

#include "tests/unit/unit.h"

#include <math.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/checkpoint/convert_head.h"
#include "common/engine/engine.h"

enum { HEADS_TEXTS = 4, HEADS_TOKENS = 128 };

struct heads_text {
    char id[32];
    int32_t token[HEADS_TOKENS];        /* prompt and answer */
    int tokens, prompt;
};

struct heads_rig {
    char *folder, path[1200];           /* path: of the target's file */
    struct model *target;
    struct device *device;
    struct expert_source *experts;
    struct engine *engine;
    struct heads_text text[HEADS_TEXTS];
};

/* Returns the path tests/FOLDER/NAME. */
static inline const char *heads_path(const char *folder, const char *name)
{
    static char paths[4][1200];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/../%s/%s", unit_models(), folder, name);
    return path;
}

/* Returns the path of a published head in tests/golden/heads. */
static inline const char *heads_published(const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/head.tar.xz", name);
    return heads_path("golden/heads", path);
}

static inline json_t *heads_json(const char *path)
{
    json_t *json = json_load_file(path, 0, NULL);
    if (!json)
        fail_msg("%s", path);
    return json;
}

static inline int heads_ints(const json_t *list, int32_t *out, int room)
{
    int count = (int)json_array_size(list);
    assert_true(count <= room);
    for (int i = 0; i < count; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    return count;
}

static inline void heads_write(struct checkpoint *checkpoint, struct conversion *plan, const char *path)
{
    struct err err = {0};
    struct thread_pool *pool = NULL;
    must(thread_pool_new(&pool, 1, &err), &err);
    must(conversion_write(plan, path, pool, NULL, &err), &err);
    thread_pool_free(&pool);
    conversion_free(plan);
    checkpoint_close(&checkpoint);
}

static inline void heads_open_target(struct heads_rig *rig)
{
    const struct convert_options options = {.dense = {.keep = true}, .experts = {.keep = true}, .name = "pocket",
                                            .producer = "test"};
    struct checkpoint *checkpoint = NULL;
    struct conversion plan = {0};
    struct err err = {0};
    snprintf(rig->path, sizeof rig->path, "%s/pocket.moe", rig->folder);
    must(checkpoint_open(&checkpoint, heads_path("models/pocket", "model"), rig->path, &err), &err);
    must(conversion_plan(&plan, checkpoint, &options, &err), &err);
    heads_write(checkpoint, &plan, rig->path);
    must(model_open(&rig->target, rig->path, &err), &err);
}

/* Converts a published head to a file of this name; the caller closes it with model_close. */
static inline struct model *heads_convert(const struct heads_rig *rig, const char *source, const char *name)
{
    const struct head_options options = {.format = {.keep = true}, .producer = "test"};
    const char *path = unit_path(rig->folder, name);
    struct checkpoint *checkpoint = NULL;
    struct conversion plan = {0};
    struct model *model = NULL;
    struct text said = {0};
    struct err err = {0};
    must(checkpoint_open(&checkpoint, source, path, &err), &err);
    must(conversion_plan_head(&plan, checkpoint, rig->target, &options, &said, &err), &err);
    heads_write(checkpoint, &plan, path);
    text_free(&said);
    must(model_open_head(&model, path, &err), &err);
    return model;
}

static inline void heads_read_texts(struct heads_rig *rig)
{
    json_t *texts = heads_json(heads_path("golden/heads", "texts.json"));
    assert_int_equal(json_array_size(texts), HEADS_TEXTS);
    for (size_t i = 0; i < HEADS_TEXTS; i++) {
        const json_t *one = json_array_get(texts, i);
        struct heads_text *text = &rig->text[i];
        snprintf(text->id, sizeof text->id, "%s", json_string_value(json_object_get(one, "id")));
        text->prompt = heads_ints(json_object_get(one, "prompt_tokens"), text->token, HEADS_TOKENS);
        text->tokens = text->prompt + heads_ints(json_object_get(one, "tokens"), text->token + text->prompt,
                                                 HEADS_TOKENS - text->prompt);
    }
    json_decref(texts);
}

static inline const struct heads_text *heads_find_text(const struct heads_rig *rig, const char *id)
{
    for (int i = 0; i < HEADS_TEXTS; i++)
        if (!strcmp(rig->text[i].id, id))
            return &rig->text[i];
    fail_msg("no text %s", id);
    return NULL;
}

/* Opens the pocket model on $MOE_TEST_DEVICE or the host, with an f32 KV cache. */
static inline void heads_open(struct heads_rig *rig)
{
    const char *device = getenv("MOE_TEST_DEVICE");
    struct err err = {0};
    *rig = (struct heads_rig){.folder = unit_folder()};
    heads_read_texts(rig);
    heads_open_target(rig);
    const struct device_setup where = {.name = device && *device ? device : "host", .threads = 1};
    must(device_open(&rig->device, &where, &err), &err);
    must(expert_source_open(&rig->experts, rig->target, rig->device, &err), &err);
    const struct engine_setup setup = {.model = rig->target, .device = rig->device, .experts = rig->experts, .max_rows = 128,
                                       .max_logit_rows = 128, .cache = CACHE_F32};
    must(engine_open(&rig->engine, &setup, &err), &err);
}

static inline void heads_close(struct heads_rig *rig)
{
    engine_close(&rig->engine);
    expert_source_close(&rig->experts);
    device_close(&rig->device);
    model_close(&rig->target);
    unit_remove(rig->folder);
}

/* The rig shared by all tests of a group: cmocka_run_group_tests(tests, heads_make_rig, heads_drop_rig). */
static struct heads_rig rig;

static inline int heads_make_rig(void **state)
{
    (void)state;
    heads_open(&rig);
    return 0;
}

static inline int heads_drop_rig(void **state)
{
    (void)state;
    heads_close(&rig);
    return 0;
}

/* ---- tensors of a golden: a minimal reader of safetensors in F32 ---- */

struct heads_golden {
    struct text data;
    json_t *header;
};

static inline struct heads_golden heads_golden_open(const char *path)
{
    struct heads_golden golden = {.header = NULL};
    struct err err = {0};
    uint64_t bytes;
    must(file_read(&golden.data, path, 1 << 26, &err), &err);
    memcpy(&bytes, golden.data.data, sizeof bytes);
    golden.header = json_loadb(golden.data.data + 8, bytes, 0, NULL);
    assert_non_null(golden.header);
    return golden;
}

static inline void heads_golden_close(struct heads_golden *golden)
{
    json_decref(golden->header);
    text_free(&golden->data);
}

/* Reads a tensor [*rows][width], which the caller frees. */
static inline float *heads_tensor(const struct heads_golden *golden, const char *name, int *rows, int width)
{
    const json_t *about = json_object_get(golden->header, name), *shape = json_object_get(about, "shape");
    const json_t *where = json_object_get(about, "data_offsets");
    uint64_t bytes;
    if (!about)
        fail_msg("no tensor %s", name);
    memcpy(&bytes, golden->data.data, sizeof bytes);
    *rows = (int)json_integer_value(json_array_get(shape, 0));
    assert_int_equal(json_integer_value(json_array_get(shape, 1)), width);
    const size_t from = (size_t)json_integer_value(json_array_get(where, 0));
    const size_t size = (size_t)*rows * (size_t)width * sizeof(float);
    assert_int_equal(json_integer_value(json_array_get(where, 1)), from + size);
    float *values = malloc(size);
    memcpy(values, golden->data.data + 8 + bytes + from, size);
    return values;
}

/* ---- comparison ---- */

/* Returns the largest difference between two arrays; infinite if one has a NaN. */
static inline double heads_difference(const float *a, const float *b, size_t count)
{
    double max = 0;
    for (size_t i = 0; i < count; i++) {
        const double off = fabs((double)a[i] - (double)b[i]);
        max = isnan(off) ? INFINITY : off > max ? off : max;
    }
    return max;
}

static inline double heads_largest(const float *a, size_t count)
{
    double max = 0;
    for (size_t i = 0; i < count; i++)
        max = fmax(max, fabs((double)a[i]));
    return max;
}

/* Returns the likeliest token; *log_probability is its own. */
static inline int heads_best(const float *logits, int vocab, double *log_probability)
{
    int max = 0;
    double sum = 0;
    for (int v = 1; v < vocab; v++)
        max = logits[v] > logits[max] ? v : max;
    for (int v = 0; v < vocab; v++)
        sum += exp((double)logits[v] - (double)logits[max]);
    *log_probability = -log(sum);
    return max;
}

#endif
