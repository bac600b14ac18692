/* The answers of a forward for its rows with logits: the logits, the token that the device chooses after each row, or the
 * most likely tokens of each row. In the last two cases the logits are not downloaded. */
#include "common/engine/internal.h"
#include "kernels/choose.h"
#include "kernels/top.h"

bool engine_chooses(const struct engine *engine)
{
    return device_info(engine->device)->chooses && engine->shape->vocab <= CHOOSE_VOCAB_MAX;
}

int engine_ranks(const struct engine *engine)
{
    const int vocab = engine->shape->vocab;
    return !device_info(engine->device)->chooses || vocab > TOP_VOCAB_MAX ? 0 : vocab < TOP_MAX ? vocab : TOP_MAX;
}

int answer_check(const struct pass *pass, struct err *err)
{
    const struct batch *batch = pass->batch;
    if (batch->choice && (!engine_chooses(pass->engine) || batch->best))
        return err_set(err, ERR_INPUT, batch->best ? "a forward can return either the chosen tokens or the most likely ones, "
                       "not both"
                                                   : "this engine cannot choose tokens; it returns logits only");
    if (batch->best < 0 || batch->best > engine_ranks(pass->engine))
        return err_set(err, ERR_INPUT, "the %d most likely tokens of each row were requested, but this engine returns at most "
                       "%d", batch->best,
                       engine_ranks(pass->engine));
    return 0;
}

/* Enlarges a buffer to `count` elements of 4 bytes, if it is smaller. */
static int grow(const struct engine *engine, struct buffer *buffer, size_t count, struct err *err)
{
    if (buffer->bytes >= count * sizeof(float))
        return 0;
    device_free(engine->device, buffer);
    return device_alloc(engine->device, count * sizeof(float), buffer, err);
}

static bool is_greedy(const struct pass_text *text) { return !(text->batch->choice->filter.temperature > 0); }

/* Uploads the positions of the tokens after the rows with logits. */
static void upload_positions(const struct pass *pass)
{
    struct engine *engine = pass->engine;
    int32_t *position = engine->indices;
    for (int i = 0; i < pass->texts; i++) {
        const struct pass_text *text = &pass->text[i];
        const struct kv *kv = &text->sequence->kv;
        for (int at = 0; at < text->batch->logit_rows; at++) {
            const int row = text->batch->logit_row ? text->batch->logit_row[at] : at;
            *position++ = kv->length + kv->depth[engine->node[text->first + row]] + 1;
        }
    }
    queue_upload(engine->device, engine->answers.position, engine->indices,
                 (size_t)(position - engine->indices) * sizeof *position);
}

/* Queues the choice of tokens. Each text has its own draw. At temperature 0 nothing is drawn, and neighbouring texts are
 * processed together. */
static int put_choice(const struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    struct answers *answers = &engine->answers;
    const int vocab = engine->shape->vocab;
    const size_t all = (size_t)engine->setup.max_logit_rows;
    if (grow(engine, &answers->position, all, err) || grow(engine, &answers->choice, all, err))
        return -1;
    upload_positions(pass);
    for (int i = 0, first = 0, rows; i < pass->texts; first += rows) {
        const struct pass_text *text = &pass->text[i++];
        const struct engine_choice *choice = text->batch->choice;
        rows = text->batch->logit_rows;
        while (i < pass->texts && is_greedy(text) && is_greedy(&pass->text[i]))
            rows += pass->text[i++].batch->logit_rows;
        if (rows)
            engine->ops->choose(engine->queue, &(struct choose_args){
                .logits = layer_rows_from(engine->logits, first, vocab),
                .position = layer_rows_from(answers->position, first, 1),
                .choice = layer_rows_from(answers->choice, first, 1), .filter = choice->filter, .key = choice->draw.key,
                .ordinal = choice->draw.ordinal, .sample = choice->draw.sample, .rows = rows, .vocab = vocab});
    }
    return 0;
}

static int put_best(const struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    struct answers *answers = &engine->answers;
    const int rows = pass->batch->logit_rows, vocab = engine->shape->vocab, best = pass->batch->best;
    const size_t count = (size_t)rows * (size_t)best, scratch = top_scratch_bytes(rows, vocab, best);
    if (grow(engine, &answers->best, count, err) || grow(engine, &answers->log_probability, count, err) ||
        grow(engine, &answers->scratch, scratch / sizeof(float) + 1, err))
        return -1;
    engine->ops->top(engine->queue, &(struct top_args){
        .logits = engine->logits, .token = answers->best, .logp = answers->log_probability, .scratch = answers->scratch,
        .rows = rows, .vocab = vocab, .k = best});
    return 0;
}

int answer_put(const struct pass *pass, struct buffer *part, struct err *err)
{
    struct engine *engine = pass->engine;
    const struct answers *answers = &engine->answers;
    const uint64_t rows = (uint64_t)pass->batch->logit_rows, best = (uint64_t)pass->batch->best;
    if (!rows)
        return 0;
    if (best) {
        if (put_best(pass, err))
            return -1;
        part[0] = buffer_part(answers->best, 0, rows * best * sizeof(int32_t));
        part[1] = buffer_part(answers->log_probability, 0, rows * best * sizeof(float));
        return 2;
    }
    if (pass->batch->choice && put_choice(pass, err))
        return -1;
    part[0] = pass->batch->choice ? buffer_part(answers->choice, 0, rows * sizeof(int32_t))
                                  : buffer_part(engine->logits, 0, rows * (uint64_t)engine->shape->vocab * sizeof(float));
    return 1;
}

void answer_set(const struct pass *pass, const char *landed, struct forward *out)
{
    const size_t best = (size_t)pass->batch->logit_rows * (size_t)pass->batch->best;
    out->logits = pass->batch->choice || best ? NULL : (const float *)(const void *)landed;
    out->choice = pass->batch->choice ? (const int32_t *)(const void *)landed : NULL;
    out->best = best ? (const int32_t *)(const void *)landed : NULL;
    out->best_log_probability = best ? (const float *)(const void *)landed + best : NULL;
}

void answer_free(struct engine *engine)
{
    struct answers *answers = &engine->answers;
    struct buffer *buffers[] = {&answers->position, &answers->choice, &answers->best, &answers->log_probability,
                                &answers->scratch};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        device_free(engine->device, buffers[i]);
}
