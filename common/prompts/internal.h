/* Declarations shared by the files that implement prompts.h. */
#ifndef MOE_PROMPTS_INTERNAL_H
#define MOE_PROMPTS_INTERNAL_H

#include "common/prompts/lines.h"
#include "common/prompts/prompts.h"

/* Kinds of the prompts read so far, which decide which options had an effect. */
struct prompts_seen {
    bool text, plain, object, chat, system;     /* system: chats that used options.system */
};

struct prompts {
    struct prompts_options options;
    const struct tokenizer *tokenizer;
    struct prompt_lines *lines;
    struct prompt_line line;           /* the current line */
    struct template *own;              /* the chat template of options.template_file */
    json_t *args;                      /* of the template */
    json_t *noted;                     /* keys of the notes already printed by prompts_note_once */
    struct prompts_seen *seen;
    size_t next_text;                  /* index of the next text in options.texts */
    int64_t ordinal;
    int64_t first, end;                /* ordinals of the part; all prompts: 0, INT64_MAX */
    bool checks_some;                  /* the current pass skips input that can be read only once */
    bool has_none;                     /* the whole input was read without a prompt */
    struct prompts_fault fault;
};

/* The fields of one object; all but one of the first four are NULL. */
struct prompt_given {
    const char *text;
    size_t bytes;
    json_t *messages, *turns, *tokens;
    const json_t *answer_tokens;       /* NULL: none */
};

/* Returns to the first prompt. twice: skips input that can be read only once. Returns false if there is such input. */
bool prompts_rewind(struct prompts *p, bool twice);

int prompts_find_part(struct prompts *p, struct err *err);              /* counts all prompts, and sets the range of the part */

/* Skips the prompts before the part. Returns 1, or 0 or -1 like prompt_lines_next. */
int prompts_skip_before(struct prompts *p, struct err *err);

int prompts_set_text(struct prompt *prompt, const char *text, size_t bytes, struct err *err);
int prompts_need_tokenizer(const struct prompts *p, struct err *err);
int prompts_need_chat(const struct prompts *p, struct err *err);        /* requires a chat template, too */
int prompts_add_message(json_t *messages, const char *role, const char *text, size_t bytes, struct err *err);
/* Prints a note once for each word of a kind, in the first pass over the files that finds it. */
void prompts_note_once(const struct prompts *p, const char *kind, const char *word, const char *text);
void prompts_note_unused(const struct prompts *p);                      /* prints notes on options that changed no prompt */

/* Returns a new list of the messages under `key`, with roles and contents, after those of the options; NULL: failure. */
json_t *prompts_read_messages(const struct prompts *p, const struct prompt *prompt, const char *key, const json_t *messages,
                              struct err *err);

/* Removes the assistant's messages at the end: the first of them becomes the prompt's answer, unless the prompt has one. */
int prompts_put_last_answers_aside(json_t *messages, struct prompt *prompt, struct err *err);

/* Appends the messages from number `from` on up to the next answer; *next: the number of that answer, or of messages in all. */
int prompts_take_question(json_t *to, const json_t *messages, size_t from, size_t *next, struct err *err);
bool prompts_is_answer(const json_t *message);                 /* whether the assistant wrote the message */

/* Renders messages by the chat template, with its call for an answer (ask) or without. out: {0}; text: {0} or NULL. */
int prompts_render(const struct prompts *p, json_t *messages, bool ask, struct tokens *out, struct text *text, struct err *err);

/* Renders prompt->messages, and replaces text and tokens. */
int prompts_use_chat(const struct prompts *p, struct prompt *prompt, struct err *err);

/* Returns a new list of messages: empty, or with the system message of the options; NULL: failure. */
json_t *prompts_new_chat(const struct prompts *p, struct err *err);

/* Appends the ids under `key` of an object. */
int prompts_ids(const struct prompts *p, const char *key, const json_t *list, struct tokens *out, struct err *err);

/* Makes text, tokens and mask of a text with its answers (PROMPTS_ANSWERED). */
int prompt_next_answer(const struct prompts *p, struct prompt *prompt, struct err *err);
int prompt_answered(const struct prompts *p, struct prompt *prompt, const struct prompt_given *given, struct err *err);

#endif
