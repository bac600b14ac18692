/* moe-bench: compare ways of decoding, on the same prompts, in one process.
 *
 * Reads:  a suite (run, identity), bench and decode streams, or train streams (report); what bench-judge.h says
 * Writes: a bench stream (run); tables, Markdown, CSV or JSON lines (report, identity); a line or two (roofline)
 * Exit:   0 done, 1 outputs differ (identity) or the answer is no, 2 trouble, 125 cannot judge (compare, ab, gate) */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd/bench-ab.h"
#include "cmd/bench-grade.h"
#include "cmd/bench-judge.h"
#include "cmd/bench-plan.h"
#include "cmd/bench-replay.h"
#include "cmd/bench-simulate.h"
#include "cmd/bench-sweep.h"
#include "cmd/bench-tune.h"
#include "cmd/job-ranks.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/bench/identity.h"
#include "common/bench/machine.h"
#include "common/bench/network.h"
#include "common/bench/roofline.h"
#include "common/bench/run.h"
#include "common/bench/suite.h"
#include "common/bench/suite_options.h"
#include "common/cli/again.h"
#include "common/cli/command.h"
#include "common/prompts/shard.h"
#include "common/report/bench_figure.h"
#include "common/report/figure.h"
#include "common/report/measurements.h"
#include "common/report/page.h"
#include "common/report/report.h"
#include "common/report/select.h"
#include "common/report/summary.h"
#include "common/report/training.h"
#include "common/stream/reader.h"

struct run_args {
    struct strings files;
    const char *output;
    struct session_options session;
    struct suite_options made;
    const char *resume, *shard;
    bool text, force, print_suite;
};

static const struct opt run_options[] = {
    OPT_GROUP("Model and machine"),
    SESSION_MACHINE_OPTIONS(struct run_args, session),
    CACHING_OPTIONS(struct run_args, session.caching),
    CACHING_OPTION_HOT_SET(struct run_args, session.caching),
    SUITE_OPTIONS(struct run_args, made),
    OPT_FLAG(0, "print-suite", struct run_args, print_suite, "print the suite that these options define, and run nothing"),
    OPT_GROUP("Options of run and identity"),
    OPT_STRING(0, "shard", struct run_args, shard, "I/N", "use only part I of N parts of the prompts, so that N jobs can "
               "share them"),
    OPT_RESUMED(0, "resume", struct run_args, resume,
                "continue the interrupted run of the bench stream FILE: reuse its finished samples, and run the others"),
    OPT_FLAG(0, "text", struct run_args, text, "write the report instead of the stream"),
    OPT_FLAG(0, "force", struct run_args, force, "accept a rank stream of a model with another tokenizer or vocabulary"),
    OPT_GROUP("Other options"),
    OPT_OUTPUT_KEPT('o', "output", struct run_args, output, "write the bench stream to FILE, not standard output"),
    OPT_END };

static const struct operand run_operands[] = { OPERAND_ANY("FILE", struct run_args, files), OPERAND_END };

static const struct run_args run_defaults = { .output = "-", .made = SUITE_OPTIONS_DEFAULTS };

struct report_args {
    struct strings inputs, tasks, settings;
    const char *output, *sort;
    const char *title;          /* the name of the only stream in the report; NULL: that of its file */
    int figure, cost, window;
    double max_ttft, max_tpot;
    bool text, markdown, csv, json, svg, html;
};

enum { COST_TIME, COST_BYTES };
static const char *const cost_words[] = { "time", "bytes", NULL };

