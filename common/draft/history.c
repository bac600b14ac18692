#include "common/draft/history.h"

#include "common/base/mem.h"

int draft_history_put(struct draft_history *history, const int32_t *token, int count, struct err *err)
{
    if (mem_grow(&history->token, &history->room, (size_t)history->length + (size_t)count, sizeof *history->token, err))
        return -1;
    for (int at = 0; at < count; at++)
        history->token[history->length++] = token[at];
    return 0;
}

void draft_history_free(struct draft_history *history)
{
    mem_free(&history->token);
    *history = (struct draft_history){0};
}

int draft_history_tail(const struct draft_history *history, const struct draft_tree *tree, int leaf, int32_t *tail, int room)
{
    int drafted = leaf < 0 ? 0 : tree->depth[leaf] < room ? tree->depth[leaf] : room;
    int kept = room - drafted < history->length ? room - drafted : history->length;
    for (int at = 0; at < kept; at++)
        tail[at] = history->token[history->length - kept + at];
    return kept + draft_tree_path(tree, leaf, tail + kept, drafted);
}
