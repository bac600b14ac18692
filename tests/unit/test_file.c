/* Files: limits on reading, maps, and outputs that appear completely or not at all. */
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/base/file.h"

struct fixture {
    char *folder;
    struct err err;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    fixture->folder = unit_folder();
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    unit_remove(fixture->folder);
    free(fixture);
    return 0;
}

static int count_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void assert_content(const char *path, const char *expected)
{
    struct err err = {0};
    struct text text = {0};
    assert_int_equal(file_read(&text, path, 1 << 20, &err), 0);
    assert_string_equal(text.data, expected);
    text_free(&text);
}

static void reading_appends_up_to_the_limit(void **state)
{
    struct fixture *f = *state;
    struct text text = {0};
    const char *path = unit_path(f->folder, "a");
    unit_write(path, "12345", 5);
    assert_int_equal(text_puts(&text, "0", &f->err), 0);
    assert_int_equal(file_read(&text, path, 5, &f->err), 0);
    assert_string_equal(text.data, "012345");
    assert_int_equal(file_read(&text, path, 4, &f->err), -1);
    assert_int_equal(f->err.code, ERR_INPUT);
    assert_non_null(strstr(f->err.text, "is larger than 4 bytes"));
    assert_string_equal(text.data, "012345");
    err_clear(&f->err);
    assert_int_equal(file_read(&text, "/dev/zero", 1 << 20, &f->err), -1);       /* endless */
    assert_int_equal(f->err.code, ERR_INPUT);
    err_clear(&f->err);
    assert_int_equal(file_read(&text, unit_path(f->folder, "none"), 9, &f->err), -1);
    assert_int_equal(f->err.code, ERR_IO);
    err_clear(&f->err);
    assert_int_equal(file_read(&text, f->folder, 9, &f->err), -1);
    assert_non_null(strstr(f->err.text, "is a folder; name a file"));
    text_free(&text);
}

static void maps_show_the_file(void **state)
{
    struct fixture *f = *state;
    struct file_map map = {0};
    const char *path = unit_path(f->folder, "a");
    unit_write(path, "12345", 5);
    assert_int_equal(file_map_open(&map, path, &f->err), 0);
    assert_int_equal(map.bytes, 5);
    assert_memory_equal(map.data, "12345", 5);
    file_map_close(&map);
    assert_null(map.data);
    file_map_close(&map);
    unit_write(path, "", 0);
    assert_int_equal(file_map_open(&map, path, &f->err), 0);
    assert_int_equal(map.bytes, 0);
    file_map_close(&map);
    assert_int_equal(file_map_open(&map, f->folder, &f->err), -1);
    assert_non_null(strstr(f->err.text, "not a regular file"));
}

static void an_output_appears_at_commit(void **state)
{
    struct fixture *f = *state;
    struct output *out = NULL;
    const char *path = unit_path(f->folder, "a");
    assert_int_equal(output_open(&out, path, &f->err), 0);
    assert_string_equal(output_path(out), path);
    assert_false(output_is_terminal(out));
    assert_int_equal(output_write(out, "abcdef", 6, &f->err), 0);
    assert_int_equal(output_write_at(out, 2, "XY", 2, &f->err), 0);
    assert_int_equal(output_write(out, "g", 1, &f->err), 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(count_entries(f->folder), 1);
    assert_int_equal(output_commit(&out, &f->err), 0);
    assert_null(out);
    assert_content(path, "abXYefg");
    assert_int_equal(count_entries(f->folder), 1);
}

static size_t draw(uint64_t *seed, size_t end)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(*seed >> 33) % end;
}

/* Streams of pieces of all sizes that sometimes continue at another offset, also over earlier bytes. */
static void pieces_land_where_they_belong(void **state)
{
    enum { BYTES = 12 << 20, PIECES = 60 };
    static const size_t sizes[] = {0, 1, 4095, 4096, 70000, 2 << 20, (2 << 20) + 1, 5 << 20};
    struct fixture *f = *state;
    struct output *out = NULL;
    const char *path = unit_path(f->folder, "a");
    uint8_t *want = calloc(BYTES, 1), *piece = malloc(BYTES);
    uint64_t seed = 5;
    size_t at = 4096;
    assert_int_equal(output_open(&out, path, &f->err), 0);
    for (int i = 0; i < PIECES; i++) {
        size_t size = sizes[draw(&seed, sizeof sizes / sizeof *sizes)];
        if (draw(&seed, 4) == 0 || at + size > BYTES)
            at = draw(&seed, 6) * ((1 << 20) - 4096 * draw(&seed, 2));
        memset(piece, i + 1, size);
        memset(want + at, i + 1, size);
        assert_int_equal(output_write_at(out, at, piece, size, &f->err), 0);
        at += size;
    }
    assert_int_equal(output_write_at(out, BYTES - 1, "", 1, &f->err), 0);
    assert_int_equal(output_commit(&out, &f->err), 0);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(piece, 1, BYTES, file), BYTES);
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
    assert_memory_equal(piece, want, BYTES);
    free(piece);
    free(want);
}

