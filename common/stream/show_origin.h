/* Which setting, prompt and iteration a record of type iter belongs to. The earlier records setting, sample and begin say that,
 * so a table of iterations alone would lack it. */
#ifndef MOE_STREAM_SHOW_ORIGIN_H
#define MOE_STREAM_SHOW_ORIGIN_H

#include "common/stream/show.h"

struct origins {
    struct origin_setting { int number; char *name; } *settings;
    struct origin {
        int64_t sequence;
        int setting, repeat;            /* -1: a stream without settings */
        int64_t iterations;             /* so far */
        char *id;
    } *open;                            /* sequences that were begun and not ended */
    size_t setting_count, setting_room, open_count, open_room;
};

/* Must see every record of the stream, in order. */
int origins_see(struct origins *origins, const struct record *record, struct err *err);

/* Shows the keys setting, repeat, id and iteration of the iter record that was seen last; iterations count from 0. */
void origins_show(const struct origins *origins, struct show *show, int64_t sequence);

void origins_free(struct origins *origins);

#endif
