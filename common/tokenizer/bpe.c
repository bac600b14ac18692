#include <string.h>

#include "common/base/mem.h"
#include "common/base/utf8.h"
#include "common/tokenizer/internal.h"

enum {
    PROBES = 4096,                     /* longer chains do not occur by chance: the keys were chosen by an attacker */
    TOKEN_BYTES = 1 << 30              /* max value of a length's bit field */
};

int tokens_put(struct tokens *tokens, int32_t id, struct err *err)
{
    if (tokens->n == INT32_MAX)
        return err_set(err, ERR_INPUT, "the text has more than 2^31 tokens; split the text");
    if (mem_grow(&tokens->ids, &tokens->room, (size_t)tokens->n + 1, sizeof *tokens->ids, err))
        return -1;
    tokens->ids[tokens->n++] = id;
    return 0;
}

void tokens_free(struct tokens *tokens)
{
    mem_free(&tokens->ids);
    tokens->room = 0;
    tokens->n = 0;
}

int bpe_start(struct bpe *bpe, size_t entries, struct err *err)
{
    bpe->unk = -1;
    if (entries > (1u << 28))
        return err_set(err, ERR_INPUT, "the vocabulary has %zu tokens, more than the maximum of 2^28", entries);
    bpe->room = 2 * entries + 65536;   /* allows gaps, but no ids far beyond the number of entries */
    bpe->entries = mem_alloc(bpe->room, sizeof *bpe->entries, err);
    return bpe->entries ? 0 : -1;
}

int bpe_add(struct bpe *bpe, const char *content, size_t bytes, int64_t id, struct err *err)
{
    if (id < 0 || (uint64_t)id >= bpe->room)
        return err_set(err, ERR_INPUT, "token \"%.40s\" has id %lld, out of range for a vocabulary of this size", content,
                       (long long)id);
    struct vocab_entry *entry = &bpe->entries[id];
    if (entry->used)
        return err_set(err, ERR_INPUT, "id %lld is used twice, by tokens \"%.40s\" and \"%.40s\"", (long long)id,
                       bpe->strings.data + entry->offset, content);
    if (bytes >= TOKEN_BYTES || bpe->strings.length > UINT32_MAX - TOKEN_BYTES)
        return err_set(err, ERR_INPUT, "the vocabulary is too large: token %lld would add %zu bytes to %zu", (long long)id,
                       bytes,
                       bpe->strings.length);
    entry->offset = (uint32_t)bpe->strings.length;
    entry->bytes = (uint32_t)bytes & (TOKEN_BYTES - 1);
    if (text_put(&bpe->strings, content, bytes, err) || text_putc(&bpe->strings, '\0', err))
        return -1;
    entry->used = true;
    if (id >= bpe->size)
        bpe->size = (int)id + 1;
    return 0;
}

/* Returns the slot of the content, or the empty slot in which to insert it; -1 after too many probes. */
static int64_t bpe_slot(const struct bpe *bpe, const char *content, size_t bytes)
{
    size_t slot = hash_xxh3(content, bytes).low & (bpe->n_slots - 1);
    for (int probe = 0; probe < PROBES; probe++) {
        int32_t id = bpe->slots[slot];
        if (id < 0)
            return (int64_t)slot;
        const struct vocab_entry *entry = &bpe->entries[id];
        if (entry->bytes == bytes && !memcmp(bpe->strings.data + entry->offset, content, bytes))
            return (int64_t)slot;
        slot = (slot + 1) & (bpe->n_slots - 1);
    }
    return -1;
}

static size_t power_of_two(size_t min)
{
    size_t value = 16;
    while (value < min)
        value *= 2;
    return value;
}

int bpe_index(struct bpe *bpe, struct err *err)
{
    mem_free(&bpe->slots);
    bpe->n_slots = power_of_two(2 * (size_t)bpe->size);
    bpe->slots = mem_alloc(bpe->n_slots, sizeof *bpe->slots, err);
    if (!bpe->slots)
        return -1;
    for (size_t i = 0; i < bpe->n_slots; i++)
        bpe->slots[i] = -1;
    for (int id = 0; id < bpe->size; id++) {
        const struct vocab_entry *entry = &bpe->entries[id];
        if (!entry->used)
            continue;
        const char *content = bpe->strings.data + entry->offset;
        int64_t slot = bpe_slot(bpe, content, entry->bytes);
        if (slot < 0)
            return err_set(err, ERR_INPUT, "too many tokens have the same hash; the vocabulary was made to collide");
        if (bpe->slots[slot] >= 0)
            return err_set(err, ERR_INPUT, "token \"%.40s\" has two ids, %d and %d", content, (int)bpe->slots[slot], id);
        bpe->slots[slot] = id;
    }
    for (int byte = 0; byte < 256; byte++) {
        char name[8] = {'<', '0', 'x', "0123456789ABCDEF"[byte >> 4], "0123456789ABCDEF"[byte & 15], '>', 0, 0};
        bpe->byte_ids[byte] = bpe_find_own(bpe, name, 6);
    }
    return 0;
}

