/* Rules that judge answers: single cases, and the pocket model's golden answers as graded in the run with transformers. */
#include "tests/unit/unit.h"

#include <jansson.h>
#include <math.h>

#include "common/report/grade.h"
#include "common/report/rouge.h"

static void check_number(const char *text, const char *expected)
{
    struct err err = {0};
    struct text out = {0};
    bool found = !expected;
    assert_int_equal(grade_number(text, &out, &found, &err), 0);
    assert_int_equal(found, expected != NULL);
    if (expected)
        assert_string_equal(out.data, expected);
    text_free(&out);
}

static void the_last_number_counts(void **state)
{
    (void)state;
    check_number("5 * 3 = 15. The answer is 59.", "59");
    check_number("59.0", "59");
    check_number("059", "59");
    check_number("0", "0");
    check_number("-0.0", "0");
    check_number("000", "0");
    check_number("0.50 km", "0.5");
    check_number("$1,234,567.80!", "1234567.8");
    check_number("1,23", "23");
    check_number("1234,567", "567");
    check_number("12,3456", "3456");
    check_number("it is -7", "-7");
    check_number("10-7", "7");
    check_number("x-7", "7");
    check_number("(a)-7", "7");
    check_number("-7", "-7");
    check_number("3.", "3");
    check_number("100", "100");
    check_number("1e5", "5");
    check_number("none", NULL);
    check_number("", NULL);
}

static bool correct(enum grade_rule rule, const char *text, const char *expected)
{
    struct err err = {0};
    struct text found = {0};
    double score = -1;
    bool is = false;
    assert_int_equal(grade_answer(rule, text, expected, &is, &score, &found, &err), 0);
    text_free(&found);
    return is;
}

static void rules_differ(void **state)
{
    (void)state;
    assert_true(correct(GRADE_NUMBER, "so 12 + 3 = 15", "The answer is 15."));
    assert_false(correct(GRADE_NUMBER, "so 12 + 3 = 16", "The answer is 15."));
    assert_false(correct(GRADE_NUMBER, "no idea", "no idea"));
    assert_true(correct(GRADE_EXACT, " a b\n", "a b"));
    assert_true(correct(GRADE_EXACT, "", " "));
    assert_false(correct(GRADE_EXACT, "a  b", "a b"));
    assert_false(correct(GRADE_EXACT, "a bc", "a b"));
    assert_int_equal(grade_rule_of("math", "C"), GRADE_NUMBER);
    assert_int_equal(grade_rule_of("GSM8K", NULL), GRADE_NUMBER);
    assert_int_equal(grade_rule_of("code", NULL), GRADE_EXACT);
    assert_int_equal(grade_rule_of(NULL, NULL), GRADE_EXACT);
}

/* Reads the JSON lines of a file of the pocket model, one object after the other. */
static json_t *lines_of(const char *name)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/pocket/%s", unit_models(), name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    json_t *lines = json_array(), *line;
    while ((line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)))
        json_array_append_new(lines, line);
    fclose(file);
    return lines;
}

static void golden_answers_are_graded_alike(void **state)
{
    (void)state;
    static const char *const tasks[] = {"math", "code", "extract", "summ"};
    static const int expected[] = {50, 56, 21, 25};
    int counts[4] = {0};
    json_t *golden = lines_of("golden.jsonl"), *prompts = lines_of("heldout.jsonl");
    assert_int_equal(json_array_size(golden), 240);
    assert_int_equal(json_array_size(prompts), 240);
    for (size_t i = 0; i < 240; i++) {
        json_t *answer = json_array_get(golden, i), *prompt = json_array_get(prompts, i);
        assert_string_equal(json_string_value(json_object_get(answer, "id")), json_string_value(json_object_get(prompt, "id")));
        const char *task = json_string_value(json_object_get(prompt, "task"));
        enum grade_rule rule = !strcmp(task, "math") ? GRADE_NUMBER : GRADE_EXACT;
        bool is = correct(rule, json_string_value(json_object_get(answer, "text")),
                          json_string_value(json_object_get(prompt, "answer")));
        assert_int_equal(is, json_is_true(json_object_get(answer, "correct")));
        for (int t = 0; t < 4; t++)
            counts[t] += is && !strcmp(task, tasks[t]);
    }
    for (int t = 0; t < 4; t++)
        assert_int_equal(counts[t], expected[t]);
    json_decref(golden);
    json_decref(prompts);
}

