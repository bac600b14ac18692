/* Experts in slots: the bits of a model that is completely in memory, for every number of slots, policy, way of reading and
 * device; reads agree with an independent account; truncated files are an error. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sys/mman.h>

#include "common/base/mem.h"
#include "common/base/memory_left.h"
#include "common/cache/cache.h"
#include "common/engine/engine.h"
#include "common/store/reads.h"
#include "tests/unit/rig.h"

enum { TREE = 20, PROMPT = 40, ROWS = 16, FORWARDS = 4 };

/* cache NULL: the model is mapped. */
static void open_rig(struct rig *rig, const char *path, const char *device, int threads, const struct expert_cache *cache)
{
    rig_open_cached(rig, path, device, threads, cache);
    rig_engine(rig, (struct engine_setup){.max_rows = ROWS, .max_logit_rows = ROWS}, 0);
}

/* Writes a tiny model with experts, from the first suitable seed at or after `seed`. */
static const char *moe_file(uint64_t seed, enum weight_format format, struct hparams *shape)
{
    static char path[64];
    struct err err = {0};
    snprintf(path, sizeof path, "/tmp/moe-test-store-%d.moe", (int)getpid());
    do {
        struct chance chance = {seed++};
        *shape = tiny_shape(&chance);
    } while (!hparams_moe_layers(shape));
    must(tiny_write_mixed(path, shape, format, format, seed, &err), &err);
    return path;
}

static size_t logits_of(const struct hparams *shape) { return (size_t)(FORWARDS * TREE) * (size_t)shape->vocab; }

/* Decodes a prompt and then trees of random rows, of which a path is kept: the logits of all nodes. */
static void decode(struct rig *rig, uint64_t seed, float *got)
{
    const int vocab = engine_hparams(rig->engine)->vocab;
    struct chance chance = {seed};
    struct sequence *sequence = NULL;
    struct forward out;
    int32_t text[PROMPT], token[TREE], parent[TREE];
    must(sequence_open(&sequence, rig->engine, PROMPT + 2 * FORWARDS * TREE, &rig->err), &rig->err);
    for (int i = 0; i < PROMPT; i++)
        text[i] = chance_range(&chance, 0, vocab - 1);
    must(engine_prompt(rig->engine, sequence, text, PROMPT, NULL, NULL, NULL, &out, &rig->err), &rig->err);
    for (int f = 0; f < FORWARDS; f++) {
        for (int i = 0; i < TREE; i++) {
            token[i] = chance_range(&chance, 0, vocab - 1);
            parent[i] = chance_range(&chance, i < 4 ? -1 : i - 4, i - 1);
        }
        for (int done = 0, rows; done < TREE; done += rows) {
            rows = chance_range(&chance, 1, TREE - done < ROWS ? TREE - done : ROWS);
            struct batch batch = {.rows = rows, .token = token + done, .parent = parent + done, .logit_rows = rows};
            must(engine_forward(rig->engine, sequence, &batch, &out, &rig->err), &rig->err);
            memcpy(got, out.logits, (size_t)rows * (size_t)vocab * sizeof *got);
            got += (size_t)rows * (size_t)vocab;
        }
        int32_t last = TREE - 1, path[TREE];
        int count = 0;
        for (int32_t at = last; at >= 0; at = parent[at])
            path[count++] = at;
        for (int i = 0; i < count / 2; i++) {
            int32_t other = path[i];
            path[i] = path[count - 1 - i];
            path[count - 1 - i] = other;
        }
        must(sequence_commit(sequence, path, count, &rig->err), &rig->err);
    }
    sequence_close(&sequence);
}

static bool has_emulator(void)
{
    struct device *device = NULL;
    struct err err = {0};
    if (device_open(&device, &(struct device_setup){.name = "emu"}, &err)) {
        print_message("without the emulator: %s\n", err.text);
        return false;
    }
    device_close(&device);
    return true;
}

/* Slots of a device with memory of its own and a queue for copies, which are late on one device and early on the other, with
 * as many host slots as reads need, or fewer or more than the device's: the bits equal those of the mapped model. */
