/* The outputs of one command line. A command must not write a file that it reads, under any name or link.
 *
 * opt_parse claims all outputs of the option table, and standard output, and then looks at every input: options and operands
 * that name files, and the files within strings (opt_inputs). The table does not know a
 * file that only an input names, as a suite names its models: the reader of that input calls console_reads before any work. */
#ifndef MOE_CLI_CLAIMS_H
#define MOE_CLI_CLAIMS_H

#include <stdbool.h>

#include "common/base/err.h"
#include "common/base/file.h"

enum { CLAIMS_MAX = 16 };

struct claims {
    struct claim {
        const char *name, *path;        /* the option and its value; path NULL: standard output */
        const char *ending;             /* suffix of the files beside a kept output */
        bool kept;
        struct file_identity file;      /* identity of the existing file */
        struct file_identity folder;    /* its folder */
    } item[CLAIMS_MAX];
    int count;
};

/* Claims an output, which may or may not exist yet. kept: written by output_open_kept, which uses two more names. Two outputs
 * that are the same file are an error. Names are borrowed. */
int claims_output(struct claims *claims, const char *name, const char *path, bool kept, struct err *err);
int claims_standard_output(struct claims *claims, struct err *err);

/* Fails if this input is one of the outputs. "-" is the file that standard input reads. */
int claims_input(const struct claims *claims, const char *name, const char *path, struct err *err);

/* Calls claims_input as an opt_visitor (opt.h); context: the struct claims. */
int claims_see(const void *context, const char *name, const char *path, struct err *err);

/* Checks a stream that the command continues like claims_input, but a kept output may replace it. */
int claims_resumed(const struct claims *claims, const char *name, const char *path, struct err *err);

/* Checks a file like claims_input, but compares the given identity. */
int claims_identity(const struct claims *claims, const char *name, const char *path, const struct file_identity *file,
                    struct err *err);

#endif
