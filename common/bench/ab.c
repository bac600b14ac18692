#include "common/bench/ab.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/bench/child.h"
#include "common/bench/suite.h"
#include "common/report/measurements.h"
#include "common/stream/reader.h"

enum { WORDS_MAX = 16, ERRORS_SHOWN_BYTES = 4096 };

static const char *const side_names[] = { "base", "now" };

struct ab {
    const struct ab_setup *setup;
    struct suite *suite;
    char *program[2], *keep;            /* absolute paths, because runs start in the suite's folder */
    char *suite_folder;
    int input;                          /* descriptor of the suite's text */
    int stream[2], errors_file;         /* unnamed files: the stream of each build, and stderr of the last run */
};

/* Finds the absolute path of the build's moe-bench; the caller frees *out. */
static int find_program(char **out, const char *build, struct err *err)
{
    static const char *const forms[] = { "%s", "%s/moe-bench", "%s/bin/moe-bench" };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct text path = {0};
        struct stat status;
        if (text_printf(&path, err, forms[i], build))
            return -1;
        bool there = !stat(path.data, &status) && S_ISREG(status.st_mode) && !access(path.data, X_OK);
        char *whole = there ? realpath(path.data, NULL) : NULL;
        text_free(&path);
        if (whole) {
            *out = mem_string(whole, err);
            free(whole);
            return *out ? 0 : -1;
        }
    }
    return err_set(err, ERR_INPUT, "--build %s: contains no moe-bench; name the program, or the folder that make built it in "
                   "(build/normal)", build);
}

/* Writes the suite as the runs read it to an unnamed file. */
static int put_suite(struct ab *ab, struct err *err)
{
    const char *path = ab->setup->suite, *slash = strrchr(path, '/');
    json_t *root = json_file(path, (size_t)16 << 20, "one JSON object, a suite", err);
    char *text = NULL;
    int rc = -1;
    if (!root)
        return -1;
    if (json_object_set_new(root, "measure-seconds", json_integer(0)) || !(text = json_text(root, JSON_COMPACT, err))) {
        err_memory(err);
        goto done;
    }
    if (!(ab->suite_folder = slash ? mem_copy(path, (size_t)(slash - path) + 1, err) : mem_string(".", err)))
        goto done;
    if (slash)
        ab->suite_folder[slash - path] = slash == path ? '/' : '\0';
    rc = child_input(&ab->input, ab->setup->folder, text, err);
done:
    mem_free(&text);
    json_decref(root);
    return rc;
}

/* Fails if an output is one of the programs or a file of the suite. */
static int check_inputs(const struct ab *ab, struct err *err)
{
    const struct console *console = ab->setup->console;
    for (int side = 0; side < 2; side++)
        if (console_reads(console, "build", ab->program[side], err))
            return -1;
    return suite_inputs(ab->suite, claims_see, &console->claims, err) ? err_at(err, "%s", ab->setup->suite) : 0;
}

static int make_folder(struct ab *ab, struct err *err)
{
    const char *path = ab->setup->keep;
    char whole[PATH_MAX];
    struct stat status;
    if ((mkdir(path, 0777) && errno != EEXIST) || !realpath(path, whole) || stat(whole, &status))
        return err_errno(err, "--keep %s", path);
    if (!S_ISDIR(status.st_mode))
        return err_set(err, ERR_INPUT, "--keep %s: is not a folder; name one", path);
    return (ab->keep = mem_string(whole, err)) ? 0 : -1;
}

static int ab_open(struct ab *ab, struct err *err)
{
    const struct ab_setup *setup = ab->setup;
    ab->input = ab->stream[0] = ab->stream[1] = ab->errors_file = -1;
    if (!strcmp(setup->suite, "-"))
        return err_set(err, ERR_INPUT, "the suite cannot be standard input, because both builds read it; give it as a file");
    return find_program(&ab->program[0], setup->build[0], err) || find_program(&ab->program[1], setup->build[1], err) ||
           suite_read(&ab->suite, setup->suite, err) || check_inputs(ab, err) || (setup->keep && make_folder(ab, err)) ||
           put_suite(ab, err) ||
           file_nameless(&ab->stream[0], setup->folder, err) || file_nameless(&ab->stream[1], setup->folder, err) ||
           file_nameless(&ab->errors_file, setup->folder, err) ? -1 : 0;
}

static void ab_close(struct ab *ab)
{
    const int descriptors[] = { ab->input, ab->stream[0], ab->stream[1], ab->errors_file };
    for (size_t i = 0; i < sizeof descriptors / sizeof *descriptors; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
    for (int side = 0; side < 2; side++)
        mem_free(&ab->program[side]);
    mem_free(&ab->keep);
    mem_free(&ab->suite_folder);
    suite_free(&ab->suite);
}

static int name_descriptor(struct text *out, int fd, struct err *err) { return text_printf(out, err, "/proc/self/fd/%d", fd); }

static int empty(int fd, struct err *err)
{
    return ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET) < 0 ? err_errno(err, "a file in the temporary folder (TMPDIR) cannot be "
                                                                      "written") : 0;
}

