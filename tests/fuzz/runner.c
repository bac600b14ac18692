/* All fuzz drivers as one program, which runs them over a corpus without a fuzzer:
 *
 *     run                                                           prints the drivers' names
 *     run NAME [-n MUTATIONS] [-t SECONDS] [-s SEED] FILE|FOLDER...   runs fuzz_NAME
 *
 * Each file is tried unchanged, then MUTATIONS times, or for SECONDS, whichever ends first, with one to four damages: a bit
 * flipped; a byte, or a number of 2, 4 or 8 bytes, set to a limit value; digits replaced; bytes truncated, removed, doubled,
 * or inserted from another place. The damages follow from SEED, the file's bytes and the number of the try. Writes TAP, a
 * test per file.
 *
 * An input may take LIMIT_SECONDS, and hold memory of twice its size plus 64 MiB: pages, as the system counts them, or under
 * AddressSanitizer allocations. A file that takes more than these 64 MiB when unchanged is damaged a tenth as often, because
 * AddressSanitizer takes 50 ms to mark such memory. Each file is tried in a process of its own: if that process fails, the
 * current input is kept in $TMPDIR. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "common/base/clock.h"
#include "common/base/hash.h"

enum { INPUT_MAX = 1 << 20, LIMIT_SECONDS = 60, FILES_MAX = 4096 };
static const long long FREE_BYTES = (long long)64 << 20;

size_t fuzz_unpacked, fuzz_reserved;

/* The makefile defines FUZZ_DRIVERS: DRIVER(name) for each tests/fuzz/fuzz_NAME.c. */
#define DRIVER(name) int fuzz_##name##_input(const uint8_t *data, size_t bytes);
FUZZ_DRIVERS
#undef DRIVER

static const struct driver {
    const char *name;
    int (*input)(const uint8_t *data, size_t bytes);
} DRIVERS[] = {
#define DRIVER(name) {#name, fuzz_##name##_input},
    FUZZ_DRIVERS
#undef DRIVER
};

/* ---- memory ---- */

int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
                                              void (*on_free)(const volatile void *)) __attribute__((weak));
size_t __sanitizer_get_allocated_size(const volatile void *block) __attribute__((weak));

static atomic_llong held, peak;

static void on_malloc(const volatile void *block, size_t bytes)
{
    (void)block;
    long long now = atomic_fetch_add(&held, (long long)bytes) + (long long)bytes, before = atomic_load(&peak);
    while (now > before && !atomic_compare_exchange_weak(&peak, &before, now))
        ;
}

static void on_free(const volatile void *block)
{
    if (block)
        atomic_fetch_sub(&held, (long long)__sanitizer_get_allocated_size(block));
}

/* Starts the count; returns the peak since then. */
static long long memory_start(void)
{
    if (__sanitizer_install_malloc_and_free_hooks) {
        atomic_store(&peak, atomic_load(&held));
        return atomic_load(&peak);
    }
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    if (fd < 0 || write(fd, "5", 1) != 1)                       /* resets the peak */
        printf("# the system does not count memory anew\n");
    if (fd >= 0)
        close(fd);
    return 0;
}

static long long memory_peak(const char *line_start)
{
    char text[4096], *line;
    if (__sanitizer_install_malloc_and_free_hooks)
        return atomic_load(&peak);
    int fd = open("/proc/self/status", O_RDONLY);
    ssize_t bytes = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[bytes > 0 ? bytes : 0] = 0;
    line = strstr(text, line_start);
    return line ? 1024 * atoll(line + strlen(line_start)) : 0;
}

/* ---- damage ---- */

struct chance { uint64_t state; };

