#include "common/stream/leftover.h"

int leftover_read(const char *path, enum stream_kind kind, leftover_see *see, void *context, bool *begun, struct err *why,
                  struct err *err)
{
    struct reader *in = NULL;
    const struct record *record;
    struct err fault = {0};
    int rc = 0;
    *begun = !reader_open(&in, path, kind, NULL, &fault);
    if (!*begun && why)
        *why = fault;
    while (*begun && !rc && reader_next(in, &record, &fault) > 0)
        rc = see(context, in, record, err);
    reader_close(&in);
    return rc;
}
