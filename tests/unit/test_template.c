/* Chat templates: the output of Jinja2 with transformers' settings (expected texts were made with Jinja2 3.1), the origin of
 * each byte, and rejected templates. */
#include "tests/unit/unit.h"

#include "common/template/template.h"
#include "common/tokenizer/config.h"

static const char values_json[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"You are  helpful.\\n\"},{\"role\":\"user\",\"content\":\" Hi "
      "<|end|>\\n\"},"
    "{\"role\":\"assistant\",\"content\":\"<think>a b</think>ok\"},{\"role\":\"user\",\"content\":\"bye\"}],"
    "\"add_generation_prompt\":true,\"now\":\"2025-08-05 12:30:09\",\"n\":7,"
    "\"f\":1.5,\"s\":\"Hello World\",\"l\":[3,1,2],\"e\":[],\"u\":\"a\\u00e9\\u6f22b\","
    "\"d\":{\"b\":1,\"a\":[1,\"x\",null,true,2.5]}}";
static const char trusted_json[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";

/* Returns 0 with the text in *out (malloc'ed), or -1 with the message in *out. */
static int render(const char *source, struct template_output *made, char **out)
{
    struct err err = {0};
    struct template *t = NULL;
    json_t *values = json_loads(values_json, 0, NULL), *trusted = json_loads(trusted_json, 0, NULL);
    struct template_output local = {0}, *to = made ? made : &local;
    assert_non_null(values);
    int rc = template_new(&t, source, strlen(source), &err) || template_render(t, values, trusted, to, &err) ? -1 : 0;
    *out = strdup(rc ? err.text : to->text.data ? to->text.data : "");
    template_output_free(&local);
    template_free(&t);
    json_decref(values);
    json_decref(trusted);
    return rc;
}

static const struct { const char *source, *expected; } same[] = {
    { "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] }}{% if m['role'] == 'assistant' %}{{ "
      "'<|end|>\\n' }}"
      "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
      "<|system|>\nYou are  helpful.\n<|user|>\n Hi <|end|>\n<|assistant|>\n<think>a b</think>ok<|end|>\n<|user|>\nbye"
      "<|assistant|>\n" },
    { "{{ strftime_now('%d %b %Y, %A %j, %H:%M:%S') }}{{ strftime_now('') }}{% macro m() %}{{ strftime_now('%y%%') }}"
      "{% endmacro %}{{ m() }}{{ strftime_now is defined }}{{ strftime_now is callable }}",
      "05 Aug 2025, Tuesday 217, 12:30:09" "25%TrueTrue" },
    { "{{ none|selectattr('a')|list }}{{ ''|map('upper')|list }}{{ 0|reject('none')|list }}", "[][][]" },
    { "a\n  {% if true %}\n   b\n  {% endif %}\nc {# comment #}\n  {# other #}\nd\n", "a\n   b\nc d" },
    { "x\n{%- if true -%}\n   y   \n{%- endif -%}\n   z\n{%+ if true +%}\nw\n{% endif %}\n {{- 'q' -}} \n v\n",
      "xyz\n\nw\nqv" },
    { "{{ 1 }} {{ 1.0 }} {{ 1e20 }} {{ 0.1 }} {{ 7//2 }} {{ -7//2 }} {{ -7%3 }} {{ 7%-3 }} {{ 2**10 }} {{ 7/2 }}",
      "1 1.0 1e+20 0.1 3 -4 2 -2 1024 3.5" },
    { "{{ none }}{{ true }}{{ [1,'a',none,\"it's\"] }}{{ d }}", "NoneTrue[1, 'a', None, \"it's\"]{'b': 1, 'a': [1, 'x', "
      "None, True, 2.5]}" },
    { "{{ s[0] }}{{ s[-1] }}{{ s[1:3] }}{{ s[:-8] }}{{ s[::-1] }}{{ l[1:] }}{{ l[::-1] }}{{ u[1:3] }}{{ u[::-1] }}{{ "
      "u|length }}",
      "HdelHeldlroW olleH[1, 2][2, 1, 3]\xC3\xA9\xE6\xBC\xA2" "b\xE6\xBC\xA2\xC3\xA9" "a4" },
    { "{{ s|upper }}{{ s|lower }}{{ s|title }}{{ s|first }}{{ s|last }}{{ l|join(', ') }}{{ '  a '|trim }}{{ "
      "s|replace('l','L') }}",
      "HELLO WORLDhello worldHello WorldHd3, 1, 2aHeLLo WorLd" },
    { "{{ d|tojson }}{{ {'a': [1, {'b': []}]}|tojson(indent=2) }}{{ \"\\n\\\"\"|tojson }}",
      "{\"b\": 1, \"a\": [1, \"x\", null, true, 2.5]}{\n  \"a\": [\n    1,\n    {\n      \"b\": []\n    }\n  ]\n}\"\\n\\\"\"" },
    { "{{ q }}|{{ q is defined }}|{{ q|default('x') }}|{{ ''|default('y', true) }}|{{ d.z is defined }}|{{ d.get('q', 3) }}",
      "|False|x|y|False|3" },
    { "{% set ns = namespace(x=1) %}{% for i in range(3) %}{% set ns.x = ns.x + i %}{% set z = i %}{% endfor %}{{ ns.x }}{{ "
      "z is defined }}",
      "4False" },
    { "{% for i in range(10) if i % 2 == 0 %}{{ loop.index }}:{{ i }}/{{ loop.length }}{% if not loop.last %},{% endif %}{% "
      "else %}no"
      "{% endfor %}{% for i in e %}x{% else %}none{% endfor %}", "1:0/5,2:2/5,3:4/5,4:6/5,5:8/5none" },
    { "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
      "b=1;a=[1, 'x', None, True, 2.5];ba" },
    { "{% macro f(a, b='B') %}[{{ a }}{{ b }}]{% endmacro %}{{ f(1) }}{{ f(1,2) }}{{ f(b=3,a=1) }}{{ f('x')|lower }}",
      "[1B][12][13][xb]" },
    { "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{{ "
      "loop.revindex }}"
      "{% endfor %}", "0523" },
    { "{{ 'a' if n > 5 else 'b' }}{{ n is odd }}{{ n is divisibleby 7 }}{{ s is string }}{{ d is mapping }}{{ n is not none }}"
      "{{ 'ell' in s }}{{ 9 not in l }}{{ 'b' in d }}{{ 1 < 2 < 3 }}{{ 1 == 1.0 }}{{ 'a' == 1 }}{{ not n }}",
      "aTrueTrueTrueTrueTrueTrueTrueTrueTrueTrueFalseFalse" },
    { "{{ s.split('o') }}{{ ' a  b '.split() }}{{ s.startswith('He') }}{{ s.strip('Hd') }}{{ '-'.join(['a','b']) }}{{ "
      "s.find('W') }}",
      "['Hell', ' W', 'rld']['a', 'b']Trueello Worla-b6" },
    { "{{ messages|selectattr('role','equalto','user')|map(attribute='content')|list|length }}{{ "
      "messages|map(attribute='role')|join(',') }}",
      "2system,user,assistant,user" },
    { "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t %}blk{{ a }}{% endset %}{{ t }}{{ 'x' ~ 1 ~ none }}{{ 'a' 'b' }}{{ 2 + 3 "
      "* 4 }}",
      "12blk1x1Noneab14" },
    { "{{ bos_token }}{% set c = messages[2].content.split('</think>')[-1].lstrip('\\n') %}{{ c }}{{ eos_token }}",
      "<s>ok</s>" },
    { "{{ '}}' }}{{ {'a': {}} }}{% if '%}' == \"%}\" %}ok{% endif %}{{ '\\u00e9\\x41' }}", "}}{'a': {}}ok\xC3\xA9" "A" },
};

static void text_is_that_of_the_reference(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char *text;
        if (render(same[i].source, NULL, &text) || strcmp(text, same[i].expected))
            fail_msg("%s\n gives: %s\n not:   %s", same[i].source, text, same[i].expected);
        free(text);
    }
}

static void errors_name_line_and_construct(void **state)
{
    static const struct { const char *source, *named; } cases[] = {
        { "\n\n{% include 'x' %}", "line 3: the statement \"include\"" },
        { "{{ s|nosuch }}", "the filter \"nosuch\"" },
        { "{{ s is nosuch }}", "the test \"nosuch\"" },
        { "{% if s %}\n{{ s|nosuch }}{% endif %}", "line 2: the filter \"nosuch\"" },
        { "{% if s %}\n{{ s is nosuch }}{% endif %}", "line 2: the test \"nosuch\"" },
        { "{{ l|dictsort }}", "dictsort takes a mapping, not a list" },
        { "{{ {'a': 1}|dictsort(by='x') }}", "by \"key\" or by \"value\"" },
        { "{{ ['a', 1]|sort }}", "cannot be ordered" },
        { "{{ '%f'|format(1) }}", "format supports %s, %d" },
        { "{{ '%d'|format('a') }}", "%d takes an integer, not a string" },
        { "{{ '%s %s'|format(1) }}", "not enough" },
        { "{{ '%s'|format(1, 2) }}", "more values" },
        { "{{ l|tojson(separators=(',',)) }}", "two strings" },
        { "{{ nosuch_now('%d') }}", "the function \"nosuch_now\"" },
        { "{% set now = 'x' %}{{ strftime_now('%d', 1) }}", "strftime_now" },
        { "\n{{ strftime_now('%200d%200d') }}", "line 2: strftime_now makes more than 255 bytes" },
        { "{{ s.nosuch() }}", "\"nosuch\"" },
        { "{{ l.append(1) }}", "\"append\"" },
        { "a\n{{ q.x }}", "line 2: \"q\" is undefined" },
        { "{{ 1 + 'a' }}", "+ is not defined for an integer and a string" },
        { "{{ 1 // 0 }}", "division" },
        { "{{ 9223372036854775807 + 1 }}", "64 bits" },
        { "{{ raise_exception('roles must ' ~ 'alternate') }}", "roles must alternate" },
        { "{% if 1 %}", "no elif" },
        { "{% endif %}", "\"endif\"" },
        { "{{ 'abc }}", "does not end" },
        { "{{ 1 ", "does not end" },
        { "{# x", "does not end" },
        { "{% for a in 5 %}{% endfor %}", "cannot be iterated" },
        { "{% break %}", "outside of a loop" },
        { "{{ loop.cycle('a') }}", "\"loop\"" },
        { "{% for i in l %}{{ loop.cycle('a') }}{% endfor %}", "loop.cycle" },
        { "{% set s.x = 1 %}", "namespace" },
        { "{% set a, b = l %}", "3 values for 2 names" },
        { "\xFF", "UTF-8" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text;
        assert_int_equal(render(cases[i].source, NULL, &text), -1);
        if (!strstr(text, cases[i].named))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].source, text, cases[i].named);
        free(text);
    }
}

