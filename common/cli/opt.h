/* Option tables: one table per (sub)command lists its options and operands. Parser, --help, completions and the check of the
 * man page all read it.
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
 * In the placeholder of a string, lower-case words between | are literal values, with settings if a colon follows; FILE is an
 * input file, as the whole value or after a key. Completions offer both, and no output may be that file (claims.h). Strings
 * point into argv. Help shows a default if the initial value is one that the option accepts: a count of -1 for "not given" is
 * outside 1 .. 4096 and shows none. */
#ifndef MOE_CLI_OPT_H
#define MOE_CLI_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "common/base/err.h"

enum opt_kind {
    OPT_KIND_END = 0,
    OPT_KIND_FLAG,          /* bool */
    OPT_KIND_COUNT,         /* int in [min, max] */
    OPT_KIND_COUNT_AUTO,    /* int in [min, max], or the word auto: OPT_AUTO */
    OPT_KIND_SIZE,          /* uint64_t in [min, max]; K, M and G are powers of 1024 */
    OPT_KIND_UINT64,        /* uint64_t */
    OPT_KIND_FLOAT,         /* double in [min, max] */
    OPT_KIND_STRING,        /* const char * */
    OPT_KIND_STRINGS,       /* struct strings: may be given several times */
    OPT_KIND_CHOICE,        /* int, an index into choices */
    OPT_KIND_INPUT,         /* const char *: an input file; at most one "-" per command line */
    OPT_KIND_OUTPUT,        /* const char *: an output file; at most one "-" per command line */
    OPT_KIND_HELP,          /* int: 1 for --help, 2 for --help=spec */
    OPT_KIND_GROUP,         /* not an option: the title of the following options */
};

#define OPT_AUTO (-1)

struct strings {
    const char **items;     /* owned by the parser; freed after the command has run */
    int count;
};

struct opt {
    enum opt_kind kind;
    char letter;
    const char *name, *argument, *help;
    size_t offset;
    double min, max;             /* exact for every int and size below 2^53; min 1 means: an output is kept, an input is
                                  * resumed; min of a group: its part */
    const char *const *choices;     /* ends with NULL */
    const char *(*word)(int index, const char **summary);       /* for strings: returns a known word, NULL after the last one */
};

/* The offset of a field of exactly this type; _Generic has no other association, so another type does not compile. */
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
/* An input with another placeholder: "FILE.moe", a file with that ending, or "FILE|router", a file or a literal word. */
#define OPT_INPUT_AS(letter, name, args, field, argument, help) \
    {OPT_KIND_INPUT, letter, name, argument, help, OPT_FIELD(const char *, args, field), 0, 0, NULL, NULL}
/* The stream that a run continues: it may be the kept output of the same command, which then replaces it. */
#define OPT_RESUMED(letter, name, args, field, help) \
    {OPT_KIND_INPUT, letter, name, "FILE", help, OPT_FIELD(const char *, args, field), 1, 0, NULL, NULL}
/* A string with known words, which a function enumerates. */
#define OPT_STRING_OF(letter, name, args, field, argument, word, help) \
    {OPT_KIND_STRING, letter, name, argument, help, OPT_FIELD(const char *, args, field), 0, 0, NULL, word}
#define OPT_OUTPUT(letter, name, args, field, help) \
    {OPT_KIND_OUTPUT, letter, name, "FILE", help, OPT_FIELD(const char *, args, field), 0, 0, NULL, NULL}
/* An output written by output_open_kept. */
#define OPT_OUTPUT_KEPT(letter, name, args, field, help) \
    {OPT_KIND_OUTPUT, letter, name, "FILE", help, OPT_FIELD(const char *, args, field), 1, 0, NULL, NULL}
/* The options up to the next title form a group in --help and a section of the man page. A title may occur again; the options
 * after it join the same group. */
#define OPT_GROUP(title) OPT_GROUP_OF(title, 0)
/* part: a number for the code that reads the table. */
#define OPT_GROUP_OF(title, part) {OPT_KIND_GROUP, 0, "", NULL, title, 0, part, 0, NULL, NULL}
#define OPT_END {OPT_KIND_END, 0, NULL, NULL, NULL, 0, 0, 0, NULL, NULL}

/* Options common to several commands. */
#define OPT_THREADS(args, field) \
    OPT_COUNT('j', "threads", args, field, 1, 256, "use N threads; one per processor if not given")
#define OPT_DEVICE(args, field) \
    OPT_STRING(0, "device", args, field, "auto|host|cuda|cuda:N|ref", "device to compute on")
#define OPT_ISA(args, field) \
    OPT_STRING(0, "isa", args, field, "NAME", \
               "use the instruction set NAME: amx, avx512vnni, avx512, avx2, dotprod (aarch64) or plain")
#define OPT_SEED(args, field) OPT_UINT64(0, "seed", args, field, "use N as the seed of the random numbers")

/* The words of a command line that are not options. */
enum operand_kind {
    OPERAND_KIND_END = 0,
    OPERAND_KIND_ONE,       /* const char * */
    OPERAND_KIND_MAYBE,     /* const char *, unchanged when not given */
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

/* Fills `args` (which already holds the defaults) and the console from the words argv[0 .. argc) after the subcommand.
 * With --help or --version (recorded in the console) operands may be missing. Call opt_free
 * afterwards, also after a failure. */
int opt_parse(const struct subcommand *subcommand, int argc, char **argv, void *args, struct console *console, struct err *err);
void opt_free(const struct subcommand *subcommand, void *args);

/* Sets one option to a value as on a command line, NULL for a flag. room: maximum number of values of a list of texts. */
int opt_set(const struct opt *option, void *args, const char *value, int room, struct err *err);

/* Calls `visit` for each input file, with the name of its option or operand; stops at the first failure. */
typedef int opt_visitor(const void *context, const char *name, const char *path, struct err *err);
int opt_inputs(const struct subcommand *subcommand, const void *args, opt_visitor *visit, const void *context, struct err *err);

/* Returns the value of an option as the struct has it: a choice and the word auto are their integers, a missing text is null,
 * texts are a list. Bytes of texts that are not UTF-8 become U+FFFD. NULL: no memory. */
json_t *opt_json(const struct opt *option, const void *args);
json_t *strings_json(const struct strings *strings);

/* Returns whether an option has the same value in both structs; false without memory. */
bool opt_equal(const struct opt *option, const void *a, const void *b);

/* Returns the option with that long name (`length` bytes) or letter, of the subcommand or the console; NULL if none. */
const struct opt *opt_find(const struct subcommand *subcommand, const char *name, size_t length);
const struct opt *opt_find_letter(const struct subcommand *subcommand, char letter);

#endif