static void no_order_of_copies_shows_in_the_bits(void **state)
{
    static const char *const devices[] = {"emu", "emu:1"}, *const policies[] = {NULL, "lfu", "utility", "ahead"};
    struct hparams shape;
    (void)state;
    if (!has_emulator())
        skip();
    const char *path = moe_file(17, FORMAT_BF16, &shape);
    const int all = hparams_moe_layers(&shape) * shape.router.experts, top_k = shape.router.top_k;
    const int slots[] = {top_k, top_k + 1, all / 2, all}, host_slots[] = {top_k, 0, all, all / 3};
    float *want = calloc(logits_of(&shape), sizeof *want), *got = calloc(logits_of(&shape), sizeof *got);
    struct rig rig;
    open_rig(&rig, path, devices[0], 1, NULL);
    decode(&rig, 5, want);
    rig_close(&rig);
    for (int i = 0; i < (unit_brief() ? 2 : 8); i++) {
        struct expert_cache cache = {.slots = slots[i / 2] < top_k ? top_k : slots[i / 2], .policy = policies[(i + i / 2) % 4],
                                     .host_slots = host_slots[(i + i / 4) % 4]};
        cache.host_slots = cache.host_slots && cache.host_slots < top_k ? top_k : cache.host_slots;
        memset(got, 0, logits_of(&shape) * sizeof *got);
        open_rig(&rig, path, devices[i % 2], 1, &cache);
        decode(&rig, 5, got);
        assert_memory_equal(want, got, logits_of(&shape) * sizeof *got);
        rig_close(&rig);
    }
    free(want);
    free(got);
    unlink(path);
}

static int64_t bytes_of_expert(struct rig *rig, const struct hparams *shape)
{
    int layer = 0;
    while (shape->layer[layer].ffn != FFN_EXPERTS)
        layer++;
    return (int64_t)model_tensor(rig->model, &rig->err, "layers.%d.experts", layer)->stride;
}

static void any_number_of_slots_gives_the_same_bits(void **state)
{
    static const char *const policies[] = {NULL, "hot", "lfu", "static", "utility", "ahead", "utility-real"};
    static const int32_t pins[] = {0, 2, 1};
    (void)state;
    for (uint64_t seed = 1; seed <= (unit_brief() ? 3 : 6); seed++) {
        struct hparams shape;
        const char *path = moe_file(seed * 17, tiny_format(seed), &shape);
        const char *device = seed % 3 ? "host" : "ref";
        const int all = hparams_moe_layers(&shape) * shape.router.experts, top_k = shape.router.top_k;
        const int slots[] = {top_k, top_k + 1, shape.router.experts - 1, all / 2, all - 1, all, 10 * all};
        float *want = calloc(logits_of(&shape), sizeof *want), *got = calloc(logits_of(&shape), sizeof *got);
        struct rig rig;
        open_rig(&rig, path, device, 1, NULL);
        decode(&rig, seed, want);
        rig_close(&rig);
        for (int i = 0; i < (int)(sizeof slots / sizeof *slots); i++) {
            struct expert_cache cache = {.slots = slots[i] < top_k ? top_k : slots[i],
                                         .policy = policies[(seed + (uint64_t)i) % 7], .pins = pins,
                                         .pinned = 3,
                                         .threads = (seed + (uint64_t)i) % 2};
            struct store_facts facts;
            memset(got, 0, logits_of(&shape) * sizeof *got);
            open_rig(&rig, path, device, 1 + i % 3, &cache);
            decode(&rig, seed, got);
            assert_memory_equal(want, got, logits_of(&shape) * sizeof *got);
            assert_true(expert_source_facts(rig.experts, &facts));
            assert_true(facts.misses >= 0 && (cache.slots < all || facts.misses <= all));
            assert_true(facts.misses > 0 || facts.prefetched > 0);
            assert_true(facts.prefetched || facts.bytes == (facts.misses - facts.host_hits) * bytes_of_expert(&rig, &shape));
            rig_close(&rig);
        }
        free(want);
        free(got);
        unlink(path);
    }
}

/* ---- reads */

enum { PIECE = 3 * DIRECT_STEP, PIECES = 40 };

static void write_pattern(const char *path, size_t bytes)
{
    unsigned char *data = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 7 + i / 251);
    unit_write(path, data, bytes);
    free(data);
}

static void assert_pattern(const unsigned char *data, size_t offset, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(data[i], (unsigned char)((offset + i) * 7 + (offset + i) / 251));
}

