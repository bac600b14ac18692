#include "common/stream/leftover.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/stream/frame.h"

static int pass(void *context, const struct reader *in, const struct record *record, struct err *err)
{
    (void)context, (void)in, (void)record, (void)err;
    return 0;
}

static bool is_whole(const char *path)
{
    struct leftover found;
    return !leftover_read(path, STREAM_ANY, pass, NULL, &found, NULL) && found.whole;
}

/* Returns the size of the regular file PATH.ENDING, and its name in *name; -1: there is none. */
static off_t bytes_of(struct text *name, const char *path, const char *ending)
{
    struct stat status;
    text_clear(name);
    if (text_printf(name, NULL, "%s%s", path, ending) || stat(name->data, &status) || !S_ISREG(status.st_mode))
        return -1;
    return status.st_size;
}

int leftover_find(struct text *out, const char *path, struct err *err)
{
    char *target = realpath(path, NULL);        /* the other two files are in the same folder as the target of a link */
    const char *base = target ? target : path;
    struct text part = {0}, old = {0};
    struct stat given;
    bool exists = !stat(path, &given);
    off_t part_bytes = bytes_of(&part, base, ".part"), old_bytes = bytes_of(&old, base, ".part.old");
    off_t bytes = old_bytes > part_bytes ? old_bytes : part_bytes;
    const char *found = bytes < 0 ? NULL : old_bytes > part_bytes ? old.data : part.data;
    if (exists && (!found || (given.st_size >= bytes && !is_whole(path))))
        found = path;
    text_clear(out);
    int rc = exists && !S_ISREG(given.st_mode) ? err_set(err, ERR_INPUT, "%s: must be read twice, which a pipe does not "
                                                         "allow; name a file on disk", path)
           : found ? text_puts(out, found, err) : 0;
    text_free(&part);
    text_free(&old);
    mem_free(&target);
    return rc;
}

bool leftover_is_stump(const char *path)
{
    static const struct wire_limits limits = {FRAME_HEADER_BYTES, FRAME_HEADER_VALUES};
    const size_t guard = FRAME_GUARD_BYTES;
    struct text text = {0};
    struct scan scan = {0};
    bool stump = !file_read(&text, path, FRAME_BYTES + FRAME_HEADER_BYTES, NULL) &&
                 !memcmp(text.data ? text.data : "", FRAME_GUARD, text.length < guard ? text.length : guard);
    if (stump && text.length > FRAME_BYTES)
        stump = scan_object(&scan, (const uint8_t *)text.data + FRAME_BYTES, text.length - FRAME_BYTES, &limits, NULL) ==
                SCAN_MORE;
    text_free(&text);
    return stump;
}

int leftover_read(const char *path, enum stream_kind kind, leftover_see *see, void *context, struct leftover *out,
                  struct err *err)
{
    struct reader *in = NULL;
    const struct record *record;
    struct err fault = {0};
    int rc = 0, more = 1;
    *out = (struct leftover){.begun = !reader_open(&in, path, kind, NULL, &fault)};
    if (!out->begun)
        out->why = fault;
    while (out->begun && !rc && (more = reader_next(in, &record, &fault)) > 0)
        rc = see(context, in, record, err);
    out->whole = !more;
    reader_close(&in);
    return rc;
}
