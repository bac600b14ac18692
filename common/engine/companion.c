#include "common/engine/companion.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/engine/internal.h"
#include "common/store/expert_source.h"
#include "common/tokenizer/tokenizer.h"

struct companion {
    struct model *model;                /* NULL: the target's model */
    struct expert_source *experts;      /* NULL: a dense model, or the target's source */
    struct engine *engine;
};

static int load_tokenizer(struct tokenizer **out, const struct model *model, struct err *err)
{
    size_t bytes = 0;
    const char *text = model_tokenizer_json(model, &bytes);
    return text && tokenizer_new(out, text, bytes, err) ? err_at(err, "%s: tokenizer", model_path(model)) : 0;
}

/* Compares two tokenizers whose descriptions differ: they are accepted if the tokens and their ids are equal, because only
 * the target's tokenizer splits text. */
static int compare_tokens(const struct model *own, const struct model *target, struct err *err)
{
    struct tokenizer *mine = NULL, *its = NULL;
    int rc = load_tokenizer(&mine, own, err) || load_tokenizer(&its, target, err) ? -1 : 0;
    int32_t other = !rc && mine && its ? tokenizer_compare(mine, its) : -1;
    if (!rc && (!mine || !its))
        rc = err_set(err, ERR_INPUT, "%s: only one of this model and %s has a tokenizer; use two models with the same "
                     "tokenizer",
                     model_path(own), model_path(target));
    else if (other >= 0)
        rc = err_set(err, ERR_INPUT, "%s: its tokenizer differs from that of %s, first in token %d; use a model with the same "
                     "tokenizer", model_path(own), model_path(target), (int)other);
    tokenizer_free(&mine);
    tokenizer_free(&its);
    return rc;
}

int companion_check_tokens(const struct model *own, const struct model *target, struct err *err)
{
    const struct model_identity *mine = model_identity(own), *its = model_identity(target);
    static const struct sha256 none;
    if (memcmp(&mine->tokenizer, &its->tokenizer, sizeof none) != 0)
        return compare_tokens(own, target, err);
    if (memcmp(&mine->tokenizer, &none, sizeof none) == 0 && mine->vocab != its->vocab)
        return err_set(err, ERR_INPUT, "%s: its vocabulary has %d tokens, but that of %s has %d, and neither model has a "
                       "tokenizer; use a model with the same vocabulary", model_path(own), mine->vocab, model_path(target),
                       its->vocab);
    return 0;
}

static int open_parts(struct companion *companion, const char *file, struct engine_setup *engine, struct err *err)
{
    if (file) {
        if (model_open(&companion->model, file, err) || companion_check_tokens(companion->model, engine->model, err) ||
            (model_identity(companion->model)->moe_layers &&
             expert_source_open(&companion->experts, companion->model, engine->device, err)))
            return -1;
        if (!experts_alike(companion->model, engine->model))
            engine->forecast_to = NULL;
        engine->model = companion->model;
        engine->experts = companion->experts;
        engine->max_positions = 0;
        engine->second = NULL;
        engine->peers = NULL;
    }
    if (engine_open(&companion->engine, engine, err))
        return file ? err_at(err, "%s", file) : -1;
    return 0;
}

int companion_open(struct companion **out, const char *file, const struct engine *target, enum cache_format cache,
                   int max_rows, int max_logit_rows, struct err *err)
{
    struct engine_setup engine = *engine_config(target);
    struct companion *companion = mem_alloc(1, sizeof *companion, err);
    if (!companion)
        return -1;
    engine.cache = cache;
    engine.max_rows = max_rows;
    engine.max_logit_rows = max_logit_rows;
    engine.beside = true;
    engine.look_ahead = engine.forecast_forced = false;
    if (open_parts(companion, file, &engine, err)) {
        companion_close(&companion);
        return -1;
    }
    *out = companion;
    return 0;
}

void companion_close(struct companion **companion)
{
    if (!*companion)
        return;
    engine_close(&(*companion)->engine);
    expert_source_close(&(*companion)->experts);
    model_close(&(*companion)->model);
    mem_free(companion);
}

struct engine *companion_engine(const struct companion *companion) { return companion->engine; }
