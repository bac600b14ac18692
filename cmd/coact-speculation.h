/* moe-coact reuse, signal and drift: the analyses of MoE-SpAc's appendices A and B over recorded routes. Arguments: struct
 * coact_args. */
#ifndef MOE_CMD_COACT_SPECULATION_H
#define MOE_CMD_COACT_SPECULATION_H

#include "cmd/coact-analysis.h"

int coact_reuse(const void *args, const struct console *console, struct err *err);
int coact_signal(const void *args, const struct console *console, struct err *err);
int coact_drift(const void *args, const struct console *console, struct err *err);

#endif
