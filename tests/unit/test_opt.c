/* Option tables, numbers, suggestions and KIND:key=value settings. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/cli/command.h"
#include "common/cli/nearest.h"
#include "common/cli/number.h"
#include "common/cli/spec.h"

struct args {
    int budget, length, by;
    bool force;
    uint64_t cache, seed;
    double temperature;
    const char *rank, *output, *stream, *model, *source;
    struct strings drafts, files;
};

static const char *const methods[] = {"frequency", "mass", "coverage", NULL};

static const struct opt options[] = {
    OPT_COUNT('B', "budget", struct args, budget, 1, 64, "at most N experts"),
    OPT_COUNT_AUTO('K', "draft-length", struct args, length, 0, 16, "tokens"),
    OPT_CHOICE('b', "by", struct args, by, methods, "order by METHOD"),
    OPT_FLAG('f', "force", struct args, force, "go on"),
    OPT_SIZE(0, "cache", struct args, cache, 0, 0x1p64, "keep SIZE"),
    OPT_SEED(struct args, seed),
    OPT_FLOAT('t', "temperature", struct args, temperature, 0, 100, "T", "heat"),
    OPT_INPUT(0, "rank", struct args, rank, "rank stream"),
    OPT_INPUT('m', "model", struct args, model, "model"),
    OPT_OUTPUT('o', "output", struct args, output, "write"),
    OPT_OUTPUT(0, "stream", struct args, stream, "write too"),
    OPT_STRINGS(0, "draft", struct args, drafts, "KIND[:key=value,...]", "drafter"),
    OPT_END
};

static const struct operand operands[] = {
    OPERAND_MAYBE("SOURCE", struct args, source),
    OPERAND_ANY("FILE", struct args, files),
    OPERAND_END
};

static const struct args defaults = {.budget = -1, .length = 4, .by = 1, .cache = 3 << 20, .temperature = 0.5};

static int run_nothing(const void *args, const struct console *console, struct err *err)
{
    (void)args, (void)console, (void)err;
    return 0;
}

static const struct subcommand subcommand = {
    .name = NULL, .summary = "try options", .options = options, .operands = operands, .console = CONSOLE_QUIET,
    .args_bytes = sizeof(struct args), .defaults = &defaults, .run = run_nothing,
};

/* Parses one line of words with single spaces between them; the words stay valid until the next call. */
static int parse(const char *line, struct args *args, struct console *console, struct err *err)
{
    static char copy[400];
    char *argv[40];
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    *args = defaults;
    *console = (struct console){.program = "test"};
    err_clear(err);
    return opt_parse(&subcommand, argc, argv, args, console, err);
}

static void every_form_is_understood(void **state)
{
    (void)state;
    struct args args;
    struct console console;
    struct err err = {0};
    static const char *const lines[] = {
        "--budget=8 --by=mass -f --cache 2K in.moe a b",
        "--budget 8 --by mass --force --cache=2K in.moe a b",
        "in.moe a -B8 b -fb mass --cache 2048",
        "-B 8 -fbmass --cache 2K -- in.moe a b",
        "-B 8 -f -f --by mass in.moe --force --cache 2K a b",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(parse(lines[i], &args, &console, &err), 0);
        assert_int_equal(args.budget, 8);
        assert_int_equal(args.by, 1);
        assert_true(args.force);
        assert_int_equal(args.cache, 2048);
        assert_string_equal(args.source, "in.moe");
        assert_int_equal(args.files.count, 2);
        assert_string_equal(args.files.items[0], "a");
        assert_string_equal(args.files.items[1], "b");
        opt_free(&subcommand, &args);
    }
}

