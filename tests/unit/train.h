/* Set-up shared by tests of training: the pocket target, heads converted from their published formats, and texts. */
#ifndef MOE_TESTS_UNIT_TRAIN_H
#define MOE_TESTS_UNIT_TRAIN_H

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/checkpoint/convert_head.h"
#include "common/train/source_target.h"
#include "tests/unit/unit.h"

struct train_rig {
    char *folder;
    struct thread_pool *pool;
    struct model *target;
    struct device *device;
    struct expert_source *experts;
    struct engine *engine;
};

static inline const char *train_golden(const char *name)
{
    static char paths[4][1200];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/../golden/%s", unit_models(), name);
    return path;
}

static inline json_t *train_json(const char *name)
{
    struct err err = {0};
    struct text text = {0};
    must(file_read(&text, train_golden(name), 1 << 24, &err), &err);
    json_t *root = json_loadb(text.data, text.length, 0, NULL);
    assert_non_null(root);
    text_free(&text);
    return root;
}

/* Opens the engine. device: of the engine that computes states. */
static inline void train_rig_engine(struct train_rig *rig, const char *device)
{
    struct err err = {0};
    engine_close(&rig->engine);
    expert_source_close(&rig->experts);
    device_close(&rig->device);
    must(device_open(&rig->device, &(struct device_setup){.name = device, .threads = 1}, &err), &err);
    must(expert_source_open(&rig->experts, rig->target, rig->device, &err), &err);
    must(engine_open(&rig->engine, &(struct engine_setup){.model = rig->target, .device = rig->device,
               .experts = rig->experts, .max_rows = 128, .max_logit_rows = 1}, &err), &err);
}

static inline void train_rig_open(struct train_rig *rig, int threads)
{
    struct err err = {0};
    struct checkpoint *checkpoint = NULL;
    struct conversion plan = {0};
    const struct convert_options options = {.dense = {.keep = true}, .experts = {.keep = true}, .producer = "test"};
    char source[1200];
    *rig = (struct train_rig){.folder = unit_folder()};
    const char *moe = unit_path(rig->folder, "target.moe");
    snprintf(source, sizeof source, "%s/pocket/model", unit_models());
    must(thread_pool_new(&rig->pool, threads, &err), &err);
    must(checkpoint_open(&checkpoint, source, moe, &err), &err);
    must(conversion_plan(&plan, checkpoint, &options, &err), &err);
    must(conversion_write(&plan, moe, rig->pool, NULL, &err), &err);
    conversion_free(&plan);
    checkpoint_close(&checkpoint);
    must(model_open(&rig->target, moe, &err), &err);
    train_rig_engine(rig, "host");
}

static inline void train_rig_close(struct train_rig *rig)
{
    engine_close(&rig->engine);
    expert_source_close(&rig->experts);
    device_close(&rig->device);
    model_close(&rig->target);
    thread_pool_free(&rig->pool);
    unit_remove(rig->folder);
}

/* Converts the archive tests/golden/heads/NAME to head.moe in the folder. */
static inline struct model *train_head(const struct train_rig *rig, const char *name)
{
    struct err err = {0};
    struct checkpoint *checkpoint = NULL;
    struct conversion plan = {0};
    struct text said = {0};
    struct model *head = NULL;
    const struct head_options options = {.format = {.keep = true}, .producer = "test"};
    const char *path = unit_path(rig->folder, "head.moe");
    char source[64];
    snprintf(source, sizeof source, "heads/%s/head.tar.xz", name);
    must(checkpoint_open(&checkpoint, train_golden(source), path, &err), &err);
    must(conversion_plan_head(&plan, checkpoint, rig->target, &options, &said, &err), &err);
    must(conversion_write(&plan, path, rig->pool, NULL, &err), &err);
    must(model_open_head(&head, path, &err), &err);
    conversion_free(&plan);
    checkpoint_close(&checkpoint);
    text_free(&said);
    return head;
}

/* Reads the 32 texts of the goldens, with the states that a head needs. */
static inline void train_texts_golden(struct train_source *out, const struct train_rig *rig, const struct head_states *points)
{
    struct err err = {0};
    struct train_texts *texts = NULL;
    json_t *root = train_json("train/sequences.json"), *one;
    size_t index;
    must(train_texts_new(&texts, &err), &err);
    json_array_foreach(root, index, one) {
        int32_t token[1024];
        uint8_t mask[1024];
        const json_t *ids = json_object_get(one, "ids"), *masks = json_object_get(one, "mask");
        const size_t count = json_array_size(ids);
        assert_true(count <= 1024);
        for (size_t i = 0; i < count; i++) {
            token[i] = (int32_t)json_integer_value(json_array_get(ids, i));
            mask[i] = (uint8_t)json_integer_value(json_array_get(masks, i));
        }
        must(train_texts_add(texts, token, mask, (int)count, json_string_value(json_object_get(one, "id")), &err), &err);
    }
    json_decref(root);
    must(source_target_open(out, &texts, rig->engine, points, &err), &err);
}

#endif
