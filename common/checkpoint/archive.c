/* Reads checkpoints from tar and zip archives in one pass from front to back.
 *
 * No member is extracted under its own name; member names are only compared. Texts are kept in memory. Weight files are
 * copied one after the other into one unnamed temporary file (the spool). Only after the last member is it known which
 * folder of the archive is the checkpoint: the folder nearest to the root with a config.json, or else with a .gguf file.
 * Input that is not an archive may be a single GGUF file, also compressed; it is read as an archive with one member. A
 * warning of libarchive is an error here, since libarchive reports a bad checksum as a warning. */
#include "common/checkpoint/archive.h"

#include <archive_entry.h>
#include <errno.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arch/config.h"
#include "common/base/mem.h"
#include "common/checkpoint/gguf.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/shard.h"
#include "common/checkpoint/torch.h"

enum { MEMBERS_MAX = 1 << 20, TEXTS_MAX = 256 << 20, STEP = 256 << 10 };

/* Weights compress little: output of more than RATIO_FROM bytes and RATIO_MAX times the input is a zip bomb. */
enum { RATIO_MAX = 200 };
static const uint64_t RATIO_FROM = (uint64_t)1 << 30;

struct member {
    char *folder, *name;        /* folder: "" or without the last slash */
    int which;                  /* enum source_text; -1: weights */
    struct text text;
    uint64_t base, bytes;       /* range of a weight file in the spool */
};

struct unpacking {
    struct archive *archive;
    struct archive_input input;
    struct member *members;
    size_t count, room, text_bytes;
    uint64_t seen, produced, spooled;
    int spool;
    bool headers_only;
    uint8_t *step;              /* [STEP] */
};

static const char ALONE[] = "model.gguf";       /* name of an input file that has no name */

static int fault(const struct unpacking *u, struct err *err)
{
    const char *text = archive_error_string(u->archive);
    if (text && archive_errno(u->archive) == ENOMEM)
        return err_set(err, ERR_INPUT, "%s", text);
    return err_set(err, ERR_INPUT, "%s; the archive is damaged, truncated or of an unsupported kind (tar and zip are "
                   "supported)",
                   text ? text : "cannot be read as an archive");
}

static int check_ratio(struct unpacking *u, size_t more, struct err *err)
{
    uint64_t unpacked = (uint64_t)archive_filter_bytes(u->archive, 0), packed = archive_input_packed(&u->input, u->archive);
    u->produced += more;
    if (unpacked < u->produced)
        unpacked = u->produced;
    if (unpacked > RATIO_FROM && unpacked / RATIO_MAX > packed)
        return err_set(err, ERR_INPUT, "unpacks to more than %d times its size, which no checkpoint does; check the file",
                       RATIO_MAX);
    return 0;
}

/* Reads the next bytes of the current member into u->step. Returns their number, 0 at the member's end, -1 on an error. */
static ssize_t member_bytes(struct unpacking *u, struct err *err)
{
    la_ssize_t got = archive_read_data(u->archive, u->step, STEP);
    if (got < 0)
        return fault(u, err);
    return check_ratio(u, (size_t)got, err) ? -1 : (ssize_t)got;
}

static int take_text(struct unpacking *u, struct member *m, struct err *err)
{
    size_t limit = source_text_kinds[m->which].limit;
    for (ssize_t got; (got = member_bytes(u, err));) {
        if (got < 0)
            return -1;
        if ((size_t)got > limit - m->text.length)
            return err_set(err, ERR_INPUT, "is larger than %zu bytes, the limit for files of this kind", limit);
        u->text_bytes += (size_t)got;
        if (u->text_bytes > TEXTS_MAX)
            return err_set(err, ERR_INPUT, "the archive contains too many text files; pack only one checkpoint");
        if (text_put(&m->text, u->step, (size_t)got, err))
            return -1;
    }
    return 0;
}

/* Sets *end to the number of bytes of a weight file's header, according to its first bytes; for GGUF to the maximum, for
 * torch.save to 0. */
static int header_end(const struct member *m, const uint8_t *data, size_t bytes, uint64_t *end, struct err *err)
{
    size_t header;
    if (text_ends(m->name, ".gguf") || torch_is_weights(m->name)) {
        *end = text_ends(m->name, ".gguf") ? GGUF_HEADER_MAX : 0;
        return 0;
    }
    if (bytes < SAFETENSORS_PREFIX || safetensors_header_bytes(data, UINT64_MAX, &header, err))
        return err_set(err, ERR_INPUT, "is too short to be a safetensors file; it is truncated or damaged");
    *end = SAFETENSORS_PREFIX + header;
    return 0;
}

