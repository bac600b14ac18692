/* Any bytes as a stream, unchanged and with a valid end record: read to the end and shown, in every form. */
#include <fcntl.h>

#include "common/stream/reader.h"
#include "common/stream/show.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/reseal.h"

static void view(const uint8_t *data, size_t bytes, enum show_form form)
{
    static const struct reader_options options = {.ancillary = true};
    const struct show_filter filter = {.sequence = -1, .layer = bytes % 3 ? -1 : 0};
    const struct record *record;
    struct reader *in = NULL;
    struct show *show = NULL;
    if (show_open(&show, "/dev/null", form, NULL))
        return;
    if (!reader_open_fd(&in, open("/dev/null", O_RDONLY), "input", data, bytes, STREAM_ANY, &options, NULL) &&
        !show_header(show, reader_header(in), NULL))
        while (reader_next(in, &record, NULL) > 0)
            if (show_record(show, record, &filter, NULL) < 0)
                break;
    reader_close(&in);
    show_discard(&show);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct text sealed = {0};
    enum show_form form = (enum show_form)(bytes % 3);
    view(data, bytes, form);
    reseal(&sealed, data, bytes);
    if (sealed.length)
        view((const uint8_t *)sealed.data, sealed.length, form);
    text_free(&sealed);
    return 0;
}
