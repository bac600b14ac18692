/* Errors, memory, text, digests, the progress bar. */
#include "tests/unit/unit.h"

#include <errno.h>

#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/numeral.h"
#include "common/base/progress.h"
#include "common/base/text.h"

static void first_error_stays(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(err_set(&err, ERR_INPUT, "key %s is missing", "layers"), -1);
    assert_int_equal(err_set(&err, ERR_IO, "later"), -1);
    assert_int_equal(err_at(&err, "%s: layer %d", "a.moe", 3), -1);
    assert_int_equal(err.code, ERR_INPUT);
    assert_string_equal(err.text, "a.moe: layer 3: key layers is missing");
    err_clear(&err);
    assert_int_equal(err.code, ERR_NONE);
    assert_int_equal(err_set(NULL, ERR_IO, "dropped"), -1);
    assert_int_equal(err_at(NULL, "dropped"), -1);
}

static void errors_are_one_printable_line(void **state)
{
    (void)state;
    struct err err = {0};
    err_set(&err, ERR_INPUT, "name '%s'", "a\nb\x1b[31m\x7f\xc2\x9b" "1m\xc2\xa0");       /* U+009B begins sequences, too */
    assert_string_equal(err.text, "name 'a?b?[31m???1m\xc2\xa0'");
    err_at(&err, "\t");
    assert_string_equal(err.text, "?: name 'a?b?[31m???1m\xc2\xa0'");
}

