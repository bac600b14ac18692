/* moe-decode --chat at a terminal: a conversation, one message per line.
 *
 * Ctrl-D ends the conversation. Ctrl-C ends the present answer and keeps its text so far; between answers, or pressed again
 * before the answer has ended, it ends the command. A message that does not fit into the context is not sent to the model; a
 * note reports this. */
#ifndef MOE_CMD_DECODE_CHAT_H
#define MOE_CMD_DECODE_CHAT_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/stop.h"
#include "common/cli/console.h"
#include "common/decode/decode.h"
#include "common/prompts/prompts.h"

struct chat {
    const struct console *console;
    const struct stop *stop;            /* the gentle stop of signals.h */
    struct prompts *prompts;
    struct prompt *prompt;              /* the conversation, from prompts_converse */
    int positions;                      /* size of the context, in tokens */
    int max_tokens;                     /* max tokens of an answer; -1: as many as fit into the context */
    void *context;
    int (*check)(void *context, struct err *err);               /* returns 0 if the prompt can be answered */
    int (*answer)(void *context, struct decode_result *result, struct err *err);
};

/* Runs the conversation. *ended: a signal ended it. */
int chat_run(const struct chat *chat, bool *ended, struct err *err);

#endif
