/* Any bytes, with a valid end record, as the rank stream of a budget, for a model of the shape it names. */
#include "common/decode/budget.h"
#include "common/stream/reader.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/reseal.h"

static void check(const struct budget *budget, const struct stream_model *model)
{
    for (int i = 0; budget->order && i < model->moe_layers * model->experts; i++)
        if (budget->order[i] < 0 || budget->order[i] >= model->experts)
            abort();                            /* the engine uses these as indices of arrays */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct text sealed = {0}, note = {0};
    struct reader *in = NULL;
    struct budget *budget = NULL;
    struct stream_model model = {0};
    char path[64];
    reseal(&sealed, data, bytes);
    int fd = fuzz_file((const uint8_t *)sealed.data, sealed.length, path);
    if (reader_open(&in, path, STREAM_RANK, NULL, NULL) || !reader_header(in)->has_model)
        goto done;
    model = reader_header(in)->model;
    const struct decode_settings settings = {.budget = bytes % 2 ? "rank" : "2", .rank = path};
    if (!budget_open(&budget, &settings, bytes % 3 == 0, &model, &note, NULL))
        check(budget, &model);
    budget_close(&budget);
done:
    reader_close(&in);
    close(fd);
    text_free(&note);
    text_free(&sealed);
    return 0;
}
