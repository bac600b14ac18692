/* Compares the options with which the producers of two streams were started, as recorded in the streams' headers. Only options
 * that influence the recorded contents are compared, not those for inputs, outputs or processors. */
#ifndef MOE_ROUTE_MADE_ALIKE_H
#define MOE_ROUTE_MADE_ALIKE_H

#include "common/base/text.h"
#include "common/cli/opt.h"
#include "common/stream/header.h"

/* Appends each option that differs to *why, as in "--temperature 0.7, not 1"; appends nothing if all agree. A merged stream has
 * the options of the first stream merged into it. settings: the table of decoding options (session/settings.h).
 * Compares all options of this table, and some other options of the same commands. */
int made_alike(const struct opt *settings, const struct header *header, const struct header *other, struct text *why,
               struct err *err);

#endif
