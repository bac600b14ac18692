#include "common/sample/sampler.h"

#include <string.h>

#include "common/base/hash.h"
#include "common/base/mem.h"

struct seen {
    struct digest128 prompt;
    uint32_t times;                 /* 0: an empty slot */
};

struct sampler {
    struct sample_filter filter;
    uint64_t seed;
    int vocab;
    int32_t *kept;                  /* [vocab] */
    struct sample_draw draw;        /* key and counter of the text's draws, without the position */
    struct seen *seen;              /* open hash table of seen_slots, a power of two */
    size_t seen_slots, seen_used;
};

int sampler_open(struct sampler **out, const struct sample_filter *filter, uint64_t seed, int vocab, struct err *err)
{
    struct sampler *sampler = mem_alloc(1, sizeof *sampler, err);
    if (!sampler)
        return -1;
    sampler->filter = *filter;
    sampler->seed = seed;
    sampler->vocab = vocab;
    sampler->kept = mem_alloc((size_t)vocab, sizeof *sampler->kept, err);
    if (!sampler->kept) {
        sampler_close(&sampler);
        return -1;
    }
    *out = sampler;
    return 0;
}

void sampler_close(struct sampler **sampler)
{
    if (*sampler) {
        mem_free(&(*sampler)->kept);
        mem_free(&(*sampler)->seen);
    }
    mem_free(sampler);
}

static struct seen *find_seen(struct seen *table, size_t slots, struct digest128 prompt)
{
    size_t at = (size_t)prompt.low & (slots - 1);
    while (table[at].times && (table[at].prompt.low != prompt.low || table[at].prompt.high != prompt.high))
        at = (at + 1) & (slots - 1);
    return &table[at];
}

static int grow_seen(struct sampler *sampler, struct err *err)
{
    size_t slots = sampler->seen_slots ? 2 * sampler->seen_slots : 64;
    struct seen *table = mem_alloc(slots, sizeof *table, err);
    if (!table)
        return -1;
    for (size_t at = 0; at < sampler->seen_slots; at++)
        if (sampler->seen[at].times)
            *find_seen(table, slots, sampler->seen[at].prompt) = sampler->seen[at];
    mem_free(&sampler->seen);
    sampler->seen = table;
    sampler->seen_slots = slots;
    return 0;
}

static uint64_t key_of(const struct sampler *sampler, struct digest128 prompt)
{
    const uint64_t words[3] = {sampler->seed, prompt.low, prompt.high};
    return hash_xxh3(words, sizeof words).low;
}

int sampler_begin(struct sampler *sampler, const int32_t *prompt, int count, int sample, struct err *err)
{
    return sampler_begin_by(sampler, sampler, prompt, count, sample, err);
}

int sampler_begin_by(struct sampler *sampler, struct sampler *counts, const int32_t *prompt, int count, int sample,
                     struct err *err)
{
    struct digest128 digest = hash_xxh3(prompt, (size_t)count * sizeof *prompt);
    if (2 * (counts->seen_used + 1) > counts->seen_slots && grow_seen(counts, err))
        return -1;
    struct seen *seen = find_seen(counts->seen, counts->seen_slots, digest);
    counts->seen_used += seen->times == 0;
    seen->prompt = digest;
    sampler->draw = (struct sample_draw){
        .key = key_of(sampler, digest), .ordinal = seen->times++, .sample = (uint32_t)sample};
    return 0;
}

void sampler_go_on(struct sampler *sampler, const int32_t *prompt, int count)
{
    sampler->draw.key = key_of(sampler, hash_xxh3(prompt, (size_t)count * sizeof *prompt));
}

void sampler_forget(struct sampler *sampler)
{
    if (sampler->seen)
        memset(sampler->seen, 0, sampler->seen_slots * sizeof *sampler->seen);
    sampler->seen_used = 0;
}

const struct sample_draw *sampler_draw(const struct sampler *sampler) { return &sampler->draw; }

int32_t sampler_choose(struct sampler *sampler, const float *logits, int position, struct err *err)
{
    int32_t token = sample_best(logits, sampler->vocab);
    if (token < 0)
        return err_set(err, ERR_INPUT, "the logits at position %d are not finite; the model's weights are damaged", position);
    if (sampler->filter.temperature > 0) {
        int kept = sample_keep(logits, sampler->vocab, token, &sampler->filter, sampler->kept);
        sampler->draw.position = (uint32_t)position;
        token = sample_gumbel(logits, sampler->kept, kept, sampler->filter.temperature, &sampler->draw);
    }
    return token;
}