static uint64_t chance_next(struct chance *chance)
{
    uint64_t z = chance->state += 0x9e3779b97f4a7c15u;          /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static size_t chance_below(struct chance *chance, size_t n) { return n ? (size_t)(chance_next(chance) % n) : 0; }

struct input {
    size_t bytes;
    uint8_t data[INPUT_MAX];
};

static void set_number(struct input *in, struct chance *chance)
{
    static const uint64_t borders[] = { 0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff,
        (uint64_t)1 << 40, INT64_MAX, (uint64_t)1 << 63, UINT64_MAX, UINT64_MAX - 15 };
    uint64_t value = borders[chance_below(chance, sizeof borders / sizeof *borders)];
    size_t width = (size_t)1 << chance_below(chance, 4), at = chance_below(chance, in->bytes);
    bool little = chance_below(chance, 2);
    for (size_t i = 0; i < width && at + i < in->bytes; i++)
        in->data[at + i] = (uint8_t)(value >> 8 * (little ? i : width - 1 - i));
}

static void set_digits(struct input *in, struct chance *chance)
{
    size_t at = chance_below(chance, in->bytes);
    while (at < in->bytes && (in->data[at] < '0' || in->data[at] > '9'))
        at++;
    for (size_t n = 1 + chance_below(chance, 12); at < in->bytes && n-- && in->data[at] != '\n'; at++)
        in->data[at] = (uint8_t)("0199-.e"[chance_below(chance, 7)]);
}

/* Inserts `bytes` bytes of `from` at `at`. */
static void insert(struct input *in, size_t at, size_t from, size_t bytes)
{
    static uint8_t part[INPUT_MAX];
    if (bytes > INPUT_MAX - in->bytes)
        return;
    memcpy(part, in->data + from, bytes);
    memmove(in->data + at + bytes, in->data + at, in->bytes - at);
    memcpy(in->data + at, part, bytes);
    in->bytes += bytes;
}

static void damage(struct input *in, struct chance *chance)
{
    for (size_t n = 1 + chance_below(chance, 4); n && in->bytes; n--) {
        size_t at = chance_below(chance, in->bytes), span = 1 + chance_below(chance, chance_below(chance, 4) ? 16 : 1024);
        size_t room = in->bytes - at < span ? in->bytes - at : span;
        switch (chance_below(chance, 9)) {
        case 0: case 1:
            in->data[at] ^= (uint8_t)(1 << chance_below(chance, 8));
            break;
        case 2: case 3:
            set_number(in, chance);
            break;
        case 4:
            set_digits(in, chance);
            break;
        case 5:
            if (!chance_below(chance, 3))
                in->bytes = at;
            break;
        case 6:
            memmove(in->data + at, in->data + at + room, in->bytes - at - room);
            in->bytes -= room;
            break;
        case 7:
            insert(in, at, at, room);
            break;
        default:
            insert(in, chance_below(chance, in->bytes), at, room);
        }
    }
}

/* ---- running ---- */

static const struct driver *driver;
static struct input *current;                   /* shared with the process that runs the driver */

/* Sets *used to the memory that the input took. */
static bool try_input(const char *file, long number, long long *used)
{
    uint8_t *copy = malloc(current->bytes ? current->bytes : 1);       /* exactly its size: reads beyond it are found */
    if (!copy)
        return false;
    memcpy(copy, current->data, current->bytes);
    long long before = memory_start();
    if (!before)
        before = memory_peak("\nVmRSS:");
    fuzz_unpacked = fuzz_reserved = 0;
    alarm(LIMIT_SECONDS);
    driver->input(copy, current->bytes);
    alarm(0);
    *used = memory_peak("\nVmHWM:") - before;
    size_t reserved = __sanitizer_install_malloc_and_free_hooks ? fuzz_reserved : 0;
    bool fine = *used <= 2 * (long long)(current->bytes + fuzz_unpacked) + (long long)reserved + FREE_BYTES;
    if (!fine)
        printf("# %s, try %ld: %zu bytes, %zu unpacked, took %lld bytes of memory\n", file, number, current->bytes,
               fuzz_unpacked, *used);
    free(copy);
    return fine;
}

static int try_file(const char *file, long mutations, double seconds, uint64_t seed)
{
    static struct input whole;
    int fd = open(file, O_RDONLY);
    ssize_t got = fd < 0 ? -1 : read(fd, whole.data, INPUT_MAX);
    if (got < 0) {
        printf("# %s: %s\n", file, strerror(errno));
        return 1;
    }
    close(fd);
    whole.bytes = (size_t)got;
    struct digest128 digest = hash_xxh3(whole.data, whole.bytes);
    double end = clock_seconds() + seconds;
    long long used = 0;
    for (long n = 0; n <= mutations; n++) {
        if (clock_seconds() > end) {
            printf("# %s: %ld of %ld damaged forms in %g s\n", file, n - 1, mutations, seconds);
            break;
        }
        struct chance chance = { digest.low ^ seed * 0x9e3779b97f4a7c15u ^ (uint64_t)n << 32 };
        current->bytes = whole.bytes;
        memcpy(current->data, whole.data, whole.bytes);
        if (n)
            damage(current, &chance);
        if (!try_input(file, n, &used))
            return 1;
        if (!n && used > FREE_BYTES)
            mutations = (mutations + 9) / 10;
    }
    return 0;
}

static void keep_input(const char *file)
{
    const char *folder = getenv("TMPDIR"), *slash = strrchr(file, '/');
    char path[4096];
    snprintf(path, sizeof path, "%s/fuzz_%s-%s.input", folder && *folder ? folder : "/tmp", driver->name,
             slash ? slash + 1 : file);
    FILE *out = fopen(path, "wb");
    if (out && fwrite(current->data, 1, current->bytes, out) == current->bytes)
        printf("# the input is in %s\n", path);
    if (out)
        fclose(out);
}

static bool test_file(int number, const char *file, long mutations, double seconds, uint64_t seed)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        exit(try_file(file, mutations, seconds, seed));
    bool ran = child > 0 && waitpid(child, &status, 0) == child;
    bool fine = ran && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!fine && ran && WIFSIGNALED(status))
        printf("# ended by signal %d%s\n", WTERMSIG(status), WTERMSIG(status) == SIGALRM ? ": it took too long" : "");
    if (!fine)
        keep_input(file);
    printf("%sok %d - fuzz_%s: %s\n", fine ? "" : "not ", number, driver->name, file);
    return fine;
}