/* Returns whether the input is one file, perhaps compressed, and not an archive. */
static bool is_single_file(const struct unpacking *u)
{
    return (archive_format(u->archive) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_RAW;
}

/* Copies a weight file to the spool; with headers_only its header alone, because the data will not be read. */
static int take_weights(struct unpacking *u, struct member *m, struct err *err)
{
    uint64_t keep = UINT64_MAX;
    m->base = u->spooled;
    for (ssize_t got; (got = member_bytes(u, err));) {
        size_t bytes = (size_t)got;
        if (got < 0)
            return -1;
        if (m->bytes == 0 && file_is_pointer(u->step, bytes))
            return err_set(err, ERR_INPUT, FILE_POINTER_FAULT);
        if (m->bytes == 0 && is_single_file(u) && (bytes < GGUF_MAGIC_BYTES || memcmp(u->step, gguf_magic, GGUF_MAGIC_BYTES)))
            return err_set(err, ERR_INPUT, "unrecognised archive format; the archive is damaged, truncated or of an "
                           "unsupported kind (tar and zip are supported)");
        if (u->headers_only && m->bytes == 0 && header_end(m, u->step, bytes, &keep, err))
            return -1;
        uint64_t left = m->bytes < keep ? keep - m->bytes : 0;
        if (left && spool_write(u->spool, u->spooled, u->step, bytes < left ? bytes : (size_t)left, err))
            return -1;
        u->spooled += bytes < left ? bytes : left;
        m->bytes += bytes;
    }
    return 0;
}

static int skip_member(struct unpacking *u, struct err *err)
{
    const void *data;
    size_t bytes;
    la_int64_t offset;
    int rc;
    while ((rc = archive_read_data_block(u->archive, &data, &bytes, &offset)) == ARCHIVE_OK)
        if (check_ratio(u, bytes, err))
            return -1;
    return rc == ARCHIVE_EOF ? 0 : fault(u, err);
}

static int add_member(struct unpacking *u, const char *path, const char *name, int which, struct err *err)
{
    size_t folder = name > path ? (size_t)(name - path) - 1 : 0;
    if (strlen(name) >= SOURCE_NAME)
        return err_set(err, ERR_INPUT, "a member's name has more than %d bytes; rename it", SOURCE_NAME - 1);
    for (size_t i = 0; i < u->count; i++)
        if (strcmp(u->members[i].name, name) == 0 && strlen(u->members[i].folder) == folder &&
            memcmp(u->members[i].folder, path, folder) == 0)
            return err_set(err, ERR_INPUT, "is in the archive twice; pack it once");
    if (mem_grow(&u->members, &u->room, u->count + 1, sizeof *u->members, err))
        return -1;
    struct member *m = &u->members[u->count++];
    *m = (struct member){.which = which, .folder = mem_copy(path, folder, err), .name = mem_string(name, err)};
    if (!m->folder || !m->name)
        return -1;
    return which >= 0 ? take_text(u, m, err) : take_weights(u, m, err);
}

static int take_member(struct unpacking *u, struct archive_entry *entry, struct err *err)
{
    const char *path = archive_entry_pathname(entry);
    if (is_single_file(u))
        return add_member(u, ALONE, ALONE, -1, err);
    if (!path)
        return err_set(err, ERR_INPUT, "a member has a name that is not UTF-8; rename it");
    while (path[0] == '.' && path[1] == '/')
        path += 2;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int which = source_text_of(name);
    if (which < 0 && (name[0] == '.' || !(text_ends(name, ".safetensors") || text_ends(name, ".gguf") ||
                                                torch_is_weights(name))))
        return skip_member(u, err);
    if (u->count == 4096)
        return err_set(err, ERR_INPUT, "the archive contains too many files of weights; pack only one checkpoint");
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry))
        err_set(err, ERR_INPUT, "is a link, not a file; pack the files that links point to (tar -h)");
    else if (add_member(u, path, name, which, err) == 0)
        return 0;
    return err_at(err, "%.200s", path);
}

static int read_members(struct unpacking *u, struct err *err)
{
    struct archive_entry *entry;
    int rc;
    while ((rc = archive_read_next_header(u->archive, &entry)) == ARCHIVE_OK) {
        if (++u->seen > MEMBERS_MAX)
            return err_set(err, ERR_INPUT, "the archive has more than %d members; pack only one checkpoint", MEMBERS_MAX);
        if (take_member(u, entry, err))
            return -1;
    }
    return rc == ARCHIVE_EOF ? archive_input_check_end(&u->input, u->archive, u->seen, err) : fault(u, err);
}

/* ---- choosing ---- */

