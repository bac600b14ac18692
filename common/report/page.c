#include "common/report/page.h"

#include "common/report/svg.h"

static const char style[] =
    "body { font: 14px sans-serif; margin: 2em; color: #000; background: #fff }\n"
    "table { border-collapse: collapse; margin: 1em 0 }\n"
    "th, td { padding: 0.2em 0.7em; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }\n"
    "th { border-bottom: 1px solid #000 }\n"
    ".l { text-align: left }\n"
    ".wide { overflow-x: auto }\n"
    "svg { max-width: 100%; height: auto }\n";

int page_write(struct text *out, const char *title, const struct text *figure, const struct text *body, struct err *err)
{
    return text_puts(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width\">\n<title>", err) ||
           svg_escape(out, title, err) || text_printf(out, err, "</title>\n<style>\n%s</style>\n</head>\n<body>\n", style) ||
           text_put(out, figure->data, figure->length, err) || text_put(out, body->data, body->length, err) ||
           text_puts(out, "</body>\n</html>\n", err) ? -1 : 0;
}
