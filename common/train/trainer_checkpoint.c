#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/mem.h"
#include "common/train/recipe.h"
#include "common/train/trainer_internal.h"

static const char MAGIC[8] = "\x89MOEC\r\n\x1a";
enum { VERSION = 2, RECIPE_MAX = 1 << 16, PIECE = 1 << 20 };

/* The beginning of a checkpoint. The recipe follows, then weights, first and second moments. All numbers have the machine's
 * byte order. */
struct checkpoint_head {
    char magic[8];
    uint32_t order, version;        /* order: 1, which shows the byte order */
    int64_t steps;
    struct train_best best;
    uint64_t floats, recipe;
    struct digest128 digest;        /* digest of the fields above and of all data that follows */
};

static int digest_of(const struct checkpoint_head *head, const char *recipe, const float *const part[3],
                     struct digest128 *out, struct err *err)
{
    struct xxh3_stream *stream = NULL;
    if (xxh3_stream_new(&stream, err))
        return -1;
    xxh3_stream_put(stream, head, offsetof(struct checkpoint_head, digest));
    xxh3_stream_put(stream, recipe, (size_t)head->recipe);
    for (int i = 0; i < 3; i++)
        xxh3_stream_put(stream, part[i], (size_t)head->floats * sizeof(float));
    *out = xxh3_stream_digest(stream);
    xxh3_stream_free(&stream);
    return 0;
}

int trainer_save(const struct trainer *t, const char *path, const char *recipe, struct err *err)
{
    struct weights *w = t->setup.weights;
    const float *const part[3] = {w->data, w->first, w->second};
    struct output *out = NULL;
    struct checkpoint_head head = {.order = 1, .version = VERSION, .steps = t->steps,
                                   .best = t->best, .floats = w->floats, .recipe = strlen(recipe)};
    memcpy(head.magic, MAGIC, sizeof head.magic);
    if (weights_fetch_all(w, err) || digest_of(&head, recipe, part, &head.digest, err) ||
        output_open_kept(&out, path, err) ||
        output_write(out, &head, sizeof head, err) || output_write(out, recipe, head.recipe, err))
        goto failed;
    for (int i = 0; i < 3; i++)
        if (output_write(out, part[i], w->floats * sizeof(float), err))
            goto failed;
    return output_commit(&out, err);
failed:
    output_discard(&out);
    return -1;
}

/* A checkpoint that is read piece by piece, because it can be larger than the free memory. */
struct checkpoint_file {
    FILE *file;
    uint64_t left;                  /* unread bytes */
};

static int read_bytes(struct checkpoint_file *in, void *out, uint64_t bytes, struct err *err)
{
    if (bytes > in->left || fread(out, 1, (size_t)bytes, in->file) != bytes)
        return ferror(in->file) ? err_errno(err, "cannot be read")
                                : err_set(err, ERR_INPUT, "is truncated, or belongs to another head; remove it to start over");
    in->left -= bytes;
    return 0;
}

static int open_file(struct checkpoint_file *in, const char *path, struct err *err)
{
    struct stat status;
    if (!(in->file = fopen(path, "rbe")) || fstat(fileno(in->file), &status))
        return err_errno(err, "cannot be read");
    in->left = (uint64_t)status.st_size;
    return 0;
}

static int differs(const char *was, size_t bytes, const char *recipe, struct err *err)
{
    struct text difference = {0};
    if (recipe_difference(&difference, was, bytes, recipe, err)) {
        text_free(&difference);
        return -1;
    }
    text_make_printable(&difference);
    err_set(err, ERR_INPUT, "was made with other options or texts%s%.300s; give the same, or remove it to start over",
            difference.length ? ": " : "", difference.length ? difference.data : "");
    text_free(&difference);
    return -1;
}

