/* Rows that drafters add to a verification for themselves: they follow the draft's rows, are computed with them, and are
 * never accepted. If any row of a drafter would exceed the model's context, none of this drafter's rows is added. */
#include "common/decode/internal.h"

/* Appends the rows that a drafter requests, from row `first` on; returns their number, or -1. */
static int take_rows(struct decoder *decoder, const struct drafter *drafter, const struct rider_rows *asked,
                     const struct decode_iteration *iteration, int first, struct err *err)
{
    const int nodes = iteration->tree->nodes, room = engine_max_positions(decoder->setup.engine) - iteration->position;
    int depth[RIDERS_MAX];
    if (asked->rows < 0 || asked->rows > drafter->riders)
        return err_set(err, ERR_INPUT, "%s adds %d rows to a verification, more than its maximum of %d", drafter->class->name,
                       asked->rows,
                       drafter->riders);
    for (int row = 0; row < asked->rows; row++) {
        const int parent = asked->parent[row];
        if (parent < 0 || parent > nodes + row || asked->token[row] < 0 || asked->token[row] >= decoder->vocab)
            return err_set(err, ERR_INPUT, "%s adds token %d after row %d, but that token or row does not exist",
                           drafter->class->name,
                           (int)asked->token[row], parent);
        depth[row] = 1 + (parent > nodes ? depth[parent - nodes - 1] : parent ? iteration->tree->depth[parent - 1] : 0);
        if (depth[row] >= room)
            return 0;
        decoder->token[first + row] = asked->token[row];
        decoder->parent[first + row] = parent > nodes ? first + parent - nodes - 1 : parent;
    }
    return asked->rows;
}

int decoder_add_riders(struct decoder *decoder, struct decode_iteration *iteration, struct err *err)
{
    for (int i = 0; i < decoder->drafters.count; i++) {
        struct drafter *drafter = decoder->drafters.item[i];
        struct rider_rows asked = {.rows = 0};
        decoder->riding[i] = 0;
        if (!drafter->class->request_riders || !drafter->riders)
            continue;
        if (drafter->class->request_riders(drafter, iteration->tree, &asked, err))
            return -1;
        int rows = take_rows(decoder, drafter, &asked, iteration, iteration->record.nodes + iteration->record.riders, err);
        if (rows < 0)
            return -1;
        decoder->riding[i] = rows;
        iteration->record.riders += rows;
    }
    return 0;
}

int decoder_return_riders(struct decoder *decoder, const struct decode_iteration *iteration, struct err *err)
{
    const struct forward *forward = iteration->forward;
    size_t row = (size_t)iteration->record.nodes;
    for (int i = 0; i < decoder->drafters.count; i++) {
        struct drafter *drafter = decoder->drafters.item[i];
        if (decoder->riding[i] && drafter->class->return_riders(drafter, forward->logits + row * (size_t)forward->vocab, err))
            return -1;
        row += (size_t)decoder->riding[i];
    }
    return 0;
}