/* Reads all pieces once, in random order, as many at once as possible; the last one ends at the file's end, within a page. */
static void read_all(const char *path, bool threads)
{
    const size_t end = PIECE * PIECES - 1000;
    struct err err = {0};
    struct direct_file file;
    struct reads *reads = NULL;
    unsigned char *memory = aligned_alloc(DIRECT_STEP, PIECE * PIECES);
    bool came[PIECES] = {false};
    int tag, started = 0, ended = 0;
    must(direct_open(&file, path, &err), &err);
    assert_int_equal(file.bytes, end);
    must(reads_open(&reads, &file, 7, threads, &err), &err);
    assert_int_equal(reads_next(reads, true, &tag, &err), 0);
    while (ended < PIECES) {
        for (; started < PIECES && !reads_full(reads); started++) {
            int piece = started * 7 % PIECES;
            size_t offset = (size_t)piece * PIECE, bytes = end - offset < PIECE ? end - offset : PIECE;
            must(reads_start(reads, piece, memory + offset, offset, bytes, &err), &err);
        }
        assert_int_equal(reads_next(reads, true, &tag, &err), 1);
        assert_false(came[tag]);
        came[tag] = true;
        ended++;
    }
    assert_int_equal(reads_busy(reads), 0);
    assert_pattern(memory, 0, end);
    reads_close(&reads);
    direct_close(&file);
    free(memory);
}

/* Returns the descriptor of this process's ring; -1: none. */
static int find_ring(void)
{
    for (int fd = 0; fd < 256; fd++) {
        char name[64], to[64];
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(name, to, sizeof to - 1);
        to[length < 0 ? 0 : length] = '\0';
        if (!strcmp(to, "anon_inode:[io_uring]"))
            return fd;
    }
    return -1;
}

/* A read that the system rejected is not repeated when it accepts the next one. */
static void read_after_a_refusal(struct reads *reads, unsigned char *memory)
{
    struct err err = {0};
    int tag;
    const int ring = find_ring(), kept = dup(ring), other = open("/dev/null", O_RDONLY);
    if (ring >= 0) {
        assert_true(dup2(other, ring) == ring);
        assert_int_equal(reads_start(reads, 9, memory, 0, PIECE, &err), -1);
        assert_int_equal(err.code, ERR_IO);
        assert_true(dup2(kept, ring) == ring);
        close(kept);
    }
    close(other);
    memset(memory, 7, PIECE);
    must(reads_start(reads, 10, memory + PIECE, 0, PIECE, &err), &err);
    assert_int_equal(reads_next(reads, true, &tag, &err), 1);
    assert_int_equal(tag, 10);
    assert_int_equal(reads_next(reads, true, &tag, &err), 0);
    assert_pattern(memory + PIECE, 0, PIECE);
    for (int i = 0; i < PIECE; i++)
        assert_int_equal(memory[i], 7);
}

/* The file loses its second half while it is open. */
static void read_what_is_gone(const char *path, bool threads)
{
    struct err err = {0};
    struct direct_file file;
    struct reads *reads = NULL;
    unsigned char *memory = aligned_alloc(DIRECT_STEP, 2 * PIECE);
    int tag;
    must(direct_open(&file, path, &err), &err);
    must(reads_open(&reads, &file, 2, threads, &err), &err);
    assert_int_equal(truncate(path, PIECE + DIRECT_STEP + 77), 0);
    must(reads_start(reads, 5, memory, 0, PIECE, &err), &err);
    assert_int_equal(reads_next(reads, true, &tag, &err), 1);
    assert_int_equal(tag, 5);
    assert_pattern(memory, 0, PIECE);
    must(reads_start(reads, 6, memory, PIECE, PIECE, &err), &err);
    assert_int_equal(reads_next(reads, true, &tag, &err), -1);
    assert_int_equal(tag, 6);
    assert_int_equal(err.code, ERR_INPUT);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "the file was truncated while it was read"));
    err_clear(&err);
    must(reads_start(reads, 7, (void *)8192, 0, PIECE, &err), &err);         /* unmapped memory: the system rejects it */
    assert_int_equal(reads_next(reads, true, &tag, &err), -1);
    assert_int_equal(tag, 7);
    assert_int_equal(err.code, ERR_IO);
    err_clear(&err);
    read_after_a_refusal(reads, memory);
    must(reads_start(reads, 8, memory, 0, PIECE, NULL), &err);
    reads_close(&reads);                                                       /* with one read in flight */
    direct_close(&file);
    free(memory);
}

static void reads_end_in_any_order_and_tell_faults(void **state)
{
    char *folder = unit_folder();
    (void)state;
    for (int i = 0; i < 4; i++) {
        char path[1100];
        snprintf(path, sizeof path, "%s/file", i % 2 ? folder : "/dev/shm");
        if (!(i % 2))
            snprintf(path, sizeof path, "/dev/shm/moe-test-store-%d", (int)getpid());
        write_pattern(path, PIECE * PIECES - 1000);
        read_all(path, i / 2);
        read_what_is_gone(path, i / 2);
        unlink(path);
    }
    unit_remove(folder);
}

