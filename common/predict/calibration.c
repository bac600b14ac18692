#include "common/predict/calibration.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"

enum { FILE_LIMIT = 1 << 20, FILE_VERSION = 1, FITS = ESTIMATOR_KINDS * ESTIMATOR_SPANS,
       NUMBERS = 1 + ESTIMATOR_FEATURES + ESTIMATOR_FEATURES * ESTIMATOR_FEATURES };

static double *number_of(struct estimator_fit *fit, int at)
{
    const int row = at - 1 - ESTIMATOR_FEATURES;
    return !at ? &fit->loss : row < 0 ? &fit->weight[at - 1]
         : &fit->information[row / ESTIMATOR_FEATURES][row % ESTIMATOR_FEATURES];
}

static int get_estimator(struct estimator *out, const json_t *map, struct err *err)
{
    const json_t *fits = json_object_get(map, "fits"), *seen = json_object_get(map, "seen");
    struct estimator made = *out;
    bool right = json_is_number(seen) && json_array_size(fits) == FITS;
    made.seen = json_number_value(seen);
    for (int fit = 0; right && fit < FITS; fit++) {
        const json_t *list = json_array_get(fits, (size_t)fit);
        right = json_array_size(list) == NUMBERS;
        for (int at = 0; right && at < NUMBERS; at++) {
            const json_t *number = json_array_get(list, (size_t)at);
            right = json_is_number(number);
            *number_of(&made.fit[fit / ESTIMATOR_SPANS][fit % ESTIMATOR_SPANS], at) = json_number_value(number);
        }
    }
    if (!right)
        return err_set(err, ERR_INPUT, "expected \"seen\", a number, and \"fits\", %d lists of %d numbers", FITS, NUMBERS);
    if (!estimator_is_sound(&made))
        return err_set(err, ERR_INPUT, "its numbers are of no regression; remove the file");
    *out = made;
    return 0;
}

static int get_file(const json_t *map, const char *model, const struct calibration_entry *entry, int entries, struct err *err)
{
    const json_t *drafters = json_object_get(map, "drafters");
    const char *of = json_string_value(json_object_get(map, "model"));
    if (json_integer_value(json_object_get(map, "calibration")) != FILE_VERSION || !of || !json_is_object(drafters))
        return err_set(err, ERR_INPUT, "this is not a calibration of version %d; --calibration writes them", FILE_VERSION);
    if (*of && *model && strcmp(of, model))
        return err_set(err, ERR_INPUT, "it is for other weights; use another file, or remove it");
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

/* Returns the JSON object of an estimator; NULL: out of memory. */
static json_t *estimator_json(struct estimator *estimator)
{
    json_t *fits = json_array(), *map = json_pack("{s:f, s:o*}", "seen", estimator->seen, "fits", fits);
    int rc = !map || !fits;
    for (int fit = 0; !rc && fit < FITS; fit++) {
        json_t *list = json_array();
        rc = json_array_append_new(fits, list);
        for (int at = 0; !rc && at < NUMBERS; at++)
            rc = json_array_append_new(list, json_real(*number_of(&estimator->fit[fit / ESTIMATOR_SPANS][fit % ESTIMATOR_SPANS],
                                                                 at)));
    }
    if (!rc)
        return map;
    json_decref(map);
    return NULL;
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
