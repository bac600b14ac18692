/* Any bytes as a feature stream of the model that they name, unchanged and with a valid end record: its texts and states are
 * read in the stream's order, and in any order with validation texts separated. The number of bytes decides which states,
 * what length and which texts. */
#include <fcntl.h>

#include "common/stream/reader.h"
#include "common/train/source_stream.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/reseal.h"

enum { LONGEST = 6, POINTS = 2 };

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* All of a text can be read, and has the properties that training relies on. */
static void take(const struct train_text *text, const struct stream_model *model)
{
    const int hidden = model->hidden;
    double sum = 0;
    must(text->tokens >= 1 && text->tokens <= LONGEST && text->name);
    for (int i = 0; i < text->tokens; i++) {
        must(text->token[i] >= 0 && text->token[i] < model->vocab && text->mask[i] <= 1);
        for (int p = 0; p < POINTS; p++)
            for (int h = 0; h < hidden && text->state[p]; h++)
                sum += (double)text->state[p][(size_t)i * (size_t)hidden + (size_t)h];
    }
    must(sum - sum <= 0);                   /* no state is infinite or NaN */
}

static void take_all(const struct train_source *source, const struct stream_model *model)
{
    struct train_text text;
    for (int64_t i = source->texts; i-- > 0;) {
        if (source->outline(source->self, i, LONGEST, &text, NULL) <= 0)
            return;
        take(&text, model);
        if (source->read(source->self, i, LONGEST, &text, NULL) <= 0)
            return;
        take(&text, model);
    }
    for (int64_t i = 0; source->texts < 0 && source->read(source->self, i, LONGEST, &text, NULL) > 0; i++)
        take(&text, model);
}

static void read_as(const struct feature_source_setup *setup, bool any_order)
{
    struct feature_source *features = NULL;
    struct train_source source = {.self = NULL}, apart = {.self = NULL};
    struct text note = {0};
    if (!feature_source_open(&features, setup, &note, NULL) && !source_stream_open(&source, &features, any_order, NULL)) {
        take_all(&source, setup->target);
        if (any_order && !source_stream_validation(&apart, &source, NULL))
            take_all(&apart, setup->target);
    }
    train_source_close(&apart);
    train_source_close(&source);
    feature_source_close(&features);
    text_free(&note);
}

static void read_features(const uint8_t *data, size_t bytes)
{
    struct header header = {0};
    struct reader *in = NULL;
    char path[64];
    int fd = fuzz_file(data, bytes, path);
    if (!reader_open_fd(&in, open("/dev/null", O_RDONLY), "input", data, bytes, STREAM_FEATURE, NULL, NULL) &&
        !header_copy(&header, reader_header(in), NULL) && header.has_model) {
        const int states[POINTS] = {header.model.layers, bytes & 1 ? header.model.layers : 0};
        const struct feature_source_setup setup = {
            .path = path, .target = &header.model, .states = POINTS, .state = states, .cut = bytes % 7 ? 0 : 3,
            .part = bytes % 5 ? FEATURES_ALL : FEATURES_TRAINING};
        read_as(&setup, bytes & 8);
        lseek(fd, 0, SEEK_SET);
        read_as(&setup, !(bytes & 8));
    }
    reader_close(&in);
    header_free(&header);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct text sealed = {0};
    read_features(data, bytes);
    reseal(&sealed, data, bytes);
    if (sealed.length)
        read_features((const uint8_t *)sealed.data, sealed.length);
    text_free(&sealed);
    return 0;
}