static void files_that_cannot_be_read_are_refused(void **state)
{
    char *folder = unit_folder();
    struct err err = {0};
    struct direct_file file = {0};
    struct model *model = NULL;
    (void)state;
    assert_int_equal(direct_open(&file, unit_path(folder, "none"), &err), -1);
    assert_int_equal(err.code, ERR_IO);
    err_clear(&err);
    assert_int_equal(direct_open(&file, folder, &err), -1);
    err_clear(&err);
    for (size_t bytes = 0; bytes <= 5000; bytes += 5000) {
        write_pattern(unit_path(folder, "a"), bytes);
        assert_int_equal(model_open_dense(&model, unit_path(folder, "a"), &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        assert_non_null(strstr(err.text, "not a model file"));
        assert_null(model);
        err_clear(&err);
    }
    unit_remove(folder);
}

/* ---- memory and errors of a source ---- */

/* Returns the number of the file's pages in the system's page cache. */
static size_t cached_pages(const char *path)
{
    struct err err = {0};
    struct direct_file file;
    must(direct_open(&file, path, &err), &err);
    const size_t pages = (size_t)(file.bytes + 4095) / 4096;
    unsigned char *in = malloc(pages);
    void *map = mmap(NULL, file.bytes, PROT_READ, MAP_SHARED, file.fd, 0);
    size_t count = 0;
    assert_int_equal(mincore(map, file.bytes, in), 0);
    for (size_t i = 0; i < pages; i++)
        count += in[i] & 1;
    munmap(map, file.bytes);
    free(in);
    direct_close(&file);
    return count;
}

/* Reads leave nothing in the system's page cache. */
static void nothing_of_the_file_stays_cached(void **state)
{
    struct hparams shape;
    struct rig rig;
    const char *path = moe_file(3, FORMAT_F32, &shape);
    float *got = calloc(logits_of(&shape), sizeof *got);
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        struct expert_cache cache = {.slots = shape.router.top_k, .threads = threads};
        int fd = open(path, O_RDONLY);
        assert_int_equal(fsync(fd), 0);
        assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        close(fd);
        open_rig(&rig, path, "host", 1, &cache);
        decode(&rig, 1, got);
        rig_close(&rig);
        assert_int_equal(cached_pages(path), 0);
    }
    open_rig(&rig, path, "host", 1, NULL);                /* a mapped model does, which shows that the count works */
    decode(&rig, 1, got);
    rig_close(&rig);
    assert_true(cached_pages(path) > 0);
    free(got);
    unlink(path);
}

static void a_file_that_shrinks_is_an_error(void **state)
{
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        struct hparams shape;
        struct rig rig;
        const char *path = moe_file(3, FORMAT_F32, &shape);
        struct expert_cache cache = {.slots = shape.router.top_k, .threads = threads};
        struct sequence *sequence = NULL;
        struct forward out;
        open_rig(&rig, path, "host", 1, &cache);
        assert_int_equal(truncate(path, 8192), 0);
        must(sequence_open(&sequence, rig.engine, 8, &rig.err), &rig.err);
        for (int again = 0; again < 8; again++) {                     /* more often than there were reads in flight */
            const int32_t token[] = {1, 2, 3};
            assert_int_equal(engine_prompt(rig.engine, sequence, token, 3, NULL, NULL, NULL, &out, &rig.err), -1);
            assert_int_equal(rig.err.code, ERR_INPUT);
            assert_non_null(strstr(rig.err.text, "the file was truncated while it was read"));
            err_clear(&rig.err);
        }
        sequence_close(&sequence);
        rig_close(&rig);
        unlink(path);
    }
}

/* ---- the rest ---- */

