#include "cmd/decode-chat.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/text.h"
#include "common/cli/signals.h"

enum { MESSAGE_BYTES = 1 << 20, TERMINAL_BYTES = 4095 };        /* a terminal silently drops the rest of a longer line */

struct reader {
    char chunk[4096];
    size_t begin, end;                  /* positions of the unread bytes in chunk */
};

/* Writes the prompt for input; the prompt for a continued line differs. */
static void show_prompt(const struct chat *chat, bool continues)
{
    if (chat->console->quiet)
        return;
    fputs(continues ? ". " : "> ", stderr);
    fflush(stderr);
}

/* Waits for input or for a stop request; *got 0: end of input. */
static int refill(const struct chat *chat, struct reader *reader, size_t *got, struct err *err)
{
    struct pollfd ready[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = chat->stop->wake, .events = POLLIN}};
    while (!stop_asked(chat->stop) && poll(ready, 2, -1) < 0)
        ;
    if (stop_asked(chat->stop))
        return err_set(err, ERR_SIGNAL, "interrupted");
    if (file_read_some(STDIN_FILENO, "standard input", reader->chunk, sizeof reader->chunk, got, err))
        return -1;
    reader->begin = 0;
    reader->end = *got;
    return 0;
}

/* Appends a line without its newline. Returns 1, 0 at the end of input, or -1. */
static int read_line(const struct chat *chat, struct reader *reader, struct text *line, struct err *err)
{
    const size_t start = line->length;
    bool any = false;
    for (;;) {
        size_t got = 1;
        if (reader->begin == reader->end && refill(chat, reader, &got, err))
            return -1;
        if (!got)
            return any;
        const char *begin = reader->chunk + reader->begin;
        const size_t bytes = reader->end - reader->begin;
        const char *newline = memchr(begin, '\n', bytes);
        const size_t take = newline ? (size_t)(newline - begin) : bytes;
        if (line->length + take > MESSAGE_BYTES)
            return err_set(err, ERR_INPUT, "the message has more than %d bytes; send a shorter one", MESSAGE_BYTES);
        if (text_put(line, begin, take, err))
            return -1;
        reader->begin += take + (newline != NULL);
        any = true;
        if (newline && line->length - start >= TERMINAL_BYTES)
            return err_set(err, ERR_INPUT, "the line has %d bytes, and the terminal drops the rest of longer lines; split the "
                           "message into several lines, each but the last ending with \\", TERMINAL_BYTES);
        if (newline)
            return 1;
    }
}

/* Reads a message: a line, continued on the next line if it ends with a backslash. Returns 1, 0 at the end of input, or -1. */
static int read_message(const struct chat *chat, struct reader *reader, struct text *message, struct err *err)
{
    text_clear(message);
    for (bool continues = false;; continues = true) {
        show_prompt(chat, continues);
        int more = read_line(chat, reader, message, err);
        if (more <= 0)
            return continues && !more ? 1 : more;
        if (!message->length || message->data[message->length - 1] != '\\')
            return 1;
        message->data[message->length - 1] = '\n';
    }
}

static bool is_blank(const struct text *message)
{
    return !message->length || strspn(message->data, " \t\r\n") == message->length;
}

/* Notes whether an answer was cut, and by which limit. */
static void note_end(const struct chat *chat, const struct decode_result *result)
{
    const int tokens = chat->prompt->tokens.n + result->tokens;
    if (result->finish == FINISH_ABORT)
        console_note(chat->console, "the answer was interrupted; another Ctrl-C ends the conversation");
    else if (result->finish == FINISH_LENGTH && tokens >= chat->positions)
        console_note(chat->console, "the context of %d tokens is full, so the answer is cut off; start a new conversation, or "
                     "one with a larger -c", chat->positions);
    else if (result->finish == FINISH_LENGTH)
        console_note(chat->console, "the answer was cut off after %d tokens, the limit set with -n", result->tokens);
}

/* Handles Ctrl-C: keeps the part of the answer so far; before the answer began, withdraws the message. */
static int take_interrupt(const struct chat *chat, bool began, bool *ended)
{
    if (!began)
        prompt_unask(chat->prompt);
    *ended = !signals_take(SIGINT);
    if (!began && !*ended)
        console_note(chat->console, "the message was interrupted before its answer began, and is not part of the conversation");
    return 0;
}

static int answer_message(const struct chat *chat, const struct text *message, bool *ended, struct err *err)
{
    struct prompt *prompt = chat->prompt;
    struct decode_result result;
    if (prompt_ask(chat->prompts, prompt, message->data, message->length, err))
        return -1;
    prompt->max_tokens = chat->max_tokens < 0 ? chat->positions : 0;
    if (chat->check(chat->context, err)) {
        prompt_unask(prompt);
        return err_at(err, "%s", prompt->where);
    }
    if (chat->answer(chat->context, &result, err)) {
        if (err->code != ERR_SIGNAL) {
            prompt_unask(prompt);
            return -1;
        }
        err_clear(err);
        return take_interrupt(chat, false, ended);
    }
    console_detail(chat->console, "turn %d: %d prompt tokens, %d of them already in the KV cache; %d new tokens",
                   prompt->turn + 1,
                   prompt->tokens.n, result.kept, result.tokens);
    if (prompt_answered_by(prompt, result.text, result.text_bytes, err))
        return -1;
    if (result.finish == FINISH_ABORT)
        take_interrupt(chat, true, ended);
    if (!*ended)
        note_end(chat, &result);
    return 0;
}

int chat_run(const struct chat *chat, bool *ended, struct err *err)
{
    struct reader reader = {.end = 0};
    struct text message = {0};
    int more;
    *ended = false;
    console_note(chat->console, "type a message; Ctrl-D ends the conversation, Ctrl-C interrupts an answer, and \\ at the end "
                 "of a line continues the message");
    while (!*ended && (more = read_message(chat, &reader, &message, err))) {
        int rc = more < 0 ? -1 : is_blank(&message) ? 0 : answer_message(chat, &message, ended, err);
        if (rc && err->code == ERR_SIGNAL) {
            *ended = true;
        } else if (rc && err->code == ERR_INPUT) {              /* an error of this message only */
            console_fault(chat->console, err);
        } else if (rc) {
            text_free(&message);
            return -1;
        }
        err_clear(err);
    }
    if (!chat->console->quiet)
        fputc('\n', stderr);                                    /* after the prompt for input */
    text_free(&message);
    return 0;
}
