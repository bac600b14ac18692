/* Any bytes as a corpus of earlier answers, with a model without a tokenizer; an index also gets a valid size and digest.
 * Then a text is drafted with it. */
#include <string.h>

#include "common/base/hash.h"
#include "common/draft/drafter.h"
#include "tests/fuzz/fuzz.h"

enum { HEAD = 88, VOCAB = 64, NODE = 32 };

static void draft(const uint8_t *data, size_t bytes, bool whole)
{
    const struct drafter_setup setup = {.vocab = VOCAB, .positions = 64};
    struct drafter *drafter = NULL;
    struct draft_tree tree = {0};
    char path[64], text[128];
    int fd = fuzz_file(data, bytes, path);
    snprintf(text, sizeof text, "suffix:min=0.001,factor=8,total=128,corpus=%s", path);
    if (!drafter_open(&drafter, text, &setup, NULL)) {
        if (draft_tree_init(&tree, 256, NULL) || drafter->class->begin(drafter, &(struct draft_text){.tokens = 64}, NULL))
            abort();
        for (int at = 0; at < 48; at++) {
            const int32_t token = whole && at < (int)bytes - HEAD ? data[HEAD + 4 * (at % 12)] % VOCAB : at % 5;
            const struct draft_leaf leaf = {-1, at % 4};
            draft_tree_clear(&tree);
            if (drafter->class->commit(drafter, &token, 1, NULL) ||
                drafter->class->propose(drafter, &tree, &leaf, 1, 1 + at % 64, NULL) < 0)
                abort();
            for (int node = 0; node < tree.nodes; node++)
                if (tree.token[node] < 0 || tree.token[node] >= VOCAB)
                    abort();                    /* the engine uses these as rows of a matrix */
        }
        draft_tree_free(&tree);
        drafter_close(&drafter);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    draft(data, bytes, false);
    if (bytes < HEAD + 4 + NODE)
        return 0;
    uint8_t *sealed = malloc(bytes);
    uint64_t tokens, nodes;
    if (!sealed)
        abort();
    memcpy(sealed, data, bytes);
    memcpy(&tokens, sealed + 16, sizeof tokens);
    if (tokens > (bytes - HEAD - NODE) / 4)
        tokens = (bytes - HEAD - NODE) / 4;
    nodes = (bytes - HEAD - 4 * tokens) / NODE;
    bytes = HEAD + 4 * (size_t)tokens + NODE * (size_t)nodes;
    memcpy(sealed + 16, &tokens, sizeof tokens);
    memcpy(sealed + 24, &nodes, sizeof nodes);
    memset(sealed + 72, 0, 16);
    const struct digest128 digest = hash_xxh3(sealed, bytes);
    memcpy(sealed + 72, &digest, sizeof digest);
    draft(sealed, bytes, true);
    free(sealed);
    return 0;
}
