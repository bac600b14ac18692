/* Checkpoints in archives: an archive gives the same model as the folder, in any format, member order or transport;
 * truncated and malformed archives are rejected. */
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <lzma.h>
#include <pthread.h>
#include <signal.h>

#include "common/base/file.h"
#include "common/checkpoint/convert.h"
#include "tests/unit/checkpoint.h"

static char *folder;
static struct text config, weights, plain;      /* members, and the digest of the model from the folder */

/* Converts the checkpoint at a path to x.moe in the test's folder. */
static int convert(const char *source, struct text *model, struct err *err)
{
    static const struct convert_options keep = {.dense = {.keep = true}, .experts = {.keep = true}, .name = "tiny",
                                                .producer = "test"};
    struct checkpoint *cp = NULL;
    struct conversion plan = {0};
    struct thread_pool *pool = NULL;
    char *output = strdup(unit_path(folder, "x.moe"));
    err_clear(err);
    int rc = thread_pool_new(&pool, 1, err) || checkpoint_open(&cp, source, output, err) || conversion_plan(&plan, cp, &keep,
                                                                                                            err) ||
             conversion_write(&plan, output, pool, NULL, err) ||
             (model && file_read(model, output, SIZE_MAX / 2, err)) ? -1 : 0;
    unlink(output);
    free(output);
    thread_pool_free(&pool);
    conversion_free(&plan);
    checkpoint_close(&cp);
    return rc;
}

static int setup(void **state)
{
    struct err err = {0};
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    folder = unit_folder();
    char *source = tiny_folder(folder, "tiny", "BF16");
    int rc = file_read(&config, unit_path(source, "config.json"), SIZE_MAX / 2, &err) ||
             file_read(&weights, unit_path(source, "model.safetensors"), SIZE_MAX / 2, &err) || convert(source, &plain, &err);
    free(source);
    return rc;
}

static int teardown(void **state)
{
    (void)state;
    text_free(&config);
    text_free(&weights);
    text_free(&plain);
    unit_remove(folder);
    return 0;
}

struct member {
    const char *path;
    const void *data;
    size_t bytes;
    const char *link;           /* a symbolic link to the member */
};

static struct text pack(int format, int filter, const char *options, const struct member *members, size_t count)
{
    struct text out = {0};
    size_t room = 4 << 20, used = 0;
    void *buffer = malloc(room);
    struct archive *a = archive_write_new();
    archive_write_set_format(a, format);
    archive_write_add_filter(a, filter);
    if (options)
        assert_int_equal(archive_write_set_options(a, options), ARCHIVE_OK);
    assert_int_equal(archive_write_open_memory(a, buffer, room, &used), ARCHIVE_OK);
    for (size_t i = 0; i < count; i++) {
        struct archive_entry *entry = archive_entry_new();
        archive_entry_set_pathname(entry, members[i].path);
        archive_entry_set_perm(entry, 0644);
        archive_entry_set_filetype(entry, members[i].link ? AE_IFLNK : AE_IFREG);
        if (members[i].link)
            archive_entry_set_symlink(entry, members[i].link);
        else
            archive_entry_set_size(entry, (la_int64_t)members[i].bytes);
        assert_int_equal(archive_write_header(a, entry), ARCHIVE_OK);
        if (!members[i].link)
            assert_int_equal(archive_write_data(a, members[i].data, members[i].bytes), members[i].bytes);
        archive_entry_free(entry);
    }
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    text_put(&out, buffer, used, NULL);
    free(buffer);
    return out;
}

static int from_file(const struct text *archive, struct text *model, struct err *err)
{
    char *path = strdup(unit_path(folder, "a.archive"));
    unit_write(path, archive->data, archive->length);
    int rc = convert(path, model, err);
    unlink(path);
    free(path);
    return rc;
}

struct feed { int fd; const struct text *bytes; };

static void *feed(void *argument)
{
    struct feed *f = argument;
    for (size_t at = 0; at < f->bytes->length;) {
        size_t step = f->bytes->length - at < 1000 ? f->bytes->length - at : 1000;
        if (write(f->fd, f->bytes->data + at, step) != (ssize_t)step)
            break;
        at += step;
    }
    close(f->fd);
    return NULL;
}