int32_t bpe_find(const struct bpe *bpe, const char *content, size_t bytes)
{
    int64_t slot = bpe_slot(bpe, content, bytes);
    return slot < 0 ? -1 : bpe->slots[slot];
}

int32_t bpe_find_own(const struct bpe *bpe, const char *content, size_t bytes)
{
    int32_t id = bpe_find(bpe, content, bytes);
    return id >= 0 && bpe->entries[id].added ? -1 : id;
}

/* Spreads two small ids over all bits (the finalizer of MurmurHash3). */
static uint64_t spread(uint64_t key)
{
    key = (key ^ key >> 33) * 0xFF51AFD7ED558CCDu;
    key = (key ^ key >> 33) * 0xC4CEB9FE1A85EC53u;
    return key ^ key >> 33;
}

static struct merge_entry *merge_slot(const struct bpe *bpe, uint64_t key)
{
    size_t slot = spread(key) & (bpe->n_merge_slots - 1);
    for (int probe = 0; probe < PROBES; probe++) {
        struct merge_entry *entry = &bpe->merges[slot];
        if (entry->key == key || entry->key == UINT64_MAX)
            return entry;
        slot = (slot + 1) & (bpe->n_merge_slots - 1);
    }
    return NULL;
}

int bpe_merges_start(struct bpe *bpe, size_t n_merges, struct err *err)
{
    if (n_merges > (1u << 28))
        return err_set(err, ERR_INPUT, "the tokenizer has %zu merges, more than the maximum of 2^28", n_merges);
    bpe->n_merge_slots = power_of_two(2 * n_merges);
    bpe->merges = mem_alloc(bpe->n_merge_slots, sizeof *bpe->merges, err);
    if (!bpe->merges)
        return -1;
    for (size_t i = 0; i < bpe->n_merge_slots; i++)
        bpe->merges[i].key = UINT64_MAX;
    return 0;
}

int bpe_merge_add(struct bpe *bpe, uint32_t rank, const char *left, size_t left_bytes, const char *right, size_t right_bytes,
                  struct err *err)
{
    int32_t left_id = bpe_find(bpe, left, left_bytes), right_id = bpe_find(bpe, right, right_bytes), id;
    struct text joined = {0};
    int rc = -1;
    if (left_id < 0 || right_id < 0) {
        err_set(err, ERR_INPUT, "merge %u: \"%.40s\" is not in the vocabulary", rank, left_id < 0 ? left : right);
        goto done;
    }
    if (text_put(&joined, left, left_bytes, err) || text_put(&joined, right, right_bytes, err))
        goto done;
    id = bpe_find(bpe, joined.data, joined.length);
    if (id < 0) {
        err_set(err, ERR_INPUT, "merge %u: its result \"%.40s\" is not in the vocabulary", rank, joined.data);
        goto done;
    }
    uint64_t key = (uint64_t)(uint32_t)left_id << 32 | (uint32_t)right_id;
    struct merge_entry *entry = merge_slot(bpe, key);
    if (!entry) {
        err_set(err, ERR_INPUT, "too many merges have the same hash; the vocabulary was made to collide");
        goto done;
    }
    *entry = (struct merge_entry){ .key = key, .rank = rank, .id = id };       /* the last of two equal merges counts */
    rc = 0;
done:
    text_free(&joined);
    return rc;
}

void bpe_free(struct bpe *bpe)
{
    text_free(&bpe->strings);
    mem_free(&bpe->entries);
    mem_free(&bpe->slots);
    mem_free(&bpe->merges);
}

void bpe_scratch_free(struct bpe_scratch *scratch)
{
    mem_free(&scratch->symbols);
    mem_free(&scratch->heap);
}