static void values_reach_their_fields(void **state)
{
    (void)state;
    struct args args;
    struct console console;
    struct err err = {0};
    assert_int_equal(parse("--seed 18446744073709551615 -t 0.25 -Kauto --draft a:n=1 --draft=b -q -o - -- -x --force", &args,
                           &console, &err), 0);
    assert_true(args.seed == UINT64_MAX);
    assert_true(args.temperature == 0.25);
    assert_int_equal(args.length, OPT_AUTO);
    assert_int_equal(args.drafts.count, 2);
    assert_string_equal(args.drafts.items[0], "a:n=1");
    assert_string_equal(args.drafts.items[1], "b");
    assert_true(console.quiet);
    assert_string_equal(args.output, "-");
    assert_string_equal(args.source, "-x");
    assert_string_equal(args.files.items[0], "--force");
    assert_false(args.force);
    assert_int_equal(args.budget, -1);
    opt_free(&subcommand, &args);
    assert_null(args.files.items);
    assert_int_equal(parse("-m a --rank a -o /dev/null --stream /dev/null", &args, &console, &err), 0);
    opt_free(&subcommand, &args);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct { const char *line, *text; } cases[] = {
        {"--budget 8x", "--budget: '8x' is not a whole number"},
        {"--budget=", "--budget: '' is not a whole number"},
        {"-B 65", "-B: 65 is not between 1 and 64"},
        {"-B -3", "-B: -3 is not between 1 and 64"},
        {"-B 99999999999999999999", "-B: 99999999999999999999 is not between 1 and 64"},
        {"-K often", "-K: 'often' is not a whole number"},
        {"--by fraquency", "--by: unknown value 'fraquency'; did you mean frequency? Choose one of frequency, mass, coverage"},
        {"--by x", "--by: unknown value 'x'; choose one of frequency, mass, coverage"},
        {"--budgit 8", "unknown option --budgit; did you mean --budget?"},
        {"--budgit=8", "unknown option --budgit; did you mean --budget?"},
        {"--verbose", "unknown option --verbose; --help lists the options"},
        {"--temp 1", "--temp: in moekit use --temperature"},
        {"-fz", "unknown option -z; --help lists the options"},
        {"--force=yes", "--force: takes no value"},
        {"--help=me", "--help: takes no value"},
        {"--budget", "--budget: needs a value"},
        {"-fB", "-B: needs a value"},
        {"--cache 3T", "--cache: '3T' is not a size; give digits, optionally followed by K, M or G"},
        {"-t nan", "-t: 'nan' is not a number"},
        {"-t 1e9", "-t: 1e9 is not between 0 and 100"},
        {"--seed -1", "--seed: '-1' is not a whole number from 0"},
        {"-B 7 -B 8", "-B: is given twice; leave one of the two out"},
        {"-B 8 --budget=8", "--budget: is given twice; leave one of the two out"},
        {"-o a -o b", "-o: is given twice; leave one of the two out"},
        {"--by mass --by mass", "--by: is given twice; leave one of the two out"},
        {"--rank - -m -", "standard input is named twice, by rank and by model; give one of them a file"},
        {"--rank - -", "standard input is named twice, by rank and by SOURCE; give one of them a file"},
        {"a - -", "standard input is named twice, but can be read only once; name a file for one of the two"},
        {"-o x --stream x", "x is named twice, by output and by stream; an output needs a file of its own"},
        {"-o x --stream ./x",
         "x, named by output, is the same file as ./x, named by stream; an output needs a file of its own"},
        {"-o m.moe -m m.moe", "m.moe is named twice, by model and by output; an output needs a file of its own"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct args args;
        struct console console;
        struct err err = {0};
        assert_int_equal(parse(cases[i].line, &args, &console, &err), -1);
        assert_string_equal(err.text, cases[i].text);
        assert_int_equal(err.code, ERR_INPUT);
        opt_free(&subcommand, &args);
    }
}

static void operands_that_must_be_there_are_asked_for(void **state)
{
    (void)state;
    static const struct operand one[] = {OPERAND_ONE("SOURCE", struct args, source), OPERAND_END};
    static const struct operand some[] = {OPERAND_SOME("FILE", struct args, files), OPERAND_END};
    struct subcommand own = subcommand;
    struct args args = defaults;
    struct console console = {.program = "moe-test"};
    struct err err = {0};
    char *words[] = {(char[]){"a"}, (char[]){"b"}};
    own.operands = one;
    own.name = "try";
    assert_int_equal(opt_parse(&own, 0, words, &args, &console, &err), -1);
    assert_string_equal(err.text, "SOURCE is missing; usage: moe-test try [OPTION...] SOURCE");
    err_clear(&err);
    assert_int_equal(opt_parse(&own, 2, words, &args, &console, &err), -1);
    assert_string_equal(err.text, "unexpected argument 'b'; name the output with -o b");
    err_clear(&err);
    own.operands = some;
    assert_int_equal(opt_parse(&own, 0, words, &args, &console, &err), -1);
    assert_string_equal(err.text, "FILE is missing; usage: moe-test try [OPTION...] FILE...");
    err_clear(&err);
    assert_int_equal(opt_parse(&own, 2, words, &args, &console, &err), 0);
    assert_int_equal(args.files.count, 2);
    opt_free(&own, &args);
}

static void help_shows_the_table(void **state)
{
    (void)state;
    static const struct subcommand subs[] = {
        {.name = NULL, .summary = "try options", .options = options, .operands = operands, .console = CONSOLE_QUIET,
         .args_bytes = sizeof(struct args), .defaults = &defaults, .run = run_nothing},
        {.run = NULL}};
    const struct command command = {.name = "moe-test", .summary = "try options", .subcommands = subs};
    struct text text = {0};
    struct err err = {0};
    assert_int_equal(help_print(&text, &command, &subs[0], &err), 0);
    assert_non_null(strstr(text.data, "usage: moe-test [OPTION...] [SOURCE] [FILE...]\nTry options.\n"));
    assert_non_null(strstr(text.data, "\n  -B, --budget N            at most N experts\n"));
    assert_non_null(strstr(text.data, "\n  -K, --draft-length N|auto\n" "                            tokens (default 4)\n"));
    assert_non_null(strstr(text.data, "\n  -b, --by frequency|mass|coverage\n"
                                      "                            order by METHOD (default mass)\n"));
    assert_non_null(strstr(text.data, "\n      --cache SIZE          keep SIZE (default 3M)\n"));
    assert_non_null(strstr(text.data, "heat (default 0.5)\n"));
    assert_non_null(strstr(text.data, "\n  -q, --quiet "));
    assert_null(strstr(text.data, "--verbose"));
    text_clear(&text);
    assert_int_equal(help_spec(&text, &command, &err), 0);
    assert_non_null(strstr(text.data, "command\tmoe-test\ttry options\nsubcommand\t-\ttry options\t-\n"
                                      "operand\tSOURCE\tmaybe\n"));
    assert_non_null(strstr(text.data, "\noption\tb\tby\tchoice\t-\tfrequency|mass|coverage\torder by METHOD\n"));
    assert_non_null(strstr(text.data, "\noption\t-\tversion\tflag\t-\t-\tprint the version\n"));
    text_free(&text);
}

/* Each option as JSON, with its default and another value, which differ in that option only. */
static void values_are_written_as_json_and_compared(void **state)
{
    static const char *one[] = {"a"}, *two[] = {"a", "b"};
    static const char *const texts[][2] = {
        {"-1", "2"}, {"4", "-1"}, {"1", "0"}, {"false", "true"}, {"3145728", "1"}, {"0", "7"}, {"0.5", "0.25"},
        {"null", "\"r\""}, {"null", "\"m\""}, {"null", "\"o\""}, {"null", "\"s\""}, {"[\"a\"]", "[\"a\",\"b\"]"}};
    struct args a = defaults, b = {.budget = 2, .length = OPT_AUTO, .by = 0, .force = true, .cache = 1, .seed = 7,
                                   .temperature = 0.25, .rank = "r", .model = "m", .output = "o", .stream = "s"};
    (void)state;
    a.drafts = (struct strings){one, 1};
    b.drafts = (struct strings){two, 2};
    for (int i = 0; options[i].kind; i++) {
        const struct args *const both[] = {&a, &b};
        for (int which = 0; which < 2; which++) {
            json_t *value = opt_json(&options[i], both[which]);
            char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
            assert_string_equal(text, texts[i][which]);
            assert_true(opt_equal(&options[i], both[which], both[which]));
            free(text);
            json_decref(value);
        }
        assert_false(opt_equal(&options[i], &a, &b));
    }
}

/* A repeated title continues its group; the console's options are last; a title is not an option. */
static void help_has_groups(void **state)
{
    (void)state;
    static const struct opt grouped[] = {
        OPT_FLAG('f', "force", struct args, force, "go on"),
        OPT_GROUP("Speed"), OPT_COUNT('B', "budget", struct args, budget, 1, 64, "experts"),
        OPT_GROUP("Other options"), OPT_SEED(struct args, seed),
        OPT_GROUP("Words"), OPT_OUTPUT('o', "output", struct args, output, "write"),
        OPT_GROUP("Speed"), OPT_INPUT('m', "model", struct args, model, "model"), OPT_END};
    static const struct subcommand subs[] = {
        {.summary = "try groups", .options = grouped, .args_bytes = sizeof(struct args), .run = run_nothing}, {.run = NULL}};
    const struct command command = {.name = "moe-test", .summary = "try groups", .subcommands = subs};
    struct text text = {0};
    struct err err = {0};
    assert_int_equal(help_print(&text, &command, &subs[0], &err), 0);
    assert_string_equal(text.data, "usage: moe-test [OPTION...]\nTry groups.\n"
                                   "\n  -f, --force               go on\n"
                                   "\nSpeed:\n  -B, --budget N            experts\n"
                                   "  -m, --model FILE          model\n"
                                   "\nWords:\n  -o, --output FILE         write\n"
                                   "\nOther options:\n      --seed N              use N as the seed of the random numbers\n"
                                   "  -h, --help                print this help\n"
                                   "      --version             print the version\n");
    text_clear(&text);
    assert_int_equal(help_spec(&text, &command, &err), 0);
    assert_non_null(strstr(text.data, "\ngroup\tSpeed\noption\tB\tbudget\t"));
    assert_non_null(strstr(text.data, "\ngroup\tSpeed\noption\tm\tmodel\t"));
    assert_non_null(strstr(text.data, "\ngroup\tOther options\noption\th\thelp\t"));
    assert_null(opt_find(&subs[0], "", 0));
    assert_null(opt_find(&subs[0], "Speed", 5));
    text_free(&text);
}

static void numbers_are_taken_whole(void **state)
{
    (void)state;
    struct err err = {0};
    int whole = 77;
    uint64_t size = 77;
    double number = 77;
    static const char *const no_int[] = {"", " 8", "8 ", "+8", "0x8", "8.", "1e3", "--8", "-"};
    static const char *const no_size[] = {"", "K", "8k", "8KB", "-1", "17179869184G", "1.5K"};
    static const char *const no_float[] = {"", ".", "e", "inf", "nan", "0x1p3", "1e", "1,5", "1e999"};
    for (size_t i = 0; i < sizeof no_int / sizeof *no_int; i++, err_clear(&err))
        assert_int_equal(number_int(no_int[i], -100, 100, &whole, &err), -1);
    for (size_t i = 0; i < sizeof no_size / sizeof *no_size; i++, err_clear(&err))
        assert_int_equal(number_size(no_size[i], 0, UINT64_MAX, &size, &err), -1);
    for (size_t i = 0; i < sizeof no_float / sizeof *no_float; i++, err_clear(&err))
        assert_int_equal(number_float(no_float[i], -INFINITY, INFINITY, &number, &err), -1);
    assert_int_equal(whole, 77);
    assert_true(size == 77 && number == 77);
    assert_int_equal(number_int("-100", -100, 100, &whole, &err), 0);
    assert_int_equal(whole, -100);
    assert_int_equal(number_size("17179869183G", 0, UINT64_MAX, &size, &err), 0);
    assert_true(size == UINT64_C(17179869183) << 30);
    assert_int_equal(number_float("-.5e-1", -1, 1, &number, &err), 0);
    assert_true(number == -0.05);
    assert_int_equal(number_float("1", 0, 0.9999999, &number, &err), -1);
    assert_string_equal(err.text, "1 is not between 0 and 0.9999999");
}

static const char *nearest_to(const char *word)
{
    static const char *const known[] = {"budget", "budget-mode", "by", "draft", "temperature", "top-k", "top-p"};
    struct nearest nearest = {.word = word};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        nearest_offer(&nearest, known[i]);
    return nearest.best ? nearest.best : "(none)";
}

static void suggestions_are_near(void **state)
{
    (void)state;
    assert_string_equal(nearest_to("bugdet"), "budget");
    assert_string_equal(nearest_to("yb"), "by");
    assert_string_equal(nearest_to("budget-mod"), "budget-mode");
    assert_string_equal(nearest_to("temprature"), "temperature");
    assert_string_equal(nearest_to("tempe"), "temperature");
    assert_string_equal(nearest_to("topk"), "top-k");
    assert_string_equal(nearest_to("quantum"), "(none)");
    assert_string_equal(nearest_to(""), "(none)");
    assert_string_equal(nearest_to("an-option-that-is-far-longer-than-any-that-there-is"), "(none)");
}

static void settings_are_read_by_type(void **state)
{
    (void)state;
    static const char *const shapes[] = {"chain", "tree", NULL};
    struct spec *spec = NULL;
    struct err err = {0};
    int n, k, shape;
    double share;
    const char *file, *none;
    assert_int_equal(spec_parse(&spec, "model:file=a\\,b=c.moe,n=4,share=.5,shape=tree", &err), 0);
    assert_int_equal(spec_int(spec, "n", 1, 1, 64, &n, &err), 0);
    assert_int_equal(spec_int(spec, "k", 8, 1, 64, &k, &err), 0);
    assert_int_equal(spec_float(spec, "share", 1, 0, 1, &share, &err), 0);
    assert_int_equal(spec_choice(spec, "shape", 0, shapes, &shape, &err), 0);
    assert_int_equal(spec_text(spec, "file", NULL, &file, &err), 0);
    assert_int_equal(spec_text(spec, "none", NULL, &none, &err), 0);
    assert_int_equal(spec_end(spec, &err), 0);
    assert_int_equal(n, 4);
    assert_int_equal(k, 8);
    assert_true(share == 0.5);
    assert_int_equal(shape, 1);
    assert_string_equal(file, "a,b=c.moe");
    assert_null(none);
    spec_free(&spec);
    assert_null(spec);
    spec_free(&spec);
}

static void a_setting_is_known_by_its_old_name(void **state)
{
    (void)state;
    struct spec *spec = NULL;
    struct err err = {0};
    int max = 0;
    assert_int_equal(spec_parse(&spec, "tr:most=7", &err), 0);
    assert_int_equal(spec_int(spec, "max|most", 3, 1, 9, &max, &err), 0);
    assert_int_equal(spec_end(spec, &err), 0);
    assert_int_equal(max, 7);
    spec_free(&spec);
}

static void wrong_settings_are_named(void **state)
{
    (void)state;
    static const struct { const char *text, *error; } cases[] = {
        {"", "'' does not begin with a kind; write KIND or KIND:key=value,..."},
        {":n=4", "':n=4' does not begin with a kind; write KIND or KIND:key=value,..."},
        {"ngram:", "ngram: '' is not of the form key=value; write KIND:key=value,..."},
        {"ngram:n", "ngram: 'n' is not of the form key=value; write KIND:key=value,..."},
        {"ngram:=4", "ngram: '' is not of the form key=value; write KIND:key=value,..."},
        {"ngram:n=4,", "ngram: '' is not of the form key=value; write KIND:key=value,..."},
        {"ngram:n=4,n=5", "ngram: n is given twice"},
        {"ngram:n=4x", "ngram: n: '4x' is not a whole number"},
        {"ngram:n=65", "ngram: n: 65 is not between 1 and 64"},
        {"ngram:lenght=4", "ngram: unknown setting lenght; did you mean length?"},
        {"ngram:zoo=4", "ngram: unknown setting zoo; its settings are n, length"},
        {"ngram:longest=65", "ngram: length: 65 is not between 1 and 64"},
        {"ngram:length=3,longest=3", "ngram: length is given twice, because length|longest are two names of one setting; give "
         "one"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spec *spec = NULL;
        struct err err = {0};
        int n, length;
        int rc = spec_parse(&spec, cases[i].text, &err) || spec_int(spec, "n", 4, 1, 64, &n, &err) ||
                 spec_int(spec, "length|longest", 4, 1, 64, &length, &err) || spec_end(spec, &err);
        assert_true(rc);
        assert_string_equal(err.text, cases[i].error);
        spec_free(&spec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_understood),
        cmocka_unit_test(values_reach_their_fields),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(operands_that_must_be_there_are_asked_for),
        cmocka_unit_test(help_shows_the_table),
        cmocka_unit_test(help_has_groups),
        cmocka_unit_test(values_are_written_as_json_and_compared),
        cmocka_unit_test(numbers_are_taken_whole),
        cmocka_unit_test(suggestions_are_near),
        cmocka_unit_test(settings_are_read_by_type),
        cmocka_unit_test(a_setting_is_known_by_its_old_name),
        cmocka_unit_test(wrong_settings_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
