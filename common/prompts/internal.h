/* Declarations shared by the files that implement prompts.h. */
#ifndef MOE_PROMPTS_INTERNAL_H
#define MOE_PROMPTS_INTERNAL_H

#include "common/prompts/lines.h"
#include "common/prompts/prompts.h"

/* Kinds of the prompts so far, which decide which options have an effect. */
struct prompts_seen {
    bool text, plain, object, chat, system;     /* the last: chats that got options.system */
};

struct prompts {
    struct prompts_options options;
    const struct tokenizer *tokenizer;
    struct prompt_lines *lines;
    struct prompt_line line;           /* the current line */
    struct template *own;              /* the chat template of options.template_file */
    json_t *args;                      /* of the template */
    json_t *noted;                     /* notes that prompts_note_once has printed */
    struct prompts_seen *seen;
    size_t next_text;                  /* of options.texts */
    int64_t ordinal;
    int64_t first, end;                /* ordinals of the part; all: 0, INT64_MAX */
    bool checks_some;                  /* the pass at hand leaves out what can be read only once */
    bool has_none;                     /* all was read, and there was no prompt */
    struct prompts_fault fault;
};

/* The fields of one object; all but one of the first four are NULL. */
struct prompt_given {
    const char *text;
    size_t bytes;
    json_t *messages, *turns, *tokens;
    const json_t *answer_tokens;       /* NULL: none */
};

/* Goes back to the first prompt. twice: leaves out what can be read only once. Returns false if there is such input. */
bool prompts_rewind(struct prompts *p, bool twice);

int prompts_find_part(struct prompts *p, struct err *err);              /* counts all prompts, and sets the range of the part */

/* Skips the prompts before the part. Returns 1, or 0 or -1 as prompt_lines_next. */
int prompts_skip_before(struct prompts *p, struct err *err);

int prompts_set_text(struct prompt *prompt, const char *text, size_t bytes, struct err *err);
int prompts_need_tokenizer(const struct prompts *p, struct err *err);
int prompts_need_chat(const struct prompts *p, struct err *err);        /* and a chat template */
int prompts_add_message(json_t *messages, const char *role, const char *text, size_t bytes, struct err *err);
/* A note that comes once, whatever the pass over the files, for each word of a kind. */
void prompts_note_once(const struct prompts *p, const char *kind, const char *word, const char *text);
void prompts_note_unused(const struct prompts *p);                      /* notes options that changed no prompt */

/* The list under `key` as messages with roles and contents; those of the options before them. A new list; NULL: a failure. */
json_t *prompts_read_messages(const struct prompts *p, const struct prompt *prompt, const char *key, const json_t *messages,
                              struct err *err);

/* Takes what the assistant says last away: it becomes the prompt's answer, unless there is one. */
int prompts_put_last_answers_aside(json_t *messages, struct prompt *prompt, struct err *err);

/* Appends messages from number `from` on up to the next answer; *next: its number, or that of messages. */
int prompts_take_question(json_t *to, const json_t *messages, size_t from, size_t *next, struct err *err);
bool prompts_is_answer(const json_t *message);                 /* of the assistant */

/* The messages as the chat template writes them, with its call for an answer (ask) or without. out: {0}; text: {0} or NULL. */
int prompts_render(const struct prompts *p, json_t *messages, bool ask, struct tokens *out, struct text *text, struct err *err);

/* Renders prompt->messages, and replaces text and tokens. */
int prompts_use_chat(const struct prompts *p, struct prompt *prompt, struct err *err);

/* An empty list of messages, or with the system message that the options have; NULL: a failure. */
json_t *prompts_new_chat(const struct prompts *p, struct err *err);

/* Appends ids under `key` of an object. */
int prompts_ids(const struct prompts *p, const char *key, const json_t *list, struct tokens *out, struct err *err);

/* Text, tokens and mask of a text with its answers (PROMPTS_ANSWERED). */
int prompt_next_answer(const struct prompts *p, struct prompt *prompt, struct err *err);
int prompt_answered(const struct prompts *p, struct prompt *prompt, const struct prompt_given *given, struct err *err);

#endif
