/* Parts of the prompts (prompts_options.shard). */
#include "common/prompts/internal.h"

#include <stdio.h>

bool prompts_rewind(struct prompts *p, bool twice)
{
    p->next_text = 0;
    p->ordinal = 0;
    return prompt_lines_rewind(p->lines, twice);
}

/* Returns whether the line that was read counts as a prompt: an invalid one does, too. */
static bool is_prompt(int rc, const struct err *err) { return rc > 0 || (rc < 0 && err->code == ERR_INPUT); }

int prompts_find_part(struct prompts *p, struct err *err)
{
    int64_t count = (int64_t)p->options.n_texts;
    struct err fault = {0};
    int rc;
    if (!prompts_rewind(p, true))
        return err_set(err, ERR_INPUT, "--shard: prompts of standard input and pipes cannot be counted in advance; give "
                       "prompts as files");
    while (is_prompt(rc = prompt_lines_next(p->lines, &p->line, &fault), &fault)) {
        err_clear(&fault);
        count++;
    }
    if (rc) {
        *err = fault;
        return -1;
    }
    if (count)
        shard_range(p->options.shard, count, &p->first, &p->end);
    prompts_rewind(p, false);
    if (count && p->first == p->end && p->options.notes.put) {
        char note[128];
        snprintf(note, sizeof note, "--shard %d/%d: this part is empty, as there are only %lld prompts", p->options.shard.part,
                 p->options.shard.parts, (long long)count);
        p->options.notes.put(p->options.notes.context, note);
    }
    return 0;
}

int prompts_skip_before(struct prompts *p, struct err *err)
{
    for (; p->ordinal < p->first; p->ordinal++) {
        struct err fault = {0};
        if (p->next_text < p->options.n_texts) {
            p->next_text++;
            continue;
        }
        const int rc = prompt_lines_next(p->lines, &p->line, &fault);
        if (!is_prompt(rc, &fault)) {
            if (rc && err)
                *err = fault;
            return rc;
        }
    }
    return 1;
}

int prompts_before(struct prompts *p, prompts_judge *judge, void *context, struct err *err)
{
    const int64_t first = p->first, end = p->end;
    const struct prompt_notes notes = p->options.notes;
    struct prompt prompt = {0};
    struct err fault = {0};
    int rc = 0, more;
    prompts_rewind(p, false);
    p->first = 0;
    p->end = first;
    p->options.notes.put = NULL;
    while (!rc && is_prompt(more = first ? prompts_next(p, &prompt, &fault) : 0, &fault)) {
        rc = more > 0 ? judge(context, &prompt, err) : 0;
        if (more > 0)
            prompt_free(&prompt);
        err_clear(&fault);
    }
    if (!rc && fault.code) {
        *err = fault;
        rc = -1;
    }
    p->first = first;
    p->end = end;
    p->options.notes = notes;
    prompts_rewind(p, false);
    return rc;
}
