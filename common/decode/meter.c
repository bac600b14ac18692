#include "common/decode/meter.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/decode/divergence.h"
#include "common/engine/companion.h"

enum { WAITING_MAX = 64 };             /* maximum tokens whose logits are kept until a probe, beside those of one more
                                        * iteration */

struct meter {
    struct companion *companion;        /* the target's own model */
    struct engine *engine;              /* the companion's */
    struct sequence *sequence;          /* NULL: no text has been measured yet */
    int capacity;                       /* capacity that this text needs */
    int untouched;                      /* number of tokens that no budget has touched; -1: all so far */
    bool copied;                        /* the untouched tokens are in `sequence` */
    bool reported;                      /* the divergence of the waiting tokens has been reported */
    int rows, room, waiting;            /* room: rows of the arrays */
    const float *read;                  /* [waiting and rows of a path][vocab] logits of the engine in the last probe */
    int32_t *node, *token;              /* node: 0, 1, ...; token [room]: tokens to read */
    float *logits;                      /* [room][vocab] the decoder's logits */
    size_t vocab;
};

int meter_open(struct meter **out, const struct engine *target, int rows, struct err *err)
{
    struct meter *meter = mem_alloc(1, sizeof *meter, err);
    if (!meter)
        return -1;
    meter->rows = rows;
    meter->room = rows + WAITING_MAX < ENGINE_ROWS_MAX ? rows + WAITING_MAX : ENGINE_ROWS_MAX;
    meter->vocab = (size_t)engine_hparams(target)->vocab;
    meter->untouched = -1;
    if (companion_open(&meter->companion, NULL, target, engine_config(target)->cache, meter->room, meter->room, err) ||
        !(meter->node = mem_alloc((size_t)meter->room, sizeof *meter->node, err)) ||
        !(meter->token = mem_alloc((size_t)meter->room, sizeof *meter->token, err)) ||
        !(meter->logits = mem_alloc((size_t)meter->room * meter->vocab, sizeof *meter->logits, err))) {
        meter_close(&meter);
        return -1;
    }
    meter->engine = companion_engine(meter->companion);
    for (int i = 0; i < meter->room; i++)
        meter->node[i] = i;
    *out = meter;
    return 0;
}

void meter_close(struct meter **meter)
{
    if (!*meter)
        return;
    sequence_close(&(*meter)->sequence);
    companion_close(&(*meter)->companion);
    mem_free(&(*meter)->node);
    mem_free(&(*meter)->token);
    mem_free(&(*meter)->logits);
    mem_free(meter);
}

void meter_begin(struct meter *meter, int capacity)
{
    meter->capacity = capacity;
    meter->untouched = -1;
    meter->copied = meter->reported = false;
    meter->waiting = 0;
}

bool meter_is_running(const struct meter *meter) { return meter->untouched >= 0; }
int meter_waiting(const struct meter *meter) { return meter->waiting; }
bool meter_has_room(const struct meter *meter) { return meter->waiting + meter->rows <= meter->room; }

static void begin_measuring(struct meter *meter, const struct decode_iteration *iteration)
{
    if (meter->untouched < 0)
        meter->untouched = iteration->position;
}

void meter_add(struct meter *meter, const struct decode_iteration *iteration)
{
    begin_measuring(meter, iteration);
    for (int i = 0; i < iteration->record.emitted; i++, meter->waiting++) {
        const size_t row = (size_t)iteration->path[i];
        meter->token[meter->waiting] = iteration->record.node_tokens[row];
        memcpy(meter->logits + (size_t)meter->waiting * meter->vocab, iteration->forward->logits + row * meter->vocab,
               meter->vocab * sizeof *meter->logits);
    }
}

static int begin_sequence(struct meter *meter, const struct sequence *own, struct err *err)
{
    if (meter->sequence && sequence_capacity(meter->sequence) < meter->capacity)
        sequence_close(&meter->sequence);
    if ((!meter->sequence && sequence_open(&meter->sequence, meter->engine, meter->capacity, err)) ||
        sequence_copy(meter->sequence, own, meter->untouched, err))
        return -1;
    meter->copied = true;
    return 0;
}

/* Runs the model without a budget over the waiting tokens and `ahead` tokens after them, without committing any of them. */
static int read_pending(struct meter *meter, const struct sequence *own, int ahead, struct meter_reading *out, struct err *err)
{
    const int rows = meter->waiting + ahead;
    const struct batch batch = {.rows = rows, .token = meter->token, .logit_rows = rows};
    struct forward forward;
    if (!meter->copied && begin_sequence(meter, own, err))
        return -1;
    sequence_rollback(meter->sequence);
    if (engine_forward(meter->engine, meter->sequence, &batch, &forward, err))
        return -1;
    meter->read = forward.logits;
    *out = (struct meter_reading){.tokens = meter->reported ? 0 : meter->waiting, .bytes = forward.bytes};
    for (size_t i = 0; i < (size_t)out->tokens; i++)
        out->divergence += divergence_between(forward.logits + i * meter->vocab, meter->logits + i * meter->vocab,
                                              (int)meter->vocab);
    meter->reported = true;
    return 0;
}

int meter_keep(struct meter *meter, int rows, struct err *err)
{
    int rc = sequence_commit(meter->sequence, meter->node, meter->waiting + rows, err);
    meter->waiting = 0;
    meter->reported = false;
    return rc;
}

int meter_probe(struct meter *meter, const struct sequence *own, struct meter_reading *out, struct err *err)
{
    return read_pending(meter, own, 0, out, err) || meter_keep(meter, 0, err) ? -1 : 0;
}

int meter_probe_path(struct meter *meter, const struct sequence *own, const struct decode_iteration *iteration,
                     struct meter_reading *out, struct err *err)
{
    begin_measuring(meter, iteration);
    for (int i = 0; i <= iteration->record.accepted; i++)
        meter->token[meter->waiting + i] = iteration->record.node_tokens[iteration->path[i]];
    return read_pending(meter, own, 1 + iteration->record.accepted, out, err);
}

const float *meter_logits(const struct meter *meter, int row)
{
    return meter->read + (size_t)(meter->waiting + row) * meter->vocab;
}
