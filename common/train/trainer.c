#include "common/train/trainer.h"

#include <math.h>
#include <string.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "kernels/plain/philox.h"

struct trainer {
    struct trainer_setup setup;
    struct tape *tape;
    struct train_batch batch;
    struct text names;              /* of the batch's texts */
    int32_t *order;                 /* of the epoch at work */
    int64_t epoch;                  /* that `order` is of; -1: none */
    int64_t steps;
};

enum { DRAW_ORDER = 0x4f, DRAW_NOISE = 0x4e };

int64_t train_epoch_steps(int64_t texts, int batch) { return (texts + batch - 1) / batch; }

/* Below `bound`: of 64 random bits the upper ones of a product, whose bias of 2^-32 is nothing here. */
static int64_t draw_below(uint64_t seed, int64_t epoch, int64_t at, int64_t bound)
{
    const struct philox bits = philox((struct philox){{(uint32_t)at, (uint32_t)(at >> 32), (uint32_t)epoch, DRAW_ORDER}}, seed);
    return (int64_t)(((uint64_t)bits.word[0] * (uint64_t)bound) >> 32);
}

void train_order(int32_t *order, int64_t texts, uint64_t seed, int64_t epoch)
{
    for (int64_t i = 0; i < texts; i++)
        order[i] = (int32_t)i;
    for (int64_t i = texts - 1; i > 0; i--) {
        const int64_t other = draw_below(seed, epoch, i, i + 1);
        const int32_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

int trainer_open(struct trainer **out, const struct trainer_setup *setup, struct err *err)
{
    const int64_t texts = setup->source->texts;
    struct trainer *t;
    if (texts == 0)
        return err_set(err, ERR_INPUT, "there are no texts to learn from");
    if (texts > INT32_MAX)
        return err_set(err, ERR_INPUT, "%lld texts are more than %d", (long long)texts, INT32_MAX);
    if (!(t = mem_alloc(1, sizeof *t, err)))
        return -1;
    t->setup = *setup;
    t->epoch = -1;
    if (tape_new(&t->tape, setup->pool, err) || (texts > 0 && !(t->order = mem_alloc((size_t)texts, sizeof *t->order, err)))) {
        trainer_close(&t);
        return -1;
    }
    *out = t;
    return 0;
}

void trainer_close(struct trainer **trainer)
{
    if (*trainer) {
        tape_free(&(*trainer)->tape);
        train_batch_free(&(*trainer)->batch);
        text_free(&(*trainer)->names);
        mem_free(&(*trainer)->order);
    }
    mem_free(trainer);
}

int64_t trainer_steps(const struct trainer *trainer) { return trainer->steps; }

static int take_text(struct trainer *t, int64_t index, struct err *err)
{
    struct train_text text;
    const int more = t->setup.source->read(t->setup.source->self, index, t->setup.settings->longest, &text, err);
    if (more <= 0)
        return more;
    return train_batch_add(&t->batch, &text, err) ||
           text_printf(&t->names, err, "%s%s", t->names.length ? ", " : "", text.name ? text.name : "?") ? -1 : 1;
}

/* The texts of a step; the last of an epoch may have fewer. 0: none are left. */
static int take_batch(struct trainer *t, struct err *err)
{
    const struct train_settings *s = t->setup.settings;
    const int64_t texts = t->setup.source->texts;
    train_batch_clear(&t->batch, &t->setup.points, t->setup.weights->head.target.hidden);
    t->names.length = 0;
    if (texts < 0) {
        for (int i = 0; i < s->batch; i++) {
            const int more = take_text(t, t->steps * s->batch + i, err);
            if (more < 0)
                return -1;
            if (!more)
                break;
        }
        return t->batch.texts > 0;
    }
    const int64_t each = train_epoch_steps(texts, s->batch), epoch = t->steps / each, first = t->steps % each * s->batch;
    if (t->epoch != epoch)
        train_order(t->order, texts, s->seed, t->epoch = epoch);
    for (int64_t i = first; i < first + s->batch && i < texts; i++)
        if (take_text(t, t->order[i], err) < 0)
            return -1;
    return 1;
}

/* EAGLE's uniform noise on what the head reads; what it is judged by has none. */
static int add_noise(struct trainer *t, struct err *err)
{
    const struct train_settings *s = t->setup.settings;
    struct train_batch *b = &t->batch;
    const size_t width = (size_t)b->hidden, all = (size_t)b->rows * width * sizeof(float);
    if (!(s->noise > 0))
        return 0;
    if (!(b->clean = mem_copy(b->state[b->points - 1], all, err)))
        return -1;
    for (int text = 0; text < b->texts; text++) {
        const float size = (float)(s->noise * 512 / (b->offset[text + 1] - b->offset[text]));
        for (int point = 0; point < b->points; point++)
            for (size_t i = (size_t)b->offset[text] * width; i < (size_t)b->offset[text + 1] * width; i++) {
                const struct philox bits = philox((struct philox){{(uint32_t)i, (uint32_t)t->steps,
                                                   (uint32_t)(t->steps >> 32) ^ (uint32_t)point << 16, DRAW_NOISE}}, s->seed);
                b->state[point][i] += size * ((float)(bits.word[0] >> 8) * 0x1p-24f - 0.5f);
            }
    }
    return 0;
}

/* Says where something is no number. Gradients are 0 after a step; after one that failed they are made so. */
static int give_up(struct trainer *t, struct err *err)
{
    struct weights *w = t->setup.weights;
    memset(w->gradient, 0, w->floats * sizeof *w->gradient);
    return err_at(err, "step %lld, texts %s", (long long)t->steps, t->names.data);
}

int trainer_step(struct trainer *t, struct train_report *report, struct err *err)
{
    const struct train_settings *s = t->setup.settings;
    const int64_t texts = t->setup.source->texts;
    struct train_report r = {.step = t->steps};
    const int more = take_batch(t, err);
    if (more <= 0)
        return more;
    if (add_noise(t, err))
        return -1;
    tape_begin(t->tape);
    if (network_loss(t->setup.network, t->tape, &t->batch, &r.losses, err))
        return -1;
    if (!isfinite(r.losses.total))
        return err_set(err, ERR_INPUT, "the loss is no finite number"), give_up(t, err);
    tape_backward(t->tape);
    if (optimiser_step(&s->optimiser, t->setup.weights, t->steps, t->setup.pool, &r.optimiser, err))
        return err->code == ERR_INPUT ? give_up(t, err) : -1;
    t->steps++;
    r.tokens = t->batch.rows;
    if (texts > 0) {
        const int64_t each = train_epoch_steps(texts, s->batch);
        r.epoch = (double)(t->steps / each) + (double)(t->steps % each) / (double)each;
    }
    *report = r;
    return 1;
}

/* ---- checkpoints ---- */

static const char MAGIC[8] = "\x89MOEC\r\n\x1a";

/* The first bytes; after them what was told, then weights, first and second moments. Numbers are the machine's. */
struct checkpoint_head {
    char magic[8];
    uint32_t order, version;        /* order: 1, as this machine has it */
    int64_t steps;
    uint64_t floats, told;
    struct digest128 digest;        /* of all that follows, and of the numbers above */
};

static int digest_of(const struct checkpoint_head *head, const char *told, const float *const part[3],
                     struct digest128 *out, struct err *err)
{
    struct xxh3_stream *stream = NULL;
    if (xxh3_stream_new(&stream, err))
        return -1;
    xxh3_stream_put(stream, head, offsetof(struct checkpoint_head, digest));
    xxh3_stream_put(stream, told, (size_t)head->told);
    for (int i = 0; i < 3; i++)
        xxh3_stream_put(stream, part[i], (size_t)head->floats * sizeof(float));
    *out = xxh3_stream_digest(stream);
    xxh3_stream_free(&stream);
    return 0;
}

int trainer_save(const struct trainer *t, const char *path, const char *told, struct err *err)
{
    const struct weights *w = t->setup.weights;
    const float *const part[3] = {w->data, w->first, w->second};
    struct output *out = NULL;
    struct checkpoint_head head = {.order = 1, .version = 1, .steps = t->steps, .floats = w->floats, .told = strlen(told)};
    memcpy(head.magic, MAGIC, sizeof head.magic);
    if (digest_of(&head, told, part, &head.digest, err) || output_open(&out, path, err) ||
        output_write(out, &head, sizeof head, err) || output_write(out, told, head.told, err))
        goto failed;
    for (int i = 0; i < 3; i++)
        if (output_write(out, part[i], w->floats * sizeof(float), err))
            goto failed;
    return output_commit(&out, err);
failed:
    output_discard(&out);
    return -1;
}

static int check_head(const struct checkpoint_head *head, const struct trainer *t, const struct file_map *map, const char *told,
                      struct err *err)
{
    const uint64_t bytes = map->bytes - sizeof *head;
    if (memcmp(head->magic, MAGIC, sizeof head->magic) || head->order != 1 || head->version != 1)
        return err_set(err, ERR_INPUT, "is no checkpoint that this program can read");
    if (head->told > bytes || head->told != strlen(told) ||
        memcmp(map->data + sizeof *head, told, (size_t)head->told))
        return err_set(err, ERR_INPUT, "was made with other options or texts; give the same ones, or remove it: %.*s",
                       (int)(head->told < 600 && head->told <= bytes ? head->told : 0), (const char *)map->data + sizeof *head);
    if (head->floats != t->setup.weights->floats || bytes - head->told != head->floats * 3 * sizeof(float))
        return err_set(err, ERR_INPUT, "is cut off, or of another head");
    return 0;
}

int trainer_resume(struct trainer *t, const char *path, const char *told, struct err *err)
{
    struct weights *w = t->setup.weights;
    struct file_map map;
    struct checkpoint_head head;
    struct digest128 digest;
    float *to[3] = {w->data, w->first, w->second};
    const float *from[3];
    float *copy = NULL;
    int rc = -1;
    if (file_map_open(&map, path, err))
        return -1;
    if (map.bytes < sizeof head) {
        err_set(err, ERR_INPUT, "is no checkpoint");
        goto done;
    }
    memcpy(&head, map.data, sizeof head);
    if (check_head(&head, t, &map, told, err) || !(copy = mem_alloc_aligned(w->floats * 3, sizeof *copy, err)))
        goto done;
    memcpy(copy, map.data + sizeof head + head.told, w->floats * 3 * sizeof *copy);
    for (size_t i = 0; i < 3; i++)
        from[i] = copy + i * w->floats;
    if (digest_of(&head, told, from, &digest, err))
        goto done;
    if (digest.low != head.digest.low || digest.high != head.digest.high) {
        err_set(err, ERR_INPUT, "is damaged");
        goto done;
    }
    for (int i = 0; i < 3; i++)
        memcpy(to[i], from[i], w->floats * sizeof **to);
    t->steps = head.steps;
    rc = 0;
done:
    mem_free(&copy);
    file_map_close(&map);
    return rc ? err_at(err, "%s", path) : 0;
}
