#include "common/predict/calibration.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"

enum { FILE_LIMIT = 1 << 20, FILE_VERSION = 1, FITS = ESTIMATOR_KINDS * ESTIMATOR_SPANS,
       NUMBERS = 1 + ESTIMATOR_FEATURES + ESTIMATOR_FEATURES * ESTIMATOR_FEATURES,
       CORRECTION_NUMBERS = 2 * ESTIMATOR_MATCHES + 2 * ESTIMATOR_KNOTS };

static double *number_of(struct estimator *estimator, int which, int at)
{
    struct estimator_fit *fit = &estimator->fit[which / ESTIMATOR_SPANS][which % ESTIMATOR_SPANS];
    const int row = at - 1 - ESTIMATOR_FEATURES;
    return !at ? &fit->loss : row < 0 ? &fit->weight[at - 1]
         : &fit->information[row / ESTIMATOR_FEATURES][row % ESTIMATOR_FEATURES];
}

static double *correction_number_of(struct estimator *estimator, int which, int at)
{
    struct estimator_correction *correction = &estimator->correction[which];
    const int second = at - 2 * ESTIMATOR_MATCHES;
    return second < 0 ? at < ESTIMATOR_MATCHES ? &correction->offset[at] : &correction->information[at - ESTIMATOR_MATCHES]
         : second < ESTIMATOR_KNOTS ? &correction->error[second] : &correction->seen[second - ESTIMATOR_KNOTS];
}

typedef double *number(struct estimator *estimator, int which, int at);

/* Reads `count` lists of `numbers` numbers; returns whether these are the lists of the file. */
static bool get_lists(struct estimator *out, const json_t *lists, number *number_at, int count, int numbers)
{
    bool right = json_array_size(lists) == (size_t)count;
    for (int which = 0; right && which < count; which++) {
        const json_t *list = json_array_get(lists, (size_t)which);
        right = json_array_size(list) == (size_t)numbers;
        for (int at = 0; right && at < numbers; at++) {
            const json_t *one = json_array_get(list, (size_t)at);
            right = json_is_number(one);
            *number_at(out, which, at) = json_number_value(one);
        }
    }
    return right;
}

static int get_estimator(struct estimator *out, const json_t *map, struct err *err)
{
    const json_t *seen = json_object_get(map, "seen"), *corrections = json_object_get(map, "corrections");
    struct estimator made = *out;
    made.seen = json_number_value(seen);
    if (!json_is_number(seen) || !get_lists(&made, json_object_get(map, "fits"), number_of, FITS, NUMBERS))
        return err_set(err, ERR_INPUT, "expected \"seen\", a number, and \"fits\", %d lists of %d numbers", FITS, NUMBERS);
    memset(made.correction, 0, sizeof made.correction);
    if (corrections && !get_lists(&made, corrections, correction_number_of, ESTIMATOR_KINDS, CORRECTION_NUMBERS))
        return err_set(err, ERR_INPUT, "expected \"corrections\", %d lists of %d numbers", ESTIMATOR_KINDS, CORRECTION_NUMBERS);
    if (!estimator_is_sound(&made))
        return err_set(err, ERR_INPUT, "its numbers cannot come from a regression; the file is damaged, so remove it");
    *out = made;
    return 0;
}

static int get_file(const json_t *map, const char *model, const struct calibration_entry *entry, int entries, struct err *err)
{
    const json_t *drafters = json_object_get(map, "drafters");
    const char *of = json_string_value(json_object_get(map, "model"));
    if (json_integer_value(json_object_get(map, "calibration")) != FILE_VERSION || !of || !json_is_object(drafters))
        return err_set(err, ERR_INPUT, "this is not a calibration file of version %d; name another file, and --calibration "
                       "will write it", FILE_VERSION);
    if (*of && *model && strcmp(of, model))
        return err_set(err, ERR_INPUT, "this calibration is for other weights; use another file, or remove this one");
    for (int i = 0; i < entries; i++) {
        const json_t *saved = json_object_get(drafters, entry[i].drafter);
        if (saved && get_estimator(entry[i].estimator, saved, err))
            return err_at(err, "\"%s\"", entry[i].drafter);
    }
    return 0;
}

int calibration_read(const char *path, const char *model, const struct calibration_entry *entry, int entries, struct err *err)
{
    if (access(path, F_OK) && errno == ENOENT)          /* this run creates the file */
        return 0;
    json_t *map = json_file(path, FILE_LIMIT, "a calibration", err);
    if (!map)
        return -1;
    int rc = get_file(map, model, entry, entries, err) ? err_at(err, "%s", path) : 0;
    json_decref(map);
    return rc;
}

/* Returns a JSON array of `count` lists of `numbers` numbers; NULL: out of memory. */
static json_t *lists_json(struct estimator *estimator, number *number_at, int count, int numbers)
{
    json_t *lists = json_array();
    int rc = !lists;
    for (int which = 0; !rc && which < count; which++) {
        json_t *list = json_array();
        rc = json_array_append_new(lists, list);
        for (int at = 0; !rc && at < numbers; at++)
            rc = json_array_append_new(list, json_real(*number_at(estimator, which, at)));
    }
    if (!rc)
        return lists;
    json_decref(lists);
    return NULL;
}

/* Returns the JSON object of an estimator; NULL: out of memory. */
static json_t *estimator_json(struct estimator *estimator)
{
    return json_pack("{s:f, s:o, s:o}", "seen", estimator->seen, "fits", lists_json(estimator, number_of, FITS, NUMBERS),
                     "corrections", lists_json(estimator, correction_number_of, ESTIMATOR_KINDS, CORRECTION_NUMBERS));
}

int calibration_write(const char *path, const char *model, const struct calibration_entry *entry, int entries, struct err *err)
{
    json_t *drafters = json_object();
    json_t *map = json_pack("{s:i, s:s, s:o*}", "calibration", FILE_VERSION, "model", model, "drafters", drafters);
    bool whole = map && drafters;
    for (int i = 0; whole && i < entries; i++)
        whole = !json_object_set_new(drafters, entry[i].drafter, estimator_json(entry[i].estimator));
    int rc = whole ? json_write(path, map, JSON_COMPACT, err) : err_memory(err);
    json_decref(map);
    return rc;
}
