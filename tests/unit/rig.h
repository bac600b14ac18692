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
    char *folder;                       /* of a file that rig_write wrote; NULL: none */
    int32_t token[RIG_TOKENS];          /* random tokens of its vocabulary, the same each time */
};

/* Returns $MOE_TEST_DEVICE, or `otherwise` if it is not set. */
static inline const char *device_name(const char *otherwise)
{
    const char *name = getenv("MOE_TEST_DEVICE");
    return name && *name ? name : otherwise;
}

/* Opens a rig on this device. cache NULL: all experts are mapped or on the device. */
static inline void rig_open_on(struct rig *rig, const char *path, const struct device_setup *device,
                               const struct expert_cache *cache)
{
    struct chance chance = {5};
    memset(rig, 0, sizeof *rig);
    struct err *err = &rig->err;
    must((cache ? model_open_dense : model_open)(&rig->model, path, err), err);
    must(device_open(&rig->device, device, err), err);
    if (hparams_moe_layers(model_hparams(rig->model)))
        must(cache ? expert_source_cached(&rig->experts, rig->model, rig->device, cache, err)
                   : expert_source_open(&rig->experts, rig->model, rig->device, err), err);
    for (int i = 0; i < RIG_TOKENS; i++)
        rig->token[i] = chance_range(&chance, 0, model_hparams(rig->model)->vocab - 1);
}

/* threads 0: the default. */
static inline void rig_open_cached(struct rig *rig, const char *path, const char *device, int threads,
                                   const struct expert_cache *cache)
{
    rig_open_on(rig, path, &(struct device_setup){.name = device, .threads = threads}, cache);
}

static inline void rig_open(struct rig *rig, const char *path, const char *device)
{
    rig_open_cached(rig, path, device, 0, NULL);
}

static inline const char *rig_path(const struct rig *rig) { return unit_path(rig->folder, "model.moe"); }

/* Writes a tiny model of this shape into a folder of the rig's own, and opens it on the host. */
static inline void rig_write(struct rig *rig, const struct hparams *shape, enum weight_format format, uint64_t seed,
                             int threads)
{
    struct err err = {0};
    char *folder = unit_folder();
    must(tiny_write(unit_path(folder, "model.moe"), shape, format, seed, &err), &err);
    rig_open_cached(rig, unit_path(folder, "model.moe"), "host", threads, NULL);
    rig->folder = folder;
}

/* Replaces the engine by one with this setup (except for model, device and experts), and the sequence by one of capacity
 * `room`; 0: none. */
static inline void rig_engine(struct rig *rig, struct engine_setup setup, int room)
{
    sequence_close(&rig->sequence);
    engine_close(&rig->engine);
    setup.model = rig->model;
    setup.device = rig->device;
    setup.experts = rig->experts;
    must(engine_open(&rig->engine, &setup, &rig->err), &rig->err);
    if (room)
        must(sequence_open(&rig->sequence, rig->engine, room, &rig->err), &rig->err);
}

static inline void rig_close(struct rig *rig)
{
    sequence_close(&rig->sequence);
    engine_close(&rig->engine);
    expert_source_close(&rig->experts);
    device_close(&rig->device);
    model_close(&rig->model);
    if (rig->folder)
        unit_remove(rig->folder);
}

#endif
