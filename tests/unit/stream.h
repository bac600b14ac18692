/* Writes and reads small streams for tests of common/stream. */
#ifndef MOE_TESTS_STREAM_H
#define MOE_TESTS_STREAM_H

#include "tests/unit/unit.h"

#include <fcntl.h>
#include <math.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/stream/decode.h"
#include "common/stream/rank.h"
#include "common/stream/reader.h"
#include "common/stream/route.h"
#include "common/stream/writer.h"

static inline void small_header(struct header *header, enum stream_kind kind)
{
    static char *const argv[] = {(char *)"moe-test", (char *)"-o", (char *)"a b"};
    struct err err = {0};
    assert_int_equal(header_init(header, kind, "moe-test", "0.1", 3, argv, &err), 0);
    header->has_model = true;
    header->model = (struct stream_model){.name = "tiny", .layers = 3, .moe_layers = 2, .experts = 4, .top_k = 2, .vocab = 16,
                                          .hidden = 3};
    memset(header->model.index_sha256, 'a', 64);
    memset(header->model.source_sha256, 'b', 64);
    memset(header->model.tokenizer_sha256, 'c', 64);
    header->has_seed = true;
    header->seed = UINT64_MAX;
    assert_int_equal(header_set_dtype(header, "bf16", &err), 0);
    assert_int_equal(header_set_device(header, "host", &err), 0);
    assert_int_equal(header_label(header, "inflated", "64 to 2048", &err), 0);
}

/* Writes one sequence of two tokens with all optional members of a route record. */
static inline void write_route(struct writer *out)
{
    static const int32_t tokens[2] = {3, 15}, parents[2] = {-1, 0};
    static const uint8_t accepted[2] = {1, 0};
    static const int16_t experts[8] = {0, 1, 2, 3, 3, -1, 1, 0};
    static const float weights[8] = {0.5f, 0.25f, 1, 0, 0.125f, 0, 2, 3};
    static const double mass[8] = {1, 2, 3, 4, 5, 6, 7, 8.5};
    float probs[16], logits[32], hidden[18];
    struct err err = {0};
    for (int i = 0; i < 32; i++)
        logits[i] = i == 4 ? INFINITY : (float)i;
    for (int i = 0; i < 16; i++)
        probs[i] = (float)i / 16;
    for (int i = 0; i < 18; i++)
        hidden[i] = (float)-i;
    logits[5] = NAN;
    const struct route_begin begin = {.sequence = 7, .id = "p\xc3\xa9", .prompt_tokens = 2};
    const struct route_tokens route = {7, 0, 2, PHASE_VERIFY, tokens, parents, accepted, experts, weights, mass, probs, logits,
                                       hidden};
    const struct route_end end = {7};
    assert_int_equal(writer_record(out, &route_begin_kind, &begin, &err), 0);
    if (writer_record(out, &route_tokens_kind, &route, &err))
        fail_msg("%s", err.text);
    assert_int_equal(writer_record(out, &route_end_kind, &end, &err), 0);
}

/* Writes a complete route stream to memory. */
static inline void small_stream(struct text *out)
{
    struct header header = {0};
    struct writer *writer = NULL;
    struct err err = {0};
    char *folder = unit_folder();
    const char *path = unit_path(folder, "s.moes");
    small_header(&header, STREAM_ROUTE);
    assert_int_equal(writer_open(&writer, path, &header, &err), 0);
    write_route(writer);
    if (writer_close(&writer, &err))
        fail_msg("%s", err.text);
    assert_null(writer);
    assert_int_equal(file_read(out, path, 1 << 20, &err), 0);
    header_free(&header);
    unit_remove(folder);
}

/* Reads bytes as a stream to its end. Returns 0, or -1 with err set. */
static inline int read_bytes(const void *bytes, size_t count, struct err *err)
{
    struct reader *in = NULL;
    const struct record *record;
    int more = 1;
    if (reader_open_fd(&in, open("/dev/null", O_RDONLY), "test", bytes, count, STREAM_ANY, NULL, err))
        return -1;
    while (more > 0)
        more = reader_next(in, &record, err);
    reader_close(&in);
    return more;
}

#endif
