/* Set-up for tests of whole forwards: a model's file on a device, with an engine and a sequence. A failure ends the test. */
#ifndef MOE_TESTS_UNIT_RIG_H
#define MOE_TESTS_UNIT_RIG_H

#include "common/engine/engine.h"
#include "tests/unit/tiny.h"
#include "tests/unit/unit.h"

enum { RIG_TOKENS = 96 };

struct rig {
    struct model *model;
    struct device *device;
    struct expert_source *experts;
    struct engine *engine;
    struct sequence *sequence;
    struct err err;
    int32_t token[RIG_TOKENS];          /* random tokens of its vocabulary, the same each time */
};

static inline void must(int rc, const struct err *err)
{
    if (rc)
        fail_msg("%s", err->text);
}

/* Returns $MOE_TEST_DEVICE, or `otherwise` if it is not set. */
static inline const char *device_name(const char *otherwise)
{
    const char *name = getenv("MOE_TEST_DEVICE");
    return name && *name ? name : otherwise;
}

/* Opens a rig. cache NULL: all experts are mapped or on the device. threads 0: the default. */
static inline void rig_open_cached(struct rig *rig, const char *path, const char *device, int threads,
                                   const struct expert_cache *cache)
{
    struct chance chance = {5};
    memset(rig, 0, sizeof *rig);
    struct err *err = &rig->err;
    must((cache ? model_open_dense : model_open)(&rig->model, path, err), err);
    must(device_open(&rig->device, &(struct device_setup){.name = device, .threads = threads}, err), err);
    if (hparams_moe_layers(model_hparams(rig->model)))
        must(cache ? expert_source_cached(&rig->experts, rig->model, rig->device, cache, err)
                   : expert_source_open(&rig->experts, rig->model, rig->device, err), err);
    for (int i = 0; i < RIG_TOKENS; i++)
        rig->token[i] = chance_range(&chance, 0, model_hparams(rig->model)->vocab - 1);
}

static inline void rig_open(struct rig *rig, const char *path, const char *device)
{
    rig_open_cached(rig, path, device, 0, NULL);
}

/* Replaces the engine by one with this setup (except for model, device and experts), and the sequence by one of capacity
 * `room`. */
static inline void rig_engine(struct rig *rig, struct engine_setup setup, int room)
{
    sequence_close(&rig->sequence);
    engine_close(&rig->engine);
    setup.model = rig->model;
    setup.device = rig->device;
    setup.experts = rig->experts;
    must(engine_open(&rig->engine, &setup, &rig->err), &rig->err);
    must(sequence_open(&rig->sequence, rig->engine, room, &rig->err), &rig->err);
}

static inline void rig_close(struct rig *rig)
{
    sequence_close(&rig->sequence);
    engine_close(&rig->engine);
    expert_source_close(&rig->experts);
    device_close(&rig->device);
    model_close(&rig->model);
}

#endif
