/* Option tables: one table a (sub)command says what it takes, and feeds the parser, --help, the completions and the check
 * of the man page.
 *
 *     struct rank_args { const char *output; int by, budget; struct strings inputs; };
 *     static const char *const rank_methods[] = {"frequency", "mass", NULL};
 *     static const struct opt rank_options[] = {
 *         OPT_CHOICE('b', "by", struct rank_args, by, rank_methods, "order experts by METHOD"),
 *         OPT_COUNT('B', "budget", struct rank_args, budget, 1, 4096, "rank for a budget of N experts"),
 *         OPT_OUTPUT('o', "output", struct rank_args, output, "write to FILE"),
 *         OPT_END };
 *
 * A letter of 0 means no short form. The field must have the type that the kind needs, or the table does not compile.
 * In the placeholder of a string, words in lower case between | are ones that can be typed as they are, or with settings, where
 * a colon comes; FILE is a file that is read, as a whole or after a key: completions offer them, and no output may be that file
 * (claims.h). Strings point into
 * argv. Help shows a default when the value that the arguments start with is one the option takes: a count of -1 for "not
 * given" is outside 1 .. 4096 and shows none. */
#ifndef MOE_CLI_OPT_H
#define MOE_CLI_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum opt_kind {
    OPT_KIND_END = 0,
    OPT_KIND_FLAG,          /* bool */
    OPT_KIND_COUNT,         /* int in [min, max] */
    OPT_KIND_COUNT_AUTO,    /* the same, or the word auto: OPT_AUTO */
    OPT_KIND_SIZE,          /* uint64_t in [min, max]; K, M and G are powers of 1024 */
    OPT_KIND_UINT64,        /* uint64_t */
    OPT_KIND_FLOAT,         /* double in [min, max] */
    OPT_KIND_STRING,        /* const char * */
    OPT_KIND_STRINGS,       /* struct strings: may be given several times */
    OPT_KIND_CHOICE,        /* int, an index into choices */
    OPT_KIND_INPUT,         /* const char *: a file that is read; one "-" a command line */
    OPT_KIND_OUTPUT,        /* const char *: a file that is written; one "-" a command line */
    OPT_KIND_HELP,          /* int: 1 for --help, 2 for --help=spec */
    OPT_KIND_GROUP,         /* no option: the title of those that follow */
};

#define OPT_AUTO (-1)

struct strings {
    const char **items;     /* owned by the parser, freed after the command has run */
    int count;
};

struct opt {
    enum opt_kind kind;
    char letter;
    const char *name, *argument, *help;
    size_t offset;
    double min, max;             /* every int and every size below 2^53 is exact in a double; output: least 1: kept */
    const char *const *choices;     /* ends with NULL */
    const char *(*word)(int index, const char **summary);       /* of a string: words that are known, NULL after the last */
};

/* The offset of a field that has exactly this type; there is no other association, so another type is an error. */
#define OPT_FIELD(type, args, field) _Generic(((args *)0)->field, type: offsetof(args, field))
#define OPT_FIELD_INT(args, field) _Generic(((args *)0)->field, int: offsetof(args, field), unsigned: offsetof(args, field))

#define OPT_FLAG(letter, name, args, field, help) \
    {OPT_KIND_FLAG, letter, name, NULL, help, OPT_FIELD(bool, args, field), 0, 0, NULL, NULL}
#define OPT_COUNT(letter, name, args, field, min, max, help) \
    {OPT_KIND_COUNT, letter, name, "N", help, OPT_FIELD(int, args, field), min, max, NULL, NULL}
#define OPT_COUNT_AUTO(letter, name, args, field, min, max, help) \
    {OPT_KIND_COUNT_AUTO, letter, name, "N|auto", help, OPT_FIELD(int, args, field), min, max, NULL, NULL}
#define OPT_SIZE(letter, name, args, field, min, max, help) \
    {OPT_KIND_SIZE, letter, name, "SIZE", help, OPT_FIELD(uint64_t, args, field), min, max, NULL, NULL}
#define OPT_UINT64(letter, name, args, field, help) \
    {OPT_KIND_UINT64, letter, name, "N", help, OPT_FIELD(uint64_t, args, field), 0, 0, NULL, NULL}
#define OPT_FLOAT(letter, name, args, field, min, max, argument, help) \
    {OPT_KIND_FLOAT, letter, name, argument, help, OPT_FIELD(double, args, field), min, max, NULL, NULL}
#define OPT_STRING(letter, name, args, field, argument, help) \
    {OPT_KIND_STRING, letter, name, argument, help, OPT_FIELD(const char *, args, field), 0, 0, NULL, NULL}