/* Reports a failed run with the error line that the run printed. */
static int refuse(const struct ab *ab, int side, int status, struct err *err)
{
    struct text path = {0}, errors = {0};
    int length = 0;
    if (name_descriptor(&path, ab->errors_file, err) || file_read(&errors, path.data, (size_t)1 << 20, err))
        goto done;
    length = (int)strcspn(errors.data ? errors.data : "", "\n");
    err_set(err, ERR_INPUT, "--build %s: ended with %s %d%s%.*s", ab->setup->build[side],
            WIFEXITED(status) ? "exit status" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status),
            length ? ": " : "", length < ERRORS_SHOWN_BYTES ? length : ERRORS_SHOWN_BYTES,
            errors.data ? errors.data : "");
done:
    text_free(&path);
    text_free(&errors);
    return -1;
}

/* Runs one build once. *path: path of its stream. */
static int run_build(const struct ab *ab, int side, int round, struct text *path, struct err *err)
{
    const struct ab_setup *setup = ab->setup;
    const char *words[WORDS_MAX] = { ab->program[side], "run", "-q", "-" };
    char threads[16];
    int count = 4, status;
    if (setup->threads) {
        snprintf(threads, sizeof threads, "%d", setup->threads);
        words[count++] = "-j";
        words[count++] = threads;
    }
    const struct { const char *name, *value; } options[] = {
        {"--device", setup->device}, {"--isa", setup->isa}, {"--cache-experts", setup->cache_experts}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].value) {
            words[count++] = options[i].name;
            words[count++] = options[i].value;
        }
    if (ab->keep ? text_printf(path, err, "%s/%s-%d.moes", ab->keep, side_names[side], round + 1)
                 : name_descriptor(path, ab->stream[side], err))
        return -1;
    if (ab->keep) {
        words[count++] = "-o";
        words[count++] = path->data;
    }
    const struct child child = { .words = words, .folder = ab->suite_folder, .input = ab->input, .output = ab->stream[side],
                                 .errors = ab->errors_file, .seconds = INFINITY };
    if (empty(ab->stream[side], err) || empty(ab->errors_file, err))
        return -1;
    if (lseek(ab->input, 0, SEEK_SET) < 0)
        return err_errno(err, "a file in the temporary folder (TMPDIR) cannot be written");
    if (child_run(&child, &status, err))
        return -1;
    return status ? refuse(ab, side, status, err) : 0;
}

/* Reads the stream of a run. A program that succeeds without writing anything is not moe-bench. */
static int read_stream(struct measurements *all, const char *path, struct err *err)
{
    struct reader *in = NULL;
    struct stat status;
    if (!stat(path, &status) && !status.st_size)
        return err_set(err, ERR_INPUT,
                       "wrote no stream, so this program is not moe-bench; give the path of a moe-bench program, or of its "
                       "build folder");
    int rc = reader_open(&in, path, STREAM_BENCH, NULL, err) || measurements_read(all, in, err) ? -1 : 0;
    reader_close(&in);
    return rc;
}

static int run_round(const struct ab *ab, int round, bool now_first, struct interleaved *interleaved, struct err *err)
{
    struct text path[2] = {{0}};
    struct measurements all = {0};
    int rc = -1;
    if (run_build(ab, now_first, round, &path[now_first], err) || run_build(ab, !now_first, round, &path[!now_first], err))
        goto done;
    for (int side = 0; side < 2; side++)
        if (read_stream(&all, path[side].data, err)) {
            err_at(err, "--build %s", ab->setup->build[side]);
            goto done;
        }
    rc = measurements_arrange(&all, err) || interleaved_add(interleaved, &all, now_first, err) ? -1 : 0;
done:
    text_free(&path[0]);
    text_free(&path[1]);
    measurements_free(&all);
    return rc;
}

static int run_rounds(const struct ab *ab, struct interleaved *interleaved, struct err *err)
{
    struct progress bar;
    int rc = 0;
    console_progress(ab->setup->console, &bar, "rounds", (uint64_t)ab->setup->rounds);
    for (int round = 0; !rc && round < ab->setup->rounds && !interleaved_decided(interleaved); round++) {
        unsigned char coin;
        rc = getentropy(&coin, 1) ? err_errno(err, "random numbers cannot be drawn")
                                  : run_round(ab, round, coin & 1, interleaved, err);
        progress_step(&bar, 1);
    }
    progress_end(&bar);
    return rc;
}

int ab_run(struct interleaved **out, const struct ab_setup *setup, struct err *err)
{
    struct ab ab = { .setup = setup };
    struct interleaved *made = NULL;
    int rc = -1;
    if (ab_open(&ab, err) || interleaved_open(&made, setup->limit, ab.suite->repetitions, setup->rounds, err) ||
        run_rounds(&ab, made, err))
        goto done;
    *out = made;
    made = NULL;
    rc = 0;
done:
    interleaved_close(&made);
    ab_close(&ab);
    return rc;
}
