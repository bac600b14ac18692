#include "common/train/source_joined.h"

#include <string.h>

#include "common/base/mem.h"

struct joined {
    int count;
    struct train_source part[];
};

/* Returns the part with text *index and sets *index to the text's index in that part. */
static const struct train_source *part_of(const struct joined *joined, int64_t *index)
{
    const struct train_source *part = joined->part;
    for (; *index >= part->texts; part++)
        *index -= part->texts;
    return part;
}

static int read_joined(void *self, int64_t index, int longest, struct train_text *out, struct err *err)
{
    const struct train_source *part = part_of(self, &index);
    return part->read(part->self, index, longest, out, err);
}

static int outline_joined(void *self, int64_t index, int longest, struct train_text *out, struct err *err)
{
    const struct train_source *part = part_of(self, &index);
    return part->outline(part->self, index, longest, out, err);
}

static void close_parts(struct train_source *part, int count)
{
    for (int i = 0; i < count; i++)
        train_source_close(&part[i]);
}

static void close_joined(void *self)
{
    struct joined *joined = self;
    close_parts(joined->part, joined->count);
    mem_free(&joined);
}

int source_joined_open(struct train_source *out, struct train_source *part, int count, struct err *err)
{
    const size_t bytes = (size_t)count * sizeof *part;
    struct joined *joined = mem_alloc(1, sizeof *joined + bytes, err);
    int64_t texts = 0;
    if (!joined) {
        close_parts(part, count);
        return -1;
    }
    joined->count = count;
    memcpy(joined->part, part, bytes);
    memset(part, 0, bytes);
    for (int i = 0; i < count; i++)
        texts += joined->part[i].texts;
    *out = (struct train_source){.self = joined, .texts = texts, .read = read_joined, .outline = outline_joined,
                                 .close = close_joined};
    return 0;
}