static const struct opt report_options[] = {
    OPT_FLAG(0, "text", struct report_args, text, "write a table, the default"),
    OPT_FLAG(0, "markdown", struct report_args, markdown, "write the table as Markdown"),
    OPT_FLAG(0, "json", struct report_args, json, "write JSON lines with all figures"),
    OPT_FLAG(0, "csv", struct report_args, csv, "write CSV with all figures"),
    OPT_FLAG(0, "svg", struct report_args, svg, "write a page of figures as SVG"),
    OPT_FLAG(0, "html", struct report_args, html, "write a self-contained HTML page of figures and tables"),
    OPT_STRINGS(0, "task", struct report_args, tasks, "PATTERN", "show only tasks whose names match the pattern; may be given "
                "several times"),
    OPT_STRINGS(0, "setting", struct report_args, settings, "PATTERN",
                "show only settings whose names match the pattern; may be given several times"),
    OPT_STRING(0, "sort", struct report_args, sort, "COLUMN",
               "sort the settings of each task by this column of --csv, largest first; -COLUMN sorts smallest first"),
    OPT_FLOAT(0, "max-ttft", struct report_args, max_ttft, 1e-3, 1e9, "MS",
              "goodput: count texts whose first token arrived within MS milliseconds"),
    OPT_FLOAT(0, "max-tpot", struct report_args, max_tpot, 1e-3, 1e9, "MS", "goodput: count texts that took at most MS "
              "milliseconds per token"),
    OPT_CHOICE(0, "figure", struct report_args, figure, figure_words, "write this figure instead of the report, in any format"),
    OPT_CHOICE(0, "cost", struct report_args, cost, cost_words, "figures: use measured time or bytes as the cost of an "
               "iteration"),
    OPT_COUNT(0, "window", struct report_args, window, 1, 1 << 20, "--figure utility: average over N iterations"),
    OPT_OUTPUT('o', "output", struct report_args, output, "write to FILE, not standard output"),
    OPT_END };

static const struct operand report_operands[] = { OPERAND_ANY("STREAM", struct report_args, inputs), OPERAND_END };

static const struct report_args report_defaults = { .output = "-", .window = FIGURE_WINDOW };

/* Returns the width of the terminal that receives the output, in columns; 0: not a terminal, or the width is unknown. */
static int terminal_width(const struct report_args *args)
{
    struct winsize size;
    return strcmp(args->output, "-") || !isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) ? 0 : size.ws_col;
}

typedef int draw_figure(const struct figure *figure, struct text *out, struct err *err);

/* Writes a figure: with --svg the picture, with --html a page of picture and tables, otherwise the tables. */
static int write_figure(struct text *out, const struct report_args *args, enum report_form form, const struct figure *figure,
                        draw_figure *draw, const char *title, struct err *err)
{
    struct text svg = {0}, tables = {0};
    if (!args->svg && !args->html)
        return figure_write(figure, form, out, err);
    int rc = draw(figure, args->svg ? out : &svg, err);
    if (!rc && args->html)
        rc = figure_write(figure, REPORT_HTML, &tables, err) || page_write(out, title, &svg, &tables, err) ? -1 : 0;
    text_free(&svg);
    text_free(&tables);
    return rc;
}

static int put_figure(struct text *out, const struct report_args *args, enum report_form form, const struct measurements *all,
                      const struct summary *summary, const struct selection *selection, struct err *err)
{
    const struct figure_setup setup = { (enum figure_kind)args->figure, args->cost == COST_BYTES, args->window, selection };
    struct figure figure = {0};
    int rc = figure_make(&figure, &setup, all, summary, err) ||
             write_figure(out, args, form, &figure, figure_svg, figure_words[args->figure], err) ? -1 : 0;
    figure_free(&figure);
    return rc;
}

static int put_page(struct text *out, const struct measurements *all, const struct summary *summary, struct err *err)
{
    struct text svg = {0}, body = {0};
    int rc = bench_figure(&svg, all, summary, err) || report_write(all, summary, REPORT_HTML, 0, &body, err) ||
             page_write(out, "Ways of decoding compared", &svg, &body, err) ? -1 : 0;
    text_free(&svg);
    text_free(&body);
    return rc;
}

