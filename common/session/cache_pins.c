#include "common/session/cache_pins.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/cache/cache.h"
#include "common/cache/hot_set.h"
#include "common/cli/spec.h"
#include "common/route/ranking.h"
#include "common/stream/reader.h"

void cache_pins_free(struct cache_pins *pins)
{
    mem_free(&pins->key);
    mem_free(&pins->weight);
    pins->count = 0;
}

struct ranked { double score; int32_t at, key; };

static int better(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at) : (x->key > y->key) - (x->key < y->key);
}

static int take_ranking(struct cache_pins *pins, const struct ranking *ranking, struct err *err)
{
    const int keys = ranking->moe_layers * ranking->experts;
    struct ranked *all = mem_alloc((size_t)keys, sizeof *all, err);
    pins->key = mem_alloc((size_t)keys, sizeof *pins->key, err);
    pins->weight = mem_alloc((size_t)keys, sizeof *pins->weight, err);
    if (!all || !pins->key || !pins->weight) {
        mem_free(&all);
        return -1;
    }
    for (int i = 0; i < keys; i++)
        all[i] = (struct ranked){ranking->score[i], i % ranking->experts,
                                 i / ranking->experts * ranking->experts + ranking->order[i]};
    qsort(all, (size_t)keys, sizeof *all, better);
    for (int i = 0; i < keys; i++) {
        pins->key[i] = all[i].key;
        pins->weight[i] = all[i].score;
    }
    pins->count = keys;
    pins->ranked = true;
    mem_free(&all);
    return 0;
}

static int read_ranking(struct cache_pins *pins, const char *path, const struct stream_model *model, struct text *note,
                        struct err *err)
{
    struct ranking *ranking = NULL;
    struct reader *in = NULL;
    int rc = reader_open(&in, path, STREAM_RANK, NULL, err) || ranking_check_model(in, model, false, note, err) ||
             ranking_read(&ranking, in, err) || take_ranking(pins, ranking, err) ? -1 : 0;
    ranking_free(&ranking);
    reader_close(&in);
    return rc;
}

static int read_hot_set(struct cache_pins *pins, const char *path, const struct stream_model *model, struct err *err)
{
    struct hot_set set = {0};
    if (access(path, F_OK) && errno == ENOENT)          /* this run creates the file */
        return 0;
    if (hot_set_read(&set, path, model, err))
        return err_at(err, "--hot-set");
    *pins = (struct cache_pins){.key = set.key, .weight = set.weight, .count = set.count};
    return 0;
}

int cache_pins_read(struct cache_pins *out, const struct caching_options *options, const struct stream_model *model,
                    struct text *note, struct err *err)
{
    struct cache_pins pins = {0};
    struct spec *spec = NULL;
    const char *rank = NULL;
    int rc = options->policy && (spec_parse(&spec, options->policy, err) || spec_text(spec, "rank", NULL, &rank, err)) ? -1 : 0;
    if (!rc && rank)
        rc = read_ranking(&pins, rank, model, note, err) ? err_at(err, "--cache-policy") : 0;
    else if (!rc && options->hot_set)
        rc = read_hot_set(&pins, options->hot_set, model, err);
    spec_free(&spec);
    if (rc)
        cache_pins_free(&pins);
    else
        *out = pins;
    return rc;
}

int cache_pins_save(const struct caching_options *options, const struct expert_source *source,
                    const struct stream_model *model, struct err *err)
{
    double *weight = NULL;
    int rc = 0;
    if (!options->hot_set)
        return 0;
    if (!(weight = mem_alloc((size_t)model->moe_layers * (size_t)model->experts, sizeof *weight, err)))
        return -1;
    const struct cache *cache = expert_source_cache(source);
    if (cache && cache_weights(cache, weight))
        rc = hot_set_write(options->hot_set, weight, model, err) ? err_at(err, "--hot-set") : 0;
    mem_free(&weight);
    return rc;
}