static int check_recipe(struct checkpoint_file *in, const struct checkpoint_head *head, const char *recipe, struct err *err)
{
    if (head->recipe > RECIPE_MAX)
        return err_set(err, ERR_INPUT, "is not a checkpoint that this program can read; remove it to start over");
    char *was = mem_alloc((size_t)head->recipe + 1, 1, err);
    if (!was)
        return -1;
    int rc = read_bytes(in, was, head->recipe, err);
    if (!rc && (head->recipe != strlen(recipe) || memcmp(was, recipe, (size_t)head->recipe)))
        rc = differs(was, (size_t)head->recipe, recipe, err);
    mem_free(&was);
    return rc;
}

static int check_head(const struct checkpoint_head *head, const struct trainer *t, struct err *err)
{
    const struct train_best *best = &head->best;
    if (head->steps < 0 || head->steps > t->setup.settings->optimiser.steps || best->evaluated < -1 ||
        best->evaluated > head->steps || best->step < -1 || best->step > best->evaluated || isnan(best->loss))
        return err_set(err, ERR_INPUT, "is damaged; remove it to start over");
    return 0;
}

static int check_digest(struct checkpoint_file *in, const struct checkpoint_head *head, const char *recipe, struct err *err)
{
    struct xxh3_stream *stream = NULL;
    struct digest128 digest;
    char *piece = mem_alloc(PIECE, 1, err);
    int rc = !piece || xxh3_stream_new(&stream, err) ? -1 : 0;
    if (!rc) {
        xxh3_stream_put(stream, head, offsetof(struct checkpoint_head, digest));
        xxh3_stream_put(stream, recipe, (size_t)head->recipe);
    }
    while (!rc && in->left) {
        const uint64_t bytes = in->left < PIECE ? in->left : PIECE;
        if (!(rc = read_bytes(in, piece, bytes, err)))
            xxh3_stream_put(stream, piece, (size_t)bytes);
    }
    if (!rc) {
        digest = xxh3_stream_digest(stream);
        if (digest.low != head->digest.low || digest.high != head->digest.high)
            rc = err_set(err, ERR_INPUT, "is damaged; remove it to start over");
    }
    xxh3_stream_free(&stream);
    mem_free(&piece);
    return rc;
}

static int read_parts(struct checkpoint_file *in, struct weights *w, uint64_t at, struct err *err)
{
    float *to[3] = {w->data, w->first, w->second};
    if (fseeko(in->file, (off_t)at, SEEK_SET))
        return err_errno(err, "cannot be read");
    in->left = w->floats * 3 * sizeof(float);
    for (int i = 0; i < 3; i++)
        if (read_bytes(in, to[i], w->floats * sizeof(float), err))
            return -1;
    return 0;
}

static int resume(struct trainer *t, struct checkpoint_file *in, const char *recipe, struct err *err)
{
    struct checkpoint_head head;
    if (in->left < sizeof head)
        return err_set(err, ERR_INPUT, "is not a checkpoint; remove it to start over");
    if (read_bytes(in, &head, sizeof head, err))
        return -1;
    if (memcmp(head.magic, MAGIC, sizeof head.magic) || head.order != 1 || head.version != VERSION)
        return err_set(err, ERR_INPUT, "is not a checkpoint that this program can read; remove it to start over");
    if (check_recipe(in, &head, recipe, err))
        return -1;
    if (head.floats != t->setup.weights->floats || in->left != head.floats * 3 * sizeof(float))
        return err_set(err, ERR_INPUT, "is truncated, or belongs to another head; remove it to start over");
    if (check_digest(in, &head, recipe, err) || check_head(&head, t, err) ||
        read_parts(in, t->setup.weights, sizeof head + head.recipe, err) || weights_send_all(t->setup.weights, err))
        return -1;
    t->steps = head.steps;
    t->best = head.best;
    return 0;
}

int trainer_resume(struct trainer *t, const char *path, const char *recipe, struct err *err)
{
    struct checkpoint_file in = {NULL};
    int rc = open_file(&in, path, err) || resume(t, &in, recipe, err) ? -1 : 0;
    if (in.file)
        fclose(in.file);
    return rc ? err_at(err, "%s", path) : 0;
}