/* Appends the requested views of the measurements: tables and figures. */
static int put_report(struct text *out, const struct report_args *args, enum report_form form, struct measurements *all,
                      struct err *err)
{
    const struct selection selection = { args->tasks.items, args->settings.items, args->tasks.count, args->settings.count,
                                         args->sort };
    struct summary summary = {0};
    all->max_ttft_ms = args->max_ttft;
    all->max_tpot_ms = args->max_tpot;
    int rc = measurements_make_names_distinct(all, err) || summary_make(&summary, all, err) ? -1 : 0;
    if (!rc && args->figure)
        rc = put_figure(out, args, form, all, &summary, &selection, err);
    else if (!rc)
        rc = summary_select(&summary, all, &selection, err) ||
             (args->html ? put_page(out, all, &summary, err) : args->svg ? bench_figure(out, all, &summary, err)
              : report_write(all, &summary, form, terminal_width(args), out, err)) ? -1 : 0;
    summary_free(&summary);
    return rc;
}

static int put_training(struct text *out, const struct report_args *args, enum report_form form,
                        const struct trainings *trainings, struct err *err)
{
    struct figure figure = {0};
    if (args->figure)
        return err_set(err, ERR_INPUT, "--figure: the figures of train streams cannot be chosen; use --svg, which draws all "
                       "curves");
    if (args->tasks.count || args->settings.count || args->sort)
        return err_set(err, ERR_INPUT, "--task, --setting and --sort: have no effect on train streams; leave them out");
    int rc = training_report(&figure, trainings, err) ||
             write_figure(out, args, form, &figure, training_svg, "Training", err) ? -1 : 0;
    figure_free(&figure);
    return rc;
}

static int set_title(struct measurements *all, const char *title, struct err *err)
{
    char *name = mem_string(title, err);
    if (!name)
        return -1;
    mem_free(&all->streams[0].name);
    all->streams[0].name = name;
    return 0;
}

static int report(const void *arguments, const struct console *console, struct err *err)
{
    const struct report_args *args = arguments;
    enum report_form form = args->json ? REPORT_JSON : args->csv ? REPORT_CSV : args->markdown ? REPORT_MARKDOWN : REPORT_TEXT;
    struct measurements all = {0};
    struct trainings trainings = {0};
    struct text body = {0};
    int rc = -1;
    (void)console;
    if (bench_gather_any(&all, &trainings, &args->inputs, err) || (args->title && set_title(&all, args->title, err)) ||
        (trainings.count ? put_training(&body, args, form, &trainings, err) : put_report(&body, args, form, &all, err)) ||
        output_whole(args->output, &body, err))
        goto done;
    rc = 0;
done:
    text_free(&body);
    trainings_free(&trainings);
    measurements_free(&all);
    return rc;
}

/* Refuses outputs that would overwrite a file of the suite. */
static int check_inputs(struct suite **suite, const struct console *console, struct err *err)
{
    if (!suite_inputs(*suite, claims_see, &console->claims, err))
        return 0;
    suite_free(suite);
    return -1;
}

static int read_suite(struct suite **out, const char *path, const struct console *console, struct err *err)
{
    if (suite_read(out, path, err))
        return -1;
    return check_inputs(out, console, err) ? err_at(err, "%s", path) : 0;
}

/* Runs the suite, with the stream in a temporary file, and reports on the stream, which is called `name` there. */
static int run_and_report(struct bench_setup *setup, const char *name, const char *output, struct err *err)
{
    const char *folder = getenv("TMPDIR"), *kept;
    struct text path = {0};
    int rc = -1;
    if (text_printf(&path, err, "%s/moe-bench-%ld.moes", folder && *folder ? folder : "/tmp", (long)getpid()))
        goto done;
    kept = setup->output = path.data;
    if (bench_run(setup, err))
        goto done;
    struct report_args args = { .inputs = { &kept, 1 }, .output = output,
                                .title = strcmp(name, "-") ? name : "standard input" };
    rc = report(&args, setup->console, err);
    unlink(path.data);
done:
    text_free(&path);
    return rc;
}