static void a_discarded_output_leaves_what_was_there(void **state)
{
    struct fixture *f = *state;
    struct output *out = NULL;
    const char *path = unit_path(f->folder, "a");
    unit_write(path, "old", 3);
    assert_int_equal(output_open(&out, path, &f->err), 0);
    assert_int_equal(output_write(out, "new", 3, &f->err), 0);
    output_discard(&out);
    assert_null(out);
    output_discard(&out);
    assert_content(path, "old");
    assert_int_equal(count_entries(f->folder), 1);
}

static void large_writes_keep_their_order(void **state)
{
    struct fixture *f = *state;
    struct output *out = NULL;
    const char *path = unit_path(f->folder, "a");
    size_t sizes[] = {1, 65535, 1, 65536, 3, 200000, 65534, 2, 7}, at = 0;
    static char expected[600000];
    for (size_t i = 0; i < sizeof expected; i++)
        expected[i] = (char)('a' + i * 7 % 26 + i / 65536 % 3);
    assert_int_equal(output_open(&out, path, &f->err), 0);
    for (int i = 0; i < 9; i++) {
        assert_int_equal(output_write(out, expected + at, sizes[i], &f->err), 0);
        at += sizes[i];
    }
    assert_int_equal(output_commit(&out, &f->err), 0);
    expected[at] = '\0';
    assert_content(path, expected);
}

static void links_modes_and_pipes_are_kept(void **state)
{
    struct fixture *f = *state;
    struct output *out = NULL;
    struct stat status;
    const char *path = unit_path(f->folder, "a"), *link = unit_path(f->folder, "l"), *fifo = unit_path(f->folder, "p");
    unit_write(path, "old", 3);
    chmod(path, 0640);
    assert_int_equal(symlink("a", link), 0);
    assert_int_equal(output_open(&out, link, &f->err), 0);
    assert_int_equal(output_write(out, "new", 3, &f->err), 0);
    assert_int_equal(output_commit(&out, &f->err), 0);
    assert_content(path, "new");
    lstat(link, &status);
    assert_true(S_ISLNK(status.st_mode));
    stat(path, &status);
    assert_int_equal(status.st_mode & 0777, 0640);

    assert_int_equal(mkfifo(fifo, 0600), 0);
    int reader = open(fifo, O_RDONLY | O_NONBLOCK);
    assert_int_equal(output_open(&out, fifo, &f->err), 0);
    assert_int_equal(output_write_at(out, 0, "x", 1, &f->err), -1);
    assert_non_null(strstr(f->err.text, "is not a regular file, which this output needs"));
    err_clear(&f->err);
    assert_int_equal(output_write(out, "through", 7, &f->err), 0);
    assert_int_equal(output_commit(&out, &f->err), 0);
    char got[8] = {0};
    assert_int_equal(read(reader, got, 7), 7);
    assert_string_equal(got, "through");
    close(reader);
    stat(fifo, &status);
    assert_true(S_ISFIFO(status.st_mode));
}

static void refusals_name_the_file(void **state)
{
    struct fixture *f = *state;
    struct output *out = NULL;
    assert_int_equal(output_open(&out, unit_path(f->folder, "no/such/a"), &f->err), -1);
    assert_null(out);
    assert_non_null(strstr(f->err.text, "no/such/a"));
    err_clear(&f->err);
    assert_int_equal(output_open(&out, f->folder, &f->err), -1);
    assert_non_null(strstr(f->err.text, "is a folder"));
    err_clear(&f->err);
    assert_int_equal(output_open(&out, "", &f->err), -1);
    assert_int_equal(f->err.code, ERR_INPUT);
    err_clear(&f->err);
    assert_int_equal(output_open(&out, "/dev/full", &f->err), 0);
    assert_int_equal(output_write(out, "x", 1, &f->err), 0);
    assert_int_equal(output_commit(&out, &f->err), -1);
    assert_null(out);
    assert_int_equal(f->err.code, ERR_IO);
    assert_non_null(strstr(f->err.text, "/dev/full: No space left"));
    assert_int_equal(count_entries(f->folder), 0);
}