int bpe_heap_put(struct bpe_scratch *s, struct bpe_pending item, struct err *err)
{
    if (mem_grow(&s->heap, &s->heap_room, s->n_heap + 1, sizeof *s->heap, err))
        return -1;
    size_t at = s->n_heap++;
    while (at && s->heap[(at - 1) / 2].order > item.order) {
        s->heap[at] = s->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->heap[at] = item;
    return 0;
}

struct bpe_pending bpe_heap_take(struct bpe_scratch *s)
{
    struct bpe_pending top = s->heap[0], last = s->heap[--s->n_heap];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < s->n_heap) {
        if (child + 1 < s->n_heap && s->heap[child + 1].order < s->heap[child].order)
            child++;
        if (s->heap[child].order >= last.order)
            break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = last;
    return top;
}

static const struct merge_entry *merge_of(const struct bpe *bpe, const struct bpe_symbol *symbols, int32_t left)
{
    int32_t right = symbols[left].after;
    if (!bpe->merges || right < 0)
        return NULL;
    const struct merge_entry *entry =
        merge_slot(bpe, (uint64_t)(uint32_t)symbols[left].id << 32 | (uint32_t)symbols[right].id);
    return entry && entry->key != UINT64_MAX ? entry : NULL;
}

static int push_merge(const struct bpe *bpe, struct bpe_scratch *s, int32_t left, struct err *err)
{
    const struct merge_entry *merge = merge_of(bpe, s->symbols, left);
    if (!merge)
        return 0;
    return bpe_heap_put(s, (struct bpe_pending){ (uint64_t)merge->rank << 32 | (uint32_t)left, merge->id }, err);
}

static int symbol_put(struct bpe_scratch *s, size_t *n, int32_t id, struct err *err)
{
    if (*n >= INT32_MAX)
        return err_set(err, ERR_INPUT, "a word has more than 2^31 characters");
    if (mem_grow(&s->symbols, &s->symbol_room, *n + 1, sizeof *s->symbols, err))
        return -1;
    s->symbols[*n] = (struct bpe_symbol){ .id = id, .before = (int32_t)*n - 1, .after = (int32_t)*n + 1, .bytes = 1 };
    ++*n;
    return 0;
}

/* Converts characters to symbols: the character's own token, else the tokens of its bytes, else the unknown token. */
static int symbols_start(const struct bpe *bpe, const char *text, size_t bytes, struct bpe_scratch *s, size_t *n,
                         struct err *err)
{
    bool unknown_before = false;
    *n = 0;
    for (size_t at = 0; at < bytes;) {
        int length = utf8_next(text + at, bytes - at, NULL);
        int32_t id = bpe_find_own(bpe, text + at, (size_t)length);
        bool by_bytes = id < 0 && bpe->byte_fallback, unknown = false;
        for (int i = 0; i < length && by_bytes; i++)
            by_bytes = bpe->byte_ids[(unsigned char)text[at + (size_t)i]] >= 0;
        if (by_bytes) {
            for (int i = 0; i < length; i++)
                if (symbol_put(s, n, bpe->byte_ids[(unsigned char)text[at + (size_t)i]], err))
                    return -1;
        } else if (id >= 0) {
            if (symbol_put(s, n, id, err))
                return -1;
        } else if (bpe->unk < 0) {
            return err_set(err, ERR_INPUT, "the vocabulary has no token for \"%.*s\" and no unknown token", length, text + at);
        } else {
            unknown = true;
            if (!(unknown_before && bpe->fuse_unk) && symbol_put(s, n, bpe->unk, err))
                return -1;
        }
        unknown_before = unknown;
        at += (size_t)length;
    }
    if (*n)
        s->symbols[*n - 1].after = -1;
    return 0;
}

int bpe_encode(const struct bpe *bpe, const char *text, size_t bytes, struct bpe_scratch *s, struct tokens *out,
               struct err *err)
{
    size_t n;
    if (bpe->ignore_merges) {
        int32_t whole = bpe_find_own(bpe, text, bytes);
        if (whole >= 0)
            return tokens_put(out, whole, err);
    }
    if (symbols_start(bpe, text, bytes, s, &n, err))
        return -1;
    s->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        if (push_merge(bpe, s, (int32_t)i, err))
            return -1;
    while (s->n_heap) {
        struct bpe_pending top = bpe_heap_take(s);
        struct bpe_symbol *left = &s->symbols[top.order & UINT32_MAX];
        if (!left->bytes)
            continue;                                  /* was merged into its left neighbour */
        const struct merge_entry *merge = merge_of(bpe, s->symbols, (int32_t)(top.order & UINT32_MAX));
        if (!merge || merge->id != top.id)
            continue;                                  /* the right neighbour has changed */
        struct bpe_symbol *right = &s->symbols[left->after];
        left->id = merge->id;
        left->after = right->after;
        right->bytes = 0;
        if (left->after >= 0)
            s->symbols[left->after].before = (int32_t)(top.order & UINT32_MAX);
        if ((left->before >= 0 && push_merge(bpe, s, left->before, err)) ||
            push_merge(bpe, s, (int32_t)(top.order & UINT32_MAX), err))
            return -1;
    }
    for (int32_t at = n ? 0 : -1; at >= 0; at = s->symbols[at].after)
        if (tokens_put(out, s->symbols[at].id, err))
            return -1;
    return 0;
}
