/* Prints records as JSON lines or CSV without writing a stream; the output equals moe-view's. */
#ifndef MOE_REPORT_RECORD_REPORT_H
#define MOE_REPORT_RECORD_REPORT_H

#include "common/base/err.h"
#include "common/stream/field.h"
#include "common/stream/header.h"
#include "common/stream/show.h"

struct record_report {
    struct show *show;                  /* must be opened for SHOW_JSON or SHOW_CSV */
    const struct header *header;        /* its model defines the shapes of arrays */
    int layer;                          /* print only records of this layer; -1: all */
    int64_t index;                      /* index of the next record */
};

/* Implements record_put; the context is a struct record_report. */
int record_report_put(void *report, const struct record_kind *kind, const void *body, struct err *err);

#endif