/* Forecast experts are read once, requested ones among them count as hits, and the bits stay the same. */
static void what_is_forecast_is_read_before_it_is_wanted(void **state)
{
    struct hparams shape;
    struct rig rig;
    const char *path = moe_file(3, FORMAT_F32, &shape);
    const int all = hparams_moe_layers(&shape) * shape.router.experts;
    struct expert_cache cache = {.slots = all};
    float *want = calloc(logits_of(&shape), sizeof *want), *got = calloc(logits_of(&shape), sizeof *got);
    int32_t expert[64];
    struct store_facts facts;
    (void)state;
    open_rig(&rig, path, "host", 1, NULL);
    decode(&rig, 2, want);
    rig_close(&rig);
    for (int e = 0; e < shape.router.experts; e++)
        expert[e] = e;
    open_rig(&rig, path, "host", 1, &cache);
    int layer = 0;
    while (shape.layer[layer].ffn != FFN_EXPERTS)
        layer++;
    for (int again = 0; again < 2; again++)
        must(expert_source_prefetch(rig.experts, layer, expert, NULL, shape.router.experts, &rig.err), &rig.err);
    decode(&rig, 2, got);
    assert_memory_equal(want, got, logits_of(&shape) * sizeof *got);
    assert_true(expert_source_facts(rig.experts, &facts));
    assert_true(facts.prefetched > 0 && facts.prefetched < facts.bytes && facts.wasted == 0);
    assert_true(facts.bytes <= all * facts.prefetched);                  /* no expert twice: each has the same size */
    rig_close(&rig);
    free(want);
    free(got);
    unlink(path);
}

/* Pinned experts are in their slots once the cache is open, as many as there are slots, and are not read again. */
static void a_cache_begins_with_its_pins(void **state)
{
    struct hparams shape;
    struct rig rig;
    const char *path = moe_file(3, FORMAT_F32, &shape);
    const int all = hparams_moe_layers(&shape) * shape.router.experts;
    int32_t pins[512];
    double weight[512];
    struct store_facts open, after;
    float *got = calloc(logits_of(&shape), sizeof *got);
    (void)state;
    assert_true(all <= 512);
    for (int i = 0; i < all; i++) {
        pins[i] = all - 1 - i;
        weight[i] = 1e6 + all - i;
    }
    for (int slots = all - 1; slots <= all; slots++) {
        struct expert_cache cache = {.slots = slots, .policy = "hot", .pins = pins, .pin_weight = weight, .pinned = all};
        open_rig(&rig, path, "host", 1, &cache);
        assert_true(expert_source_facts(rig.experts, &open));
        assert_true(open.bytes % slots == 0 && open.bytes == open.prefetched && open.wasted == 0 && open.misses == 0);
        decode(&rig, 2, got);
        assert_true(expert_source_facts(rig.experts, &after));
        assert_true(slots < all || (after.bytes == open.bytes && after.misses == 0));
        double *kept = calloc((size_t)all, sizeof *kept);
        assert_true(cache_weights(expert_source_cache(rig.experts), kept));
        for (int i = 1; i < all; i++)                /* requests in between change the weights little */
            assert_true(kept[pins[i]] > 0.5e6 && kept[pins[i]] < 2e6);
        free(kept);
        rig_close(&rig);
    }
    free(got);
    unlink(path);
}

/* The experts of a layer, divided between the device and the host, which are read at the same time. */
struct both {
    struct rig *rig;
    const struct direct_file *file;
    const struct tensor *tensor;
    unsigned char *want, *got;
    int32_t expert[3][64], tokens[3][64];                /* of all, of the device, of the host */
    struct expert_union part[3];
};

static void is_expert(struct both *both, const void *data, int expert)
{
    const size_t bytes = both->tensor->stride;
    const uint64_t offset = both->tensor->offset + (uint64_t)expert * bytes;
    assert_int_equal(pread(both->file->fd, both->want, bytes, (off_t)offset), bytes);
    assert_memory_equal(data, both->want, bytes);
}

static void look_on_device(struct both *both)
{
    struct rig *rig = both->rig;
    struct expert_union *part = &both->part[1];
    uint64_t address[64];
    struct buffer table;
    const size_t bytes = both->tensor->stride;
    if (part->done == part->count)
        return;
    must(rig->experts->class->acquire(rig->experts, part, &table, &rig->err), &rig->err);
    assert_true(part->held > 0);
    queue_download(rig->device, address, table, (size_t)both->part[0].count * sizeof *address);
    must(queue_wait(rig->device, &rig->err), &rig->err);
    for (int i = part->done; i < part->done + part->held; i++) {
        queue_download(rig->device, both->got, (struct buffer){address[part->expert[i]], bytes}, bytes);
        must(queue_wait(rig->device, &rig->err), &rig->err);
        is_expert(both, both->got, part->expert[i]);
    }
    rig->experts->class->release(rig->experts, part);
}

