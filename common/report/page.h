/* Writes a self-contained HTML page: inline style, no script, no external files. */
#ifndef MOE_REPORT_PAGE_H
#define MOE_REPORT_PAGE_H

#include "common/base/err.h"
#include "common/base/text.h"

/* Writes the page. figure: SVG; body: HTML. */
int page_write(struct text *out, const char *title, const struct text *figure, const struct text *body, struct err *err);

#endif
