/* pytorch_model.bin: files written by torch.save are read value by value, in both forms; files that are not a dictionary of
 * tensors, and damaged ones, give one line with the offset; no code of a pickle is run. */
#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/pickle.h"
#include "common/checkpoint/torch.h"
#include "common/checkpoint/zip_write.h"
#include "tests/unit/checkpoint.h"

static char *folder;

static int setup(void **state)
{
    (void)state;
    folder = unit_folder();
    write_string(unit_path(folder, "config.json"), "{\"model_type\":\"llama\"}");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unit_remove(folder);
    return 0;
}

static struct text golden(const char *name)
{
    char path[1200];
    struct text text = {0};
    struct err err = {0};
    snprintf(path, sizeof path, "%s/../golden/torch/%s", unit_models(), name);
    if (file_read(&text, path, 1 << 20, &err))
        fail_msg("%s", err.text);
    return text;
}

/* Opens a folder with these bytes as its weights; NULL: rejected. */
static struct checkpoint *open_bytes(const char *data, size_t bytes, struct err *err)
{
    struct checkpoint *cp = NULL;
    unit_write(unit_path(folder, "pytorch_model.bin"), data, bytes);
    return checkpoint_open(&cp, folder, NULL, err) ? NULL : cp;
}

static void check_tensor(const struct checkpoint *cp, const char *name, const char *dtype, const char *shape, int from)
{
    const struct source_tensor *t = checkpoint_find(cp, name);
    struct source_reading reading = {0};
    struct err err = {0};
    float values[64];
    char is[64] = "";
    int64_t count = 1;
    assert_non_null(t);
    for (int i = 0; i < t->dim_count; i++) {
        snprintf(is + strlen(is), sizeof is - strlen(is), "[%d]", (int)t->dims[i]);
        count *= t->dims[i];
    }
    assert_string_equal(is, shape);
    assert_string_equal(t->dtype_name, dtype);
    if (!t->coding)
        return;
    const int64_t columns = t->dim_count == 2 && t->dims[1] ? t->dims[1] : 1;
    for (int64_t first = 0; first < count; first += columns)
        for (int64_t rows = columns; first + rows <= count; rows += columns) {
            if (t->coding->read(cp, t, first, rows, &reading, values, &err))
                fail_msg("%s", err.text);
            for (int64_t i = 0; i < rows; i++)
                if (values[i] != (count == 1 ? 2.5f : (float)(from + first + i) / 8))
                    fail_msg("%s [%d] is %g", name, (int)(first + i), (double)values[i]);
        }
    source_reading_free(&reading);
}

static void what_torch_saves_is_read(void **state)
{
    (void)state;
    for (int old = 0; old < 2; old++) {
        struct text file = golden(old ? "old.bin" : "zip.bin");
        struct err err = {0};
        struct checkpoint *cp = open_bytes(file.data, file.length, &err);
        if (!cp)
            fail_msg("%s", err.text);
        assert_int_equal(cp->tensor_count, 13);
        check_tensor(cp, "whole", "F32", "[4][6]", 0);
        check_tensor(cp, "tied", "F32", "[4][6]", 0);
        check_tensor(cp, "rows", "F32", "[2][6]", 6);
        check_tensor(cp, "half", "F16", "[2][5]", 0);
        check_tensor(cp, "brain", "BF16", "[3]", 0);
        check_tensor(cp, "parameter", "F32", "[2][2]", 0);
        check_tensor(cp, "scalar", "F32", "", 0);
        check_tensor(cp, "empty", "F32", "[0][3]", 0);
        check_tensor(cp, "words", "I64", "[3]", 0);
        check_tensor(cp, "bytes", "U8", "[4]", 0);
        check_tensor(cp, "transposed", "F32", "[4][3]", 0);
        check_tensor(cp, "apart", "F32", "[4][3]", 0);
        check_tensor(cp, "transposed_half", "F16", "[5][3]", 0);
        checkpoint_close(&cp);
        text_free(&file);
    }
}