/* The device's experts can be acquired while the host computes with its own, if they are in different slots. */
static void look_on_host(struct both *both, bool apart)
{
    struct rig *rig = both->rig;
    struct expert_union *part = &both->part[2];
    const void *address[64];
    if (part->done == part->count)
        return;
    const int first = part->done;
    must(expert_source_acquire_host(rig->experts, part, address, &rig->err), &rig->err);
    assert_true(part->held > 0);
    while (apart && both->part[1].done < both->part[1].count)
        look_on_device(both);
    for (int i = first; i < first + part->held; i++)
        is_expert(both, address[i], part->expert[i]);
    expert_source_release_host(rig->experts, part);
}

static void wants(struct both *both, int part, int expert)
{
    both->expert[part][both->part[part].count] = expert;
    both->tokens[part][both->part[part].count++] = 1;
}

/* Each layer completely: every first, second or third expert on the host, the others on the device. */
static void look_in_both_places(struct rig *rig, const struct direct_file *file, const struct hparams *shape)
{
    const bool fixed = rig->experts->class->fixed;
    for (int number = 0; number < 3 * shape->layers; number++) {
        const int layer = number / 3, step = 1 + number % 3;
        struct both both = {.rig = rig, .file = file};
        enum expert_tier tier[64];
        both.tensor = model_tensor(rig->model, &rig->err, "layers.%d.experts", layer);
        err_clear(&rig->err);
        if (!both.tensor)
            continue;
        both.want = malloc(both.tensor->stride);
        both.got = malloc(both.tensor->stride);
        for (int i = 0; i < 3; i++)
            both.part[i] = (struct expert_union){.layer = layer, .expert = both.expert[i], .tokens = both.tokens[i],
                                                 .part = i > 0};
        for (int e = 0; e < shape->router.experts; e++) {
            wants(&both, 0, e);
            wants(&both, e % step ? 1 : 2, e);
        }
        expert_source_begin(rig->experts, 1, EXPERTS_VERIFY, false);
        must(expert_source_want(rig->experts, &both.part[0], tier, &rig->err), &rig->err);
        for (int e = 0; e < shape->router.experts; e++)
            assert_true(tier[e] == EXPERT_ON_DEVICE || !fixed);
        while (both.part[1].done < both.part[1].count || both.part[2].done < both.part[2].count) {
            look_on_host(&both, !device_info(rig->device)->host_memory);
            look_on_device(&both);
        }
        free(both.want);
        free(both.got);
    }
}

static void host_and_device_have_a_layer_of_the_file_between_them(void **state)
{
    struct hparams shape;
    const char *path = moe_file(5, FORMAT_BF16, &shape);
    const int all = hparams_moe_layers(&shape) * shape.router.experts, top_k = shape.router.top_k;
    const struct { const char *device; int slots, host_slots; } cases[] = {
        {"host", 0, 0}, {"ref", 0, 0}, {"host", top_k, 0}, {"ref", top_k, 0}, {"ref", top_k, top_k}, {"ref", all / 2, all},
        {"emu", top_k, top_k}, {"emu:1", all / 2, all}};
    struct direct_file file = {.path = path};
    (void)state;
    assert_true(shape.router.experts <= 64 && (file.fd = open(path, O_RDONLY)) >= 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct expert_cache cache = {.slots = cases[i].slots, .host_slots = cases[i].host_slots};
        struct rig rig;
        if (cases[i].device[0] == 'e' && !has_emulator())
            continue;
        open_rig(&rig, path, cases[i].device, 1, cache.slots ? &cache : NULL);
        assert_true(expert_source_has_host(rig.experts));
        look_in_both_places(&rig, &file, &shape);
        rig_close(&rig);
    }
    close(file.fd);
    unlink(path);
}

