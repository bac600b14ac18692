/* Writes a route stream like moe-profile's of a model of OLMoE-1B-7B's shape (16 layers, 64 experts, 8 per token), without a
 * model: tests/bench-coact.sh times moe-coact over it.
 *
 *     routes TOKENS FILE [DECODED]
 *
 * Texts of 512 tokens in forwards of 64, the last DECODED tokens of each (0) one by one. A layer prefers some experts, a
 * text others, and tokens choose randomly among them, so that runs of one expert, pairs and unions resemble real routes. The
 * same arguments give the same bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/route/counts.h"
#include "common/stream/writer.h"

enum { LAYERS = 16, EXPERTS = 64, TOP_K = 8, VOCAB = 50304, TEXT = 512, FORWARD = 64, CHANCES = 1 << 16 };

struct source {
    uint64_t state;
    float chance[CHANCES];              /* Gumbel noise: the largest sum is a draw from the softmax */
    float layer[LAYERS][EXPERTS], text[LAYERS][EXPERTS], probability[LAYERS][EXPERTS];
};

static uint64_t draw(struct source *source)
{
    source->state ^= source->state << 13;
    source->state ^= source->state >> 7;
    source->state ^= source->state << 17;
    return source->state;
}

static void source_open(struct source *source)
{
    source->state = 0x9e3779b97f4a7c15;
    for (int i = 0; i < CHANCES; i++)
        source->chance[i] = (float)-log(-log((i + 0.5) / CHANCES));
    for (int layer = 0; layer < LAYERS; layer++)
        for (int e = 0; e < EXPERTS; e++)
            source->layer[layer][e] = 0.5f * source->chance[draw(source) % CHANCES];
}

static void begin_text(struct source *source)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        double sum = 0;
        for (int e = 0; e < EXPERTS; e++) {
            source->text[layer][e] = source->layer[layer][e] + 0.7f * source->chance[draw(source) % CHANCES];
            sum += exp((double)source->text[layer][e]);
        }
        for (int e = 0; e < EXPERTS; e++)
            source->probability[layer][e] = (float)(exp((double)source->text[layer][e]) / sum);
    }
}

/* Finds the TOP_K experts with the largest sums, heaviest first. */
static void choose(struct source *source, int layer, int16_t *expert, float *weight)
{
    float best[TOP_K + 1];
    int count = 0;
    uint64_t bits = 0;
    for (int e = 0; e < EXPERTS; e++, bits >>= 16) {
        if (e % 4 == 0)
            bits = draw(source);
        float sum = source->text[layer][e] + source->chance[bits % CHANCES];
        int at = count;
        if (count == TOP_K && sum <= best[TOP_K - 1])
            continue;
        for (at = count < TOP_K ? count++ : TOP_K - 1; at > 0 && best[at - 1] < sum; at--) {
            best[at] = best[at - 1];
            expert[at] = expert[at - 1];
        }
        best[at] = sum;
        expert[at] = (int16_t)e;
    }
    for (int s = 0; s < TOP_K; s++)
        weight[s] = source->probability[layer][expert[s]];
}

static int write_forward(struct writer *out, struct source *source, struct route_tokens *record, struct err *err)
{
    static int32_t tokens[FORWARD];
    static int16_t experts[FORWARD * LAYERS * TOP_K];
    static float weights[FORWARD * LAYERS * TOP_K];
    static double mass[LAYERS * EXPERTS];
    memset(mass, 0, sizeof mass);
    for (int i = 0; i < record->n; i++) {
        tokens[i] = (int32_t)(draw(source) % VOCAB);
        for (int layer = 0; layer < LAYERS; layer++)
            choose(source, layer, experts + (i * LAYERS + layer) * TOP_K, weights + (i * LAYERS + layer) * TOP_K);
        route_mass_add(mass, source->probability[0], LAYERS * EXPERTS);
    }
    record->tokens = tokens;
    record->experts = experts;
    record->weights = weights;
    record->mass = mass;
    return writer_record(out, &route_tokens_kind, record, err);
}

static int write_texts(struct writer *out, struct source *source, int64_t tokens, int decoded, struct err *err)
{
    for (int64_t text = 0; text * TEXT < tokens; text++) {
        int length = tokens - text * TEXT < TEXT ? (int)(tokens - text * TEXT) : TEXT;
        int prompt = length > decoded ? length - decoded : 0;
        const struct route_begin begin = { .sequence = text, .prompt_tokens = prompt };
        const struct route_end end = { text };
        begin_text(source);
        if (writer_record(out, &route_begin_kind, &begin, err))
            return -1;
        struct route_tokens record = { .sequence = text };
        for (; record.pos < length; record.pos += record.n) {
            int left = prompt - record.pos;
            record.n = left <= 0 ? 1 : left < FORWARD ? left : FORWARD;
            record.phase = left <= 0 ? PHASE_DECODE : PHASE_PROMPT;
            if (write_forward(out, source, &record, err))
                return -1;
        }
        if (writer_record(out, &route_end_kind, &end, err))
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct source source;
    struct err err = {0};
    struct header header = {0};
    struct writer *out = NULL;
    int64_t tokens = argc > 2 ? atoll(argv[1]) : 0;
    int decoded = argc > 3 ? atoi(argv[3]) : 0, status = 2;
    if (tokens < 1 || decoded < 0) {
        fprintf(stderr, "usage: routes TOKENS FILE [DECODED]\n");
        return 2;
    }
    source_open(&source);
    if (header_init(&header, STREAM_ROUTE, "routes", "1", 0, NULL, &err))
        goto done;
    header.has_model = true;
    header.model = (struct stream_model){ .name = "olmoe-1b-7b's shape", .layers = LAYERS, .moe_layers = LAYERS,
                                          .experts = EXPERTS, .top_k = TOP_K, .vocab = VOCAB, .hidden = 2048 };
    if (header_label(&header, "synthetic", "routes without a model", &err) || writer_open(&out, argv[2], &header, &err) ||
        write_texts(out, &source, tokens, decoded, &err) || writer_close(&out, &err))
        goto done;
    status = 0;
done:
    if (status)
        fprintf(stderr, "routes: %s\n", err.text);
    writer_abort(&out, &err);
    header_free(&header);
    return status;
}
