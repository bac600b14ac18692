#include "common/prompts/lines.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/prompts/magic.h"
#include "common/prompts/unpack.h"

enum { CHUNK_BYTES = 65536 };

enum form {
    FORM_JSON,                          /* one object per line */
    FORM_LIST,                          /* objects as items of one list */
    FORM_TEXT,                          /* a line, a text */
    FORM_WHOLE,                         /* the whole file is one text, unchanged */
    FORM_DOCUMENT,                      /* the same, without the newline at the end */
    FORM_LINES,                         /* JSON or a list, depending on the first characters */
    FORM_OPEN                           /* JSON, a list or a document, depending on them */
};

struct prompt_lines {
    const char *const *files;
    size_t count, next;                 /* next: index of the next file to open */
    bool none, stdin_due;               /* stdin_due: standard input is read although it is not named */
    bool whole, twice;
    size_t limit;
    const struct stop *stop;
    const struct prompt_notes *notes;
    int file;                           /* -1: no file is open */
    struct unpack *unpack;              /* NULL: the file is not compressed */
    bool ended;                         /* a read has reached the end; another read from a terminal would wait again */
    bool any;                           /* it had a line */
    const char *name;
    enum form form;
    bool skipping;                      /* the rest of a line or item that was too long is skipped */
    int items;                          /* number of items of the list so far */
    int depth;                          /* open brackets within the current item */
    bool quoted, escaped;               /* quoted: within a string of the item; escaped: after a backslash in the string */
    int64_t row;                        /* newlines read so far; counted only before the first line and within a list */
    struct text line;
    char chunk[CHUNK_BYTES];
    size_t begin, end;                  /* range of the unread bytes in chunk */
    int64_t number;
    off_t stdin_start;                  /* offset at which standard input started; -1: it cannot be read again */
};

static bool is_standard(const char *path) { return !strcmp(path, "-"); }

static bool ends_like(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && !strcasecmp(path + length - tail, ending);
}

int prompt_lines_open(struct prompt_lines **out, const char *const *files, size_t count, bool none, bool whole, size_t limit,
                      const struct stop *stop, const struct prompt_notes *notes, struct err *err)
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
    lines->notes = notes;
    lines->file = -1;
    lines->stdin_start = !fstat(STDIN_FILENO, &status) && S_ISREG(status.st_mode) ? lseek(STDIN_FILENO, 0, SEEK_CUR) : -1;
    *out = lines;
    return 0;
}

static void close_file(struct prompt_lines *lines)
{
    unpack_close(&lines->unpack);
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

/* Returns whether a name has this ending, before any ending of compressed files. */
static bool is_called(const char *path, const char *ending)
{
    static const char *const packed[] = {"", ".gz", ".bz2", ".zst"};
    char whole[16];
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        snprintf(whole, sizeof whole, "%s%s", ending, packed[i]);
        if (ends_like(path, whole))
            return true;
    }
    return false;
}

static enum form form_of(const struct prompt_lines *lines, const char *path)
{
    if (is_standard(path))
        return lines->whole ? FORM_WHOLE : FORM_OPEN;
    if (is_called(path, ".txt"))
        return lines->whole ? FORM_WHOLE : FORM_TEXT;
    return is_called(path, ".md") ? lines->whole ? FORM_WHOLE : FORM_DOCUMENT : FORM_LINES;
}

/* Opens the next file. Returns 1: a file is open; 0: there are no more. */
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
    lines->number = lines->row = 0;
    lines->begin = lines->end = 0;
    lines->any = lines->ended = lines->quoted = lines->escaped = false;
    lines->items = lines->depth = 0;
    return 1;
}

/* Waits for input, or for a request to stop. */
static int wait_for_input(const struct prompt_lines *lines, struct err *err)
{
    struct pollfd ready[] = {{.fd = lines->file, .events = POLLIN}, {.fd = lines->stop->wake, .events = POLLIN}};
    while (!stop_asked(lines->stop) && poll(ready, 2, -1) < 0)
        ;
    return stop_asked(lines->stop) ? err_set(err, ERR_SIGNAL, "interrupted") : 0;
}

static int read_file(void *context, void *data, size_t room, size_t *got, struct err *err)
{
    struct prompt_lines *lines = context;
    *got = 0;
    if (lines->ended)
        return 0;
    if ((lines->stop && wait_for_input(lines, err)) || file_read_some(lines->file, lines->name, data, room, got, err))
        return -1;
    lines->ended = !*got;
    return 0;
}