/* A forward stops while most experts of its layer are being read; the next one uses the same slots for others. */
static void what_a_failed_forward_waited_for_is_taken_for_nothing_else(void **state)
{
    struct hparams shape;
    const char *path = moe_file(5, FORMAT_F32, &shape);
    for (uint64_t seed = 6; hparams_moe_layers(&shape) < 2; seed++)
        path = moe_file(seed, FORMAT_F32, &shape);
    const int experts = shape.router.experts;
    struct direct_file file = {.path = path};
    (void)state;
    assert_true(experts <= 64 && (file.fd = open(path, O_RDONLY)) >= 0);
    for (int i = 0; i < 4; i++) {
        const struct expert_cache cache = {.slots = experts, .host_slots = i == 3 ? experts : 0, .threads = i == 1};
        struct rig rig;
        open_rig(&rig, path, i < 2 ? "host" : "ref", 1, &cache);
        for (int turn = 0; turn < 4 * shape.layers; turn++) {
            struct both both = {.rig = &rig, .file = &file};
            struct expert_union *part = &both.part[1];
            struct buffer table;
            if (shape.layer[turn % shape.layers].ffn != FFN_EXPERTS)
                continue;
            both.tensor = model_tensor(rig.model, &rig.err, "layers.%d.experts", turn % shape.layers);
            both.part[0].count = experts;
            both.want = malloc(both.tensor->stride);
            both.got = malloc(both.tensor->stride);
            *part = (struct expert_union){.layer = turn % shape.layers, .expert = both.expert[1], .tokens = both.tokens[1]};
            for (int e = 0; e < experts; e++)
                wants(&both, 1, e);
            expert_source_begin(rig.experts, 1, EXPERTS_VERIFY, false);
            if (turn % 3 == 0)                          /* gives up */
                must(rig.experts->class->acquire(rig.experts, part, &table, &rig.err), &rig.err);
            while (turn % 3 && part->done < part->count)
                look_on_device(&both);
            free(both.want);
            free(both.got);
        }
        rig_close(&rig);
    }
    close(file.fd);
    unlink(path);
}

/* With room for all experts in the host's memory each expert is read once, and one that the device evicted is copied again. */
static void what_the_host_keeps_is_not_read_again(void **state)
{
    struct hparams shape;
    const char *path = moe_file(3, FORMAT_F32, &shape);
    const int all = hparams_moe_layers(&shape) * shape.router.experts;
    float *got = calloc(logits_of(&shape), sizeof *got);
    (void)state;
    for (int host_slots = shape.router.top_k; host_slots <= all; host_slots += all - shape.router.top_k) {
        const struct expert_cache cache = {.slots = shape.router.top_k, .host_slots = host_slots};
        struct store_facts first, second;
        struct rig rig;
        open_rig(&rig, path, "ref", 1, &cache);
        const int64_t each = bytes_of_expert(&rig, &shape);
        decode(&rig, 2, got);
        assert_true(expert_source_facts(rig.experts, &first));
        decode(&rig, 2, got);
        assert_true(expert_source_facts(rig.experts, &second));
        const int64_t again = second.misses - first.misses, read = second.bytes - first.bytes;
        assert_true(first.copies && first.copied == first.misses * each && first.prefetched == 0 && first.copied_early == 0);
        if (host_slots == all) {
            assert_true(first.bytes == (first.misses - first.host_hits) * each && first.bytes <= all * each);
            assert_true(second.bytes <= all * each && second.host_hits - first.host_hits == again - read / each);
        } else {
            assert_true(second.bytes > first.bytes && second.bytes > all * each);
        }
        assert_true(again > 0 && second.copied - first.copied == again * each);
        rig_close(&rig);
    }
    free(got);
    unlink(path);
}

/* Forecasts are read into the host's memory for all layers at once, and copied to the device for the next two layers. */
static void what_is_forecast_comes_to_the_device_when_it_is_near(void **state)
{
    struct hparams shape;
    const char *path = moe_file(3, FORMAT_F32, &shape);
    for (uint64_t seed = 4; hparams_moe_layers(&shape) < 3; seed++)
        path = moe_file(seed, FORMAT_F32, &shape);
    const int experts = shape.router.experts, layers = hparams_moe_layers(&shape), all = layers * experts;
    const struct expert_cache cache = {.slots = all, .host_slots = all};
    struct rig rig;
    struct store_facts facts;
    int32_t expert[64];
    float *got = calloc(logits_of(&shape), sizeof *got);
    (void)state;
    assert_true(experts <= 64);
    for (int e = 0; e < experts; e++)
        expert[e] = e;
    open_rig(&rig, path, "ref", 1, &cache);
    const int64_t each = bytes_of_expert(&rig, &shape);
    expert_source_begin(rig.experts, 1, EXPERTS_VERIFY, true);
    for (int layer = 0; layer < shape.layers; layer++)
        if (shape.layer[layer].ffn == FFN_EXPERTS)
            must(expert_source_prefetch(rig.experts, layer, expert, NULL, experts, &rig.err), &rig.err);
    for (int after = 0; after < 10; after += facts.bytes >= all * each && facts.copied >= 2 * experts * each) {
        must(expert_source_prefetch(rig.experts, 0, expert, NULL, 0, &rig.err), &rig.err);
        assert_true(expert_source_facts(rig.experts, &facts));
    }
    assert_true(facts.prefetched == all * each && facts.bytes == all * each && facts.misses == 0);
    assert_true(facts.copied_early == 2 * experts * each && facts.copied == facts.copied_early);
    decode(&rig, 2, got);
    assert_true(expert_source_facts(rig.experts, &facts));
    assert_true(facts.wasted == 0 && facts.copied_wasted == 0 && facts.hits > 0);
    rig_close(&rig);
    free(got);
    unlink(path);
}

