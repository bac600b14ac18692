#!/usr/bin/env python3
"""What jinja2 makes of chat templates, set up as transformers does: templates in the manner of the families' own, over conversations
with hard contents. Run by `make goldens`; writes cases.jsonl beside this file, one object a line: name, template, values, and
output, or null when the template raises an error."""
import datetime
import json
import os

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))


def environment():
    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise TemplateError(message)
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = datetime.datetime(2025, 8, 5, 12, 30, 9).strftime      # of now, as in test_template_golden.c
    return made


TEMPLATES = {
    "what day it is": """{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "some day" %}
    {%- endif %}
{%- endif %}
{%- macro about(what, format="%Y-%m-%d") %}
    {{- what + ": " + strftime_now(format) + "\\n" }}
{%- endmacro %}
{{- "Today: " + date_string + "\\n" + about("date") + about("at", "%A %B %j %H:%M:%S %p %y%%") }}
{%- for message in messages %}
    {{- message.role ~ ": " ~ message.content ~ "\\n" }}
{%- endfor %}
{%- set code = tools | selectattr("type", "equalto", "code") | list | length %}
{{- code }}""",
    "marked turns": """{% for message in messages %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}""",
    "system first, users and answers in turn": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set rest = messages %}
{%- endif %}
{%- for m in rest %}
    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must take turns') }}
    {%- endif %}
    {%- if m['role'] == 'user' %}
        {%- if loop.last and system is defined %}
            {{- '[INST] ' + system + '\\n\\n' + m['content'] + ' [/INST]' }}
        {%- else %}
            {{- '[INST] ' ~ m['content'] ~ ' [/INST]' }}
        {%- endif %}
    {%- else %}
        {{- ' ' + m['content'] | trim + eos_token }}
    {%- endif %}
{%- endfor %}""",
    "tools in the system turn": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>{"name": "' ~ tool_call.name ~ '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
    "headers, and parameters as JSON": """{{- bos_token }}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at once") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}""",
    "types by a macro that calls itself": """{%- macro type(spec) -%}
    {%- if spec.type == "array" -%}
        {{- type(spec['items']) if spec['items'] else "any" }}[]
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string -%}
        {{- spec.type | join(" | ") }}
    {%- elif spec.type == "object" -%}
        {{ "{" }}
        {%- for name, inner in spec.properties.items() -%}
            {{ name }}{{ "?" if name not in (spec.required or []) }}: {{ type(inner) }}{{ ", " if not loop.last }}
        {%- endfor -%}
        {{ "}" }}
    {%- elif spec.enum -%}
        {{ spec.enum | map("tojson") | join(" | ") }}
    {%- else -%}
        {{ spec.type | default("any") }}
    {%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] -%}
// {{ tool.function.description | default("nothing", true) | replace("\\n", "\\n// ") }}
type {{ tool.function.name }} = (_: {{ type(tool.function.parameters) }}) => any;
{% endfor -%}
{%- for m in messages if m.role != 'tool' %}{{ loop.index }}/{{ loop.length }} {{ m.role | upper }}: {{ (m.content or '') | length }}
{% else %}nobody
{% endfor %}""",
    "thoughts cut, states kept in a namespace": """{% set ns = namespace(is_first=false, is_tool=false, system='') %}
{%- for message in messages if message['role'] == 'system' %}{% set ns.system = ns.system ~ message['content'] %}{% endfor %}
{{ bos_token }}{{ ns.system }}
{%- for message in messages %}
{%- if message['role'] == 'user' %}{% set ns.is_tool = false %}{{ '<｜User｜>' + message['content'] }}{% endif %}
{%- if message['role'] == 'assistant' and message['content'] is not none %}
{%- if ns.is_tool %}{{ '<｜tool▁outputs▁end｜>' + message['content'] + '<｜end▁of▁sentence｜>' }}{% set ns.is_tool = false %}
{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}{% endif %}{% endif %}
{%- if message['role'] == 'tool' %}{% set ns.is_tool = true %}{{ '<｜tool▁output▁begin｜>' ~ message['content'] ~ '<｜tool▁output▁end｜>' }}{% endif %}
{%- endfor -%}
{% if ns.is_tool %}{{ '<｜tool▁outputs▁end｜>' }}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{ '<｜Assistant｜>' }}{% endif %}""",
    "arguments in the order of their names": """{%- macro show(value, depth=0) -%}
    {%- if value is string -%}<|"|>{{ value }}<|"|>
    {%- elif value is boolean -%}{{ 'true' if value else 'false' }}
    {%- elif value is none -%}null
    {%- elif value is mapping -%}
        {{- '{' -}}{%- set ns = namespace(first=true) -%}
        {%- for key, item in value | dictsort -%}
            {%- if not ns.first %},{% endif %}{% set ns.first = false %}{{ key }}:{{ show(item, depth + 1) }}
        {%- endfor -%}{{- '}' -}}
    {%- elif value is sequence -%}[{% for item in value %}{{ show(item, depth + 1) }}{{ ',' if not loop.last }}{% endfor %}]
    {%- else -%}{{ value }}{%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] | sort(attribute='function.name') -%}
declaration:{{ tool.function.name }}{{ show(tool.function.parameters.properties) }}
{% endfor -%}
{{ messages | map(attribute='role') | unique | sort(reverse=true) | join('|') }} {{ tools | tojson(indent=2) if tools }}
{% for m in messages -%}
    {%- if loop.previtem is defined and loop.previtem.role != m.role %}<{{ loop.previtem.role }}>{% endif -%}
    {%- for call in m.tool_calls or [] -%}
        {%- set f = call.function if call.function is defined else call -%}
        {{- f.name }}({% if f.arguments is mapping %}{% for key, item in f.arguments.items() -%}
            {{ '%s=%s' | format(key, item | tojson(separators=(',', ':'), ensure_ascii=true)) }}{{ ', ' if not loop.last }}
        {%- endfor %}{{ f.arguments | items | list | length }}{{ f.arguments.items() | list }}{% else %}{{ f.arguments }}{% endif %})
    {%- endfor -%}
    {%- if never is defined %}{{ m | not_a_filter }}{% endif %}
{% endfor %}{{ [3, 1, 2] | max }}{{ ['b', 'A'] | min }}{{ (1,) }}{{ (2, 'x') | string }}{{ 100 | string ~ '%d%%' | format(7) }}""",
    "contents in parts": """{% for m in messages %}{% if m.content is string %}{% set text = m.content %}{% elif m.content is none %}{% set text = '-' %}{% else %}{% set text = m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('') %}{% endif %}
{{ m.role | title }}:{{ ' ' if text }}{{ text | indent(2) }}
{% if loop.nextitem is defined and loop.nextitem.role == m.role %}({{ loop.nextitem.role }} goes on){% endif %}
{% endfor %}""",
    "strings taken apart": """{% for m in messages %}{% set c = (m.content if m.content is string else '') %}
{{ loop.index0 }} {{ c[:4] }}|{{ c[-4:] }}|{{ c[::-1] }}|{{ c.strip() | length }}|{{ c.split() | join('_') }}|{{ c.lower() == c | lower }}|{{ c.find('a') }}|{{ c | list | length }}|{{ c.replace('a', 'A', 1) }}|{{ c.splitlines() | tojson }}|{{ c.count('a') if c else 0 }}
{% endfor %}""",
    "breaks and numbers": """{% for m in messages %}{% if loop.index > 3 %}{% break %}{% elif m.role == 'system' %}{% continue %}{% endif %}
{{- loop.index * 1.5 }} {{ loop.revindex0 / 2 }} {{ 7 // (loop.index + 1) }} {{ -loop.index % 3 }} {{ 2 ** loop.index }};{% endfor %}
{{ messages | length in [1, 2, 3] }} {{ (messages | map(attribute='role') | list) == ['user'] }} {{ messages | map(attribute='role') | join(',') }} {{ not messages }} {{ none is none and true }}
{%- set gears = {512: 128, 0: 'no', '512': 'text', 1024: none} %}{{ gears[512] }} {{ gears.get(0) }} {{ gears['512'] }} {{ gears }}
{{ {12: 1, 9: 2} | dictsort }} {{ 1024 in gears and '0' not in gears }} {{ gears | tojson }} {{ {7: 1, 10: 2} | tojson(sort_keys=true) }} {{ gears[7] is defined }}
{%- for gear, reach in gears.items() %}{{ gear is integer }}{{ ',' }}{% endfor %}{{ {1: 2} == {1: 2} }}{{ {1: 2} == {'1': 2} }}""",
}

