#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/tokenizer/internal.h"

/* Prepends the content to every text that is not empty, even if the prefix is already present. */
int normalize_prepend(const struct normalizer_step *step, struct regex_scratch *scratch, struct passage in, struct text *out,
                      struct origins *out_origins, struct err *err)
{
    size_t run = 0, put = step->content_bytes;
    (void)scratch;
    text_clear(out);
    out_origins->n = 0;
    if (!in.bytes)
        return 0;
    if (text_put(out, step->content, put, err) || text_put(out, in.text, in.bytes, err) ||
        origins_put(out_origins, put, in.origins->runs[0].from_template, err))
        return -1;
    return origins_map(in.origins, &run, 0, in.bytes, put, put + in.bytes, true, out_origins, err);
}

static int put_same(struct passage in, size_t begin, size_t end, size_t *run, struct text *out, struct origins *out_origins,
                    struct err *err)
{
    size_t at = out->length;
    if (begin == end)
        return 0;
    return text_put(out, in.text + begin, end - begin, err) ||
           origins_map(in.origins, run, begin, end, at, out->length, true, out_origins, err) ? -1 : 0;
}

/* Replaces matches. An empty match of a pattern inserts content between two bytes; the content has the origin of the byte
 * before. */
int normalize_replace(const struct normalizer_step *step, struct regex_scratch *scratch, struct passage in, struct text *out,
                      struct origins *out_origins, struct err *err)
{
    struct needle_walk walk = {0};
    size_t run = 0, at = 0;
    struct span match;
    int rc;
    text_clear(out);
    out_origins->n = 0;
    while ((rc = needle_next(&step->needle, scratch, in.text, in.bytes, &walk, &match, err)) > 0) {
        if (put_same(in, at, match.begin, &run, out, out_origins, err))
            return -1;
        size_t begin = out->length;
        if (text_put(out, step->content, step->content_bytes, err))
            return -1;
        if (match.begin < match.end ?
            origins_map(in.origins, &run, match.begin, match.end, begin, out->length, false, out_origins, err) :
            origins_put(out_origins, out->length, in.bytes && in.origins->runs[run].from_template, err))
            return -1;
        at = match.end;
    }
    return rc < 0 ? -1 : put_same(in, at, in.bytes, &run, out, out_origins, err);
}
