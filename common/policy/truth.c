#include "common/policy/truth.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/policy/shape.h"

void truth_free(struct truth *truth)
{
    recording_free(&truth->recording);
    mem_free(&truth->bits);
    mem_free(&truth->joined);
}

int truth_open(struct truth *out, struct spec *spec, const struct policy_setup *setup, int room, struct err *err)
{
    static const char *const words[] = {"none", "acceptance", "experts", "both", NULL};
    const char *file;
    int which;
    if (spec_choice(spec, "truth", 0, words, &which, err) || spec_text(spec, "file", NULL, &file, err))
        return -1;
    if (!which != !file)
        return err_set(err, ERR_INPUT, "truth: no recording is given; write truth=both,file=STREAM");
    if (!which)
        return 0;
    out->acceptance = which & 1;
    out->experts = which & 2;
    out->room = room;
    if (recording_read(&out->recording, file, err))
        return err_at(err, "file");
    out->follow.all = out->recording;
    if (!out->experts || !setup->experts || !out->recording->expert)
        return out->experts ? err_set(err, ERR_INPUT, "%s: contains no experts of drafts; use truth=acceptance, which needs "
                                      "none", file) : 0;
    out->layers = (int)out->recording->width / setup->top_k;
    out->words = (out->layers * setup->experts + 63) / 64;
    out->bits = mem_alloc((size_t)room * (size_t)out->words, sizeof *out->bits, err);
    out->joined = mem_alloc((size_t)out->words, sizeof *out->joined, err);
    return out->bits && out->joined ? 0 : -1;
}

void truth_chances(const struct truth *truth, const struct draft_tree *tree, double *chance)
{
    const struct recorded_text *text = truth->follow.text;
    for (int node = 0; text && node < tree->nodes; node++) {
        const int at = truth->follow.at + tree->depth[node];
        chance[node] = at < text->tokens && text->token[at] == tree->token[node];
    }
}

/* Adds the pairs of a recorded row to bits. */
static void mark_experts(const struct truth *truth, size_t row, int experts, uint64_t *bits)
{
    const int top_k = (int)truth->recording->width / truth->layers;
    const int32_t *expert = truth->recording->expert + row * truth->recording->width;
    memset(bits, 0, (size_t)truth->words * sizeof *bits);
    for (int i = 0; i < truth->layers * top_k; i++)
        if (expert[i] >= 0) {
            const int pair = i / top_k * experts + expert[i];
            bits[pair / 64] |= (uint64_t)1 << pair % 64;
        }
}

void truth_sets(struct truth *truth, const struct draft_tree *tree, int experts, const uint64_t **set)
{
    int32_t token[SHAPE_DEPTH_MAX];
    struct recorded_way way = {.all = truth->recording, .text = truth->follow.text, .at = truth->follow.at, .token = token};
    for (int row = 0; row <= tree->nodes; row++) {
        struct recorded_node found;
        uint64_t *bits = truth->bits + (size_t)row * (size_t)truth->words;
        set[row] = NULL;
        way.depth = row ? draft_tree_path(tree, row - 1, token, SHAPE_DEPTH_MAX) : 0;
        way.drafter = row ? tree->drafter[row - 1] : 0;
        if (!way.text || way.at >= way.text->tokens - 1 || !recorded_way_find(&way, 0, &found))
            continue;
        mark_experts(truth, truth->recording->draft[found.draft].row + (size_t)found.at, experts, bits);
        set[row] = bits;
    }
}