/* Writes the message for a terminal after a signal: the command line that continues this run. */
static int put_signal_text(struct text *out, const struct console *console, const char *output, struct err *err)
{
    return text_printf(out, err, "%s%s: ended; finished samples are kept; this continues with them:\n  ",
                       isatty(STDERR_FILENO) ? "\n" : "", console->program) ||
           again_put(out, console, 2, output, err) || text_putc(out, '\n', err) ? -1 : 0;
}

static bool taken(const char *path, const char *suffix)
{
    struct text name = {0};
    struct err err = {0};
    bool exists = text_printf(&name, &err, "%s%s", path, suffix) || access(name.data, F_OK) == 0;
    text_free(&name);
    return exists;
}

/* Chooses the file for the stream of a run at a terminal: SUITE.moes, or SUITE-2.moes and so on, in this folder or, if it is
 * not writable, in the folder for temporary files. Never overwrites an existing stream or the parts of one. */
static int name_stream(struct text *out, const char *suite, struct err *err)
{
    const char *folder = getenv("TMPDIR"), *slash = strrchr(suite, '/');
    const char *base = !strcmp(suite, "-") ? "suite" : slash ? slash + 1 : suite, *dot = strrchr(base, '.');
    int length = (int)(dot && dot > base ? (size_t)(dot - base) : strlen(base));
    bool here = access(".", W_OK) == 0;
    for (int number = 1; number < 1000000; number++) {
        text_free(out);
        if (text_printf(out, err, "%s%s%.*s", here ? "" : folder && *folder ? folder : "/tmp", here ? "" : "/", length, base) ||
            (number > 1 && text_printf(out, err, "-%d", number)) || text_puts(out, ".moes", err))
            return -1;
        if (!taken(out->data, "") && !taken(out->data, ".part") && !taken(out->data, ".part.old"))
            break;
    }
    return 0;
}

/* Runs the suite; if it fails and finished samples are kept, the error says how to continue. */
static int run_kept(struct bench_setup *setup, struct err *err)
{
    bool kept = false;
    setup->kept = &kept;
    int rc = bench_run(setup, err);
    if (rc && kept && err->code != ERR_SIGNAL && err->code != ERR_PIPE)
        again_hint(err, setup->console, 2, setup->output, "");
    return rc;
}

/* Runs at a terminal: writes the stream to a file, and the report on it to the terminal. */
static int run_at_terminal(struct bench_setup *setup, const char *suite, struct err *err)
{
    struct text path = {0}, signal_text = {0};
    int rc = -1;
    if ((setup->resume ? text_puts(&path, setup->resume, err) : name_stream(&path, suite, err)) ||
        put_signal_text(&signal_text, setup->console, path.data, err))
        goto done;
    const char *kept = setup->output = path.data;
    setup->signal_text = setup->console->quiet ? NULL : signal_text.data;
    if (run_kept(setup, err))
        goto done;
    struct report_args args = { .inputs = { &kept, 1 }, .output = "-" };
    if (report(&args, setup->console, err))
        goto done;
    console_note(setup->console, "the stream is kept as %s", path.data);
    rc = 0;
done:
    text_free(&path);
    text_free(&signal_text);
    return rc;
}

static int run_into(struct bench_setup *setup, struct err *err)
{
    struct text signal_text = {0};
    if (put_signal_text(&signal_text, setup->console, setup->output, err))
        return -1;
    setup->signal_text = setup->console->quiet ? NULL : signal_text.data;
    int rc = run_kept(setup, err);
    text_free(&signal_text);
    return rc;
}

/* Makes the suite that the options describe. With --print-suite, prints its text instead; *out is then NULL. */
static int make_suite(struct suite **out, const struct run_args *args, const struct console *console, struct err *err)
{
    json_t *root = NULL;
    for (int i = 0; i < args->files.count; i++)
        if (suite_refuse(args->files.items[i], err))
            return -1;
    if (suite_options_make(&root, &args->made, &args->files, err))
        return -1;
    int rc = suite_from_json(out, root, err) || check_inputs(out, console, err) ? -1 : 0;
    if (!rc && args->print_suite) {
        struct text body = {0};
        char *text = json_text(root, JSON_INDENT(2), err);
        suite_free(out);
        rc = text && !text_printf(&body, err, "%s\n", text) ? output_whole(args->output, &body, err) : -1;
        mem_free(&text);
        text_free(&body);
    }
    json_decref(root);
    return rc;
}

