/* moe-decode --chat at a terminal: a conversation, a line a message.
 *
 * Ctrl-D ends it. Ctrl-C ends the answer that is being made, which stays as far as it came; where none is being made, or a
 * second time before it has ended, it ends the command. Of what does not fit into the context a note says so; it is not
 * asked. */
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
    const struct stop *stop;            /* of signals.h, which is gentle */
    struct prompts *prompts;
    struct prompt *prompt;              /* the conversation, from prompts_converse */
    int positions;                      /* of the context */
    int max_tokens;                     /* of an answer; -1: as far as the context reaches */
    void *context;
    int (*check)(void *context, struct err *err);               /* could the prompt be answered? */
    int (*answer)(void *context, struct decode_result *result, struct err *err);
};

/* *ended: a signal ended it. */
int chat_run(const struct chat *chat, bool *ended, struct err *err);

#endif
