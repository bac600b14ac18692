/* Writes a recording of texts whose drafts are accepted with a given probability, for moe-decode --force-accept: random tokens,
 * without a model.
 *
 *     accepting PROBABILITY FILE TEXTS TOKENS VOCABULARY
 *
 * Each text has a prompt of 8 tokens and an answer of TOKENS. At each of its positions a chain of up to 16 tokens is drafted; a
 * token whose predecessors are accepted is accepted with PROBABILITY. The same arguments give the same bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/stream/decode.h"
#include "common/stream/writer.h"

enum { PROMPT = 8, LENGTH = 16 };

struct source {
    uint64_t state;
    double probability;
    int tokens, vocab;
    int32_t *answer;                    /* [tokens] */
};

static uint64_t draw(struct source *source)
{
    source->state ^= source->state << 13;
    source->state ^= source->state >> 7;
    source->state ^= source->state << 17;
    return source->state >> 11;
}

static int32_t draw_token(struct source *source) { return (int32_t)(draw(source) % (uint64_t)source->vocab); }

static bool is_right(struct source *source) { return (double)draw(source) * 0x1p-53 < source->probability; }

static int write_draft(struct writer *out, struct source *source, int64_t text, int at, struct err *err)
{
    static const double no_us[1 + LENGTH];
    static const int64_t no_bytes[1 + LENGTH];
    static const int32_t no_experts[1 + LENGTH];
    float log_probability[1 + LENGTH] = {NAN};
    int32_t token[1 + LENGTH] = {source->answer[at]};
    const int left = source->tokens - 1 - at, room = left - 1, length = room < LENGTH ? room : LENGTH;
    int accepted = 0;
    for (int k = 1; k <= length; k++) {
        const int32_t right = source->answer[at + k];
        const bool match = accepted == k - 1 && is_right(source);
        accepted += match;
        token[k] = match ? right : (right + 1 + draw_token(source) % (source->vocab - 1)) % source->vocab;
        log_probability[k] = (float)log(source->probability);
    }
    const struct decode_draft record = {
        .sequence = text, .pos = PROMPT + at, .left = left, .room = room, .K = LENGTH, .n = 1 + length, .accepted = accepted,
        .drafter = -1, .tokens = token, .log_probability = log_probability, .draft_us = no_us, .verify_us = no_us,
        .draft_bytes = no_bytes, .bytes = no_bytes, .experts_loaded = no_experts, .expert_bytes = -1};
    return writer_record(out, &decode_draft_kind, &record, err);
}

static int write_text(struct writer *out, struct source *source, int64_t text, struct err *err)
{
    int32_t prompt[PROMPT];
    char id[24];
    snprintf(id, sizeof id, "%lld", (long long)text);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = draw_token(source);
    for (int i = 0; i < source->tokens; i++)
        source->answer[i] = draw_token(source);
    const struct decode_begin begin = {.sequence = text, .id = id, .prompt_tokens = PROMPT, .prompt = prompt};
    const struct decode_iter iter = {.sequence = text, .nodes = source->tokens - 1, .drafted = source->tokens - 2,
                                     .accepted = source->tokens - 2, .emitted = source->tokens - 1};
    const struct decode_done done = {.sequence = text, .id = id, .n = source->tokens, .tokens = source->answer,
                                     .finish_reason = FINISH_LENGTH};
    if (writer_record(out, &decode_begin_kind, &begin, err) || writer_record(out, &decode_iter_kind, &iter, err))
        return -1;
    for (int at = 0; at < source->tokens - 1; at++)
        if (write_draft(out, source, text, at, err))
            return -1;
    return writer_record(out, &decode_done_kind, &done, err);
}

int main(int argc, char **argv)
{
    struct source source = {.state = 0x9e3779b97f4a7c15};
    struct err err = {0};
    struct header header = {0};
    struct writer *out = NULL;
    const int texts = argc == 6 ? atoi(argv[3]) : 0;
    int status = 2;
    source.probability = argc == 6 ? atof(argv[1]) : 0;
    source.tokens = argc == 6 ? atoi(argv[4]) : 0;
    source.vocab = argc == 6 ? atoi(argv[5]) : 0;
    if (texts < 1 || source.tokens < 2 || source.vocab < 2 || !(source.probability >= 0 && source.probability <= 1)) {
        fprintf(stderr, "usage: accepting PROBABILITY FILE TEXTS TOKENS VOCABULARY\n");
        return 2;
    }
    if (!(source.answer = mem_alloc((size_t)source.tokens, sizeof *source.answer, &err)) ||
        header_init(&header, STREAM_DECODE, "accepting", "1", 0, NULL, &err) ||
        header_label(&header, "synthetic", "tokens without a model", &err))
        goto done;
    header.has_model = true;
    header.model = (struct stream_model){.name = "none", .layers = 1, .vocab = source.vocab, .hidden = 1};
    if (writer_open(&out, argv[2], &header, &err))
        goto done;
    for (int64_t text = 0; text < texts; text++)
        if (write_text(out, &source, text, &err))
            goto done;
    status = writer_close(&out, &err) ? 2 : 0;
done:
    if (status)
        fprintf(stderr, "accepting: %s\n", err.text);
    writer_abort(&out, &err);
    header_free(&header);
    mem_free(&source.answer);
    return status;
}
