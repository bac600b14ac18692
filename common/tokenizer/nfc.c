/* The normalisation forms of Unicode, in time O(n log n) for any text: a stable sort orders the marks (the library's own
 * ordering is quadratic in the length of a run of marks), then utf8proc composes.
 *
 * The text is processed in parts that begin with an ASCII character. Nothing composes or reorders across such a border, so the
 * origin of bytes is tracked per part: a changed part that contains any content is content. */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/tokenizer/internal.h"

struct mark { int32_t code; int32_t rank; size_t position; };

struct nfc {
    const struct normalizer_step *form;
    utf8proc_int32_t *codes;
    size_t n, room;
    struct mark *marks;
    size_t mark_room;
};

static int decompose(struct nfc *nfc, const char *text, size_t bytes, struct err *err)
{
    nfc->n = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t code = 0;
        int boundary = 0;
        at += (size_t)utf8_next(text + at, bytes - at, &code);
        if (mem_grow(&nfc->codes, &nfc->room, nfc->n + 32, sizeof *nfc->codes, err))
            return -1;
        utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)code, nfc->codes + nfc->n, 32,
                                                         UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                         (nfc->form->compatible ? UTF8PROC_COMPAT : 0), &boundary);
        if (count < 0 || count > 32)
            return err_set(err, ERR_INPUT, "character U+%04X cannot be normalised: %s", (unsigned)code, utf8proc_errmsg(count));
        nfc->n += (size_t)count;
    }
    return 0;
}

static int mark_order(const void *left, const void *right)
{
    const struct mark *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->position < b->position ? -1 : a->position > b->position;
}

/* Orders marks canonically: sorts each run of characters with a combining class by this class, stably. */
static int reorder(struct nfc *nfc, struct err *err)
{
    for (size_t i = 0; i < nfc->n; i++) {
        size_t count = 0;
        int rank, last = 0;
        bool sorted = true;
        while (i + count < nfc->n && (rank = utf8proc_get_property(nfc->codes[i + count])->combining_class) != 0) {
            if (mem_grow(&nfc->marks, &nfc->mark_room, count + 1, sizeof *nfc->marks, err))
                return -1;
            nfc->marks[count] = (struct mark){ nfc->codes[i + count], rank, count };
            sorted = sorted && last <= rank;
            last = rank;
            count++;
        }
        if (!sorted) {
            qsort(nfc->marks, count, sizeof *nfc->marks, mark_order);
            for (size_t k = 0; k < count; k++)
                nfc->codes[i + k] = nfc->marks[k].code;
        }
        i += count;
    }
    return 0;
}

/* Appends the normalised part; *same: it was normalised already. */
static int nfc_part(struct nfc *nfc, const char *text, size_t bytes, struct text *out, bool *same, struct err *err)
{
    size_t begin = out->length;
    if (decompose(nfc, text, bytes, err) || reorder(nfc, err))
        return -1;
    utf8proc_ssize_t n = (utf8proc_ssize_t)nfc->n;
    if (nfc->form->composed)
        n = utf8proc_normalize_utf32(nfc->codes, n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (n < 0)
        return err_set(err, ERR_INPUT, "text cannot be normalised: %s", utf8proc_errmsg(n));
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        char encoded[4];
        if (text_put(out, encoded, (size_t)utf8_put(encoded, (uint32_t)nfc->codes[i]), err))
            return -1;
    }
    *same = out->length - begin == bytes && !memcmp(out->data + begin, text, bytes);
    return 0;
}

int normalize_form(const struct normalizer_step *step, struct regex_scratch *scratch, struct passage in, struct text *out,
                   struct origins *out_origins, struct err *err)
{
    struct nfc nfc = { .form = step };
    const char *text = in.text;
    size_t run = 0, bytes = in.bytes;
    int rc = -1;
    (void)scratch;
    text_clear(out);
    out_origins->n = 0;
    for (size_t at = 0, end; at < bytes; at = end) {
        size_t out_begin = out->length;
        bool same = true;
        end = at;
        while (end < bytes && !(text[end] & 0x80))             /* ASCII characters do not change; marks may follow the last
                                                                * one */
            end++;
        if (end < bytes && end > at + 1)
            end--;
        if (end > at + 1 || end == bytes) {
            if (text_put(out, text + at, end - at, err))
                goto done;
        } else {
            end = at + 1;
            while (end < bytes && (text[end] & 0x80))
                end++;
            if (nfc_part(&nfc, text + at, end - at, out, &same, err))
                goto done;
        }
        if (origins_map(in.origins, &run, at, end, out_begin, out->length, same, out_origins, err))
            goto done;
    }
    rc = 0;
done:
    mem_free(&nfc.codes);
    mem_free(&nfc.marks);
    return rc;
}
