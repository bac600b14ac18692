#include "common/engine/loop.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/engine/internal.h"

enum { RECORDS = 256 };

struct engine_loop {
    struct engine *engine;
    struct engine_loop_setup setup;
    struct loop_args args;
    struct batch batch;
    struct loop *loop;
    struct loop_record *record;         /* the latest record, on the host */
    struct err failed;                  /* error while queueing operations */
};

bool engine_loops(const struct engine *engine)
{
    const struct expert_source *experts = engine->setup.experts;
    return device_info(engine->device)->loops && (!experts || experts->class->fixed) && !engine->setup.second &&
        engine->shape->vocab <= CHOOSE_VOCAB_MAX && !hparams_state_layers(engine->shape);
}

/* Queues the operations of one iteration. */
static void put(void *context)
{
    struct engine_loop *loop = context;
    struct engine *engine = loop->engine;
    struct pass_text text = {.sequence = loop->setup.sequence, .batch = &loop->batch, .rows = loop->batch.rows};
    const struct pass pass = {.engine = engine, .sequence = text.sequence, .batch = &loop->batch, .text = &text, .texts = 1,
                              .rows = loop->batch.rows};
    engine->ops->loop_draft(engine->queue, &loop->args);
    if (forward_put(&pass, &loop->failed))
        return;
    engine->ops->loop_facts(engine->queue, &loop->args);
    engine->ops->choose(engine->queue, &(struct choose_args){
        .logits = engine->logits, .position = loop->args.next_position, .choice = loop->args.choice,
        .filter = loop->setup.filter, .key = loop->setup.draw.key, .ordinal = loop->setup.draw.ordinal,
        .sample = loop->setup.draw.sample, .rows = loop->batch.rows, .vocab = engine->shape->vocab});
    engine->ops->loop_accept(engine->queue, &loop->args);
}

static int new_array(struct engine_loop *loop, struct buffer *out, size_t count, size_t size, const void *data,
                     size_t given, struct err *err)
{
    size_t bytes;
    if (!size_mul(count, size, &bytes))
        return err_memory(err);
    if (device_alloc(loop->engine->device, bytes, out, err))
        return -1;
    queue_upload(loop->engine->device, *out, data, given * size);
    return 0;
}

/* Uploads the index of prompt lookup over the text so far, with slots for all tokens that may follow. */
static int upload_index(struct engine_loop *loop, size_t tokens, struct err *err)
{
    const struct loop_rules *rules = &loop->setup.rules;
    size_t sizes = (size_t)(rules->longest - rules->shortest + 1), slots = 1024;
    struct ngram_index index = {0};
    int rc = -1;
    if (!rules->longest)
        return 0;
    while (slots < 2 * sizes * (tokens + 1))
        slots *= 2;
    index.slots = loop->args.ngram_slots = (uint32_t)slots;
    index.slot = mem_alloc(slots, sizeof *index.slot, err);
    index.earlier = mem_alloc(tokens * sizes, sizeof *index.earlier, err);
    if (!index.slot || !index.earlier)
        goto done;
    for (int last = 0; last < loop->setup.length; last++)
        ngram_enter(&index, loop->setup.text, last, rules->shortest, rules->longest);
    rc = new_array(loop, &loop->args.ngram, slots, sizeof *index.slot, index.slot, slots, err) ||
         new_array(loop, &loop->args.earlier, tokens * sizes, sizeof *index.earlier, index.earlier,
                   (size_t)loop->setup.length * sizes, err) ? -1 : 0;
done:
    mem_free(&index.slot);
    mem_free(&index.earlier);
    return rc;
}

/* Uploads the arguments that are equal in all iterations: a chain has no paths, and all rows have logits. */
static void upload_chain(struct engine *engine, int rows)
{
    for (int row = 0; row <= rows; row++)
        engine->indices[row] = 0;
    queue_upload(engine->device, engine->row.at.path_start, engine->indices, (size_t)(rows + 1) * sizeof *engine->indices);
    for (int row = 0; row < rows; row++)
        engine->indices[row] = row;
    queue_upload(engine->device, engine->logit_row, engine->indices, (size_t)rows * sizeof *engine->indices);
}

static int alloc_arrays(struct engine_loop *loop, struct err *err)
{
    struct engine *engine = loop->engine;
    struct loop_args *args = &loop->args;
    const struct loop_rules *rules = &loop->setup.rules;
    const size_t rows = (size_t)loop->batch.rows, layers = (size_t)engine->moe_layers, i = sizeof(int32_t);
    const size_t tokens = (size_t)rules->prompt + (size_t)rules->limit;
    struct buffer *by_row[] = {&args->next_position, &args->choice, &args->path};
    int32_t parent[LOOP_ROWS_MAX], zero = 0;
    struct loop_state state;
    memset(&state, 0, sizeof state);
    loop_begin(rules, &state, loop->setup.length);
    for (int node = 0; node < loop->batch.rows; node++)
        parent[node] = node - 1;
    for (size_t n = 0; n < sizeof by_row / sizeof *by_row; n++)
        if (device_alloc(engine->device, rows * i, by_row[n], err))
            return -1;
    if (new_array(loop, &args->rules, 1, sizeof *rules, rules, 1, err) ||
        new_array(loop, &args->state, 1, sizeof state, &state, 1, err) ||
        new_array(loop, &args->rows, 1, i, &zero, 1, err) || new_array(loop, &args->more, 1, i, &zero, 1, err) ||
        new_array(loop, &args->parent, rows, i, parent, rows, err) ||
        device_alloc(engine->device, (2 * layers + 1) * i, &args->counts, err) ||
        new_array(loop, &args->text, tokens, i, loop->setup.text, (size_t)loop->setup.length, err) ||
        upload_index(loop, tokens, err))
        return -1;
    size_t bytes = (size_t)loop_record_bytes(loop->batch.rows, engine->moe_layers);
    if (device_alloc_shared(engine->device, RECORDS * bytes, &args->ring, err) ||
        device_alloc_shared(engine->device, i, &args->head, err))
        return -1;
    *(int32_t *)(uintptr_t)args->head.address = 0;
    loop->record = mem_alloc(1, bytes, err);
    return loop->record ? 0 : -1;
}

