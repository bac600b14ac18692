/* Forwards over several texts: joins their batches into one. */
#include <string.h>

#include "common/base/mem.h"
#include "common/engine/internal.h"

void shared_free(struct engine *engine)
{
    mem_free(&engine->shared.text);
    mem_free(&engine->shared.token);
    mem_free(&engine->shared.logit_row);
    mem_free(&engine->shared.row_weight);
    mem_free(&engine->shared.forced);
    mem_free(&engine->shared.distinct);
    mem_free(&engine->shared.user);
}

static int make(struct engine *engine, struct err *err)
{
    struct shared *shared = &engine->shared;
    const size_t rows = (size_t)engine->setup.max_rows;
    if (shared->distinct)
        return 0;
    shared_free(engine);
    shared->text = mem_alloc(rows, sizeof *shared->text, err);
    shared->token = mem_alloc(rows, sizeof *shared->token, err);
    shared->logit_row = mem_alloc(rows, sizeof *shared->logit_row, err);
    shared->user = mem_alloc((size_t)engine->shape->router.experts + 1, sizeof *shared->user, err);
    shared->row_weight = mem_alloc(rows, sizeof *shared->row_weight, err);
    if (!shared->text || !shared->token || !shared->logit_row || !shared->user || !shared->row_weight)
        return -1;
    shared->distinct = mem_alloc(3 * rows * (size_t)(engine->moe_layers + 1), sizeof *shared->distinct, err);
    return shared->distinct ? 0 : -1;
}

static bool same_features(const struct feature_request *a, const struct feature_request *b)
{
    return a == b || (a && b && a->count == b->count && a->count >= 0 && a->count <= FEATURES_MAX &&
                      !memcmp(a->layer, b->layer, (size_t)a->count * sizeof *a->layer));
}

/* Returns whether each text's results can be computed from its own rows in a shared forward, and none is a total over all rows.
 * The oracle's rankings would compute experts for the rows of all texts. */
static bool is_apart(const struct batch *batch)
{
    return (!batch->plan || batch->plan->ranking < PLAN_ORACLE) && !batch->part && !batch->want_reconstruction;
}

/* Returns whether two plans can share a forward: a plan that ranks by rows is applied to the rows of each text separately,
 * and each text may have its own budget. */
static bool like_plan(const struct expert_plan *a, const struct expert_plan *b)
{
    return a == b || (a && b && a->ranking == b->ranking && a->mode == b->mode && a->order == b->order &&
                      a->moe_layers == b->moe_layers &&
                      (a->ranking != PLAN_STATIC ||
                       !memcmp(a->budget, b->budget, (size_t)a->moe_layers * sizeof *a->budget)));
}

bool engine_shares(const struct batch *one, const struct batch *other)
{
    return is_apart(one) && is_apart(other) && like_plan(one->plan, other->plan) && !one->forced == !other->forced &&
           one->want_scores == other->want_scores &&
           !one->choice == !other->choice && one->best == other->best &&
           one->want_hidden == other->want_hidden && !one->want_ahead && !other->want_ahead &&
           same_features(one->features, other->features);
}

static int check(const struct engine *engine, struct sequence *const *sequence, const struct batch *batch, int texts,
                 struct err *err)
{
    int64_t rows = 0, logit_rows = 0;
    for (int i = 0; i < texts; i++) {
        rows += batch[i].rows;
        logit_rows += batch[i].logit_rows;
        if (batch[i].rows < 1 || batch[i].logit_rows < 0 || batch[i].logit_rows > batch[i].rows)
            return err_set(err, ERR_INPUT, "text %d of a forward has %d rows but logits of %d rows", i, batch[i].rows,
                           batch[i].logit_rows);
        if (batch[i].plan && batch[i].plan->ranking == PLAN_PATH && !batch[i].row_weight)
            return err_set(err, ERR_INPUT, "the expert plan ranks by paths, which needs weights of rows; text %d has none", i);
        if (!engine_shares(&batch[0], &batch[i]))
            return err_set(err, ERR_INPUT, "texts 0 and %d cannot share a forward: they request different results", i);
        for (int before = 0; before < i; before++)
            if (sequence[before] == sequence[i])
                return err_set(err, ERR_INPUT, "texts %d and %d of a forward have the same sequence", before, i);
    }
    if (rows > engine->setup.max_rows || logit_rows > engine->setup.max_logit_rows)
        return err_set(err, ERR_INPUT, "a forward has %lld rows, %lld of them with logits, but this engine processes at most "
                       "%d rows and %d with logits",
                       (long long)rows, (long long)logit_rows, engine->setup.max_rows, engine->setup.max_logit_rows);
    return 0;
}

/* Appends a text's tokens, weights of rows, and the indices of its rows with logits, to those of the previous texts. */
static void join(struct shared *shared, const struct batch *batch, struct batch *all)
{
    for (int i = 0; i < batch->logit_rows; i++)
        shared->logit_row[all->logit_rows + i] = all->rows + (batch->logit_row ? batch->logit_row[i] : i);
    memcpy(shared->token + all->rows, batch->token, (size_t)batch->rows * sizeof *batch->token);
    if (batch->row_weight)
        memcpy(shared->row_weight + all->rows, batch->row_weight, (size_t)batch->rows * sizeof *batch->row_weight);
    all->rows += batch->rows;
    all->logit_rows += batch->logit_rows;
}

/* Joins the forced experts of all texts, layer by layer, and sets all->forced. */
static int join_forced(struct engine *engine, const struct batch *batch, int texts, struct batch *all, struct err *err)
{
    struct shared *shared = &engine->shared;
    const size_t top_k = (size_t)engine->shape->router.top_k, layers = (size_t)engine->moe_layers;
    if (!batch[0].forced)
        return 0;
    if (!shared->forced && !(shared->forced = mem_alloc(layers * (size_t)engine->setup.max_rows, top_k * sizeof *shared->forced,
                                                        err)))
        return -1;
    int32_t *to = shared->forced;
    for (size_t layer = 0; layer < layers; layer++)
        for (int i = 0; i < texts; i++) {
            const size_t count = (size_t)batch[i].rows * top_k;
            memcpy(to, batch[i].forced + layer * count, count * sizeof *to);
            to += count;
        }
    all->forced = shared->forced;
    return 0;
}

int engine_forward_texts(struct engine *engine, struct sequence *const *sequence, const struct batch *batch, int texts,
                         struct forward *out, struct err *err)
{
    struct shared *shared = &engine->shared;
    if (texts == 1)
        return engine_forward(engine, sequence[0], batch, out, err);
    if (check(engine, sequence, batch, texts, err) || make(engine, err))
        return -1;
    struct batch all = batch[0];
    all.rows = all.logit_rows = 0;
    all.token = shared->token;
    all.parent = NULL;
    all.logit_row = shared->logit_row;
    all.row_weight = all.plan && all.plan->ranking == PLAN_PATH ? shared->row_weight : NULL;
    for (int i = 0; i < texts; i++) {
        shared->text[i] = (struct pass_text){.sequence = sequence[i], .batch = &batch[i], .first = all.rows,
                                             .rows = batch[i].rows};
        join(shared, &batch[i], &all);
    }
    if (join_forced(engine, batch, texts, &all, err))
        return -1;
    struct pass pass = {.engine = engine, .sequence = sequence[0], .batch = &all, .text = shared->text, .texts = texts,
                        .rows = all.rows};
    return forward_pass(&pass, VERIFICATION, out, err);
}
