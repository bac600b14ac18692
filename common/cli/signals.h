/* Signal handling of a command. The state is global to the process, because a handler has no other context.
 *
 * SIGINT, SIGTERM and SIGHUP remove unfinished outputs and end the process as they would have without a handler. Between
 * signals_gentle and signals_harsh the first SIGINT or SIGTERM only requests a stop (base/stop.h): the run stops at a
 * point where its outputs are usable, and then calls signals_end. A second signal ends the process at once, unless it comes
 * within a tenth of a second, because timeout(1) and shells send some signals twice.
 *
 * SIGBUS, raised when a mapped file was truncated or cannot be read, removes them too, prints one line that names the file and
 * exits with 2. */
#ifndef MOE_CLI_SIGNALS_H
#define MOE_CLI_SIGNALS_H

#include <stdbool.h>

#include "common/base/stop.h"

void signals_catch(const char *program);        /* the program name for the message of SIGBUS */

const struct stop *signals_stop(void);          /* the request that the handler sets; always the same address */
void signals_gentle(void);
void signals_harsh(void);

/* Returns the name of the signal that requested the stop, "SIGINT"; NULL if none. */
const char *signals_name(void);

/* Clears the request if this signal made it, so that the next signal is a request again. Returns false if another signal or
 * none made it. */
bool signals_take(int number);

/* Ends the process by the received signal. */
void signals_end(void);

#endif
