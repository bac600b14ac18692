#include "common/prompts/lines.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"

enum { CHUNK_BYTES = 65536 };

enum form {
    FORM_JSON,                          /* a line, an object */
    FORM_TEXT,                          /* a line, a text */
    FORM_WHOLE,                         /* all is one text, as it is */
    FORM_DOCUMENT,                      /* the same without the newline at its end */
    FORM_OPEN                           /* JSON or document: the first characters say */
};

struct prompt_lines {
    const char *const *files;
    size_t count, next;                 /* next: the one to be opened next */
    bool none, stdin_due;               /* stdin_due: it is read without being named */
    bool whole, twice;
    size_t limit;
    const struct stop *stop;
    int file;                           /* -1: none is open */
    const char *name;
    enum form form;
    bool skipping;                      /* the rest of a line that was too long */
    struct text line;
    char chunk[CHUNK_BYTES];
    size_t begin, end;                  /* of what is left in chunk */
    int64_t number;
    off_t stdin_start;                  /* -1: it cannot be read again */
};

static bool is_standard(const char *path) { return !strcmp(path, "-"); }

static bool ends_like(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && !strcasecmp(path + length - tail, ending);
}

int prompt_lines_open(struct prompt_lines **out, const char *const *files, size_t count, bool none, bool whole, size_t limit,
                      const struct stop *stop, struct err *err)
{
    struct prompt_lines *lines = mem_alloc(1, sizeof *lines, err);
    struct stat status;
    if (!lines)
        return -1;
    lines->files = files;
    lines->count = count;
    lines->none = lines->stdin_due = none;
    lines->whole = whole;
    lines->limit = limit;
    lines->stop = stop;
    lines->file = -1;
    lines->stdin_start = !fstat(STDIN_FILENO, &status) && S_ISREG(status.st_mode) ? lseek(STDIN_FILENO, 0, SEEK_CUR) : -1;
    *out = lines;
    return 0;
}

static void close_file(struct prompt_lines *lines)
{
    if (lines->file >= 0 && lines->file != STDIN_FILENO)
        close(lines->file);
    lines->file = -1;
}

void prompt_lines_close(struct prompt_lines **lines)
{
    if (!*lines)
        return;
    close_file(*lines);
    text_free(&(*lines)->line);
    mem_free(lines);
}

static bool can_be_read_again(const struct prompt_lines *lines, const char *path)
{
    return is_standard(path) ? lines->stdin_start >= 0 : file_identify(path).known;
}

bool prompt_lines_rewind(struct prompt_lines *lines, bool twice)
{
    bool all = !lines->none || lines->stdin_start >= 0, uses_stdin = lines->none;
    close_file(lines);
    lines->next = 0;
    lines->skipping = false;
    lines->twice = twice;
    lines->stdin_due = lines->none && (!twice || lines->stdin_start >= 0);
    for (size_t i = 0; i < lines->count; i++) {
        all &= can_be_read_again(lines, lines->files[i]);
        uses_stdin |= is_standard(lines->files[i]);
    }
    if (uses_stdin && lines->stdin_start >= 0)
        (void)!lseek(STDIN_FILENO, lines->stdin_start, SEEK_SET);
    return all;
}

static enum form form_of(const struct prompt_lines *lines, const char *path)
{
    if (is_standard(path))
        return lines->whole ? FORM_WHOLE : FORM_OPEN;
    if (ends_like(path, ".txt"))
        return lines->whole ? FORM_WHOLE : FORM_TEXT;
    return ends_like(path, ".md") ? lines->whole ? FORM_WHOLE : FORM_DOCUMENT : FORM_JSON;
}

/* 1: a file is open; 0: there are no more. */
static int open_next(struct prompt_lines *lines, struct err *err)
{
    while (!lines->stdin_due && lines->twice && lines->next < lines->count &&
           !can_be_read_again(lines, lines->files[lines->next]))
        lines->next++;
    if (!lines->stdin_due && lines->next == lines->count)
        return 0;
    const char *path = lines->stdin_due ? "-" : lines->files[lines->next++];
    lines->stdin_due = false;
    lines->name = is_standard(path) ? "standard input" : path;
    lines->file = is_standard(path) ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (lines->file < 0)
        return err_errno(err, "%s: cannot be opened", path);
    lines->form = form_of(lines, path);
    lines->number = 0;
    lines->begin = lines->end = 0;
    return 1;
}

/* Waits for input, or for the wish to end. */
static int wait_for_input(const struct prompt_lines *lines, struct err *err)
{
    struct pollfd ready[] = {{.fd = lines->file, .events = POLLIN}, {.fd = lines->stop->wake, .events = POLLIN}};
    while (!stop_asked(lines->stop) && poll(ready, 2, -1) < 0)
        ;
    return stop_asked(lines->stop) ? err_set(err, ERR_SIGNAL, "interrupted") : 0;
}

/* More bytes after those that are left, as many as are there: a prompt that has come through a pipe is not kept waiting for
 * the next one. *got 0: the end. */
static int refill(struct prompt_lines *lines, size_t *got, struct err *err)
{
    memmove(lines->chunk, lines->chunk + lines->begin, lines->end - lines->begin);
    lines->end -= lines->begin;
    lines->begin = 0;
    if (lines->stop && wait_for_input(lines, err))
        return -1;
    if (file_read_some(lines->file, lines->name, lines->chunk + lines->end, sizeof lines->chunk - lines->end, got, err))
        return -1;
    lines->end += *got;
    return 0;
}