static int depth(const char *folder)
{
    int slashes = *folder != '\0';
    for (; *folder; folder++)
        slashes += *folder == '/';
    return slashes;
}

/* Finds the folder nearest to the root that contains a config.json (or, with `gguf`, a .gguf file). *other: a member of
 * another folder at the same depth, or NULL. */
static void find_nearest(const struct unpacking *u, bool gguf, const struct member **found, const struct member **other)
{
    const struct member *best = NULL, *equal = NULL;
    for (size_t i = 0; i < u->count; i++) {
        const struct member *m = &u->members[i];
        if (gguf ? !text_ends(m->name, ".gguf") || (best && strcmp(m->folder, best->folder) == 0) : m->which != TEXT_CONFIG)
            continue;
        if (!best || depth(m->folder) < depth(best->folder)) {
            best = m;
            equal = NULL;
        } else if (depth(m->folder) == depth(best->folder)) {
            equal = m;
        }
    }
    *found = best;
    *other = equal;
}

static int find_root(const struct unpacking *u, const char **root, struct err *err)
{
    const struct member *best, *equal;
    find_nearest(u, false, &best, &equal);
    if (!best)
        find_nearest(u, true, &best, &equal);
    if (!best)
        return err_set(err, ERR_INPUT, "has no config.json, which defines the model's shape; add it");
    if (equal)
        return err_set(err, ERR_INPUT, "contains two checkpoints, in %.100s and in %.100s; pack only one", best->folder,
                       equal->folder);
    *root = best->folder;
    return 0;
}

static struct member *find_member(const struct unpacking *u, const char *root, const char *name)
{
    for (size_t i = 0; i < u->count; i++)
        if (strcmp(u->members[i].folder, root) == 0 && strcmp(u->members[i].name, name) == 0)
            return &u->members[i];
    return NULL;
}

static int add_spooled(struct checkpoint *cp, const struct unpacking *u, const struct member *m, struct err *err)
{
    struct source_file *file = checkpoint_add_file(cp, m->name, err);
    if (!file)
        return -1;
    file->fd = u->spool;
    file->base = m->base;
    file->bytes = m->bytes;
    return 0;
}

static int add_weights(struct checkpoint *cp, struct unpacking *u, const struct member *m, struct err *err)
{
    if (add_spooled(cp, u, m, err))
        return -1;
    return checkpoint_read_header(cp, (int)cp->file_count - 1, err) ? err_at(err, "%s", m->name) : 0;
}

/* Adds all shards of the set to which `name` belongs. */
static int add_named(struct checkpoint *cp, struct unpacking *u, const char *root, const char *name, struct err *err)
{
    char shard[SOURCE_NAME];
    int number, count = shard_count(name, &number);
    for (int i = 1; i <= count; i++) {
        shard_name(shard, name, i);
        const struct member *m = find_member(u, root, shard);
        if (!m)
            return err_set(err, ERR_INPUT, "%s is missing, although %s names it; pack it, too", shard, name);
        if (add_weights(cp, u, m, err))
            return -1;
    }
    return 0;
}

static int add_shards(struct checkpoint *cp, struct unpacking *u, const char *root, struct err *err)
{
    char **names = NULL;
    int rc = -1;
    size_t count = 0;
    if (checkpoint_shards(cp, &names, &count, err))
        goto done;
    for (size_t i = 0; i < count; i++) {
        const struct member *m = find_member(u, root, names[i]);
        if (!m) {
            err_set(err, ERR_INPUT, "%s is missing, although %s names it; pack it, too", names[i],
                    source_text_kinds[checkpoint_index(cp)].name);
            goto done;
        }
        if (add_weights(cp, u, m, err))
            goto done;
    }
    rc = 0;
done:
    for (size_t i = 0; i < count; i++)
        mem_free(&names[i]);
    mem_free(&names);
    return rc;
}

/* Adds all .gguf files of the folder, which are one model. A config.json beside them is ignored, as in a folder on disk. */
static int add_gguf(struct checkpoint *cp, struct unpacking *u, const char *root, struct err *err)
{
    checkpoint_drop_text(cp, TEXT_CONFIG);
    const size_t first = cp->file_count;
    for (size_t i = 0; i < u->count; i++)
        if (strcmp(u->members[i].folder, root) == 0 && text_ends(u->members[i].name, ".gguf") &&
            add_spooled(cp, u, &u->members[i], err))
            return -1;
    if (cp->file_count == first)
        return err_set(err, ERR_INPUT, "has no .safetensors, " TORCH_NAME " or .gguf file; other formats of weights are not "
                       "supported");
    return gguf_read_files(cp, first, err);
}