static int open_suite(struct suite **out, const struct run_args *args, const struct console *console, struct err *err)
{
    const char *given = suite_options_given(&args->made);
    if (args->made.models.count)
        return make_suite(out, args, console, err);
    if (given)
        return err_set(err, ERR_INPUT, "--%s: a suite has its own settings; to make settings from options, name the "
                       "model: -m FILE", given);
    if (args->print_suite)
        return err_set(err, ERR_INPUT, "--print-suite: prints the suite that options define, but %s is a suite already; leave "
                       "it out",
                       args->files.items[0]);
    if (args->files.count > 1)
        return err_set(err, ERR_INPUT, "'%s' is a second suite; give one suite, or for files of prompts name the "
                       "model: -m FILE",
                       args->files.items[1]);
    return read_suite(out, args->files.items[0], console, err);
}

static bool has_reference(const struct suite *suite)
{
    for (int i = 0; i < suite->setting_count; i++)
        if (suite->settings[i].reference >= 0)
            return true;
    return false;
}

static int check_force(const struct suite *suite, bool force, struct err *err)
{
    for (int i = 0; i < suite->setting_count; i++)
        force = force && !suite->settings[i].settings.rank;
    return force ? err_set(err, ERR_INPUT, "--force: applies to rankings, and no setting has one; leave it out, or add "
                           "\"rank\"") : 0;
}

/* Diagnoses a missing suite: no operands at all, or --resume has consumed the name of the suite. */
static int check_files(const struct run_args *args, struct err *err)
{
    if (args->resume && !strcmp(args->resume, "-"))
        return err_set(err, ERR_INPUT, "--resume: standard input cannot be read twice; name a file");
    if (args->files.count)
        return 0;
    if (args->resume && text_ends(args->resume, ".json"))
        return err_set(err, ERR_INPUT, "--resume %s: expected the stream to continue, and after it the suite: --resume %s %s",
                       args->resume, strcmp(args->output, "-") ? args->output : "STREAM", args->resume);
    return err_set(err, ERR_INPUT, args->made.models.count ? "no prompts; name a file of prompts after the options"
                   : "no suite; name one, SUITE.json, or a model and prompts: moe-bench run -m MODEL.moe PROMPTS.jsonl");
}

static int run(const void *arguments, const struct console *console, struct err *err)
{
    const struct run_args *args = arguments;
    struct suite *suite = NULL;
    struct shard shard;
    if (check_files(args, err) || shard_parse(&shard, args->shard, err) || open_suite(&suite, args, console, err))
        return -1;
    if (!suite)
        return 0;
    if (check_force(suite, args->force, err)) {
        suite_free(&suite);
        return -1;
    }
    bool unnamed = !strcmp(args->output, "-");
    const char *output = unnamed && args->resume ? args->resume : args->output;
    struct bench_setup setup = { .suite = suite, .session = args->session, .output = output, .keep = !args->text,
                                 .resume = args->resume, .shard = shard, .force = args->force, .console = console };
    if (args->made.models.count && !has_reference(suite))
        setup.note = "no setting is without drafts and budget, so there are no ratios; add -d none, or -K 0";
    bool terminal = unnamed && isatty(STDOUT_FILENO);
    const char *name = args->made.models.count ? args->made.models.items[0] : args->files.items[0];
    int rc = args->text ? run_and_report(&setup, name, args->output, err)
             : terminal ? run_at_terminal(&setup, name, err) : run_into(&setup, err);
    suite_free(&suite);
    return rc;
}

struct identity_args {
    const char *suite, *output;
    struct session_options session;
    bool json, strict, force;
};