static void json_is_compared_by_field(void **state)
{
    (void)state;
    const char *want = "{\"name\": \"Vic\", \"age\": 36, \"tags\": [1, {\"a\": 2}]}";
    assert_true(correct(GRADE_JSON, "Here: {\"tags\":[1.0,{\"a\":2}],\"age\":36.0,\"name\":\"Vic\"} as asked", want));
    assert_true(correct(GRADE_JSON, "{x} {\"name\": \"Vic\", \"age\": 36, \"tags\": [1, {\"a\": 2}]} {\"name\": 1}", want));
    assert_false(correct(GRADE_JSON, "{\"name\": \"Vic\", \"age\": 36}", want));
    assert_false(correct(GRADE_JSON, "{\"name\": \"Vic\", \"age\": 36, \"tags\": [1, {\"a\": 2}], \"x\": 0}", want));
    assert_false(correct(GRADE_JSON, "{\"name\": \"vic\", \"age\": 36, \"tags\": [1, {\"a\": 2}]}", want));
    assert_false(correct(GRADE_JSON, "{\"name\": \"Vic\", \"age\": 36, \"tags\": [1, {\"a\": 3}]}", want));
    assert_false(correct(GRADE_JSON, "{\"name\": \"Vic\", \"age\": 36, \"tags\": [1", want));
    assert_false(correct(GRADE_JSON, "36", want));
    assert_false(correct(GRADE_JSON, "{}", "no object"));
}

static void code_is_compared_by_line(void **state)
{
    (void)state;
    const char *want = "def f(x):\n    return x\n";
    assert_true(correct(GRADE_CODE, "\n  def f(x):  \n\n      return x", want));
    assert_true(correct(GRADE_CODE, "def f(x):\r\n\treturn x\r\n", want));
    assert_true(correct(GRADE_CODE, "Sure:\n```python\ndef f(x):\n    return x\n```\nDone", want));
    assert_false(correct(GRADE_CODE, "def f(x):\n  return x", want));
    assert_false(correct(GRADE_CODE, "def f(x):\n    return y", want));
    assert_false(correct(GRADE_CODE, "def f(x):", want));
    assert_false(correct(GRADE_CODE, "```", want));
    assert_false(correct(GRADE_CODE, "", want));
}

static void check_rouge(const char *text, const char *expected, double f1)
{
    struct err err = {0};
    double score = -1;
    assert_int_equal(rouge_l(text, expected, &score, &err), 0);
    assert_true(fabs(score - f1) < 1e-12);
}

/* The police example is Lin's; the others are calculated: 2 x common / (words + words). */
static void summaries_are_compared_by_sequence(void **state)
{
    (void)state;
    check_rouge("police kill the gunman", "police killed the gunman", 0.75);
    check_rouge("the gunman kill police", "police killed the gunman", 0.5);
    check_rouge("The CAT, sat!", "the cat sat", 1);
    check_rouge("a b c d e", "b d", 2 * 2 / 7.0);
    check_rouge("", "b d", 0);
    check_rouge("...", "", 0);
    assert_true(grade_scores(grade_rule_names[GRADE_ROUGE]));
    assert_false(grade_scores(grade_rule_names[GRADE_EXACT]) || grade_scores("command"));
    assert_false(correct(GRADE_ROUGE, "the gunman", "the gunman"));         /* a score without a verdict */
    assert_int_equal(grade_rule_of("CNN_DM", NULL), GRADE_ROUGE);
    assert_int_equal(grade_rule_of("summ", "#### 5"), GRADE_ROUGE);
}

/* Scores by Google's rouge-score (tests/golden/rouge/make.py): typographic quotes, letters that it drops, random texts. */
static void summaries_score_as_with_rouge_score(void **state)
{
    (void)state;
    json_t *cases = lines_of("../../golden/rouge/cases.jsonl");
    assert_int_equal(json_array_size(cases), 40);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *one = json_array_get(cases, i);
        check_rouge(json_string_value(json_object_get(one, "text")), json_string_value(json_object_get(one, "expected")),
                    json_number_value(json_object_get(one, "score")));
    }
    json_decref(cases);
}

