#include "common/policy/recorded_way.h"

#include <string.h>

static bool same_prompt(const struct recorded_text *text, const struct policy_text *about)
{
    return text->prompt_tokens == about->prompt_tokens &&
           !memcmp(text->prompt, about->prompt, (size_t)about->prompt_tokens * sizeof *about->prompt);
}

void recorded_follow_begin(struct recorded_follow *follow, const struct policy_text *about)
{
    follow->text = NULL;
    follow->at = 0;
    for (size_t i = 0; about->prompt && i < follow->all->texts; i++) {
        const struct recorded_text *text = &follow->all->text[i];
        if (same_prompt(text, about) && (!follow->text || text->sequence == about->sequence))
            follow->text = text;
    }
}

void recorded_follow_observe(struct recorded_follow *follow, const struct outcome *outcome)
{
    for (int i = 0; follow->text && i < outcome->emitted; i++)
        if (follow->at + 1 + i >= follow->text->tokens || follow->text->token[follow->at + 1 + i] != outcome->token[i])
            follow->text = NULL;
    follow->at += outcome->emitted;
}

static size_t draft_at(const struct recorded_way *way, int position)
{
    return (way->text->position + (size_t)position) * (size_t)way->all->drafters + (size_t)way->drafter;
}

int recorded_child(const struct recording *all, const struct recorded_draft *draft, int above, int32_t token)
{
    for (int at = above + 1; at < draft->n; at++) {
        int parent = all->trees ? all->parent[draft->row + (size_t)at] : at - 1;
        if (parent == above && (token < 0 || all->token[draft->row + (size_t)at] == token))
            return at;
        if (!all->trees)
            break;
    }
    return 0;
}

int recorded_way_matches(const struct recorded_way *way)
{
    int positions = way->text->tokens - 1, right = 0;
    while (right < way->depth && way->at + right + 1 < positions && way->text->token[way->at + right + 1] == way->token[right])
        right++;
    return right;
}

bool recorded_way_find(const struct recorded_way *way, int on, struct recorded_node *out)
{
    *out = (struct recorded_node){draft_at(way, way->at + on), 0};
    for (int i = on; i < way->depth; i++)
        if (!(out->at = recorded_child(way->all, &way->all->draft[out->draft], out->at, way->token[i])))
            return false;
    return true;
}

struct recorded_node recorded_way_guess(const struct recorded_way *way)
{
    const int positions = way->text->tokens - 1, on = way->at + way->depth;
    return (struct recorded_node){draft_at(way, on < positions ? on : positions - 1), 0};
}
