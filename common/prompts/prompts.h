/* Reads prompts from files one by one, in bounded memory.
 *
 * A JSON file contains objects (lines.h), or, in a list, also texts; an object contains exactly one of
 *   prompt    raw text (the tokenizer's bos is prepended; special tokens in it are plain text)
 *   messages  chat: [{role, content}, ...], to which the chat template is applied with add_generation_prompt; a content is a
 *             text or a list of parts ({type: text, text}), which are joined by newlines
 *   conversations   the same in ShareGPT's form, [{from, value}, ...]; the assistant's last message is the `answer`
 *   turns     chat: user turns as strings; each one is sent after the answer to the previous one
 *   tokens    token ids, unchanged
 * and optional id (string or number), task, answer (string or number), max_tokens, policy; MT-bench's question_id and category
 * are id and task if an object has none. A `prompt` that is a list of messages counts as `messages`. Other keys are ignored,
 * with a note unless options.field was given; blank lines are skipped.
 * With PROMPTS_ANSWERED `answer` is the assistant's reply, `answer_tokens` the same as ids after `tokens`, and `messages` may
 * contain answers anywhere. The start of an answer is found by tokens: those of the prompt alone must be a prefix of those of
 * the joint text; otherwise the text is refused.
 * Plain text is a prompt, too, in the files that lines.h lists; `-` is standard input.
 *
 * Errors are ERR_INPUT and name file and line. A line longer than the limit, invalid UTF-8, JSON with duplicate keys are
 * refused. */
#ifndef MOE_PROMPTS_PROMPTS_H
#define MOE_PROMPTS_PROMPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "common/base/err.h"
#include "common/base/stop.h"
#include "common/base/text.h"
#include "common/prompts/lines.h"
#include "common/prompts/shard.h"
#include "common/template/template.h"
#include "common/tokenizer/tokenizer.h"

struct prompts;

/* Treatment of answers that are part of the input. */
enum prompts_answers {
    PROMPTS_ASK,                       /* stored in prompt.answer only */
    PROMPTS_ASK_AGAIN,                 /* answers in `messages` are ignored, too: the questions before them are asked in
                                        * turn, like those of `turns` */
    PROMPTS_ANSWERED                   /* answers are part of the text in `tokens`, and `mask` marks them */
};

struct prompts_options {
    const char *field;                 /* name of the text field; NULL: "prompt" */
    bool chat;                         /* a text is one user message */
    bool whole;                        /* text: each file is one prompt, unchanged */
    const char *system;                /* system message for chats without one; NULL: none */
    bool parse_special;                /* special tokens are recognised everywhere, also in content */
    bool words;                        /* a missing file may be a word of an unquoted text */
    const char *const *texts;          /* prompts given directly, in this order; they come before the files */
    size_t n_texts;
    const struct template *chat_template;   /* borrowed; NULL: chat is an error, unless there is template_file */
    const char *template_file;         /* file of another chat template; NULL: none */
    const json_t *trusted;             /* borrowed; bos_token, eos_token, ... for the template; may be NULL */
    const char *const *template_args;  /* "name=value"; value is JSON if it parses as such, else a string */
    size_t n_template_args;
    size_t line_limit;                 /* bytes; 0: 64 MiB */
    struct prompt_notes notes;         /* receives notes on input that is odd but valid */
    const struct stop *stop;           /* borrowed; a request ends waiting for input with ERR_SIGNAL; NULL: none */
    enum prompts_answers answers;
    bool policies;                     /* reads "policy"; otherwise "policy" is an unknown key */
    bool unanswered;                   /* PROMPTS_ANSWERED: accepts a text without an answer; its mask is all 0 */
    bool each;                         /* PROMPTS_ANSWERED: each answer of a conversation ends a text of its own, whose mask
                                        * contains no other answers: prompts_next returns the first text, prompt_next_turn
                                        * the others */
    const int *ends;                   /* [n_ends] borrowed; ids that end an answer; the first is appended to a raw text's
                                        * answer */
    int n_ends;
    int vocab;                         /* ids of `tokens` prompts must be lower; 0: the tokenizer's size, if there is a
                                        * tokenizer */
    struct shard shard;                /* only this part of the prompts is returned, with ids and ordinals of the whole; the
                                        * input is read twice, because its prompts must be counted first */
};