/* Reads more bytes after the unread ones, only as many as are available, so that a prompt from a pipe does not wait for the
 * next one. *got 0: the end. */
static int refill(struct prompt_lines *lines, size_t *got, struct err *err)
{
    memmove(lines->chunk, lines->chunk + lines->begin, lines->end - lines->begin);
    lines->end -= lines->begin;
    lines->begin = 0;
    char *to = lines->chunk + lines->end;
    const size_t room = sizeof lines->chunk - lines->end;
    if (lines->unpack && unpack_read(lines->unpack, to, room, got, err)) {
        close_file(lines);                                  /* data after a fault is lost */
        return -1;
    }
    if (!lines->unpack && read_file(lines, to, room, got, err))
        return -1;
    lines->end += *got;
    return 0;
}

static int too_long(struct prompt_lines *lines, struct err *err)
{
    lines->skipping = true;
    return err_set(err, ERR_INPUT, "the line is longer than %zu bytes; split the prompt", lines->limit);
}

static int keep(struct prompt_lines *lines, const char *bytes, size_t count, struct err *err)
{
    return count > lines->limit - lines->line.length ? too_long(lines, err) : text_put(&lines->line, bytes, count, err);
}

/* Moves white space before a possible text into the line, where a document keeps it; *first: the next character, '\0' at the
 * end. */
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
        if (!*first || !strchr(" \t\r\n", *first))
            return 0;
        if (lines->form == FORM_OPEN && keep(lines, first, 1, err))
            return -1;
        lines->begin++;
        lines->row += *first == '\n';
    }
}

/* Sets *list. In standard input `[' begins a JSON list if the next characters look like one; a text may begin with "[1]" or
 * "[note]". */
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

/* Skips a byte order mark at the beginning; its bytes may arrive separately. */
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
    const bool may_be_text = lines->form == FORM_OPEN;
    char first;
    if (pass_white_space(lines, &first, err))
        return -1;
    bool list = first == '[', json = !may_be_text || !first || first == '{';
    if (list && may_be_text && begins_list(lines, &list, err))
        return -1;
    lines->form = list ? FORM_LIST : json ? FORM_JSON : FORM_DOCUMENT;
    lines->number = lines->form == FORM_DOCUMENT ? 0 : lines->row;
    return 0;
}

/* Starts to unpack the rest of a compressed file. */
static int begin_unpacking(struct prompt_lines *lines, struct err *err)
{
    size_t got = 1;
    bool more = true, packed = false;
    while (!packed && more && got) {
        if (lines->end - lines->begin < 4 && refill(lines, &got, err))
            return -1;
        packed = unpack_begins(lines->chunk + lines->begin, lines->end - lines->begin, &more);
    }
    if (!packed)
        return 0;
    if (unpack_open(&lines->unpack, lines->chunk + lines->begin, lines->end - lines->begin, read_file, lines, err))
        return -1;
    lines->begin = lines->end = 0;
    return refill(lines, &got, err);
}

/* Rejects a file that cannot contain prompts. */
static int refuse(struct prompt_lines *lines, const char *what, struct err *err)
{
    lines->number = lines->number ? lines->number : 1;
    close_file(lines);
    return err_set(err, ERR_INPUT, "%s", what);
}

/* Rejects a file whose first bytes show a known kind without prompts, so that the message names the kind. */
static int check_kind(struct prompt_lines *lines, struct err *err)
{
    const char *what = magic_no_prompts(lines->chunk + lines->begin, lines->end - lines->begin);
    return what ? refuse(lines, what, err) : 0;
}

static bool is_whole(const struct prompt_lines *lines) { return lines->form == FORM_WHOLE || lines->form == FORM_DOCUMENT; }

/* Appends the next line, or the whole rest of the file, to the line buffer, without its newline. Returns 1; 0 at the file's
 * end. */
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

/* ---- lists ---- */

/* Stores the next character in *out without consuming it; '\0' at the end. */
static int peek(struct prompt_lines *lines, char *out, struct err *err)
{
    size_t got = 1;
    if (lines->begin == lines->end && refill(lines, &got, err))
        return -1;
    *out = got ? lines->chunk[lines->begin] : '\0';
    return 0;
}

static void take(struct prompt_lines *lines) { lines->row += lines->chunk[lines->begin++] == '\n'; }

static int peek_past_white_space(struct prompt_lines *lines, char *out, struct err *err)
{
    while (!peek(lines, out, err)) {
        if (!*out || !strchr(" \t\r\n", *out))
            return 0;
        take(lines);
    }
    return -1;
}