/* Found by name, by contents and through an index of parts, and ignored beside safetensors. */
static void files_are_found(void **state)
{
    struct text file = golden("zip.bin"), other = golden("old.bin");
    struct checkpoint *cp = NULL;
    struct err err = {0};
    struct weights w = {0};
    (void)state;
    unit_write(unit_path(folder, "some.pt"), file.data, file.length);
    assert_int_equal(checkpoint_open(&cp, unit_path(folder, "some.pt"), NULL, &err), 0);
    assert_int_equal(cp->tensor_count, 13);
    assert_string_equal(cp->texts[TEXT_CONFIG].data, "{\"model_type\":\"llama\"}");
    checkpoint_close(&cp);
    unlink(unit_path(folder, "pytorch_model.bin"));
    unit_write(unit_path(folder, "pytorch_model-1.bin"), other.data, other.length);
    write_string(unit_path(folder, "pytorch_model.bin.index.json"), "{\"weight_map\":{\"whole\":\"pytorch_model-1.bin\"}}");
    for (int named = 0; named < 2; named++) {
        const char *path = named ? unit_path(folder, "pytorch_model.bin.index.json") : folder;
        if (checkpoint_open(&cp, path, NULL, &err))
            fail_msg("%s", err.text);
        assert_int_equal(cp->tensor_count, 13);
        checkpoint_close(&cp);
    }
    write_string(unit_path(folder, "pytorch_model.bin.index.json"), "{\"weight_map\":{\"gone\":\"pytorch_model-1.bin\"}}");
    assert_int_equal(checkpoint_open(&cp, folder, NULL, &err), -1);
    assert_non_null(strstr(err.text, "pytorch_model.bin.index.json: tensor gone should be in pytorch_model-1.bin"));
    weights_add(&w, "only", "F32", 0, 2, 2);
    weights_write(&w, unit_path(folder, "model.safetensors"));
    err_clear(&err);
    assert_int_equal(checkpoint_open(&cp, folder, NULL, &err), 0);
    assert_int_equal(cp->tensor_count, 1);
    assert_int_equal(cp->file_count, 2);                       /* the index is not of the file that was read */
    checkpoint_close(&cp);
    unlink(unit_path(folder, "model.safetensors"));
    unlink(unit_path(folder, "pytorch_model.bin.index.json"));
    unlink(unit_path(folder, "pytorch_model-1.bin"));
    unit_write(unit_path(folder, "pytorch_model-00001-of-00001.bin"), other.data, other.length);
    assert_int_equal(checkpoint_open(&cp, folder, NULL, &err), 0);          /* without an index, by its name */
    assert_int_equal(cp->tensor_count, 13);
    checkpoint_close(&cp);
    unlink(unit_path(folder, "pytorch_model-00001-of-00001.bin"));
    unit_write(unit_path(folder, "pytorch_model-00002-of-00002.bin"), other.data, other.length);
    assert_int_equal(checkpoint_open(&cp, folder, NULL, &err), -1);
    assert_non_null(strstr(err.text, "pytorch_model-00001-of-00002.bin is missing, although"));
    unlink(unit_path(folder, "pytorch_model-00002-of-00002.bin"));
    text_free(&file);
    text_free(&other);
}