static const struct opt identity_options[] = {
    SESSION_MACHINE_OPTIONS(struct identity_args, session),
    CACHING_OPTIONS(struct identity_args, session.caching),
    OPT_FLAG(0, "json", struct identity_args, json, "write JSON lines with every prompt that differs"),
    OPT_FLAG(0, "strict", struct identity_args, strict, "let settings whose texts may differ affect the verdict, too"),
    OPT_OUTPUT('o', "output", struct identity_args, output, "write to FILE, not standard output"),
    OPT_FLAG(0, "force", struct identity_args, force, "accept a rank stream of a model with another tokenizer or vocabulary"),
    OPT_END };

static const struct operand identity_operands[] = { OPERAND_ONE("SUITE", struct identity_args, suite), OPERAND_END };

static const struct identity_args identity_defaults = { .output = "-" };

static int identity(const void *arguments, const struct console *console, struct err *err)
{
    const struct identity_args *args = arguments;
    struct suite *suite = NULL;
    struct identity *found = NULL;
    struct text body = {0};
    int rc = -1;
    if (output_check_folder(args->output, err) || read_suite(&suite, args->suite, console, err))
        return -1;
    const struct identity_setup setup = { .suite = suite, .session = args->session, .force = args->force,
                                          .strict = args->strict, .console = console };
    if (check_force(suite, args->force, err) || identity_run(&found, &setup, err) ||
        (args->json ? identity_json(&body, found, err) : identity_text(&body, found, err)) ||
        output_whole(args->output, &body, err) || (!found->agree && identity_refuse(found, err)))
        goto done;
    rc = 0;
done:
    text_free(&body);
    identity_free(&found);
    suite_free(&suite);
    return rc;
}

struct roofline_args {
    const char *device, *isa, *file;
    int threads;
    uint64_t size;
    double seconds;
    bool json;
};

static const struct opt roofline_options[] = {
    OPT_DEVICE(struct roofline_args, device),
    OPT_THREADS(struct roofline_args, threads),
    OPT_ISA(struct roofline_args, isa),
    OPT_STRING(0, "file", struct roofline_args, file, "FILE", "read FILE through a memory map, like a model, instead of "
               "memory"),
    OPT_SIZE(0, "size", struct roofline_args, size, 1 << 20, (double)((uint64_t)1 << 40), "read SIZE bytes repeatedly"),
    OPT_FLOAT(0, "seconds", struct roofline_args, seconds, 0, 600, "S", "measure for S seconds with all threads, and as long "
              "with one"),
    OPT_FLAG(0, "json", struct roofline_args, json, "write a JSON line"),
    OPT_END };

static const struct roofline_args roofline_defaults = { .size = ROOFLINE_BYTES, .seconds = 1 };

static int roofline(const void *arguments, const struct console *console, struct err *err)
{
    const struct roofline_args *args = arguments;
    const struct device_setup device = { args->device ? args->device : "auto", args->threads, args->isa };
    struct roofline measured;
    struct text body = {0};
    (void)console;
    if (roofline_make(&device, args->file, (size_t)args->size, args->seconds, &measured, err))
        return -1;
    int rc = (args->json ? roofline_json(&body, &measured, err) : roofline_text(&body, &measured, err)) ||
             output_whole("-", &body, err) ? -1 : 0;
    text_free(&body);
    return rc;
}

struct machine_args {
    double seconds;
    uint64_t size;
    const char *disk;
    int ranks;
    bool json, products;
};

static const struct opt machine_options[] = {
    OPT_FLOAT(0, "seconds", struct machine_args, seconds, 0, 600, "S",
              "measure the read bandwidth of memory for S seconds with all threads, and as long with one; 0 skips this"),
    OPT_FLAG(0, "products", struct machine_args, products,
             "also measure matrix products in each weight format, S seconds each; --json then writes a description for plan"),
    OPT_SIZE(0, "size", struct machine_args, size, 1 << 20, (double)((uint64_t)1 << 40),
             "read SIZE bytes repeatedly; matrix products use experts of SIZE/4 bytes in all"),
    OPT_INPUT(0, "disk", struct machine_args, disk, "also measure how fast FILE is read without the page cache"),
    OPT_CHOICE(0, "ranks", struct machine_args, ranks, ranks_words,
               "also measure the network between the processes that mpirun started"),
    OPT_FLAG(0, "json", struct machine_args, json, "write a JSON line"),
    OPT_END };