struct prompt {
    char *id;                          /* never NULL: from the file, or the ordinal */
    char *task, *answer, *policy;      /* NULL if the file contains none */
    char *text;                        /* what was tokenised (raw text or the template's output); NULL for ids */
    size_t text_bytes;
    struct tokens tokens;
    uint8_t *mask;                     /* PROMPTS_ANSWERED: [tokens.n] 1: token of an answer, its end token included; else
                                        * NULL */
    int max_tokens;                    /* 0: not given */
    int64_t ordinal;                   /* 0, 1, ... over all files */
    int turn, turns;                   /* turn: the user turn in `tokens`, from 0; turns: number of turns, 0: unknown */
    char *where;                       /* "file:line", for messages */
    json_t *messages, *rest;           /* the chat so far, and all turns; NULL if there are none */
};

/* files: paths; none and no options->texts: standard input. The arrays, the tokenizer, the template and `trusted` are
 * borrowed until prompts_close. tokenizer may be NULL: then only `tokens` prompts are accepted. */
int prompts_open(struct prompts **out, const struct prompts_options *options, const char *const *files, size_t n_files,
                 const struct tokenizer *tokenizer, struct err *err);
void prompts_close(struct prompts **prompts);

/* Returns 1 and sets *out, to be freed by prompt_free; 0 at the end; -1 on error. After ERR_INPUT prompts_fault returns the
 * invalid prompt, and the next call continues after it; NULL: there was no prompt at all, and the next call returns 0. */
int prompts_next(struct prompts *prompts, struct prompt *out, struct err *err);

/* Copies the string or number under "id", "task" or "answer" as text to *out, to be freed; NULL where the object has none. */
int prompt_label(const json_t *object, const char *key, char **out, struct err *err);

struct prompts_fault {
    int64_t ordinal;
    char *id, *where;                  /* id: the prompt's id, if it could be read; where: "file:line"; NULL: out of memory */
};
const struct prompts_fault *prompts_fault(const struct prompts *prompts);

/* Must be called before the first prompt is read: passes every prompt to `judge`, whose failure counts as an error of the
 * prompt, then rewinds. Skips input that cannot be read twice and sets *all to false. */
typedef int prompts_judge(void *context, const struct prompt *prompt, struct err *err);
int prompts_check(struct prompts *prompts, prompts_judge *judge, void *context, bool *all, struct err *err);

/* Must be called before the first prompt is read: passes the prompts before the part of options.shard to `judge`, which may
 * count equal ones. Skips invalid prompts, because the process that reads their part reports them. */
int prompts_before(struct prompts *prompts, prompts_judge *judge, void *context, struct err *err);
void prompt_free(struct prompt *prompt);

/* Passes every prompt in turn to `job`, until a stop is requested: while waiting for input, between two prompts, or within a
 * job, which sets *ended or fails with ERR_SIGNAL. Returns 0 and sets *ended then. */
typedef int prompts_job(void *context, struct prompts *prompts, struct prompt *prompt, bool *ended, struct err *err);
int prompts_each(struct prompts *prompts, const struct stop *stop, prompts_job *job, void *context, bool *ended,
                 struct err *err);

/* Appends the answer to the turn in `tokens` (ignored with PROMPTS_ANSWERED) and the next user turn to the chat, and
 * rebuilds text and tokens.
 * 1: prompt->turn is the next one; 0: there are no more turns (nothing changed); -1: error. */
int prompt_next_turn(struct prompts *prompts, struct prompt *prompt, const char *answer, size_t bytes, struct err *err);

/* Begins an interactive conversation without files: *out is a chat without questions so far (turn -1; turns 0: unknown). The
 * caller frees it with prompt_free. */
int prompts_converse(struct prompts *prompts, struct prompt *out, struct err *err);

/* Appends a user's message and rebuilds text and tokens. On failure the chat is unchanged. prompt_unask removes the message
 * again. prompt_answered_by appends the answer, which is part of the tokens from the next question on. */
int prompt_ask(struct prompts *prompts, struct prompt *prompt, const char *text, size_t bytes, struct err *err);
void prompt_unask(struct prompt *prompt);
int prompt_answered_by(struct prompt *prompt, const char *text, size_t bytes, struct err *err);

#endif