static void free_arrays(struct engine_loop *loop)
{
    struct loop_args *args = &loop->args;
    struct device *device = loop->engine->device;
    struct buffer *all[] = {&args->rules, &args->state, &args->rows, &args->more, &args->parent, &args->counts, &args->text,
                            &args->ngram, &args->earlier, &args->next_position, &args->choice, &args->path};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        device_free(device, all[n]);
    device_free_shared(device, &args->ring);
    device_free_shared(device, &args->head);
    mem_free(&loop->record);
}

static int check(const struct engine *engine, const struct engine_loop_setup *setup, int rows, struct err *err)
{
    int64_t tokens = (int64_t)setup->rules.prompt + setup->rules.limit;
    if (!engine_loops(engine))
        return err_set(err, ERR_INPUT, "device %s: cannot decode by itself", device_info(engine->device)->name);
    if (rows > LOOP_ROWS_MAX || rows > engine->setup.max_rows || rows > engine->setup.max_logit_rows)
        return err_set(err, ERR_INPUT, "drafts have up to %d tokens, but the engine was opened for at most %d", rows - 1,
                       engine->setup.max_logit_rows - 1);
    if (setup->sequence->kv.pending || setup->sequence->kv.length != setup->length - 1 || tokens > engine->max_positions ||
        tokens > setup->sequence->kv.capacity)
        return err_set(err, ERR_INPUT, "the sequence has %d tokens, %d pending nodes and room for %d, which does not match a "
                       "text of %d tokens with up to %d new ones",
                       setup->sequence->kv.length, setup->sequence->kv.pending, setup->sequence->kv.capacity, setup->length,
                       (int)tokens);
    return 0;
}

int engine_loop_open(struct engine_loop **out, struct engine *engine, const struct engine_loop_setup *setup, struct err *err)
{
    int rows = 1 + (!setup->rules.longest ? 0 : setup->rules.adapts ? setup->rules.cascade.max : setup->rules.K);
    struct engine_loop *loop;
    if (check(engine, setup, rows, err) || !(loop = mem_alloc(1, sizeof *loop, err)))
        return -1;
    *loop = (struct engine_loop){.engine = engine, .setup = *setup, .batch = {.rows = rows, .logit_rows = rows}};
    loop->args = (struct loop_args){
        .token = engine->token, .position = engine->row.at.position, .slot = engine->row.at.slot,
        .prefix = engine->row.at.prefix,
        .wanted = engine->wanted, .expert = engine->expert, .rows_max = rows, .moe_layers = engine->moe_layers,
        .experts = engine->shape->router.experts, .top_k = engine->shape->router.top_k, .ring_records = RECORDS};
    if (alloc_arrays(loop, err))
        goto failed;
    upload_chain(engine, rows);
    const struct loop_setup repeated = {
        .put = put, .context = loop, .rows = loop->args.rows, .more = loop->args.more, .ring = loop->args.ring,
        .head = loop->args.head, .record_bytes = (size_t)loop_record_bytes(rows, engine->moe_layers), .records = RECORDS};
    if (queue_wait(engine->device, err) || loop_start(&loop->loop, engine->device, &repeated, err))
        goto failed;
    *out = loop;
    return 0;
failed:
    free_arrays(loop);
    mem_free(&loop);
    return -1;
}

int engine_loop_next(struct engine_loop *loop, struct engine_iteration *out, struct err *err)
{
    struct engine *engine = loop->engine;
    const struct hparams *shape = engine->shape;
    const void *record;
    int rows = loop->batch.rows;
    if (loop_drain(loop->loop, &record, err))
        return -1;
    if (loop->failed.code) {
        *err = loop->failed;
        return -1;
    }
    memcpy(loop->record, record, (size_t)loop_record_bytes(rows, engine->moe_layers));
    const int32_t *experts = loop_record_experts(loop->record, rows);
    memcpy(engine->distinct_wanted, experts, (size_t)engine->moe_layers * sizeof *experts);
    memcpy(engine->distinct_loaded, experts + engine->moe_layers, (size_t)engine->moe_layers * sizeof *experts);
    *out = (struct engine_iteration){
        .record = loop->record, .token = loop_record_tokens(loop->record), .emitted = loop_record_emitted(loop->record, rows),
        .forward = {.rows = loop->record->rows, .moe_layers = engine->moe_layers, .experts = shape->router.experts,
                    .top_k = shape->router.top_k, .vocab = shape->vocab, .layers = shape->layers, .hidden_size = shape->hidden,
                    .distinct_wanted = engine->distinct_wanted, .distinct_loaded = engine->distinct_loaded,
                    .expert_bytes = engine->weights->expert_bytes}};
    const struct pass counted = {.engine = engine, .batch = &loop->batch, .rows = loop->record->rows};
    out->forward.bytes = nominal_bytes(&counted, (int64_t)loop->record->position + loop->record->rows);
    loop->setup.sequence->kv.length = loop->record->position + 1 + loop->record->accepted;
    return 0;
}

int engine_loop_close(struct engine_loop **loop, struct err *err)
{
    int rc = 0;
    if (*loop) {
        rc = loop_end(&(*loop)->loop, err);
        free_arrays(*loop);
    }
    mem_free(loop);
    return rc;
}