static const struct machine_args machine_defaults = { .seconds = 0.5, .size = ROOFLINE_BYTES, .ranks = RANKS_NONE };

/* Measures the network between processes. All other processes leave the job before process 0 continues alone, because waiting
 * processes would disturb later measurements. *writes: this is process 0. */
static int measure_network(const struct machine_args *args, struct transfer_speed *out, bool *writes,
                           const struct console *console, struct err *err)
{
    struct ranks *ranks = NULL;
    *out = (struct transfer_speed){0, 0};
    *writes = true;
    if (job_ranks_open(&ranks, args->ranks, err))
        return -1;
    *writes = ranks_rank(ranks) == 0;
    int rc = ranks_size(ranks) > 1 ? network_measure(out, ranks, args->seconds, err)
           : args->ranks == RANKS_MPI ? err_set(err, ERR_INPUT, "--ranks: measuring a network takes at least two processes; "
                                                "start them with mpirun -n 2") : 0;
    if (rc)
        job_ranks_leave(ranks, console, err);
    ranks_close(&ranks);
    return rc;
}

static int machine(const void *arguments, const struct console *console, struct err *err)
{
    const struct machine_args *args = arguments;
    const struct device_setup device = { .name = "host" };
    struct speeds_setup what = { .seconds = args->seconds, .bytes = (size_t)args->size, .disk = args->disk };
    struct roofline measured, *shown = args->seconds > 0 ? &measured : NULL;
    struct speeds speeds, *known = args->products ? &speeds : NULL;
    struct transfer_speed network;
    struct machine found;
    struct text body = {0};
    bool writes;
    for (int f = 0; f < FORMAT_COUNT; f++)
        what.format[f] = true;
    if (args->products && !shown)
        return err_set(err, ERR_INPUT, "--products: --seconds 0 leaves no time to measure; give more");
    if (measure_network(args, &network, &writes, console, err))
        return -1;
    if (!writes)
        return 0;
    if (machine_find(&found, "", err) ||
        (shown && roofline_make(&device, NULL, (size_t)args->size, args->seconds, &measured, err)) ||
        (known && speeds_measure(&speeds, &what, err)))
        return -1;
    speeds.network = network;
    int rc = (args->json ? machine_json(&body, &found, shown, known, err) : machine_text(&body, &found, shown, known, err)) ||
             output_whole("-", &body, err) ? -1 : 0;
    text_free(&body);
    return rc;
}

static const struct opt_rule run_rules[] = {
    {OPT_EXCLUSIVE, "resume|text|print-suite", NULL, NULL},
    {OPT_EXCLUDES, "print-suite", "shard", "prints a suite with all its prompts"}, SESSION_RULES, OPT_RULES_END};

static const struct opt_rule report_rules[] = {
    {OPT_EXCLUSIVE, "text|markdown|json|csv|svg|html", NULL, NULL},
    {OPT_NEEDS, "cost|window", "figure", "applies to figures"},
    {OPT_EXCLUDES, "sort", "figure", "a figure has its own order"},
    {OPT_EXCLUDES, "max-ttft|max-tpot", "figure", "goodput is a column of the report"}, OPT_RULES_END};

static const struct opt_rule machine_rules[] = {
    {OPT_NEEDS, "disk|ranks", "products", "is part of a description for plan"}, OPT_RULES_END};

static const struct opt_rule tune_rules[] = {SESSION_RULES, OPT_RULES_END};

static const struct opt_rule identity_rules[] = {SESSION_RULES, OPT_RULES_END};

