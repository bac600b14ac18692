/* Records as JSON lines or CSV without a detour over a stream: the same output as moe-view gives for it. */
#ifndef MOE_REPORT_RECORD_REPORT_H
#define MOE_REPORT_RECORD_REPORT_H

#include "common/base/err.h"
#include "common/stream/field.h"
#include "common/stream/header.h"
#include "common/stream/show.h"

struct record_report {
    struct show *show;                  /* opened for SHOW_JSON or SHOW_CSV */
    const struct header *header;        /* whose model gives arrays their shapes */
    int layer;                          /* only records of this layer; -1: all */
    int64_t index;                      /* of the next record */
};

/* A record_put; the context is a struct record_report. */
int record_report_put(void *report, const struct record_kind *kind, const void *body, struct err *err);

#endif