static void what_never_ends_is_stopped(void **state)
{
    static const char *const sources[] = {
        "{% for i in range(100000000000) %}{% endfor %}",
        "{% for i in range(3000) %}{% for k in range(3000) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set ns = namespace(x='aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% "
          "endfor %}",
        "{{ 'a' * 100000000000 }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(2000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=1) %}{% for i in range(100) %}{% set ns.x = ns.x * 10 %}{% endfor %}",
    };
    char deep[6000], *text;
    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        if (!render(sources[i], NULL, &text) || (strstr(sources[i], "macro") && !strstr(text, "nested deeper")))
            fail_msg("%s: %s", sources[i], text);
        free(text);
    }
    for (const char *kind = "([-"; *kind; kind++) {
        memset(deep, *kind, sizeof deep);
        memcpy(deep, "{{", 2);
        deep[sizeof deep - 1] = '\0';
        assert_int_equal(render(deep, NULL, &text), -1);
        assert_non_null(strstr(text, "nested deeper"));
        free(text);
    }
}

static void the_day_is_a_value(void **state)
{
    static const struct { const char *now, *expected; } cases[] = {
        { "\"2024-02-29\"", "Thu 060 00:00" }, { "\"2025-08-05 23:59:59\"", "Tue 217 23:59" },
        { "\"2025-08-05 23\"", "give it as in" }, { "\"yesterday\"", "now is \"yesterday\"; give it as in" },
        { "\"2025-08-05 12:30:00 and more\"", "give it as in" }, { "5", "needs the value \"now\"" },
        { "null", "needs the value \"now\"" } };
    static const char source[] = "{{ strftime_now('%a %j %H:%M') }}";
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct template *t = NULL;
        struct template_output out = {0};
        json_t *values = json_object();
        json_object_set_new(values, "now", json_loads(cases[i].now, JSON_DECODE_ANY, NULL));
        assert_int_equal(template_new(&t, source, strlen(source), &err), 0);
        int rc = template_render(t, values, NULL, &out, &err);
        assert_int_equal(rc, i < 2 ? 0 : -1);
        assert_non_null(strstr(rc ? err.text : out.text.data, cases[i].expected));
        template_output_free(&out);
        template_free(&t);
        json_decref(values);
    }
}