static const struct subcommand subcommands[] = {
    { .name = "run", .summary = "run a suite: every prompt under every setting", .options = run_options,
      .rules = run_rules, .operands = run_operands, .console = CONSOLE_QUIET | CONSOLE_PROGRESS,
      .args_bytes = sizeof(struct run_args), .defaults = &run_defaults, .run = run },
    { .name = "report", .summary = "summarise streams: speed, acceptance, experts, bytes, right answers",
      .options = report_options, .rules = report_rules, .operands = report_operands, .args_bytes = sizeof(struct report_args),
      .defaults = &report_defaults, .run = report },
    { .name = "compare", .summary = "test whether a stream is slower than an earlier one", .options = compare_options,
      .operands = compare_operands, .args_bytes = sizeof(struct compare_args), .defaults = &compare_defaults,
      .run = bench_compare },
    { .name = "ab", .summary = "test whether a build is slower than another one: both run a suite, interleaved",
      .options = ab_options,
      .operands = ab_operands, .console = CONSOLE_QUIET | CONSOLE_PROGRESS, .args_bytes = sizeof(struct ab_args),
      .defaults = &ab_defaults, .run = bench_ab },
    { .name = "gate", .summary = "check that figures are within the limits of a suite", .options = gate_options,
      .operands = gate_operands, .args_bytes = sizeof(struct gate_args), .defaults = &gate_defaults, .run = bench_gate },
    { .name = "grade", .summary = "grade the texts of a saved stream against the answers of its prompts",
      .options = grade_options, .operands = grade_operands, .args_bytes = sizeof(struct grade_args),
      .defaults = &grade_defaults, .run = bench_grade_texts },
    { .name = "identity", .summary = "check that all settings of a suite give the same bytes", .options = identity_options,
      .rules = identity_rules, .operands = identity_operands, .console = CONSOLE_QUIET | CONSOLE_PROGRESS,
      .args_bytes = sizeof(struct identity_args), .defaults = &identity_defaults, .run = identity },
    { .name = "plan", .summary = "predict how a model runs on a machine, before anything is loaded",
      .options = plan_options,
      .rules = plan_rules, .args_bytes = sizeof(struct plan_args), .defaults = &plan_defaults, .run = bench_plan },
    { .name = "replay", .summary = "compute what policies would do with recorded drafts, without a model",
      .options = replay_options, .operands = replay_operands, .args_bytes = sizeof(struct replay_args),
      .defaults = &replay_defaults, .run = bench_replay },
    { .name = "simulate", .summary = "simulate how fast a described machine would decode",
      .options = simulate_options, .rules = simulate_rules, .operands = simulate_operands, .console = CONSOLE_QUIET,
      .args_bytes = sizeof(struct simulate_args), .defaults = &simulate_defaults, .run = bench_simulate },
    { .name = "machine", .summary = "describe this machine: processor, caches, memory and its bandwidth, GPUs",
      .options = machine_options, .rules = machine_rules, .args_bytes = sizeof(struct machine_args),
      .defaults = &machine_defaults, .run = machine },
    { .name = "roofline", .summary = "measure the read bandwidth of memory", .options = roofline_options,
      .args_bytes = sizeof(struct roofline_args), .defaults = &roofline_defaults, .run = roofline },
    { .name = "sweep", .summary = "measure the cost of a forward of several tokens relative to one token",
      .options = sweep_options,
      .console = CONSOLE_QUIET, .args_bytes = sizeof(struct sweep_args), .defaults = &sweep_defaults, .run = bench_sweep },
    { .name = "tune", .summary = "find the drafting options that are fastest for a model on this machine",
      .options = tune_options, .rules = tune_rules, .operands = tune_operands, .console = CONSOLE_QUIET,
      .args_bytes = sizeof(struct tune_args), .defaults = &tune_defaults, .run = bench_tune },
    { .run = NULL },
};

static const struct command moe_bench = { "moe-bench", "compare ways of decoding", subcommands };

int main(int argc, char **argv) { return cli_main(argc, argv, &moe_bench); }
