/* Any bytes as a skip file of a self-draft, for a model of 7 layers. An accepted file skips valid parts, and survives
 * writing and reading; everything else is rejected in one line. */
#include <string.h>

#include "common/draft/skip_file.h"
#include "tests/fuzz/fuzz.h"

enum { LAYERS = 7 };

static void check_set(const struct skip_set *set)
{
    int parts = 0;
    if (set->layers != LAYERS || set->attention[0] || set->ffn[0])
        abort();
    for (int n = 0; n < LAYERS_MAX; n++) {
        if (set->attention[n] > 1 || set->ffn[n] > 1 || (n >= LAYERS - 1 && (set->attention[n] || set->ffn[n])))
            abort();
        parts += set->attention[n] + set->ffn[n];
    }
    if (!parts)
        abort();
}

static void check_facts(const struct skip_found *found, bool searched)
{
    const struct skip_search_facts *search = &found->search;
    if (!(found->matchness >= 0 && found->matchness <= 1) || found->window < 1 || !search->ended != !searched)
        abort();
    if (search->texts < 0 || search->candidates < 0 || search->bayesian < 0 || search->kept < 0 ||
        !(search->ratio >= 0 && search->ratio <= 1))
        abort();
}

static void write_and_read(const struct skip_set *set, const struct skip_found *found, const struct model_identity *model)
{
    struct skip_set again = {0};
    struct skip_found facts = {0};
    struct err err = {0};
    char path[] = "/tmp/fuzz-skip-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        abort();
    close(fd);
    if (skip_file_write(path, set, found, model, &err) || skip_file_read(&again, &facts, path, model, &err) ||
        memcmp(&again, set, sizeof again) || facts.window != found->window || facts.search.ended != found->search.ended ||
        facts.search.seed != found->search.seed || facts.search.kept != found->search.kept)
        abort();
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct model_identity model = {.name = "tiny", .layers = LAYERS};
    struct skip_set set = {.layers = -1};
    struct skip_found found = {0};
    struct err err = {0};
    char path[64];
    memset(model.index.bytes, 0x1a, sizeof model.index.bytes);
    memset(model.source.bytes, 0x2b, sizeof model.source.bytes);
    memset(model.tokenizer.bytes, 0x3c, sizeof model.tokenizer.bytes);
    int fd = fuzz_file(data, bytes, path);
    if (!skip_file_read(&set, &found, path, &model, &err)) {
        check_set(&set);
        check_facts(&found, found.search.ended);
        write_and_read(&set, &found, &model);
    } else if (err.code != ERR_INPUT || !*err.text || strchr(err.text, '\n') || set.layers != -1) {
        abort();
    }
    close(fd);
    return 0;
}