static void files_in_shared_memory_are_files(void **state)
{
    struct fixture *f = *state;
    struct output *out = NULL;
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/moe-test-file.%ld", (long)getpid());
    FILE *old = fopen(path, "w");
    if (!old)
        skip();
    fclose(old);
    assert_int_equal(output_open(&out, path, &f->err), 0);
    assert_false(output_in_place(out));
    assert_int_equal(output_write_at(out, 3, "x", 1, &f->err), 0);
    assert_int_equal(output_commit(&out, &f->err), 0);
    assert_int_equal(unlink(path), 0);
}

static void a_closed_pipe_is_its_own_kind_of_error(void **state)
{
    struct fixture *f = *state;
    struct output *out = NULL;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    signal(SIGPIPE, SIG_IGN);
    close(ends[0]);
    int own = dup(STDOUT_FILENO);
    fflush(stdout);
    dup2(ends[1], STDOUT_FILENO);
    int opened = output_open(&out, "-", &f->err);
    int written = output_write(out, "x", 1, &f->err), committed = output_commit(&out, &f->err);
    dup2(own, STDOUT_FILENO);
    close(own);
    close(ends[1]);
    signal(SIGPIPE, SIG_DFL);
    assert_int_equal(opened, 0);
    assert_int_equal(written, 0);
    assert_int_equal(committed, -1);
    assert_int_equal(f->err.code, ERR_PIPE);
}

static void a_signal_handler_can_remove_what_is_unfinished(void **state)
{
    struct fixture *f = *state;
    struct output *first = NULL, *second = NULL, *third = NULL;
    assert_int_equal(output_open(&first, unit_path(f->folder, "a"), &f->err), 0);
    assert_int_equal(output_open(&second, unit_path(f->folder, "b"), &f->err), 0);
    assert_int_equal(output_open(&third, unit_path(f->folder, "b"), &f->err), 0);       /* a temporary file of its own */
    assert_int_equal(count_entries(f->folder), 3);
    assert_int_equal(output_commit(&first, &f->err), 0);
    output_discard_all_unsafe();
    assert_int_equal(count_entries(f->folder), 1);
    output_discard(&second);
    output_discard(&third);
}

static bool is_there(const struct fixture *f, const char *name) { return !access(unit_path(f->folder, name), F_OK); }

/* Writing an output removes temporary files that killed processes left of it, but neither those of live processes nor
 * others. */
