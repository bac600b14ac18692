/* Notes on input that is odd but valid. */
#include "common/prompts/internal.h"

void prompts_note_once(const struct prompts *p, const char *kind, const char *word, const char *text)
{
    enum { NOTES_MAX = 20 };                                /* data sets have many keys */
    struct text key = {0};
    if (p->options.notes.put && json_object_size(p->noted) < NOTES_MAX && !text_printf(&key, NULL, "%s %s", kind, word) &&
        !json_object_get(p->noted, key.data) && !json_object_set_new(p->noted, key.data, json_true()))
        p->options.notes.put(p->options.notes.context, text);
    text_free(&key);
}

void prompts_note_unused(const struct prompts *p)
{
    const struct prompts_options *o = &p->options;
    const struct prompts_seen *seen = p->seen;
    const struct { const char *name, *why; bool unused; } all[] = {
        {"whole", "no file of text is among the prompts", o->whole && !seen->plain},
        {"field", "no prompt is a JSON object", o->field && !seen->object},
        {"chat", "no prompt is a bare text", o->chat && !seen->text},
        {"system", "each chat has a message of the system", o->system && seen->chat && !seen->system},
        {"system", "no prompt is a chat", o->system && !seen->chat},
        {"chat-template", "no prompt is a chat", o->template_file && !seen->chat},
        {"template-arg", "no prompt is a chat", o->n_template_args && !seen->chat}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct text text = {0};
        if (all[i].unused && !text_printf(&text, NULL, "--%s: has no effect: %s", all[i].name, all[i].why))
            prompts_note_once(p, "unused", all[i].name, text.data);
        text_free(&text);
    }
}