static void the_answer_stands_after_marks(void **state)
{
    (void)state;
    const char *gsm8k = "She has 48 / 2 = <<48/2=24>>24 left.\nSo 24 + 34 = 58 clips.\n#### 58";
    assert_true(correct(GRADE_NUMBER, "so that makes 58.", gsm8k));
    assert_true(correct(GRADE_NUMBER, "24 + 34 = 58\n#### 58\n\nQuestion: 3 apples\n#### 3", gsm8k));
    assert_true(correct(GRADE_NUMBER, "Hence $\\boxed{58}$, which is 10 more than 48.", gsm8k));
    assert_true(correct(GRADE_NUMBER, "#### $1,258.00 for 3", "#### 1258"));
    assert_true(correct(GRADE_NUMBER, "#### \n58", "58"));
    assert_false(correct(GRADE_NUMBER, "58\n#### 57", gsm8k));
    assert_false(correct(GRADE_NUMBER, "58 is not \\boxed{57}", gsm8k));
    assert_true(correct(GRADE_BOXED, "Thus \\boxed{ \\dfrac{1}{2} }.", "It is $\\boxed{\\frac{1}{2}}$"));
    assert_true(correct(GRADE_BOXED, "\\boxed{0} no, \\boxed{\\left(1,\\, 2\\right)}, not \\boxed{3", "\\boxed{(1,2)}"));
    assert_true(correct(GRADE_BOXED, "x + 1.", "\\boxed{x+1}"));
    assert_false(correct(GRADE_BOXED, "\\boxed{x+2}", "\\boxed{x+1}"));
}

static void check_letter(const char *text, char expected)
{
    const char all[] = "ABCDEFGHIJ";
    for (size_t i = 0; i < sizeof all - 1; i++)
        assert_int_equal(correct(GRADE_LETTER, text, (char[]){'(', all[i], ')', '\0'}), all[i] == expected);
}

static void a_letter_is_chosen(void **state)
{
    (void)state;
    check_letter("C", 'C');
    check_letter("(c)", 'C');
    check_letter("C) because B is wrong", 'C');
    check_letter("B. Paris\nThe others are no capitals.", 'B');
    check_letter("A is wrong, so the answer is (B). Not C", 'B');
    check_letter("**Answer:** D", 'D');
    check_letter("The correct answer is: **E**", 'E');
    check_letter("I think the answer is $\\boxed{\\text{F}}$, not G", 'F');
    check_letter("Hence \\boxed{C}.", 'C');
    check_letter("I would say A, no: B", 'B');
    check_letter("The answer is a number. I choose C", 'C');
    check_letter("A man I know said so", '\0');
    check_letter("", '\0');
    check_letter("Paris", '\0');
}

static void the_expected_answer_asks_for_a_rule(void **state)
{
    static const struct { const char *expected; enum grade_rule rule; } cases[] = {
        {"24 + 34 = 58\n#### 58", GRADE_NUMBER}, {"$\\boxed{-1,058.5}$", GRADE_NUMBER}, {"\\boxed{\\pi}", GRADE_BOXED},
        {"\\boxed{}", GRADE_BOXED}, {"C", GRADE_LETTER}, {" (b)\n", GRADE_LETTER}, {"D.", GRADE_LETTER}, {"58", GRADE_EXACT},
        {"no", GRADE_EXACT}, {"", GRADE_EXACT}, {"#### none", GRADE_EXACT}, {"\\boxed{5", GRADE_EXACT},
        {"\xc3\xa4", GRADE_EXACT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(grade_rule_of(NULL, cases[i].expected), cases[i].rule);
        assert_int_equal(grade_rule_of("svamp", cases[i].expected), GRADE_NUMBER);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_number_counts),
        cmocka_unit_test(rules_differ),
        cmocka_unit_test(the_answer_stands_after_marks),
        cmocka_unit_test(a_letter_is_chosen),
        cmocka_unit_test(the_expected_answer_asks_for_a_rule),
        cmocka_unit_test(json_is_compared_by_field),
        cmocka_unit_test(code_is_compared_by_line),
        cmocka_unit_test(summaries_are_compared_by_sequence),
        cmocka_unit_test(summaries_score_as_with_rouge_score),
        cmocka_unit_test(golden_answers_are_graded_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
