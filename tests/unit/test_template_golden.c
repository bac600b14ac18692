/* Chat templates compared with jinja2's renderings (tests/golden/template/make.py). */
#include "tests/unit/unit.h"

#include <stdio.h>

#include "common/template/template.h"

static int render(const json_t *one, struct template_output *out, struct err *err)
{
    json_t *trusted = json_pack("{s:s, s:s}", "bos_token", "<s>", "eos_token", "</s>");
    const char *source = json_string_value(json_object_get(one, "template"));
    struct template *t = NULL;
    json_object_set_new(json_object_get(one, "values"), "now", json_string("2025-08-05 12:30:09"));
    if (template_new(&t, source, strlen(source), err))          /* none of these templates needs an unsupported feature */
        fail_msg("%s: %s", json_string_value(json_object_get(one, "name")), err->text);
    int rc = template_render(t, json_object_get(one, "values"), trusted, out, err);
    template_free(&t);
    json_decref(trusted);
    return rc;
}

static void texts_are_those_of_jinja2(void **state)
{
    (void)state;
    FILE *file = fopen("tests/golden/template/cases.jsonl", "r");
    char *line = NULL;
    size_t room = 0, cases = 0, errors = 0, wrong = 0;
    assert_non_null(file);
    while (getline(&line, &room, file) > 0) {
        struct err err = {0};
        struct template_output out = {0};
        json_t *one = json_loads(line, 0, NULL);
        assert_non_null(one);
        const json_t *want = json_object_get(one, "output");
        int rc = render(one, &out, &err);
        const char *got = out.text.data ? out.text.data : "";
        cases++;
        errors += json_is_null(want);
        if (json_is_null(want) ? !rc : rc || strlen(got) != json_string_length(want) || strcmp(got, json_string_value(want))) {
            print_error("%s, case %zu:\n--- wants\n%s\n--- gives\n%s\n", json_string_value(json_object_get(one, "name")), cases,
                        json_is_null(want) ? "(an error)" : json_string_value(want), rc ? err.text : got);
            wrong++;
        }
        template_output_free(&out);
        json_decref(one);
    }
    free(line);
    fclose(file);
    assert_true(cases > 100 && errors > 5 && errors < cases / 4);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_are_those_of_jinja2)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