static int too_long(struct prompt_lines *lines, struct err *err)
{
    lines->skipping = true;
    return err_set(err, ERR_INPUT, "longer than %zu bytes; split the prompt", lines->limit);
}

static int keep(struct prompt_lines *lines, const char *bytes, size_t count, struct err *err)
{
    return count > lines->limit - lines->line.length ? too_long(lines, err) : text_put(&lines->line, bytes, count, err);
}

/* Moves white space in front of a text into the line, where a document keeps it; *first is what comes then, '\0' at the end. */
static int pass_white_space(struct prompt_lines *lines, char *first, struct err *err)
{
    for (;;) {
        size_t got = 1;
        if (lines->begin == lines->end && refill(lines, &got, err))
            return -1;
        *first = '\0';
        if (!got)
            return 0;
        *first = lines->chunk[lines->begin];
        if (!strchr(" \t\r\n", *first))
            return 0;
        if (keep(lines, first, 1, err))
            return -1;
        lines->begin++;
    }
}

/* `[' begins a list of JSON when it looks like one, and is then refused; but a text may begin with "[1]" or "[note]". */
static int begins_list(struct prompt_lines *lines, bool *list, struct err *err)
{
    for (size_t at = lines->begin + 1;; at++) {
        size_t got = 1, offset = at - lines->begin;
        if (at == lines->end && refill(lines, &got, err))
            return -1;
        at = lines->begin + offset;
        *list = !got || strchr("{\"\r\n", lines->chunk[at]);
        if (*list || !strchr(" \t", lines->chunk[at]) || offset == CHUNK_BYTES - 1)
            return 0;
    }
}

/* A byte order mark may come before all; it may come in pieces. */
static int pass_mark(struct prompt_lines *lines, struct err *err)
{
    static const char mark[] = "\xEF\xBB\xBF";
    size_t got = 1;
    while (lines->end - lines->begin < 3 && got &&
           !memcmp(lines->chunk + lines->begin, mark, lines->end - lines->begin))
        if (refill(lines, &got, err))
            return -1;
    if (lines->end - lines->begin >= 3 && !memcmp(lines->chunk + lines->begin, mark, 3))
        lines->begin += 3;
    return 0;
}

static int decide_form(struct prompt_lines *lines, struct err *err)
{
    char first;
    bool json;
    if (pass_white_space(lines, &first, err))
        return -1;
    json = !first || first == '{';
    if (first == '[' && begins_list(lines, &json, err))
        return -1;
    lines->form = json ? FORM_JSON : FORM_DOCUMENT;
    for (size_t i = 0; json && i < lines->line.length; i++)
        lines->number += lines->line.data[i] == '\n';
    return 0;
}

static bool is_whole(const struct prompt_lines *lines) { return lines->form == FORM_WHOLE || lines->form == FORM_DOCUMENT; }

/* The next line, or the whole rest of the file, after what is in the line, without its newline. 1, 0 at the file's end. */
static int read_line(struct prompt_lines *lines, struct err *err)
{
    bool any = lines->line.length > 0;
    lines->number++;
    for (;;) {
        size_t got = 1;
        if (lines->begin == lines->end && refill(lines, &got, err))
            return -1;
        if (!got)
            break;
        const char *begin = lines->chunk + lines->begin;
        size_t bytes = lines->end - lines->begin;
        const char *newline = is_whole(lines) ? NULL : memchr(begin, '\n', bytes);
        size_t take = newline ? (size_t)(newline - begin) : bytes;
        if (!lines->skipping && keep(lines, begin, take, err))
            return -1;
        any = true;
        lines->begin += take + (newline != NULL);
        if (newline)
            break;
    }
    return any;
}

static void drop_last(struct text *line, char what)
{
    if (line->length && line->data[line->length - 1] == what)
        line->data[--line->length] = '\0';
}

static bool is_blank(const struct text *line)
{
    return !line->length || strspn(line->data, " \t") == line->length;
}

/* Begins a file: which form it has, and what comes before its first line. */
static int begin_file(struct prompt_lines *lines, struct err *err)
{
    int rc = open_next(lines, err);
    text_clear(&lines->line);
    if (rc <= 0)
        return rc;
    return pass_mark(lines, err) || (lines->form == FORM_OPEN && decide_form(lines, err)) ? -1 : 1;
}

/* The rest of a line that was too long. */
static int skip(struct prompt_lines *lines, struct err *err)
{
    lines->number--;
    if (read_line(lines, err) < 0)
        return -1;
    lines->skipping = false;
    return 0;
}

static int next_line(struct prompt_lines *lines, struct err *err)
{
    for (;;) {
        bool fresh = lines->file < 0;
        int rc = fresh ? begin_file(lines, err) : lines->skipping ? skip(lines, err) : 1;
        if (fresh && rc <= 0)
            return rc;
        if (rc < 0)
            return -1;
        if (!fresh || !is_whole(lines))
            text_clear(&lines->line);
        rc = read_line(lines, err);
        if (rc < 0)
            return -1;
        if (!rc) {
            close_file(lines);
            continue;
        }
        if (lines->form == FORM_DOCUMENT)
            drop_last(&lines->line, '\n');
        if (lines->form != FORM_WHOLE)
            drop_last(&lines->line, '\r');
        if (is_whole(lines) || !is_blank(&lines->line))
            return 1;
    }
}

int prompt_lines_next(struct prompt_lines *lines, struct prompt_line *out, struct err *err)
{
    int rc = next_line(lines, err);
    *out = (struct prompt_line){.text = &lines->line, .name = lines->name, .number = lines->number,
                                .plain = lines->form != FORM_JSON, .standard = lines->file == STDIN_FILENO};
    return rc;
}
