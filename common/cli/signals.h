/* What signals do to a command. A handler has nothing but the process to keep its state in, so these are the process's.
 *
 * SIGINT, SIGTERM and SIGHUP remove unfinished outputs and end the process as they would have without a handler. Between
 * signals_gentle and signals_harsh the first SIGINT or SIGTERM is a wish only (base/stop.h): the run ends by itself, with its
 * outputs of use, and then signals_end. The second one ends the process at once; one that comes within a tenth of a second is
 * the same still, for timeout(1) and shells send some twice.
 *
 * SIGBUS, which comes when a mapped file was cut off or cannot be read, removes them too, writes one line that names the file
 * and exits with 2. */
#ifndef MOE_CLI_SIGNALS_H
#define MOE_CLI_SIGNALS_H

#include <stdbool.h>

#include "common/base/stop.h"

void signals_catch(const char *program);        /* whose name begins the line that is written for SIGBUS */

const struct stop *signals_stop(void);          /* what the wish sets; always the same */
void signals_gentle(void);
void signals_harsh(void);

/* The name of the signal that was a wish, "SIGINT"; NULL: none came. */
const char *signals_name(void);

/* Forgets the wish when it was this signal: what it asked for was done, and the next one is a wish again. False: another came,
 * or none. */
bool signals_take(int number);

/* Ends the process by the signal that came. */
void signals_end(void);

#endif