static void put(const char *root, const char *path, const char *text)
{
    char name[2400];
    snprintf(name, sizeof name, "mkdir -p \"$(dirname '%s%s')\"", root, path);
    assert_int_equal(system(name), 0);
    snprintf(name, sizeof name, "%s%s", root, path);
    unit_write(name, text, strlen(text));
}

/* The minimum of the machine's free memory and that of the process's control group and its ancestors. */
static void memory_that_is_left_is_that_of_the_narrowest_group(void **state)
{
    char *root = unit_folder();
    (void)state;
    assert_true(memory_left(root) == -1);
    put(root, "/proc/meminfo", "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:    8000 kB\n");
    assert_true(memory_left(root) == 8000 * 1024);
    put(root, "/proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/a/b\n0::/user/one\n");
    assert_true(memory_left(root) == 8000 * 1024);
    put(root, "/sys/fs/cgroup/user/one/memory.max", "max\n");
    put(root, "/sys/fs/cgroup/user/one/memory.current", "70\n");
    assert_true(memory_left(root) == 8000 * 1024);
    put(root, "/sys/fs/cgroup/user/memory.max", "5000000\n");
    put(root, "/sys/fs/cgroup/user/memory.current", "1000000\n");
    assert_true(memory_left(root) == 4000000);
    put(root, "/sys/fs/cgroup/user/memory.stat", "anon 7\nactive_file 300000\ninactive_file 600000\ninactive_anon 50\n");
    assert_true(memory_left(root) == 4900000);
    put(root, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "300\n");
    put(root, "/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "100\n");
    assert_true(memory_left(root) == 200);
    put(root, "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "100\n");
    put(root, "/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "170\n");
    assert_true(memory_left(root) == 0);
    put(root, "/sys/fs/cgroup/memory/a/b/memory.stat", "cache 90\nactive_file 8\ninactive_file 32\ntotal_inactive_file 80\n"
        "total_active_file 10\n");
    assert_true(memory_left(root) == 20);
    put(root, "/sys/fs/cgroup/memory/a/b/memory.stat", "inactive_file 500");         /* more than is in use, no newline */
    assert_true(memory_left(root) == 100);
    unit_remove(root);
}

/* The host's buffers count as memory in use, although the system provides their pages at the first access: slots for experts
 * are as many as fit beside them. */
static void buffers_count_before_their_first_use(void **state)
{
#if defined(__SANITIZE_ADDRESS__)
    const bool mapped = false;
#else
    const bool mapped = true;
#endif
    struct device *device = NULL;
    struct buffer buffer = {0, 0};
    struct err err = {0};
    (void)state;
    must(device_open(&device, &(struct device_setup){.name = "host", .threads = 1}, &err), &err);
    const int64_t before = device_memory_left(device);
    if (before > 0 && mapped) {
        must(device_alloc(device, (size_t)before / 4, &buffer, &err), &err);
        assert_true(device_memory_left(device) < before - before / 8);
        device_free(device, &buffer);
        assert_true(device_memory_left(device) > before - before / 8);
    }
    device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_end_in_any_order_and_tell_faults),
        cmocka_unit_test(files_that_cannot_be_read_are_refused),
        cmocka_unit_test(any_number_of_slots_gives_the_same_bits),
        cmocka_unit_test(no_order_of_copies_shows_in_the_bits),
        cmocka_unit_test(nothing_of_the_file_stays_cached),
        cmocka_unit_test(a_file_that_shrinks_is_an_error),
        cmocka_unit_test(what_is_forecast_is_read_before_it_is_wanted),
        cmocka_unit_test(a_cache_begins_with_its_pins),
        cmocka_unit_test(host_and_device_have_a_layer_of_the_file_between_them),
        cmocka_unit_test(what_a_failed_forward_waited_for_is_taken_for_nothing_else),
        cmocka_unit_test(what_the_host_keeps_is_not_read_again),
        cmocka_unit_test(what_is_forecast_comes_to_the_device_when_it_is_near),
        cmocka_unit_test(memory_that_is_left_is_that_of_the_narrowest_group),
        cmocka_unit_test(buffers_count_before_their_first_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