static void leftovers_of_the_dead_go(void **state)
{
    static const char *const others[] = {"a.tmp.old", "a.tmp.12x", "a.tmp.1.", "aa.tmp.12", "a.tmp.1.2.3", "a.tmp.",
                                         "b.tmp.12"};
    struct fixture *f = *state;
    struct output *live = NULL, *out = NULL;
    char left[64];
    int status;
    assert_int_equal(output_open(&live, unit_path(f->folder, "a"), &f->err), 0);
    const pid_t child = fork();
    if (!child) {
        struct output *own = NULL;
        if (!output_open(&own, unit_path(f->folder, "a"), &f->err) && !output_write(own, "half", 4, &f->err))
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    snprintf(left, sizeof left, "a.tmp.%ld", (long)child);
    assert_true(is_there(f, left));
    unit_write(unit_path(f->folder, "a.tmp.12.3"), "half", 4);             /* of a process whose first name was in use */
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        unit_write(unit_path(f->folder, others[i]), "not ours", 8);
    assert_int_equal(output_open(&out, unit_path(f->folder, "a"), &f->err), 0);
    assert_false(is_there(f, left));
    assert_false(is_there(f, "a.tmp.12.3"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_true(is_there(f, others[i]));
    assert_int_equal(output_write(live, "live", 4, &f->err), 0);
    assert_int_equal(output_commit(&live, &f->err), 0);
    assert_content(unit_path(f->folder, "a"), "live");
    output_discard(&out);
}

static void what_is_kept_survives_and_makes_room(void **state)
{
    struct fixture *f = *state;
    const char *path = unit_path(f->folder, "long"), *part = unit_path(f->folder, "long.part");
    const char *old = unit_path(f->folder, "long.part.old");
    struct output *out = NULL, *other = NULL;
    assert_int_equal(output_open_kept(&out, path, &f->err), 0);
    assert_null(output_left(out));
    assert_int_equal(output_write(out, "12", 2, &f->err), 0);
    output_discard(&out);                       /* empty output: not kept */
    assert_int_equal(count_entries(f->folder), 0);
    for (int turn = 0; turn < 3; turn++) {      /* among several unfinished outputs the longest is kept */
        assert_int_equal(output_open_kept(&out, path, &f->err), 0);
        assert_int_equal(output_write(out, "12345", turn == 1 ? 5 : 3, &f->err), 0);
        assert_int_equal(output_flush(out, &f->err), 0);
        output_keep(out);
        assert_int_equal(output_open_kept(&other, path, &f->err), -1);
        assert_non_null(strstr(f->err.text, "another process is writing this file"));
        output_discard_all_unsafe();
        output_discard(&out);
        assert_content(part, turn == 1 ? "12345" : "123");
    }
    f->err = (struct err){0};
    assert_int_equal(output_open_kept(&out, path, &f->err), 0);
    assert_string_equal(output_left(out), old);
    assert_content(old, "12345");
    assert_int_equal(output_write(out, "all", 3, &f->err), 0);
    assert_int_equal(output_commit(&out, &f->err), 0);
    assert_content(path, "all");
    assert_int_equal(count_entries(f->folder), 1);
}

static void slots_are_given_back(void **state)
{
    struct fixture *f = *state;
    struct output *out[64] = {NULL};
    for (int round = 0; round < 100; round++) {
        assert_int_equal(output_open(&out[0], unit_path(f->folder, "a"), &f->err), 0);
        output_discard(&out[0]);
    }
    int opened = 0;
    while (opened < 64 && output_open(&out[opened], unit_path(f->folder, "a"), &f->err) == 0)
        opened++;
    assert_in_range(opened, 8, 63);
    assert_non_null(strstr(f->err.text, "outputs are open at once"));
    for (int i = 0; i < opened; i++)
        output_discard(&out[i]);
    assert_int_equal(count_entries(f->folder), 0);
}

/* Returns the flags of the mapping that begins at `data`, from /proc. */
static bool mapping_has_flag(const void *data, const char *flag)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512], begin[32];
    bool here = false, has = false;
    snprintf(begin, sizeof begin, "%lx-", (unsigned long)(uintptr_t)data);
    while (maps && fgets(line, sizeof line, maps)) {
        if (strchr(line, '-') && strspn(line, "0123456789abcdef") == (size_t)(strchr(line, '-') - line))
            here = strncmp(line, begin, strlen(begin)) == 0;
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            has = strstr(line, flag);
    }
    if (maps)
        fclose(maps);
    return has;
}

static void maps_ask_for_huge_pages(void **state)
{
    struct fixture *f = *state;
    char path[PATH_MAX];
    struct file_map map = {0};
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK))
        skip();
    snprintf(path, sizeof path, "%s/huge", f->folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fseek(file, 4 << 20, SEEK_SET), 0);
    assert_int_not_equal(fputc('x', file), EOF);
    fclose(file);
    assert_int_equal(file_map_open(&map, path, &f->err), 0);
    assert_true(mapping_has_flag(map.data, " hg"));
    file_map_close(&map);
    unlink(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reading_appends_up_to_the_limit),
        TEST(maps_show_the_file),
        TEST(maps_ask_for_huge_pages),
        TEST(an_output_appears_at_commit),
        TEST(pieces_land_where_they_belong),
        TEST(a_discarded_output_leaves_what_was_there),
        TEST(large_writes_keep_their_order),
        TEST(links_modes_and_pipes_are_kept),
        TEST(refusals_name_the_file),
        TEST(files_in_shared_memory_are_files),
        TEST(a_closed_pipe_is_its_own_kind_of_error),
        TEST(a_signal_handler_can_remove_what_is_unfinished),
        TEST(leftovers_of_the_dead_go),
        TEST(what_is_kept_survives_and_makes_room),
        TEST(slots_are_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
