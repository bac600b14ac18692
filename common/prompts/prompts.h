/* Prompts from files, one after the other, in bounded memory.
 *
 * A file of JSON has objects (lines.h), or, in a list, texts, each with exactly one of
 *   prompt    text, taken raw (the tokenizer's bos is put in front; special tokens in it are plain text)
 *   messages  chat: [{role, content}, ...], to which the chat template is applied with add_generation_prompt; a content is a
 *             text or a list of parts ({type: text, text}), which are joined by newlines
 *   conversations   the same as ShareGPT has it, [{from, value}, ...]; what the assistant says last is its `answer`
 *   turns     chat: user turns as strings; each next one is asked after the answer to the one before it
 *   tokens    ids, taken as they are
 * and optional id (string or number), task, answer (string or number), max_tokens; MT-bench's question_id and category are id
 * and task where an object has none. A `prompt` that is a list of messages is one
 * of `messages`. Other keys are ignored, with a note unless options.field was given; blank lines are skipped.
 * With PROMPTS_ANSWERED `answer` is what the assistant says to it, `answer_tokens` the same as ids after `tokens`, and
 * `messages` may have answers anywhere. Where each begins is known by its tokens: those of the prompt alone begin
 * those of the joint text, or the text is refused.
 * Text is a prompt, too: lines.h says where; `-` is standard input.
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
#include "common/template/template.h"
#include "common/tokenizer/tokenizer.h"

struct prompts;

/* What becomes of answers that the texts bring along. */
enum prompts_answers {
    PROMPTS_ASK,                       /* they are left alone: prompt.answer has them */
    PROMPTS_ASK_AGAIN,                 /* what `messages` says of the assistant is left out, too: the questions before are
                                          asked in turn, as those of `turns` are */
    PROMPTS_ANSWERED                   /* they are part of the text, which `tokens` has as a whole, and `mask` tells where */
};

struct prompts_options {
    const char *field;                 /* name of the text field; NULL: "prompt" */
    bool chat;                         /* a text is one user message */
    bool whole;                        /* text: one prompt a file, as it is */
    const char *system;                /* the message of the system with which chats begin that have none; NULL: none */
    bool parse_special;                /* special tokens are honoured everywhere, in content too */
    bool words;                        /* a missing file may be a word of a text that was typed without quotes */
    const char *const *texts;          /* prompts given directly, in this order; they come before the files */
    size_t n_texts;
    const struct template *chat_template;   /* borrowed; NULL: chat is an error, unless there is template_file */
    const char *template_file;         /* a chat template to take instead; NULL: none */
    const json_t *trusted;             /* borrowed; bos_token, eos_token, ... for the template; may be NULL */
    const char *const *template_args;  /* "name=value"; value is JSON if it parses as such, else a string */
    size_t n_template_args;
    size_t line_limit;                 /* bytes; 0: 64 MiB */
    struct prompt_notes notes;         /* who wants to know what is not wrong but odd */
    const struct stop *stop;           /* borrowed; when it is asked for, waiting for input ends: ERR_SIGNAL; NULL: none */
    enum prompts_answers answers;
    bool unanswered;                   /* PROMPTS_ANSWERED: a text without an answer will do; its mask is all 0 */
    bool each;                         /* PROMPTS_ANSWERED: each answer of a conversation ends a text of its own, which has no
                                          other answers in its mask: the first is there first, prompt_next_turn gives others */
    const int *ends;                   /* [n_ends] borrowed; ids that end an answer: the first is put after one of raw text */
    int n_ends;
    int vocab;                         /* ids of `tokens` prompts must be below; 0: the tokenizer's size, if there is one */
};

struct prompt {
    char *id;                          /* never NULL: the file's, or "ordinal" */
    char *task, *answer;               /* NULL where the file has none */
    char *text;                        /* what was tokenised (raw text or the template's output); NULL for ids */
    size_t text_bytes;
    struct tokens tokens;
    uint8_t *mask;                     /* PROMPTS_ANSWERED: [tokens.n] 1: of an answer, its end token included; else NULL */
    int max_tokens;                    /* 0: not given */
    int64_t ordinal;                   /* 0, 1, ... over all files */
    int turn, turns;                   /* the user turn now in `tokens`, from 0; how many there are, 0: not known */
    char *where;                       /* "file:line", for messages */
    json_t *messages, *rest;           /* the chat so far, and all turns; NULL where there are none */
};

/* files: paths; none and no options->texts: standard input. The arrays, the tokenizer, the template and `trusted` are
 * borrowed until prompts_close. tokenizer may be NULL: then only `tokens` prompts are accepted. */
int prompts_open(struct prompts **out, const struct prompts_options *options, const char *const *files, size_t n_files,
                 const struct tokenizer *tokenizer, struct err *err);
void prompts_close(struct prompts **prompts);

/* 1: *out is set, to be freed by prompt_free; 0: no more; -1: error. After ERR_INPUT prompts_fault says which prompt is no
 * good, and the next call goes on after it; NULL: there was no prompt at all, and the next call returns 0. */
int prompts_next(struct prompts *prompts, struct prompt *out, struct err *err);

/* Copies the string or number under "id", "task" or "answer" as text to *out, to be freed; NULL where the object has none. */
int prompt_label(const json_t *object, const char *key, char **out, struct err *err);

struct prompts_fault {
    int64_t ordinal;
    char *id, *where;                  /* id: as a prompt has it, where that could be read; "file:line"; NULL: no memory */
};
const struct prompts_fault *prompts_fault(const struct prompts *prompts);

/* Before the first prompt is taken: hands every prompt to `judge`, whose failure is one of the prompt; then all begins anew.
 * What cannot be read twice is passed over: then *all is false. */
typedef int prompts_judge(void *context, const struct prompt *prompt, struct err *err);
int prompts_check(struct prompts *prompts, prompts_judge *judge, void *context, bool *all, struct err *err);
void prompt_free(struct prompt *prompt);

/* Hands every prompt in turn to `job`, until the stop is asked for: while input is waited for, between two prompts, or within a
 * job, which says so by *ended or by ERR_SIGNAL. Then the answer is 0, and *ended. */
typedef int prompts_job(void *context, struct prompts *prompts, struct prompt *prompt, bool *ended, struct err *err);
int prompts_each(struct prompts *prompts, const struct stop *stop, prompts_job *job, void *context, bool *ended,
                 struct err *err);

/* After the answer to the turn in `tokens` (which PROMPTS_ANSWERED does not look at): appends it and the next user turn to
 * the chat and rebuilds text and tokens.
 * 1: prompt->turn is the next one; 0: there are no more turns (nothing changed); -1: error. */
int prompt_next_turn(struct prompts *prompts, struct prompt *prompt, const char *answer, size_t bytes, struct err *err);

/* A conversation that a person leads, turn by turn, without files: *out is a chat in which nothing was asked yet (turn -1,
 * turns 0: nobody knows how many). To be freed by prompt_free. */
int prompts_converse(struct prompts *prompts, struct prompt *out, struct err *err);

/* Adds what a user says, and has it in text and tokens. On failure the chat is as before; prompt_unask takes it back. Then
 * prompt_answered_by adds what was answered, which the tokens have from the next question on. */
int prompt_ask(struct prompts *prompts, struct prompt *prompt, const char *text, size_t bytes, struct err *err);
void prompt_unask(struct prompt *prompt);
int prompt_answered_by(struct prompt *prompt, const char *text, size_t bytes, struct err *err);

#endif
