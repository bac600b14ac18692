#include "common/train/batch.h"

#include <limits.h>
#include <string.h>

#include "common/base/mem.h"

void train_source_close(struct train_source *source)
{
    if (source->close)
        source->close(source->self);
    *source = (struct train_source){.self = NULL};
}

void train_batch_clear(struct train_batch *batch, const struct head_states *points, int hidden)
{
    batch->texts = batch->rows = batch->longest = 0;
    batch->points = *points;
    batch->own = (struct train_whole){.texts = 0};
    batch->whole = NULL;
    mem_free(&batch->clean);
    batch->hidden = hidden;
}

void train_whole_add(struct train_whole *whole, const uint8_t *mask, int tokens)
{
    int64_t answered = 0, judged = 0;
    for (int at = tokens - 1; at >= 0; at--) {
        answered += mask[at];
        judged += at < tokens - 1 && mask[at];
        if (at < SHIFTS_MAX) {
            whole->answered[at] += answered;
            whole->judged[at] += judged;
        }
    }
    whole->texts++;
    whole->longest = tokens > whole->longest ? tokens : whole->longest;
}

static int make_room(struct train_batch *b, size_t rows, struct err *err)
{
    size_t room = b->text_room, width = (size_t)b->hidden * sizeof(float);
    if (mem_grow(&b->offset, &room, (size_t)b->texts + 2, sizeof *b->offset, err))
        return -1;
    b->text_room = room;
    room = b->row_room;
    if (mem_grow(&b->token, &room, rows, sizeof *b->token, err))
        return -1;
    room = b->row_room;
    if (mem_grow(&b->mask, &room, rows, sizeof *b->mask, err))
        return -1;
    for (int i = 0; i < b->points.count; i++) {
        room = b->row_room;
        if (mem_grow(&b->state[i], &room, rows, width, err))
            return -1;
    }
    b->row_room = room;
    return 0;
}

int train_batch_add(struct train_batch *b, const struct train_text *text, struct err *err)
{
    const size_t before = (size_t)b->rows, count = (size_t)text->tokens, width = (size_t)b->hidden;
    if (text->tokens > INT_MAX / 4 - b->rows)
        return err_set(err, ERR_INPUT, "a batch has more than %d tokens; use fewer texts per batch (--batch), or shorten them "
                       "(--cut)", INT_MAX / 4);
    if (make_room(b, before + count, err))
        return -1;
    memcpy(b->token + before, text->token, count * sizeof *text->token);
    memcpy(b->mask + before, text->mask, count);
    for (int i = 0; i < b->points.count; i++)
        memcpy(b->state[i] + before * width, text->state[i], count * width * sizeof(float));
    b->offset[0] = 0;
    b->rows += text->tokens;
    b->offset[++b->texts] = b->rows;
    train_whole_add(&b->own, text->mask, text->tokens);
    b->longest = text->tokens > b->longest ? text->tokens : b->longest;
    return 0;
}

void train_batch_free(struct train_batch *b)
{
    mem_free(&b->offset);
    mem_free(&b->token);
    mem_free(&b->mask);
    mem_free(&b->clean);
    for (int i = 0; i < POINTS_MAX; i++)
        mem_free(&b->state[i]);
    *b = (struct train_batch){.texts = 0};
}
