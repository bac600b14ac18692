/* Any bytes as a stream: read to the end and shown, without a fault and within memory. Built with -fsanitize=fuzzer it is
 * driven by the fuzzer; with -DFUZZ_FILES it reads the files it is given, as often as seeds and crashes need. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/file.h"
#include "common/stream/reader.h"
#include "common/stream/show.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const struct reader_options options = {.ancillary = true};
    const struct show_filter filter = {.sequence = -1, .layer = bytes % 3 ? -1 : 0};
    const struct record *record;
    struct reader *in = NULL;
    struct show *show = NULL;
    if (show_open(&show, "/dev/null", (enum show_form)(bytes % 3), NULL))
        return 0;
    if (!reader_open_fd(&in, open("/dev/null", O_RDONLY), "input", data, bytes, STREAM_ANY, &options, NULL) &&
        !show_header(show, reader_header(in), NULL))
        while (reader_next(in, &record, NULL) > 0)
            if (show_record(show, record, &filter, NULL))
                break;
    reader_close(&in);
    show_discard(&show);
    return 0;
}

#ifdef FUZZ_FILES
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct text bytes = {0};
        if (file_read(&bytes, argv[i], (size_t)1 << 30, NULL))
            return 2;
        LLVMFuzzerTestOneInput((const uint8_t *)bytes.data, bytes.length);
        text_free(&bytes);
    }
    return 0;
}
#endif