static int from_pipe(const struct text *archive, struct text *model, struct err *err)
{
    int ends[2];
    char path[32];
    pthread_t thread;
    assert_int_equal(pipe(ends), 0);
    struct feed f = {ends[1], archive};
    assert_int_equal(pthread_create(&thread, NULL, feed, &f), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    int rc = convert(path, model, err);
    close(ends[0]);
    pthread_join(thread, NULL);
    return rc;
}

static const struct { int format, filter; const char *options; } FORMS[] = {
    {ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_NONE, NULL},
    {ARCHIVE_FORMAT_TAR_PAX_RESTRICTED, ARCHIVE_FILTER_GZIP, NULL},
    {ARCHIVE_FORMAT_TAR_GNUTAR, ARCHIVE_FILTER_ZSTD, NULL},
    {ARCHIVE_FORMAT_TAR_PAX_INTERCHANGE, ARCHIVE_FILTER_XZ, NULL},
    {ARCHIVE_FORMAT_ZIP, ARCHIVE_FILTER_NONE, "compression=store"},
    {ARCHIVE_FORMAT_ZIP, ARCHIVE_FILTER_NONE, "compression=deflate"},
};
enum { FORM_COUNT = sizeof FORMS / sizeof *FORMS };

static void every_form_gives_the_same_bytes(void **state)
{
    (void)state;
    const struct member orders[3][3] = {
        {{"tiny/config.json", config.data, config.length, NULL}, {"tiny/README", "x", 1, NULL},
         {"tiny/model.safetensors", weights.data, weights.length, NULL}},
        {{"model.safetensors", weights.data, weights.length, NULL}, {"original/params.json", "{}", 2, NULL},
         {"./config.json", config.data, config.length, NULL}},
        {{"../../up/model.safetensors", weights.data, weights.length, NULL}, {"../../up/deep/config.json", "{}", 2, NULL},
         {"../../up/config.json", config.data, config.length, NULL}},
    };
    for (int form = 0; form < FORM_COUNT; form++)
        for (int order = 0; order < 3; order++) {
            struct err err = {0};
            struct text archive = pack(FORMS[form].format, FORMS[form].filter, FORMS[form].options, orders[order], 3);
            struct text a = {0}, b = {0};
            if (from_file(&archive, &a, &err) || from_pipe(&archive, &b, &err))
                fail_msg("form %d, order %d: %s", form, order, err.text);
            assert_int_equal(a.length, plain.length);
            assert_memory_equal(a.data, plain.data, plain.length);
            assert_int_equal(b.length, plain.length);
            assert_memory_equal(b.data, plain.data, plain.length);
            text_free(&a);
            text_free(&b);
            text_free(&archive);
        }
    assert_int_equal(access(unit_path(folder, "model.safetensors"), F_OK), -1);
}

static void shards_are_found_in_any_order(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\":{\"model.norm.weight\":\"2.safetensors\","
                                "\"model.layers.0.mlp.gate.weight\":\"1.safetensors\"}}";
    struct err err = {0};
    struct weights w = {0};
    struct text one = {0}, two = {0}, a = {0}, b = {0};
    tiny_attention(&w, 0, "BF16");
    tiny_experts(&w, 1, "BF16");
    weights_write(&w, unit_path(folder, "1.safetensors"));
    tiny_attention(&w, 1, "BF16");
    tiny_experts(&w, 0, "BF16");
    tiny_outside(&w, "BF16");
    weights_write(&w, unit_path(folder, "2.safetensors"));
    assert_int_equal(file_read(&one, unit_path(folder, "1.safetensors"), SIZE_MAX / 2, &err), 0);
    assert_int_equal(file_read(&two, unit_path(folder, "2.safetensors"), SIZE_MAX / 2, &err), 0);
    const struct member first = {"1.safetensors", one.data, one.length, NULL};
    const struct member second = {"2.safetensors", two.data, two.length, NULL};
    const struct member map = {"model.safetensors.index.json", index, strlen(index), NULL};
    const struct member shape = {"config.json", config.data, config.length, NULL};
    const struct member forward[] = {shape, map, first, second}, backward[] = {second, first, map, shape};
    struct text x = pack(ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_NONE, NULL, forward, 4);
    struct text y = pack(ARCHIVE_FORMAT_ZIP, ARCHIVE_FILTER_NONE, NULL, backward, 4);
    if (from_pipe(&x, &a, &err) || from_pipe(&y, &b, &err))
        fail_msg("%s", err.text);
    assert_int_equal(a.length, b.length);
    assert_memory_equal(a.data, b.data, a.length);
    /* The weights are those of the whole folder; only the index names other files. */
    assert_memory_equal(a.data + 4096, plain.data + 4096, plain.length - 4096 - 8192);
    text_free(&one);
    text_free(&two);
    text_free(&a);
    text_free(&b);
    text_free(&x);
    text_free(&y);
}

/* The bytes after a compressor's last block, and the padding of a tar, may be missing: the model is complete without them. */
static void a_cut_archive_is_refused_or_whole(void **state)
{
    (void)state;
    const struct member members[] = {{"t/config.json", config.data, config.length, NULL},
                                     {"t/model.safetensors", weights.data, weights.length, NULL},
                                     {"t/generation_config.json", "{\"eos_token_id\":3}", 18, NULL}};
    for (int form = 0; form < FORM_COUNT; form++) {
        struct err err = {0};
        struct text archive = pack(FORMS[form].format, FORMS[form].filter, FORMS[form].options, members, 3), whole = {0};
        assert_int_equal(from_file(&archive, &whole, &err), 0);
        size_t all = archive.length;
        for (size_t bytes = 0; bytes < all; bytes += bytes + 1200 > all ? 23 : all / 23) {
            struct text model = {0};
            archive.length = bytes;
            if (from_file(&archive, &model, &err) == 0)
                assert_memory_equal(model.data, whole.data, whole.length);
            text_clear(&model);
            if (from_pipe(&archive, &model, &err) == 0)
                assert_memory_equal(model.data, whole.data, whole.length);
            text_free(&model);
        }
        text_free(&whole);
        text_free(&archive);
    }
}

/* A tar cut between members lacks a text that is optional; a zip lacks its directory. */
static void a_lost_end_is_noticed(void **state)
{
    (void)state;
    const struct member members[] = {{"config.json", config.data, config.length, NULL},
                                     {"model.safetensors", weights.data, weights.length, NULL},
                                     {"generation_config.json", "{\"eos_token_id\":3}", 18, NULL}};
    struct err err = {0};
    struct text tar = pack(ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_NONE, NULL, members, 3);
    tar.length = 512 * 2 + (weights.length + 511) / 512 * 512 + 512;
    assert_int_equal(from_pipe(&tar, NULL, &err), -1);
    assert_non_null(strstr(err.text, "the end of the archive is missing"));
    assert_int_equal(from_file(&tar, NULL, &err), -1);
    assert_non_null(strstr(err.text, "the end of the archive is missing"));
    text_free(&tar);
    struct text zip = pack(ARCHIVE_FORMAT_ZIP, ARCHIVE_FILTER_NONE, "compression=store", members, 3);
    zip.length -= 4;
    assert_int_equal(from_pipe(&zip, NULL, &err), -1);
    assert_non_null(strstr(err.text, "the end of the archive is missing"));
    assert_int_equal(from_file(&zip, NULL, &err), -1);
    text_free(&zip);
}

static void bad_sums_are_noticed(void **state)
{
    (void)state;
    const struct member members[] = {{"config.json", config.data, config.length, NULL},
                                     {"model.safetensors", weights.data, weights.length, NULL}};
    struct err err = {0};
    struct text zip = pack(ARCHIVE_FORMAT_ZIP, ARCHIVE_FILTER_NONE, "compression=store", members, 2);
    zip.data[config.length + weights.length / 2] ^= 1;
    assert_int_equal(from_file(&zip, NULL, &err), -1);
    assert_non_null(strstr(err.text, "damaged"));
    assert_int_equal(from_pipe(&zip, NULL, &err), -1);
    text_free(&zip);
}

#define CONFIG {"config.json", config.data, config.length, NULL}
#define WEIGHTS(path) {path, weights.data, weights.length, NULL}

static void refuse(const struct member *members, size_t count, const char *says)
{
    struct err err = {0};
    struct text tar = pack(ARCHIVE_FORMAT_TAR_PAX_RESTRICTED, ARCHIVE_FILTER_NONE, NULL, members, count);
    if (from_pipe(&tar, NULL, &err) != -1 || !strstr(err.text, says))
        fail_msg("'%s' does not say '%s'", err.text, says);
    text_free(&tar);
}

static void odd_archives_are_refused(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\":{\"x\":\"b.safetensors\"}}";
    const struct member none[] = {CONFIG}, no_config[] = {WEIGHTS("model.safetensors")};
    const struct member twice[] = {CONFIG, WEIGHTS("model.safetensors"), WEIGHTS("./model.safetensors")};
    const struct member two[] = {{"a/config.json", "{}", 2, NULL}, {"b/config.json", "{}", 2, NULL}};
    const struct member nearer[] = {{"x/a/config.json", "{}", 2, NULL}, {"x/b/config.json", "{}", 2, NULL},
                                    {"c/config.json", "{}", 2, NULL}};
    const struct member link[] = {CONFIG, {"model.safetensors", NULL, 0, "../blobs/1"}};
    const struct member many[] = {CONFIG, WEIGHTS("x.safetensors"), WEIGHTS("y.safetensors")};
    const struct member elsewhere[] = {CONFIG, WEIGHTS("original/model.safetensors")};
    const struct member missing[] = {CONFIG, WEIGHTS("a.safetensors"), {"model.safetensors.index.json",
                                     index, strlen(index), NULL}};
    const struct member cut[] = {CONFIG, {"model.safetensors", weights.data, weights.length - 1, NULL}};
    refuse(none, 1, "has no .safetensors, pytorch_model.bin or .gguf file");
    refuse(no_config, 1, "has no config.json");
    refuse(twice, 3, "model.safetensors: is in the archive twice");
    refuse(two, 2, "contains two checkpoints, in a and in b");
    refuse(nearer, 3, "has no .safetensors, pytorch_model.bin or .gguf file");
    refuse(link, 2, "model.safetensors: is a link, not a file");
    refuse(many, 3, "has several .safetensors files");
    refuse(elsewhere, 2, "has no .safetensors, pytorch_model.bin or .gguf file");
    refuse(missing, 3, "b.safetensors is missing, although");
    refuse(cut, 2, "model.safetensors: its header declares");
    struct err err = {0};
    struct text junk = {0};
    text_puts(&junk, "this is no archive at all, only some words that go on for a while", NULL);
    assert_int_equal(from_pipe(&junk, NULL, &err), -1);
    assert_int_equal(err.code, ERR_INPUT);
    text_clear(&junk);
    assert_int_equal(from_pipe(&junk, NULL, &err), -1);
    text_free(&junk);
}

/* Changes the dictionary size of an .xz with one block to (2 or 3) << (code / 2 + 11). */
static int convert_with_dictionary(unsigned char code, struct text *model, struct err *err)
{
    enum { HEADER = 12, BYTES = 12 };
    const struct member members[] = {{"config.json", config.data, config.length, NULL},
                                     {"model.safetensors", weights.data, weights.length, NULL}};
    struct text xz = pack(ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_XZ, NULL, members, 2);
    unsigned char *block = (unsigned char *)xz.data + HEADER;
    assert_memory_equal(block, "\2\0\x21\1", 4);                /* header size, one filter, LZMA2 */
    block[4] = code;
    const uint32_t sum = lzma_crc32(block, BYTES - 4, 0);
    for (int i = 0; i < 4; i++)
        block[BYTES - 4 + i] = (unsigned char)(sum >> 8 * i);
    unit_write(unit_path(folder, "a.tar.xz"), xz.data, xz.length);
    text_free(&xz);
    return convert(unit_path(folder, "a.tar.xz"), model, err);
}

static void a_large_dictionary_is_refused(void **state)
{
    (void)state;
    struct err err = {0};
    struct text model = {0};
    assert_int_equal(convert_with_dictionary(28, &model, &err), 0);        /* 64 MiB */
    assert_int_equal(model.length, plain.length);
    assert_memory_equal(model.data, plain.data, plain.length);
    text_free(&model);
    for (unsigned char code = 29; code <= 40; code++) {
        assert_int_equal(convert_with_dictionary(code, NULL, &err), -1);
        assert_non_null(strstr(err.text, "MiB of memory, more than the limit of 64 MiB; compress it with xz -9 or less"));
        assert_true(code > 29 || strstr(err.text, "a.tar.xz: unpacking its .xz needs 96 MiB"));
    }
}

static void one_file_of_any_name_will_do(void **state)
{
    (void)state;
    struct err err = {0};
    struct text model = {0};
    const struct member members[] = {CONFIG, WEIGHTS("weights.safetensors"), {"._weights.safetensors", "x", 1, NULL}};
    struct text tar = pack(ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_GZIP, NULL, members, 3);
    if (from_pipe(&tar, &model, &err))
        fail_msg("%s", err.text);
    text_free(&tar);
    text_free(&model);
}

/* Names and shapes can be checked without a destination for the data. */
static void headers_alone_make_a_plan(void **state)
{
    (void)state;
    struct err err = {0};
    struct checkpoint *cp = NULL;
    struct conversion plan = {0};
    struct convert_options keep = {.dense = {.keep = true}, .experts = {.keep = true}, .producer = "test"};
    const struct member members[] = {WEIGHTS("some/where/model.safetensors"),
                                     {"some/where/config.json", config.data, config.length, NULL}};
    struct text tar = pack(ARCHIVE_FORMAT_TAR_USTAR, ARCHIVE_FILTER_NONE, NULL, members, 2);
    char *path = strdup(unit_path(folder, "h.tar"));
    unit_write(path, tar.data, tar.length);
    assert_int_equal(checkpoint_open(&cp, path, NULL, &err), 0);
    assert_true(cp->headers_only);
    assert_int_equal(conversion_plan(&plan, cp, &keep, &err), 0);
    assert_string_equal(plan.facts.name, "where");
    conversion_free(&plan);
    checkpoint_close(&cp);
    text_free(&tar);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_gives_the_same_bytes),
        cmocka_unit_test(shards_are_found_in_any_order),
        cmocka_unit_test(a_cut_archive_is_refused_or_whole),
        cmocka_unit_test(a_lost_end_is_noticed),
        cmocka_unit_test(bad_sums_are_noticed),
        cmocka_unit_test(odd_archives_are_refused),
        cmocka_unit_test(a_large_dictionary_is_refused),
        cmocka_unit_test(one_file_of_any_name_will_do),
        cmocka_unit_test(headers_alone_make_a_plan),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