static void long_errors_are_cut(void **state)
{
    (void)state;
    struct err err = {0};
    char name[5000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    err_set(&err, ERR_INPUT, "%s", name);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    err_at(&err, "%s", name);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
}

static void errno_tells_the_kind(void **state)
{
    (void)state;
    struct err err = {0};
    errno = EPIPE;
    err_errno(&err, "standard output");
    assert_int_equal(err.code, ERR_PIPE);
    err_clear(&err);
    errno = ENOMEM;
    err_errno(&err, "map");
    assert_int_equal(err.code, ERR_MEMORY);
    err_clear(&err);
    errno = ENOENT;
    err_errno(&err, "a.moe");
    assert_int_equal(err.code, ERR_IO);
    assert_string_equal(err.text, "a.moe: No such file or directory");
}

static void sizes_do_not_wrap(void **state)
{
    (void)state;
    size_t out = 7;
    assert_false(size_add(SIZE_MAX, 1, &out));
    assert_false(size_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_int_equal(out, 7);
    assert_true(size_mul(3, 5, &out));
    assert_int_equal(out, 15);
    assert_int_equal(size_align(65, 64), 128);
    assert_int_equal(size_align(128, 64), 128);
}

static void memory_is_zero_aligned_and_bounded(void **state)
{
    (void)state;
    struct err err = {0};
    unsigned char *data = mem_alloc_aligned(100, 1, &err);
    assert_non_null(data);
    assert_int_equal((uintptr_t)data % 64, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(data[i], 0);
    mem_free(&data);
    assert_null(data);
    mem_free(&data);
    assert_null(mem_alloc_aligned(SIZE_MAX / 8 + 9, 8, &err));          /* wraps to 64 */
    assert_int_equal(err.code, ERR_MEMORY);
}

static void growing_keeps_and_zeroes(void **state)
{
    (void)state;
    struct err err = {0};
    int *array = NULL;
    size_t room = 0;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(mem_grow(&array, &room, (size_t)i + 1, sizeof *array, &err), 0);
        assert_int_equal(array[i], 0);
        array[i] = i + 1;
    }
    for (int i = 0; i < 1000; i++)
        assert_int_equal(array[i], i + 1);
    int *before = array;
    size_t room_before = room;
    assert_int_equal(mem_grow(&array, &room, SIZE_MAX / 2, sizeof *array, &err), -1);
    assert_int_equal(err.code, ERR_MEMORY);
    assert_ptr_equal(array, before);
    assert_int_equal(room, room_before);
    mem_free(&array);
}

static void text_holds_bytes(void **state)
{
    (void)state;
    struct err err = {0};
    struct text text = {0};
    assert_int_equal(text_put(&text, "a\0b", 3, &err), 0);
    assert_int_equal(text_putc(&text, 'c', &err), 0);
    assert_int_equal(text_printf(&text, &err, "%d-%s", 42, "x"), 0);
    assert_int_equal(text_puts(&text, "!", &err), 0);
    assert_int_equal(text.length, 9);
    assert_memory_equal(text.data, "a\0bc42-x!", 10);
    text_clear(&text);
    assert_int_equal(text.length, 0);
    assert_string_equal(text.data, "");
    assert_int_equal(text_puts(&text, "xyz", &err), 0);
    assert_string_equal(text.data, "xyz");
    text_free(&text);
    assert_null(text.data);
}

/* Digests of the empty string and of "abc" as published by the algorithms' authors. */
static void digests_are_the_published_ones(void **state)
{
    (void)state;
    struct err err = {0};
    struct sha256 digest;
    char hex[65];
    assert_int_equal(hash_sha256("abc", 3, &digest, &err), 0);
    sha256_hex(&digest, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    char short_hex[33];
    digest128_hex(hash_xxh3("", 0), short_hex);
    assert_string_equal(short_hex, "99aa06d3014798d86001c324468d497f");
}

static void running_digests_equal_whole_ones(void **state)
{
    (void)state;
    struct err err = {0};
    struct sha256_stream *sha = NULL;
    struct xxh3_stream *xxh = NULL;
    struct sha256 whole, parts;
    char data[1000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 7);
    assert_int_equal(sha256_stream_new(&sha, &err), 0);
    assert_int_equal(xxh3_stream_new(&xxh, &err), 0);
    for (size_t at = 0, step = 1; at < sizeof data; at += step, step = step * 2 + 1) {
        size_t bytes = step < sizeof data - at ? step : sizeof data - at;
        assert_int_equal(sha256_stream_put(sha, data + at, bytes, &err), 0);
        xxh3_stream_put(xxh, data + at, bytes);
    }
    assert_int_equal(sha256_stream_end(&sha, &parts, &err), 0);
    assert_null(sha);
    assert_int_equal(hash_sha256(data, sizeof data, &whole, &err), 0);
    assert_memory_equal(&whole, &parts, sizeof whole);
    struct digest128 one = hash_xxh3(data, sizeof data), other = xxh3_stream_digest(xxh);
    assert_memory_equal(&one, &other, sizeof one);
    xxh3_stream_free(&xxh);
    sha256_stream_free(&sha);
}

static void bar_tells_share_rate_and_time_left(void **state)
{
    (void)state;
    char line[160];
    struct progress bar = {.unit = "tokens", .done = 250, .total = 1000};
    progress_line(&bar, 10, line, sizeof line);
    assert_string_equal(line, "[#####...............]  25% 250 of 1.00k tokens, 25/s, 0:30 left");
    bar.done = 1234567;
    bar.total = 0;
    progress_line(&bar, 3661, line, sizeof line);
    assert_string_equal(line, "1.23M tokens, 337/s, 1:01:01 so far");
    bar = (struct progress){.unit = "bytes", .total = 10};
    progress_line(&bar, 2, line, sizeof line);
    assert_string_equal(line, "[....................]   0% 0 of 10 bytes, 0/s, ? left");
    bar.done = 30;
    progress_line(&bar, 2, line, sizeof line);
    assert_string_equal(line, "[####################] 100% 30 of 10 bytes, 15/s, 0:00 left");
}

static void bar_is_drawn_after_a_second_and_cleared(void **state)
{
    (void)state;
    char *shown = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&shown, &bytes);
    struct progress bar;
    progress_start(&bar, PROGRESS_ALWAYS, to, "tokens", 10);
    progress_step(&bar, 1);
    fflush(to);
    assert_int_equal(bytes, 0);
    bar.started -= 2;                   /* pretend that two seconds have passed */
    progress_step(&bar, 1);
    progress_step(&bar, 1);             /* within a tenth of a second: not drawn again */
    fflush(to);
    assert_non_null(strstr(shown, "20% 2 of 10 tokens"));
    assert_null(strstr(shown, "3 of 10"));
    progress_end(&bar);
    fclose(to);
    assert_string_equal(shown + bytes - 4, "\r\033[K");
    free(shown);
}

static void bar_stays_away_where_it_is_not_wanted(void **state)
{
    (void)state;
    char *shown = NULL;
    size_t bytes = 0;
    enum progress_mode modes[] = {PROGRESS_NEVER, PROGRESS_AUTO};       /* a memory stream is not a terminal */
    FILE *to = open_memstream(&shown, &bytes);
    for (int i = 0; i < 2; i++) {
        struct progress bar;
        progress_start(&bar, modes[i], to, "tokens", 10);
        bar.started -= 2;
        progress_step(&bar, 1);
        progress_end(&bar);
    }
    fclose(to);
    assert_int_equal(bytes, 0);
    free(shown);
}

static void reals_have_the_fewest_digits_that_read_back(void **state)
{
    (void)state;
    static const struct { double value; bool single; const char *text; } cases[] = {
        {0.1, false, "0.1"}, {0.1f, false, "0.10000000149011612"}, {0.1f, true, "0.1"}, {1.0 / 3, false, "0.3333333333333333"},
        {0.87459673888656431, false, "0.8745967388865643"}, {2, false, "2"}, {1e20, false, "1e+20"}, {-0.0, false, "-0"},
        {4003612.9391304348, false, "4003612.9391304348"}, {16777216, true, "16777216"}, {1e-45f, true, "1.4013e-45"},
        {5e-324, false, "4.94065645841247e-324"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[NUMERAL_ROOM];
        numeral_real(text, cases[i].value, cases[i].single);
        assert_string_equal(text, cases[i].text);
    }
}

static void sizes_and_counts_have_units(void **state)
{
    (void)state;
    static const struct { uint64_t bytes; const char *text; } sizes[] = {
        {0, "0 bytes"}, {1, "1 byte"}, {999, "999 bytes"}, {1000, "1.0 kB"}, {91054, "91.1 kB"}, {999949, "999.9 kB"},
        {999950, "1.0 MB"}, {17062960, "17.1 MB"}, {61100000000, "61.1 GB"}, {1300000000000000, "1300.0 TB"}};
    static const struct { double count; const char *text; } counts[] = {
        {976, "976"}, {8495040, "8.5 M"}, {6.92e9, "6.9 B"}, {999.96e6, "1.0 B"}, {1.04e12, "1.0 T"}};
    char text[NUMERAL_ROOM];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        numeral_size(text, sizes[i].bytes);
        assert_string_equal(text, sizes[i].text);
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        numeral_count(text, counts[i].count);
        assert_string_equal(text, counts[i].text);
    }
    assert_string_equal(numeral_plural(0), "s");
    assert_string_equal(numeral_plural(1), "");
}

/* Names that look like numbers stay unchanged, and so do integers. */
static void json_has_no_float_noise(void **state)
{
    (void)state;
    struct text line = {0};
    struct err err = {0};
    assert_int_equal(json_line(&line, json_pack("{s:f, s:[f, f, f], s:i, s:s, s:s}", "a", 0.1, "b", 24.0, -1.5e300, 1e-7, "c",
                                                12, "d", "0.10000000000000001 \"1.50\"", "e\\", "\\"), &err), 0);
    assert_string_equal(line.data, "{\"a\":0.1,\"b\":[24.0,-1.5e+300,1e-07],\"c\":12,"
                                   "\"d\":\"0.10000000000000001 \\\"1.50\\\"\",\"e\\\\\":\"\\\\\"}\n");
    text_free(&line);
    json_t *real = json_real(0.7);
    char *exact = json_text(real, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17), &err);
    char *text = json_text(real, JSON_ENCODE_ANY, &err);
    assert_string_equal(exact, "0.69999999999999996");
    assert_string_equal(text, "0.7");
    mem_free(&exact);
    mem_free(&text);
    json_decref(real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_error_stays),
        cmocka_unit_test(errors_are_one_printable_line),
        cmocka_unit_test(long_errors_are_cut),
        cmocka_unit_test(errno_tells_the_kind),
        cmocka_unit_test(sizes_do_not_wrap),
        cmocka_unit_test(memory_is_zero_aligned_and_bounded),
        cmocka_unit_test(growing_keeps_and_zeroes),
        cmocka_unit_test(text_holds_bytes),
        cmocka_unit_test(reals_have_the_fewest_digits_that_read_back),
        cmocka_unit_test(sizes_and_counts_have_units),
        cmocka_unit_test(json_has_no_float_noise),
        cmocka_unit_test(digests_are_the_published_ones),
        cmocka_unit_test(running_digests_equal_whole_ones),
        cmocka_unit_test(bar_tells_share_rate_and_time_left),
        cmocka_unit_test(bar_is_drawn_after_a_second_and_cleared),
        cmocka_unit_test(bar_stays_away_where_it_is_not_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
