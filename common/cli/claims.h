/* What a command writes must not be what it reads, by whatever names and links: the outputs of one command line.
 *
 * opt_parse claims all outputs of the option table, and standard output, and then looks at every input: options and operands
 * that name files, and the files within strings (opt_inputs). A file that only an input names, as a suite names its models, is
 * unknown to the table: who reads that input asks console_reads about it, before any work. */
#ifndef MOE_CLI_CLAIMS_H
#define MOE_CLI_CLAIMS_H

#include "common/base/err.h"
#include "common/base/file.h"

enum { CLAIMS_MAX = 16 };

struct claims {
    struct claim {
        const char *name, *path;        /* the option, and what it was given; path NULL: standard output */
        const char *ending;             /* after the path: of what lies beside a kept output */
        struct file_identity file;      /* what is there now */
        struct file_identity folder;    /* where it will be */
    } item[CLAIMS_MAX];
    int count;
};

/* An output that may be there or not. kept: of output_open_kept, which has two more names. Two outputs that are one file are
 * an error. Names are borrowed. */
int claims_output(struct claims *claims, const char *name, const char *path, bool kept, struct err *err);
int claims_standard_output(struct claims *claims, struct err *err);

/* An error when this input is one of the outputs. "-" is what standard input reads from. */
int claims_input(const struct claims *claims, const char *name, const char *path, struct err *err);

/* The same for a file that is under an identity. */
int claims_identity(const struct claims *claims, const char *name, const char *path, const struct file_identity *file,
                    struct err *err);

#endif