static int choose(struct checkpoint *cp, struct unpacking *u, struct err *err)
{
    const char *root = NULL;
    const struct member *weights = NULL;
    int others = 0;
    if (find_root(u, &root, err))
        return -1;
    if (*root) {
        const char *slash = strrchr(root, '/');
        snprintf(cp->name, sizeof cp->name, "%s", slash ? slash + 1 : root);
    }
    for (int i = 0; i < TEXT_COUNT; i++) {
        const struct member *m = find_member(u, root, source_text_kinds[i].name);
        if (m && checkpoint_add_text(cp, m->which, m->text.data, m->text.length, err))
            return -1;
    }
    weights = find_member(u, root, "model.safetensors");
    struct member *torch = NULL;
    for (int i = 0; i < TORCH_NAMES && !torch; i++)
        torch = find_member(u, root, torch_names[i]);
    const bool usual = weights || torch || cp->texts[TEXT_TORCH_INDEX].length;      /* weights have a usual name (same rule
                                                                                     * as in folder.c) */
    struct shard_search search = {.begin = "", .ending = ".safetensors"};
    struct shard_search torch_search = {.begin = "pytorch_model", .ending = ".bin"};
    for (size_t i = 0; i < u->count && !usual; i++)
        if (strcmp(u->members[i].folder, root) == 0) {
            shard_offer(&search, u->members[i].name);
            shard_offer(&torch_search, u->members[i].name);
        }
    for (size_t i = 0; i < u->count && !usual; i++)
        others += text_ends(u->members[i].name, ".safetensors") && strcmp(u->members[i].folder, root) == 0;
    for (size_t i = 0; i < u->count && !weights && others == 1; i++)
        if (text_ends(u->members[i].name, ".safetensors") && strcmp(u->members[i].folder, root) == 0)
            weights = &u->members[i];
    cp->torch = !cp->texts[TEXT_INDEX].length && !weights && !others;
    checkpoint_drop_text(cp, cp->torch ? TEXT_INDEX : TEXT_TORCH_INDEX);
    if (cp->texts[checkpoint_index(cp)].length)
        return add_shards(cp, u, root, err);
    const struct shard_search *set = cp->torch ? &torch_search : &search;
    if (*set->first && !set->others)
        return add_named(cp, u, root, set->first, err);
    weights = cp->torch ? torch : weights;
    if (!weights && !others)
        return add_gguf(cp, u, root, err);
    if (!weights)
        return err_set(err, ERR_INPUT, "has several .safetensors files, but no model.safetensors.index.json that lists their "
                       "tensors; add it");
    return add_weights(cp, u, weights, err);
}

/* ---- */

static int start(struct unpacking *u, int fd, const char *beside, struct err *err)
{
    u->headers_only = !beside;
    u->step = mem_alloc(STEP, 1, err);
    u->archive = archive_read_new();
    if (!u->step || archive_input_open(&u->input, fd, err) || spool_open(&u->spool, beside, err))
        return -1;
    if (!u->archive)
        return err_memory(err);
    archive_read_support_filter_gzip(u->archive);
    archive_read_support_filter_bzip2(u->archive);
    archive_read_support_filter_zstd(u->archive);
    archive_read_support_format_tar(u->archive);
    archive_read_support_format_raw(u->archive);
    if (u->input.seekable)          /* the streaming zip reader of libarchive does not notice a truncated directory */
        archive_read_support_format_zip_seekable(u->archive);
    else
        archive_read_support_format_zip_streamable(u->archive);
    return archive_input_attach(&u->input, u->archive) == ARCHIVE_OK ? 0 : fault(u, err);
}

int checkpoint_open_archive(struct checkpoint *cp, int fd, const char *beside, struct err *err)
{
    struct unpacking u = {.spool = -1};
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);          /* libarchive converts names to the locale's
                                                                                * encoding */
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    cp->headers_only = !beside;
    int rc = start(&u, fd, beside, err) || read_members(&u, err) || choose(cp, &u, err) ? -1 : 0;
    bool kept = false;
    if (utf8) {
        uselocale(before);
        freelocale(utf8);
    }
    if (u.archive)
        archive_read_free(u.archive);
    for (size_t i = 0; i < cp->file_count; i++)
        kept |= cp->files[i].fd >= 0 && cp->files[i].fd == u.spool;
    if (u.spool >= 0 && !kept)
        close(u.spool);
    for (size_t i = 0; i < u.count; i++) {
        mem_free(&u.members[i].folder);
        mem_free(&u.members[i].name);
        text_free(&u.members[i].text);
    }
    mem_free(&u.members);
    archive_input_close(&u.input);
    mem_free(&u.step);
    return rc;
}
