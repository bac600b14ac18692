/* Tracks the setting, prompt and iteration to which a record of type iter belongs. These are in the earlier records setting,
 * sample and begin, so a table of iter records alone would lack them. */
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
    } *open;                            /* sequences that have begun and not ended */
    size_t setting_count, setting_room, open_count, open_room;
};

/* Must see every record of the stream, in order. */
int origins_add(struct origins *origins, const struct record *record, struct err *err);

/* Prints the keys setting, repeat, id and iteration of the last iter record; iterations are counted from 0. */
void origins_show(const struct origins *origins, struct show *show, int64_t sequence);

void origins_free(struct origins *origins);

#endif