#define OPT_STRINGS(letter, name, args, field, argument, help) \
    {OPT_KIND_STRINGS, letter, name, argument, help, OPT_FIELD(struct strings, args, field), 0, 0, NULL, NULL}
#define OPT_CHOICE(letter, name, args, field, choices, help) \
    {OPT_KIND_CHOICE, letter, name, NULL, help, OPT_FIELD_INT(args, field), 0, 0, choices, NULL}
#define OPT_INPUT(letter, name, args, field, help) \
    {OPT_KIND_INPUT, letter, name, "FILE", help, OPT_FIELD(const char *, args, field), 0, 0, NULL, NULL}
/* The same in another placeholder: "FILE.moe", a file of that ending, or "FILE|router", which is a word, too. */
#define OPT_INPUT_AS(letter, name, args, field, argument, help) \
    {OPT_KIND_INPUT, letter, name, argument, help, OPT_FIELD(const char *, args, field), 0, 0, NULL, NULL}
/* A string for which words are known, by a function that says them one by one. */
#define OPT_STRING_OF(letter, name, args, field, argument, word, help) \
    {OPT_KIND_STRING, letter, name, argument, help, OPT_FIELD(const char *, args, field), 0, 0, NULL, word}
#define OPT_OUTPUT(letter, name, args, field, help) \
    {OPT_KIND_OUTPUT, letter, name, "FILE", help, OPT_FIELD(const char *, args, field), 0, 0, NULL, NULL}
/* An output that output_open_kept writes. */
#define OPT_OUTPUT_KEPT(letter, name, args, field, help) \
    {OPT_KIND_OUTPUT, letter, name, "FILE", help, OPT_FIELD(const char *, args, field), 1, 0, NULL, NULL}
/* Those that follow, up to the next title, are under this one in --help and are a section of the man page. A title may come
 * again: what follows it then goes on with the same group. */
#define OPT_GROUP(title) {OPT_KIND_GROUP, 0, "", NULL, title, 0, 0, 0, NULL, NULL}
#define OPT_END {OPT_KIND_END, 0, NULL, NULL, NULL, 0, 0, 0, NULL, NULL}

/* Options that several commands have, worded alike everywhere. */
#define OPT_THREADS(args, field) \
    OPT_COUNT('j', "threads", args, field, 1, 256, "work with N threads; all processors if not given")
#define OPT_DEVICE(args, field) \
    OPT_STRING(0, "device", args, field, "auto|host|cuda|cuda:N|ref", "compute there")
#define OPT_SEED(args, field) OPT_UINT64(0, "seed", args, field, "start the random numbers from N")

/* The words of a command line that are not options. */
enum operand_kind {
    OPERAND_KIND_END = 0,
    OPERAND_KIND_ONE,       /* const char * */
    OPERAND_KIND_MAYBE,     /* const char *, stays as it was when not given */
    OPERAND_KIND_ANY,       /* struct strings */
    OPERAND_KIND_SOME,      /* struct strings, one at least */
};

struct operand {
    enum operand_kind kind;
    const char *name;
    size_t offset;
};

#define OPERAND_ONE(name, args, field) {OPERAND_KIND_ONE, name, OPT_FIELD(const char *, args, field)}
#define OPERAND_MAYBE(name, args, field) {OPERAND_KIND_MAYBE, name, OPT_FIELD(const char *, args, field)}
#define OPERAND_ANY(name, args, field) {OPERAND_KIND_ANY, name, OPT_FIELD(struct strings, args, field)}
#define OPERAND_SOME(name, args, field) {OPERAND_KIND_SOME, name, OPT_FIELD(struct strings, args, field)}
#define OPERAND_END {OPERAND_KIND_END, NULL, 0}

struct subcommand;
struct console;

/* Fills `args` (already holding the defaults) and the console from the words argv[0 .. argc) after the subcommand.
 * When --help or --version was given (the console tells) operands may be missing. What was allocated is freed by opt_free,
 * also after a failure. */
int opt_parse(const struct subcommand *subcommand, int argc, char **argv, void *args, struct console *console, struct err *err);
void opt_free(const struct subcommand *subcommand, void *args);

/* Hands each file that the arguments name to be read to `see`, with the option's or operand's name; a failure ends it. */
typedef int opt_see_input(void *context, const char *name, const char *path, struct err *err);
int opt_inputs(const struct subcommand *subcommand, const void *args, opt_see_input *see, void *context, struct err *err);

/* The option of that long name (`length` bytes) or letter among those of the subcommand and of the console, or NULL. */
const struct opt *opt_find(const struct subcommand *subcommand, const char *name, size_t length);
const struct opt *opt_find_letter(const struct subcommand *subcommand, char letter);

#endif
