#include "common/checkpoint/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/checkpoint/coding_strided.h"
#include "common/checkpoint/pickle.h"

/* The old form begins with a pickle of the number 0x1950a86a20f9469cfc6c. The constants are that pickle, the number's lower
 * half, and the protocol number that follows. */
static const uint8_t OLD_MAGIC[] = {0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
enum { OLD_PROTOCOL = 1001, TENSORS_MAX = 1 << 17 };

/* A storage: where its elements are in the file. */
struct storage {
    const char *key;                /* not NUL-terminated */
    size_t length;
    uint32_t type;                  /* enum pickle_global */
    uint64_t elements, offset;      /* offset: bytes from the file's beginning */
};

struct reader {
    struct checkpoint *cp;
    int file;
    struct torch_zip zip;           /* only in the zip form */
    size_t prefix;                  /* length of "NAME/" and, below, its text */
    const char *prefix_name;
    struct storage *storages;       /* only in the old form, sorted by key */
    size_t storage_count;
    struct pickle pickle;
};

static int damaged(struct err *err, const char *what)
{
    return err_set(err, ERR_INPUT, "%s; the file is damaged, or not a file of weights", what);
}

const char *const torch_names[TORCH_NAMES] = {TORCH_NAME, "medusa_lm_head.pt", "hydra_lm_head.pt"};

bool torch_is_weights(const char *name)
{
    static const char begin[] = "pytorch_model";
    for (int i = 0; i < TORCH_NAMES; i++)
        if (strcmp(name, torch_names[i]) == 0)
            return true;
    return strncmp(name, begin, sizeof begin - 1) == 0 && text_ends(name, ".bin");
}

/* Returns whether the bytes begin a zip file whose first member is NAME/data.pkl, as torch.save writes it, or the old form. */
bool torch_is_file(const uint8_t *data, size_t bytes)
{
    static const char pickle[] = "/data.pkl";
    if (bytes >= sizeof OLD_MAGIC && memcmp(data, OLD_MAGIC, sizeof OLD_MAGIC) == 0)
        return true;
    if (bytes < 30 || memcmp(data, "PK\3\4", 4))
        return false;
    size_t length = data[26] | (size_t)data[27] << 8;
    return length < bytes - 30 && length >= sizeof pickle &&
           memcmp(data + 30 + length + 1 - sizeof pickle, pickle, sizeof pickle - 1) == 0;
}

/* ---- storages ---- */

static int by_key(const void *a, const void *b)
{
    const struct storage *x = a, *y = b;
    int order = memcmp(x->key, y->key, x->length < y->length ? x->length : y->length);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

static const struct pickle_value *item(const struct pickle *p, const struct pickle_value *of, uint32_t index)
{
    return &p->values[p->items[of->is.items + index]];
}

/* Reads the type, key and length of a storage from the pickle. Its location is found later. */
static int read_storage(const struct pickle *p, const struct pickle_value *value, struct storage *out, struct err *err)
{
    const struct pickle_value *key = item(p, value, 1), *elements = item(p, value, 3);
    *out = (struct storage){(const char *)p->data + key->is.integer, key->count, item(p, value, 0)->count,
                            (uint64_t)elements->is.integer, 0};
    if (elements->is.integer < 0 || elements->is.integer > INT64_MAX / 16 || key->count > 64)
        return damaged(err, "a storage has no size, or its key is too long");
    return 0;
}

static int find_zip_storage(const struct reader *r, struct storage *s, struct err *err)
{
    char name[SOURCE_NAME + 80];
    if (r->prefix >= SOURCE_NAME)
        return damaged(err, "a member's name is too long");
    memcpy(name, r->prefix_name, r->prefix);
    memcpy(name + r->prefix, "data/", 5);
    memcpy(name + r->prefix + 5, s->key, s->length);
    const struct torch_member *member = torch_zip_find(&r->zip, name, r->prefix + 5 + s->length);
    if (!member)
        return err_set(err, ERR_INPUT, "data/%.*s is missing; the file is damaged", (int)s->length, s->key);
    if (member->bytes != s->elements * (uint64_t)pickle_globals[s->type].bytes)
        return err_set(err, ERR_INPUT, "data/%.*s has %llu bytes, but %llu elements of %s are declared; the file is damaged",
                       (int)s->length, s->key, (unsigned long long)member->bytes, (unsigned long long)s->elements,
                       pickle_globals[s->type].dtype);
    s->offset = member->offset;
    return 0;
}

static int find_storage(const struct reader *r, const struct pickle_value *value, struct storage *s, struct err *err)
{
    if (read_storage(&r->pickle, value, s, err))
        return -1;
    if (r->zip.members)
        return find_zip_storage(r, s, err);
    const struct storage *found = r->storage_count ? bsearch(s, r->storages, r->storage_count, sizeof *s, by_key) : NULL;
    if (!found || found->type != s->type || found->elements != s->elements)
        return damaged(err, "a storage is declared twice, with different sizes or types");
    if (!found->offset)
        return damaged(err, "a storage has no data");
    *s = *found;
    return 0;
}

/* ---- tensors ---- */

/* Reads sizes and strides. The stride of a dim of size < 2 is irrelevant and is replaced by that of a contiguous tensor. */
static int read_dims(const struct pickle *p, const struct pickle_value *value, struct source_tensor *t,
                     int64_t strides[SOURCE_DIMS], struct err *err)
{
    const struct pickle_value *sizes = item(p, value, 2), *steps = item(p, value, 3);
    size_t elements = 1;
    if (sizes->count != steps->count || sizes->count > SOURCE_DIMS)
        return damaged(err, "it has too many dimensions, or sizes and strides of different lengths");
    t->dim_count = (int)sizes->count;
    for (uint32_t i = sizes->count; i-- > 0;) {
        const struct pickle_value *size = item(p, sizes, i), *step = item(p, steps, i);
        if (size->kind != PICKLE_INTEGER || step->kind != PICKLE_INTEGER || size->is.integer < 0 || step->is.integer < 0 ||
            step->is.integer > INT64_MAX / 16)
            return damaged(err, "its sizes or strides are not whole numbers of at least 0");
        t->dims[i] = size->is.integer;
        strides[i] = size->is.integer < 2 ? (int64_t)elements : step->is.integer;
        if (t->dims[i] && (!size_mul(elements, (size_t)t->dims[i], &elements) || elements > INT64_MAX / 16))
            return damaged(err, "it has more elements than a file can contain");
    }
    return 0;
}

/* Sets the location of a tensor's elements: a whole storage or a part of one. */
static int locate_tensor(struct source_tensor *t, const struct storage *s, uint64_t first, const int64_t *strides,
                        struct err *err)
{
    const uint64_t element = (uint64_t)pickle_globals[s->type].bytes;
    uint64_t count = 1, last = first;
    bool plain = true;
    for (int i = t->dim_count; i-- > 0;) {
        uint64_t reach;
        plain &= strides[i] == (int64_t)count || t->dims[i] == 1;
        count *= (uint64_t)t->dims[i];
        if (t->dims[i] && (__builtin_mul_overflow((uint64_t)(t->dims[i] - 1), (uint64_t)strides[i], &reach) ||
                           __builtin_add_overflow(last, reach, &last)))
            return damaged(err, "it extends past the end of its storage");
    }
    if (count ? last >= s->elements : first > s->elements)
        return damaged(err, "it extends past the end of its storage");
    t->offset = s->offset + first * element;
    t->bytes = count * element;
    if (plain || !count)
        return 0;
    if (s->type > GLOBAL_BFLOAT16)
        return err_set(err, ERR_INPUT, "its elements (%s) are not contiguous; save tensor.contiguous() instead",
                       pickle_globals[s->type].dtype);
    return strided_tensor(t, strides, err);
}

static int add_tensor(struct reader *r, const struct pickle_entry *entry, struct err *err)
{
    const struct pickle *p = &r->pickle;
    const struct pickle_value *key = &p->values[entry->key], *value = &p->values[entry->value];
    struct checkpoint *cp = r->cp;
    struct storage storage;
    struct source_tensor t = {.file = r->file};
    int64_t strides[SOURCE_DIMS] = {0};
    if (key->kind != PICKLE_TEXT || key->count == 0 || key->count >= SOURCE_NAME ||
        memchr(p->data + key->is.integer, '\0', key->count))
        return damaged(err, "a key of the dictionary is not a text");
    const int length = (int)key->count;
    const char *name = (const char *)p->data + key->is.integer;
    if (value->kind != PICKLE_TENSOR || item(p, value, 1)->is.integer < 0)
        return err_set(err, ERR_INPUT, "%.*s is not a tensor; expected a dictionary of tensors", length, name);
    if (find_storage(r, item(p, value, 0), &storage, err) || read_dims(p, value, &t, strides, err) ||
        locate_tensor(&t, &storage, (uint64_t)item(p, value, 1)->is.integer, strides, err))
        return err_at(err, "tensor %.*s", length, name);
    const char *dtype = pickle_globals[storage.type].dtype;
    memcpy(t.dtype_name, dtype, strlen(dtype) + 1);
    if (mem_grow(&cp->tensors, &cp->tensor_room, cp->tensor_count + 1, sizeof *cp->tensors, err) ||
        !(t.name = mem_copy(name, (size_t)length, err))) {
        mem_free(&t.parts);
        return -1;
    }
    strided_dtype(&t);
    cp->tensors[cp->tensor_count++] = t;
    return 0;
}

static int add_tensors(struct reader *r, struct err *err)
{
    const struct pickle *p = &r->pickle;
    const struct pickle_value *root = &p->values[p->root];
    if (root->kind != PICKLE_DICT)
        return damaged(err, "the saved object is not a dictionary of tensors");
    size_t count = 0;
    for (uint32_t at = root->is.chain.first; at; at = p->entries[at - 1].next, count++)
        if (count == TENSORS_MAX)
            return err_set(err, ERR_INPUT, "has more than %d tensors, the limit for one file; the file is damaged",
                           TENSORS_MAX);
        else if (add_tensor(r, &p->entries[at - 1], err))
            return -1;
    return 0;
}

/* ---- the zip form ---- */

static int check_order(const struct reader *r, const struct torch_member *m, struct err *err)
{
    const struct source_tensor whole = {.file = r->file};
    char order[8] = {0};
    if (m->bytes >= sizeof order || checkpoint_read(r->cp, &whole, m->offset, order, (size_t)m->bytes, err))
        return m->bytes >= sizeof order ? damaged(err, "byteorder is neither little nor big") : -1;
    if (strcmp(order, "little") == 0)
        return 0;
    return err_set(err, ERR_INPUT, "was written on a %s-endian machine; only little-endian is supported", order);
}

/* Reads the members of the zip form. NAME is not known in advance: a data.pkl that is one folder deep determines it. Then
 * the byte order is checked, if stored. */
static int read_zip(struct reader *r, uint8_t **data, struct err *err)
{
    static const char pickle[] = "data.pkl", byteorder[] = "byteorder";
    const struct source_tensor whole = {.file = r->file};
    const struct torch_member *found = NULL, *order = NULL;
    size_t used;
    if (torch_zip_read(&r->zip, r->cp, r->file, err))
        return -1;
    for (size_t i = 0; i < r->zip.count; i++) {
        const struct torch_member *m = &r->zip.members[i];
        if (bytes_end(m->name, m->length, "/data.pkl") &&
            memchr(m->name, '/', m->length) == m->name + m->length - sizeof pickle)
            found = m;
        if (bytes_end(m->name, m->length, "/constants.pkl"))
            return err_set(err, ERR_INPUT, "is a TorchScript program, not a file of weights; save its state_dict");
    }
    if (!found)
        return err_set(err, ERR_INPUT, "has no data.pkl, so it is not a file of torch.save; save the model's state_dict");
    r->prefix = found->length + 1 - sizeof pickle;
    r->prefix_name = found->name;
    for (size_t i = 0; i < r->zip.count; i++)
        if (r->zip.members[i].length == r->prefix + sizeof byteorder - 1 &&
            bytes_end(r->zip.members[i].name, r->zip.members[i].length, "/byteorder"))
            order = &r->zip.members[i];
    if (order && check_order(r, order, err))
        return -1;
    if (found->bytes > PICKLE_BYTES_MAX)
        return err_set(err, ERR_INPUT, "data.pkl has more than %d bytes, the limit; the file is not a file of weights",
                       PICKLE_BYTES_MAX);
    if (!(*data = mem_alloc((size_t)found->bytes, 1, err)) ||
        checkpoint_read(r->cp, &whole, found->offset, *data, (size_t)found->bytes, err))
        return -1;
    return pickle_read(&r->pickle, *data, (size_t)found->bytes, &used, err) ? err_at(err, "data.pkl") : 0;
}

/* ---- the old form ---- */

/* Locates the storages in the old form: their elements follow the pickles, in the order of `keys`. */
static int locate_storages(struct reader *r, const struct pickle *keys, uint64_t at, struct err *err)
{
    const struct source_tensor whole = {.file = r->file};
    const uint64_t size = r->cp->files[r->file].bytes;
    const struct pickle_value *list = &keys->values[keys->root];
    for (uint32_t next = list->is.chain.first; next; next = keys->entries[next - 1].next) {
        const struct pickle_value *key = &keys->values[keys->entries[next - 1].value];
        const struct storage wanted = {.key = (const char *)keys->data + key->is.integer, .length = key->count};
        struct storage *s = key->kind == PICKLE_TEXT && r->storage_count
                          ? bsearch(&wanted, r->storages, r->storage_count, sizeof *s, by_key) : NULL;
        uint8_t count[8];
        uint64_t elements = 0, bytes;
        if (!s || s->offset)
            return damaged(err, "a storage's key belongs to no tensor, or occurs twice");
        if (size - at < sizeof count)
            return damaged(err, "a storage has no data");
        if (checkpoint_read(r->cp, &whole, at, count, sizeof count, err))
            return -1;
        for (int i = 0; i < 8; i++)
            elements |= (uint64_t)count[i] << 8 * i;
        at += sizeof count;
        if (elements != s->elements || __builtin_mul_overflow(elements, (uint64_t)pickle_globals[s->type].bytes, &bytes) ||
            bytes > size - at)
            return damaged(err, "a storage's size differs from the pickle's, or the storage is truncated");
        s->offset = at;
        at += bytes;
    }
    return at == size ? 0 : damaged(err, "there are bytes after the last storage");
}

/* Collects all storages that the pickle names, sorted by key, each once. */
static int collect_storages(struct reader *r, struct err *err)
{
    const struct pickle *p = &r->pickle;
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < p->value_count; i++)
        count += p->values[i].kind == PICKLE_STORAGE;
    if (!(r->storages = mem_alloc(count, sizeof *r->storages, err)))
        return -1;
    count = 0;
    for (size_t i = 0; i < p->value_count; i++)
        if (p->values[i].kind == PICKLE_STORAGE && read_storage(p, &p->values[i], &r->storages[count++], err))
            return -1;
    if (count)
        qsort(r->storages, count, sizeof *r->storages, by_key);
    for (size_t i = 0; i < count; i++)
        if (!kept || by_key(&r->storages[kept - 1], &r->storages[i]))
            r->storages[kept++] = r->storages[i];
    r->storage_count = kept;
    return 0;
}

static bool is_integer(const struct pickle *p, int64_t value)
{
    return p->values[p->root].kind == PICKLE_INTEGER && p->values[p->root].is.integer == value;
}

static bool is_true(const struct pickle *p, const char *key)
{
    const struct pickle_value *root = &p->values[p->root];
    for (uint32_t at = root->kind == PICKLE_DICT ? root->is.chain.first : 0; at; at = p->entries[at - 1].next) {
        const struct pickle_value *name = &p->values[p->entries[at - 1].key], *value = &p->values[p->entries[at - 1].value];
        if (name->kind == PICKLE_TEXT && name->count == strlen(key) && !memcmp(p->data + name->is.integer, key, name->count))
            return value->kind == PICKLE_BOOL && value->is.integer;
    }
    return true;
}

static int read_old(struct reader *r, uint8_t **data, struct err *err)
{
    enum { MAGIC, PROTOCOL, FACTS, DICTIONARY, KEYS, COUNT };
    const struct source_tensor whole = {.file = r->file};
    const uint64_t size = r->cp->files[r->file].bytes;
    const size_t room = size < PICKLE_BYTES_MAX ? (size_t)size : PICKLE_BYTES_MAX;
    size_t at = sizeof OLD_MAGIC + 1;                           /* the magic number and its STOP opcode */
    int rc = -1;
    struct pickle pickles[COUNT] = {0};
    if (!(*data = mem_alloc(room, 1, err)) || checkpoint_read(r->cp, &whole, 0, *data, room, err))
        return -1;
    for (int i = PROTOCOL; i < COUNT; i++) {
        size_t used;
        at = at < room ? at : room;
        if (pickle_read(&pickles[i], *data + at, room - at, &used, err)) {
            err_at(err, "at byte %zu", at);
            goto done;
        }
        at += used;
    }
    if (!is_integer(&pickles[PROTOCOL], OLD_PROTOCOL) || pickles[KEYS].values[pickles[KEYS].root].kind != PICKLE_LIST) {
        damaged(err, "its protocol version is not 1001");
        goto done;
    }
    if (!is_true(&pickles[FACTS], "little_endian")) {
        err_set(err, ERR_INPUT, "was written on a big-endian machine; only little-endian is supported");
        goto done;
    }
    r->pickle = pickles[DICTIONARY];
    pickles[DICTIONARY] = (struct pickle){0};
    rc = collect_storages(r, err) || locate_storages(r, &pickles[KEYS], at, err) ? -1 : 0;
done:
    for (int i = 0; i < COUNT; i++)
        pickle_free(&pickles[i]);
    return rc;
}

/* ---- */

int torch_read_header(struct checkpoint *cp, int file, struct err *err)
{
    const struct source_tensor whole = {.file = file};
    struct reader reader = {.cp = cp, .file = file};
    const uint64_t size = cp->files[file].bytes;
    uint8_t begin[sizeof OLD_MAGIC] = {0}, *data = NULL;
    const size_t bytes = size < sizeof begin ? (size_t)size : sizeof begin;
    int rc = -1;
    if (cp->headers_only)
        return err_set(err, ERR_INPUT, "lists its tensors after their data, which --dry-run does not read from an archive; "
                       "unpack the archive, and name its folder");
    if (checkpoint_read(cp, &whole, 0, begin, bytes, err))
        return -1;
    if (memcmp(begin, "PK\3\4", 4) == 0)
        rc = read_zip(&reader, &data, err);
    else if (memcmp(begin, OLD_MAGIC, sizeof begin) == 0)
        rc = read_old(&reader, &data, err);
    else
        err_set(err, ERR_INPUT, "is in neither of the two formats of torch.save (zip, or older than PyTorch 1.6); it is "
                "damaged, or another kind of file");
    rc = rc || add_tensors(&reader, err) ? -1 : 0;
    torch_zip_free(&reader.zip);
    pickle_free(&reader.pickle);
    mem_free(&reader.storages);
    mem_free(&data);
    return rc;
}