static void what_is_no_dictionary_of_tensors_is_named(void **state)
{
    static const struct { const char *name, *says; } cases[] = {
        {"call-zip.bin", "pytorch_model.bin: data.pkl: byte 13 of the pickle: the pickle refers to posix.system, which "
         "weights do not need"},
        {"call-old.bin", "the pickle refers to posix.system, which weights do not need"},
        {"permuted.bin", "tensor a: the strides of its elements are not supported"},
        {"integers-apart.bin", "tensor a: its elements (I64) are not contiguous"},
        {"list.bin", "the saved object is not a dictionary of tensors"}, {"number.bin", "a is not a tensor"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text file = golden(cases[i].name);
        struct err err = {0};
        struct checkpoint *cp = open_bytes(file.data, file.length, &err);
        assert_null(cp);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' does not say %s", err.text, cases[i].says);
        text_free(&file);
    }
}

/* Every truncation is detected; a changed byte is rejected, or changes only unreadable data. */
static void damage_is_seen(void **state)
{
    (void)state;
    for (int old = 0; old < 2; old++) {
        struct text file = golden(old ? "old.bin" : "zip.bin");
        for (size_t cut = 0; cut < file.length; cut += cut < 200 ? 1 : 37) {
            struct err err = {0};
            if (open_bytes(file.data, cut, &err))
                fail_msg("cut at %zu, it is taken", cut);
            assert_int_equal(err.code, ERR_INPUT);
            assert_non_null(strstr(err.text, "pytorch_model.bin: "));
        }
        for (size_t at = 0; at < file.length; at += 3) {
            struct err err = {0};
            char was = file.data[at];
            file.data[at] = (char)(was ^ 1 << at % 8);
            struct checkpoint *cp = open_bytes(file.data, file.length, &err);
            file.data[at] = was;
            for (size_t i = 0; cp && i < cp->tensor_count; i++) {
                const struct source_tensor *t = &cp->tensors[i];
                uint8_t byte;
                assert_int_equal(!t->bytes ? 0 : checkpoint_read(cp, t, t->bytes - 1, &byte, 1, &err), 0);
            }
            if (!cp)
                assert_int_equal(err.code, ERR_INPUT);
            checkpoint_close(&cp);
        }
        text_free(&file);
    }
}

static int read_pickle(const char *text, size_t bytes, struct pickle *out, struct err *err)
{
    size_t used = 0;
    return pickle_read(out, (const uint8_t *)text, bytes, &used, err);
}

static void only_what_weights_need_is_known(void **state)
{
    static const struct { const char *text; size_t bytes; const char *says; } cases[] = {
#define CASE(text, says) {text, sizeof text - 1, says}
        CASE("\x80\x03N.", "protocol 3"), CASE("\x80\x02", "ends in the middle"), CASE("\x80\x02I1\n.", "opcode 0x49"),
        CASE("\x80\x02" "cbuiltins\neval\n.", "refers to builtins.eval"), CASE("\x80\x02" "ctorch\n", "has no end"),
        CASE("\x80\x02\x93.", "opcode 0x93"), CASE("\x80\x02i__main__\nx\n.", "opcode 0x69"),
        CASE("\x80\x02.", "than one value remain"),
        CASE("\x80\x02NN.", "than one value remain"), CASE("\x80\x02t.", "needs a mark"), CASE("\x80\x02(N.", "than one value "
                                                                                               "remain"),
        CASE("\x80\x02h\x05.", "never stored in the memo"), CASE("\x80\x02Nr\xff\xff\xff\xff.",
                                                                                          "or is full"),
        CASE("\x80\x02q\x01.", "the memo has no value to store, or is full"),
        CASE("\x80\x02X\xff\xff\xff\xff.", "ends in the middle"), CASE("\x80\x02NQ.", "is not a storage"),
        CASE("\x80\x02]NNs.", "not a dictionary"), CASE("\x80\x02}Na.", "not a list"),
        CASE("\x80\x02}(Nu.", "not a dictionary"),
        CASE("\x80\x02NN}b.", "attributes are set on a value"),
        CASE("\x80\x02" "ccollections\nOrderedDict\nNR.", "a function is called"),
        CASE("\x80\x02" "ctorch\nFloatStorage\n)R.", "a function is called"),
        CASE("\x80\x02" "ctorch._utils\n_rebuild_tensor_v2\n)R.", "a tensor is built from values of wrong types"),
        CASE("\x80\x02(N\x85\x86.", "more values than the stack"), CASE("\x80\x02N(Na.", "more values than the stack"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pickle pickle = {0};
        struct err err = {0};
        assert_int_equal(read_pickle(cases[i].text, cases[i].bytes, &pickle, &err), -1);
        if (!strstr(err.text, cases[i].says) || strncmp(err.text, "byte ", 5))
            fail_msg("case %zu: '%s' does not say %s", i, err.text, cases[i].says);
    }
}

/* Values, marks and items in numbers that the bytes could request reach limits quickly. */
static void limits_hold(void **state)
{
    static const struct { const char *each; const char *says; } cases[] = {
        {"N", "the stack exceeds"}, {"(", "marks are open"}, {"(tN0", "opcode 0x30"}, {"h\1h\1s", "entries"},
        {")\x85q\2", "values"},
    };
    enum { BYTES = 32 << 20 };
    char *text = malloc(BYTES);
    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pickle pickle = {0};
        struct err err = {0};
        static const char begin[] = "\x80\x02Nq\1}";
        size_t step = strlen(cases[i].each);
        memcpy(text, begin, sizeof begin - 1);
        for (size_t at = sizeof begin - 1; at < BYTES; at++)
            text[at] = cases[i].each[(at - sizeof begin + 1) % step];
        assert_int_equal(read_pickle(text, BYTES, &pickle, &err), -1);
        if (!strstr(err.text, cases[i].says))
            fail_msg("case %zu: '%s' does not say %s", i, err.text, cases[i].says);
    }
    free(text);
}

/* Writes the members of torch.save's file with the library's writer. */
static void write_again(const struct checkpoint *cp, const char *path, uint32_t large)
{
    const struct source_tensor whole = {.file = cp->tensors[0].file};
    struct torch_zip members = {0};
    struct zip_writer *zip = NULL;
    struct output *out = NULL;
    struct err err = {0};
    int rc = torch_zip_read(&members, cp, whole.file, &err) || output_open(&out, path, &err) ||
             zip_open(&zip, out, large, &err);
    for (size_t i = 0; i < members.count && !rc; i++) {
        const struct torch_member *m = &members.members[i];
        char name[200];
        uint8_t data[4096];
        snprintf(name, sizeof name, "%.*s", (int)m->length, m->name);
        assert_true(m->bytes <= sizeof data);
        /* in two pieces, the second of a length that is not a multiple of eight */
        rc = checkpoint_read(cp, &whole, m->offset, data, (size_t)m->bytes, &err) ||
             zip_member(zip, name, m->bytes, &err) ||
             zip_put(zip, data, (size_t)m->bytes / 3, &err) ||
             zip_put(zip, data + m->bytes / 3, (size_t)(m->bytes - m->bytes / 3), &err) || zip_member_end(zip, &err);
    }
    if (rc || zip_end(zip, &err) || output_commit(&out, &err))
        fail_msg("%s", err.text);
    zip_free(&zip);
    torch_zip_free(&members);
}

/* Limits scaled down, for which each count of a small file must pass here. */
static void zip_files_are_written(void **state)
{
    static const uint32_t large[] = {UINT32_MAX, 200, 0};
    struct text file = golden("zip.bin");
    struct err err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct checkpoint *cp = open_bytes(file.data, file.length, &err);
        assert_non_null(cp);
        char *path = strdup(unit_path(folder, "pytorch_model.bin"));
        struct torch_zip members = {0};
        write_again(cp, path, large[i]);
        checkpoint_close(&cp);
        if (checkpoint_open(&cp, folder, NULL, &err) || torch_zip_read(&members, cp, cp->tensors[0].file, &err))
            fail_msg("large %u: %s", large[i], err.text);
        assert_int_equal(cp->tensor_count, 13);
        check_tensor(cp, "whole", "F32", "[4][6]", 0);
        check_tensor(cp, "half", "F16", "[2][5]", 0);
        check_tensor(cp, "bytes", "U8", "[4]", 0);
        for (size_t m = 0; m < members.count; m++)
            assert_int_equal(members.members[m].offset % ZIP_ALIGNMENT, 0);
        torch_zip_free(&members);
        checkpoint_close(&cp);
        free(path);
    }
    text_free(&file);
}