HARD = [
    "", " ", "\n", "plain", "  spaces at both ends  ", "two\nlines\r\nand\rthree kinds of ends\u2028of them\x0b\x0c\x85.",
    "tab\tnul-free\x01\x1b control", "naïve café ﬃ Å", "e\u0301 o\u0308 combining, \u0130stanbul ß ǅ", "مرحبا بالعالم עולם",
    "你好，世界 こんにちは 안녕", "हिन्दी ไทย မြန်မာ", "👩‍👩‍👧‍👦 🇩🇪 👍🏽 🫠", "\U0001d54f\U00020000", "<|im_end|> [INST] </s> <think>no</think>",
    "{{ not a template }} {% if x %} {# nor this #}", "\"quotes\" 'and' \\backslashes\\ </script> & <b>", "a" * 40,
]

TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "Tells the weather.\nOf a place & day: <any>",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}},
        "unit": {"enum": ["°C", "°F"]}, "near": {"type": ["number", "null"]}, "free": {},
        "box": {"type": "object", "properties": {"w": {"type": "number"}, "h": {"type": "number"}}}}}}},
    {"type": "function", "function": {"name": "stop", "description": "", "parameters": {"type": "object", "properties": {}}}}]


def conversations():
    def turns(*contents):
        return [{"role": "user" if i % 2 == 0 else "assistant", "content": c} for i, c in enumerate(contents)]
    call = {"type": "function", "function": {"name": "weather", "arguments": {"place": "Zürich\n", "days": [1, 2.5, None, True]}}}
    plain = {"add_generation_prompt": True}
    for i in range(0, len(HARD), 3):
        yield {**plain, "messages": turns(*HARD[i:i + 3])}
    yield {**plain, "messages": [{"role": "system", "content": " Be brief. "}] + turns("One?", "<think>\nwell\n</think>\n\nTwo.", "And?")}
    yield {"add_generation_prompt": False, "messages": turns("a", "b")}
    yield {**plain, "messages": turns("a", "b"), "enable_thinking": False}
    yield {**plain, "tools": TOOLS, "messages": [{"role": "system", "content": "S"}] + turns("Weather?") + [
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call]}, {"role": "tool", "content": "{\"t\": 3}"},
        {"role": "assistant", "content": "3 degrees."}]}
    yield {**plain, "tools": TOOLS, "messages": turns("Both?") + [
        {"role": "assistant", "content": None, "tool_calls": [call, {"name": "stop", "arguments": "{}"}]},
        {"role": "tool", "content": "<cold>"}, {"role": "tool", "content": "stopped"}]}
    yield {**plain, "messages": [{"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "image"},
                                                               {"type": "text", "text": "two\nthree"}]},
                                 {"role": "user", "content": "again"}]}
    yield {**plain, "messages": turns("x", "y") + [{"role": "assistant", "content": "out of turn", "reasoning_content": " because\n"}]}
    yield {**plain, "messages": []}


def main():
    env = environment()
    with open(os.path.join(HERE, "cases.jsonl"), "w") as file:
        for name, source in TEMPLATES.items():
            template = env.from_string(source)
            for values in conversations():
                try:
                    output = template.render(bos_token="<s>", eos_token="</s>", **values)
                except Exception:
                    output = None
                print(json.dumps({"name": name, "template": source, "values": values, "output": output}, ensure_ascii=False), file=file)


main()