/* T[...] from the template, c[...] from the values. */
static char *origins(const struct template_output *out)
{
    struct text text = {0};
    size_t at = 0;
    for (size_t i = 0; i < out->n_segments; i++) {
        text_printf(&text, NULL, "%c[%.*s]", out->segments[i].from_template ? 'T' : 'c', (int)out->segments[i].bytes,
                    out->text.data + at);
        at += out->segments[i].bytes;
    }
    assert_int_equal(at, out->text.length);
    return text.data;
}

static void each_byte_knows_where_it_is_from(void **state)
{
    static const struct { const char *source, *expected; } cases[] = {
        { "{% for m in messages[1:2] %}{{ '<|' + m.role + '|>\\n' + m.content }}{% endfor %}<|end|>", "T[<|user|>\n]c[ Hi "
          "<|end|>\n]T[<|end|>]" },
        { "{{ bos_token }}{{ s }}{{ eos_token }}", "T[<s>]c[Hello World]T[</s>]" },
        { "{{ ('<' ~ s ~ '>')[3:-3] }}", "c[llo Wor]" },
        { "{{ ('<' ~ s ~ '>')[::-1] }}", "T[>]c[dlroW olleH]T[<]" },
        { "{{ ('<a>' + s)|upper|replace('L', '<l>') }}", "T[<A>]c[HE]T[<l><l>]c[O WOR]T[<l>]c[D]" },
        { "{{ [s, '|', s]|join(',') }}", "c[Hello World]T[,|,]c[Hello World]" },
        { "{{ ('x' + s).split('o') | first }}", "T[x]c[Hell]" },
        { "{% set t %}<{{ s }}>{% endset %}{{ t }}", "T[<]c[Hello World]T[>]" },
        { "{% macro f(x) %}({{ x|trim }}){% endmacro %}{{ f(' ' + s + ' ') }}", "T[(]c[Hello World]T[)]" },
        { "{{ {'k': s}|tojson }}", "T[{\"k\": ]c[\"Hello World\"]T[}]" },
        { "{{ [s + 'z'] }}", "T[[]c['Hello Worldz']T[]]" },
        { "{{ s|list|last }}{{ n }}{{ d.keys()|first }}", "c[d]T[7]c[b]" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct template_output out = {0};
        char *text, *seen;
        if (render(cases[i].source, &out, &text))
            fail_msg("%s", text);
        seen = origins(&out);
        if (strcmp(seen, cases[i].expected))
            fail_msg("%s\n gives: %s\n not:   %s", cases[i].source, seen, cases[i].expected);
        free(text);
        free(seen);
        template_output_free(&out);
    }
}

static void other_roles_are_content(void **state)
{
    static const char source[] = "{{ '<|' + m.role + '|>' }}", values[] = "{\"m\":{\"role\":\"end\"}}";
    struct template *t = NULL;
    struct template_output out = {0};
    json_t *json = json_loads(values, 0, NULL);
    (void)state;
    assert_int_equal(template_new(&t, source, strlen(source), NULL), 0);
    assert_int_equal(template_render(t, json, NULL, &out, NULL), 0);
    char *seen = origins(&out);
    assert_string_equal(seen, "T[<|]c[end]T[|>]");
    free(seen);
    template_output_free(&out);
    template_free(&t);
    json_decref(json);
}

static void configuration_gives_template_and_special_strings(void **state)
{
    static const struct { const char *json, *chat, *eos; } cases[] = {
        { "{\"eos_token\":\"<e>\",\"chat_template\":\"x\"}", "x", "<e>" },
        { "{\"eos_token\":{\"content\":\"<e>\",\"lstrip\":false},\"chat_template\":[{\"name\":\"rag\",\"template\":\"r\"},"
          "{\"name\":\"default\",\"template\":\"y\"}]}", "y", "<e>" },
        { "{\"eos_token\":null}", NULL, NULL },
    };
    static const char *const faulty[] = { "", "[]", "{\"chat_template\":5}",
      "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"r\"}]}" };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tokenizer_config config = {0};
        assert_int_equal(tokenizer_config_read(&config, cases[i].json, strlen(cases[i].json), NULL), 0);
        assert_int_equal(config.chat_template == NULL, cases[i].chat == NULL);
        if (cases[i].chat)
            assert_string_equal(config.chat_template, cases[i].chat);
        const char *eos = json_string_value(json_object_get(config.tokens, "eos_token"));
        assert_int_equal(eos == NULL, cases[i].eos == NULL);
        if (eos)
            assert_string_equal(eos, cases[i].eos);
        tokenizer_config_free(&config);
    }
    for (size_t i = 0; i < sizeof faulty / sizeof *faulty; i++) {
        struct tokenizer_config config = {0};
        struct err err = {0};
        assert_int_equal(tokenizer_config_read(&config, faulty[i], strlen(faulty[i]), &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        assert_null(config.tokens);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_that_of_the_reference),
        cmocka_unit_test(errors_name_line_and_construct),
        cmocka_unit_test(the_day_is_a_value),
        cmocka_unit_test(what_never_ends_is_stopped),
        cmocka_unit_test(each_byte_knows_where_it_is_from),
        cmocka_unit_test(other_roles_are_content),
        cmocka_unit_test(configuration_gives_template_and_special_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