/* A member has exactly its announced size, and the end of a file that is too short is not overwritten. */
static void members_have_the_bytes_that_were_said(void **state)
{
    struct zip_writer *zip = NULL;
    struct output *out = NULL;
    struct err err = {0};
    char name[300];
    (void)state;
    if (output_open(&out, unit_path(folder, "never.zip"), &err) || zip_open(&zip, out, UINT32_MAX, &err) ||
        zip_member(zip, "a", 4, &err) || zip_put(zip, "abc", 3, &err))
        fail_msg("%s", err.text);
    assert_int_equal(zip_member_end(zip, &err), -1);
    assert_non_null(strstr(err.text, "a: fewer bytes were written than declared"));
    err_clear(&err);
    assert_int_equal(zip_put(zip, "de", 2, &err), -1);
    assert_non_null(strstr(err.text, "a: more bytes were written than declared"));
    err_clear(&err);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(zip_member(zip, name, 1, &err), -1);
    assert_non_null(strstr(err.text, "too long for a member"));
    zip_free(&zip);
    output_discard(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zip_files_are_written),
        cmocka_unit_test(members_have_the_bytes_that_were_said),
        cmocka_unit_test(what_torch_saves_is_read),
        cmocka_unit_test(files_are_found),
        cmocka_unit_test(what_is_no_dictionary_of_tensors_is_named),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(only_what_weights_need_is_known),
        cmocka_unit_test(limits_hold),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