/* Collects the given files, and those in given folders, by name. */
static int collect(char **files, int count, const char *path)
{
    struct dirent **entries;
    struct stat status;
    if (stat(path, &status) || !S_ISDIR(status.st_mode)) {
        files[count] = strdup(path);
        return count + 1;
    }
    int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && count < FILES_MAX)
            files[count++] = strdup(name);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return count;
}

/* Finds the driver of this name; for NULL, prints all names. */
static const struct driver *find_driver(const char *name)
{
    for (size_t i = 0; i < sizeof DRIVERS / sizeof *DRIVERS; i++)
        if (!name)
            puts(DRIVERS[i].name);
        else if (!strcmp(DRIVERS[i].name, name))
            return &DRIVERS[i];
    return NULL;
}

int main(int argc, char **argv)
{
    static char *files[FILES_MAX + 1];
    long mutations = 0;
    double seconds = 1e9;
    uint64_t seed = 1;
    int option, count = 0, failed = 0;
    driver = find_driver(argv[1]);
    if (!driver && argc > 1)
        fprintf(stderr, "%s: there is no fuzz driver called %s\n", argv[0], argv[1]);
    if (!driver)
        return argc > 1 ? 2 : 0;
    optind = 2;
    while ((option = getopt(argc, argv, "n:s:t:")) != -1)
        if (option == 'n')
            mutations = atol(optarg);
        else if (option == 't')
            seconds = atof(optarg);
        else if (option == 's')
            seed = strtoull(optarg, NULL, 10);
        else
            return 2;
    for (int i = optind; i < argc && count < FILES_MAX; i++)
        count = collect(files, count, argv[i]);
    current = mmap(NULL, sizeof *current, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (current == MAP_FAILED)
        return 2;
    if (__sanitizer_install_malloc_and_free_hooks && __sanitizer_get_allocated_size)
        __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    printf("1..%d\n", count);
    for (int i = 0; i < count; i++)
        failed += !test_file(i + 1, files[i], mutations, seconds, seed);
    for (int i = 0; i < count; i++)
        free(files[i]);
    return failed > 0 || count == 0;
}
