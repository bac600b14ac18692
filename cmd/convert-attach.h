/* moe-convert attach: lists the drafters that belong to a model, for --draft auto. */
#ifndef MOE_CMD_CONVERT_ATTACH_H
#define MOE_CMD_CONVERT_ATTACH_H

#include "common/cli/command.h"

struct attach_args {
    const char *model;
    struct strings files;
};

extern const struct opt attach_options[];
extern const struct operand attach_operands[];

int convert_attach(const void *arguments, const struct console *console, struct err *err);

#endif