/* Returns whether this character ends the item before it; otherwise updates the state of the item. */
static bool ends_item(struct prompt_lines *lines, char c)
{
    if (lines->quoted) {
        lines->quoted = lines->escaped || c != '"';
        lines->escaped = !lines->escaped && c == '\\';
        return false;
    }
    if (!lines->depth && strchr(",] \t\r\n", c))
        return true;
    lines->quoted = c == '"';
    lines->depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    return false;
}

/* Reads the rest of the current item, into the line unless it is too long. Returns 1 or -1. */
static int read_item(struct prompt_lines *lines, struct err *err)
{
    char c;
    for (;;) {
        if (peek(lines, &c, err))
            return -1;
        if (lines->begin == lines->end)
            return lines->depth || lines->quoted ? refuse(lines, "the list ends within this item", err) : 1;
        if (ends_item(lines, c))
            return 1;
        if (!lines->skipping && keep(lines, &c, 1, err)) {
            take(lines);
            return -1;
        }
        take(lines);
        if (lines->depth < 0)
            return 1;
    }
}

/* Reads the separator between two items. Returns 1: an item follows; 0: the list and the file end. */
static int begin_item(struct prompt_lines *lines, struct err *err)
{
    char c;
    bool comma = false;
    if (!lines->items)
        take(lines);                                        /* the bracket */
    if (peek_past_white_space(lines, &c, err))
        return -1;
    if (lines->items && c == ',') {
        comma = true;
        take(lines);
        if (peek_past_white_space(lines, &c, err))
            return -1;
    }
    lines->number = lines->row + 1;
    if (lines->items && !comma && c && c != ']')
        return refuse(lines, "a comma is missing between items of the list", err);
    if (c == ',' || (comma && c == ']'))
        return refuse(lines, "an item of the list is missing at a comma", err);
    if (!c)
        return refuse(lines, "the list does not end; \"]\" is missing", err);
    if (c != ']') {
        lines->items++;
        return 1;
    }
    take(lines);
    if (peek_past_white_space(lines, &c, err))
        return -1;
    lines->number = lines->row + 1;
    return c ? refuse(lines, "there is text after the list; a file must be one list, or have one object per line", err) : 0;
}

static int next_item(struct prompt_lines *lines, struct err *err)
{
    int rc = lines->skipping ? read_item(lines, err) : 1;
    lines->skipping = false;
    rc = rc > 0 ? begin_item(lines, err) : rc;
    text_clear(&lines->line);
    if (rc <= 0)
        return rc;
    lines->depth = 0;
    lines->quoted = lines->escaped = false;
    return read_item(lines, err);
}

/* ---- lines ---- */

static void drop_last(struct text *line, char what)
{
    if (line->length && line->data[line->length - 1] == what)
        line->data[--line->length] = '\0';
}

static bool is_blank(const struct text *line)
{
    return !line->length || strspn(line->data, " \t") == line->length;
}

/* Begins a file: determines its form, and reads everything before its first line. */
static int begin_file(struct prompt_lines *lines, struct err *err)
{
    int rc = open_next(lines, err);
    text_clear(&lines->line);
    if (rc <= 0)
        return rc;
    if (begin_unpacking(lines, err) || check_kind(lines, err) || pass_mark(lines, err) ||
        ((lines->form == FORM_OPEN || lines->form == FORM_LINES) && decide_form(lines, err)))
        return -1;
    return 1;
}

/* Prints a note on a file without prompts: valid beside other files, but worth knowing. */
static void end_file(struct prompt_lines *lines)
{
    char text[512];
    if (!lines->any && !lines->twice && lines->notes && lines->notes->put) {
        snprintf(text, sizeof text, "%s: has no prompts", lines->name);
        lines->notes->put(lines->notes->context, text);
    }
    close_file(lines);
}

/* Skips the rest of a line that was too long. */
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
        int rc = fresh ? begin_file(lines, err) : lines->skipping && lines->form != FORM_LIST ? skip(lines, err) : 1;
        if (fresh && rc <= 0)
            return rc;
        if (rc < 0)
            return -1;
        if (!fresh || !is_whole(lines))
            text_clear(&lines->line);
        rc = lines->form == FORM_LIST ? next_item(lines, err) : read_line(lines, err);
        lines->any |= rc != 0 && !is_blank(&lines->line);
        if (rc < 0)
            return -1;
        if (!rc) {
            end_file(lines);
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
                                .plain = lines->form != FORM_JSON && lines->form != FORM_LIST,
                                .item = lines->form == FORM_LIST, .standard = lines->file == STDIN_FILENO};
    return rc;
}
