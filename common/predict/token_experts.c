#include "common/predict/token_experts.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/plain/trim_experts.h"

void token_experts_free(struct token_experts *table)
{
    mem_free(&table->token);
    mem_free(&table->bits);
    *table = (struct token_experts){0};
}

static int prepare(struct token_experts *table, int experts, int layers, int top_k)
{
    if (table->layers)
        return table->layers == layers && table->experts == experts && table->top_k == top_k ? 0 : -1;
    const int words = (layers * experts + 63) / 64;
    table->token = mem_alloc(TOKEN_EXPERTS_SLOTS, sizeof *table->token, NULL);
    table->bits = mem_alloc(TOKEN_EXPERTS_SLOTS, (size_t)words * sizeof *table->bits, NULL);
    if (!table->token || !table->bits) {
        token_experts_free(table);
        return -1;
    }
    for (int slot = 0; slot < TOKEN_EXPERTS_SLOTS; slot++)
        table->token[slot] = -1;
    table->experts = experts;
    table->layers = layers;
    table->top_k = top_k;
    table->words = words;
    return 0;
}

static uint64_t *slot_of(const struct token_experts *table, int32_t token)
{
    return table->bits + (size_t)(token % TOKEN_EXPERTS_SLOTS) * (size_t)table->words;
}

void token_experts_learn(struct token_experts *table, int32_t token, const int32_t *expert, int experts, int layers,
                         int top_k)
{
    if (token < 0 || experts < 1 || layers < 1 || prepare(table, experts, layers, top_k))
        return;
    uint64_t *bits = slot_of(table, token);
    const bool known = table->token[token % TOKEN_EXPERTS_SLOTS] == token;
    for (int word = 0; known && word < table->words; word++)
        table->named += trim_count_bits(bits[word]);
    for (int i = 0; known && i < layers * top_k; i++) {
        const bool wanted = expert[i] >= 0 && expert[i] < experts;
        const int pair = wanted ? i / top_k * experts + expert[i] : 0;
        table->wanted += wanted;
        table->right += wanted && bits[pair / 64] >> (pair % 64) & 1;
    }
    memset(bits, 0, (size_t)table->words * sizeof *bits);
    for (int i = 0; i < layers * top_k; i++) {
        if (expert[i] < 0 || expert[i] >= experts)
            continue;
        const int pair = i / top_k * experts + expert[i];
        bits[pair / 64] |= (uint64_t)1 << (pair % 64);
    }
    table->token[token % TOKEN_EXPERTS_SLOTS] = token;
}

const uint64_t *token_experts_of(const struct token_experts *table, int32_t token)
{
    return table->layers && token >= 0 && table->token[token % TOKEN_EXPERTS_SLOTS] == token ? slot_of(table, token) : NULL;
}
