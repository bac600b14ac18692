/* Writes the streams of this folder anew, into the folder it is started in. They stay as they are: streams that were once
 * written must be readable later. Only a new version of the framing or of a kind adds files. From the top folder:
 *
 *     gcc -D_GNU_SOURCE -I. -o make tests/golden/stream/make.c build/normal/libmoe.a $(cat build/normal/libs) -lcmocka -lm */
#include <math.h>

#include "tests/unit/stream.h"

#include "common/stream/coact.h"

static struct err err;

static void must(int rc)
{
    if (rc) {
        fprintf(stderr, "%s\n", err.text);
        exit(2);
    }
}

static struct writer *begin(const char *path, enum stream_kind kind, bool derived)
{
    struct header header = {0}, source = {0};
    struct writer *out = NULL;
    if (derived) {
        small_header(&source, STREAM_ROUTE);
        must(header_init(&header, kind, "moe-coact", "0.1.0", 0, NULL, &err));
        must(header_derive(&header, &source, &err));
    } else {
        small_header(&header, kind);
    }
    must(writer_open(&out, path, &header, &err));
    header_free(&header);
    header_free(&source);
    return out;
}

static void make_rank(void)
{
    static const int32_t order[4] = {2, 0, 3, 1};
    static const double score[4] = {4, 2.5, 0.1, 0};
    struct writer *out = begin("rank.moes", STREAM_RANK, true);
    must(writer_record(out, &rank_layer_kind, &(struct rank_layer){0, "mass", -1, order, score}, &err));
    must(writer_record(out, &rank_layer_kind, &(struct rank_layer){1, "mass", 3, order, score}, &err));
    writer_begin(out, "x-note");
    writer_text(out, "note", "caf\xc3\xa9, \"quoted\"");
    must(writer_end(out, &err));
    must(writer_close(&out, &err));
}

static void make_coact(void)
{
    static const int32_t budget[3] = {1, 2, 4};
    static const double mass[3] = {0.25, 0.5, 1}, served[3] = {0, 0.125, 1};
    const struct coact_coverage coverage = {.method = "mass", .tokens = 100, .points = 3, .budget = budget, .mass = mass,
                                            .served = served};
    struct writer *out = begin("coact.moes", STREAM_COACT, true);
    must(writer_record(out, &coact_coverage_kind, &coverage, &err));
    must(writer_close(&out, &err));
}

static void make_decode(void)
{
    static const int32_t nodes[3] = {1, 2, 3}, parents[3] = {-1, 0, 1}, tokens[2] = {2, 9}, layers[2] = {4, 3};
    const struct decode_machine machine = {.threads = 2, .device = "host", .isa = "avx2", .read_bandwidth = 1.5e10};
    struct writer *out = begin("decode.moes", STREAM_DECODE, false);
    must(writer_record(out, &decode_machine_kind, &machine, &err));
    for (int64_t i = 0; i < 2; i++) {
        const struct decode_begin start = {.sequence = i, .id = i ? "b" : "a", .task = "math", .prompt_tokens = 3,
                                           .prefill_us = 512.25, .prompt = nodes};
        struct decode_iter iter = {.sequence = i, .t_us = 100.5, .K = 2, .nodes = 3, .drafted = 2, .accepted = 1, .emitted = 2,
                                   .draft_us = 0.5, .verify_us = 90, .accept_us = 8, .other_us = 2, .experts_wanted = 7,
                                   .experts_loaded = 7, .bytes = 123456789012, .draft_bytes = -1,
                                   .shared_texts = -1, .shared_rows = -1, .shared_us = NAN, .shared_experts = -1,
                                   .catch_up = -1, .catch_up_us = NAN, .probe = -1, .probe_us = NAN, .probe_bytes = -1,
                                   .restored = -1, .node_tokens = nodes,
                                   .node_parents = parents, .tokens = tokens, .experts_wanted_layer = layers,
                                   .experts_loaded_layer = layers};
        const struct decode_done done = {.sequence = i, .id = start.id, .n = 2, .tokens = tokens,
                                         .text = "one, \"two\"\nthree", .finish_reason = FINISH_LENGTH, .num_drafts = 1,
                                         .num_draft_tokens = 2, .num_accepted_tokens = 1};
        values_int(&iter.policy, "K", 2);
        values_text(&iter.policy, "phase", "set");
        values_real(&iter.policy, "utility", 1.25);
        must(writer_record(out, &decode_begin_kind, &start, &err));
        must(writer_record(out, &decode_iter_kind, &iter, &err));
        must(writer_record(out, &decode_done_kind, &done, &err));
    }
    must(writer_close(&out, &err));
}

int main(void)
{
    struct writer *route = begin("route.moes", STREAM_ROUTE, false);
    write_route(route);
    must(writer_close(&route, &err));
    make_rank();
    make_coact();
    make_decode();
    return 0;
}
