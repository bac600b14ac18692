#!/usr/bin/env bats
# The lines of Python in moe-stream(5) read the streams of these commands.

load common

setup() {
    root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
    streams=$root/tests/golden/stream
    scratch=$(mktemp -d)
    cd "$scratch"
    python=$(python_with_numpy)
    # The display in the section EXAMPLES, as mandoc renders it.
    mandoc -T utf8 "$root/man/moe-stream.5" | LC_ALL=C sed 's/.\x08//g' |
        awk '/^EXAMPLES/ { inside = 1 } /They do not check/ { exit } inside && (/^ *import/ || on) { on = 1; print }' |
        sed 's/^     //' > read.py
    grep -q msgpack read.py
}

teardown() { rm -rf "$scratch"; }

@test "the program on the page lists records and shapes" {
    "$python" read.py < "$streams/route.moes" > out
    cat out
    grep -Fq "0 begin {'sequence': 7, 'id': 'pé', 'prompt_tokens': 2}" out
    grep -Fq "'tokens': (2,), 'parents': (2,), 'accepted': (2,), 'experts': (2, 2, 2), 'weights': (2, 2, 2), 'mass': (2, 4)" out
    grep -Fq "'logits': (2, 16), 'hidden': (2, 3, 3)" out
    grep -q "^3 end {'records': {'begin': 1, 'route': 1, 'end_sequence': 1}, 'bytes': 1292, 'digest': b'" out
    [ "$(wc -l < out)" -eq 4 ]
}

@test "it rejects a truncated stream" {
    head -c 1300 "$streams/route.moes" > cut.moes
    run "$python" read.py < cut.moes
    [ "$status" -eq 1 ]
    [[ $output == *"truncated or aborted"* ]]
}

@test "elements equal those of moe-view" {
    { sed '/^if not records/,$d' read.py; cat <<'PY'
import json, subprocess
for kind, number, payload in records[:-1]:
    shown = json.loads(subprocess.run(['moe-view', '--json', '--type', kind, sys.argv[1]], stdout=subprocess.PIPE,
                                      check=True).stdout.splitlines()[0])
    for key, value in payload.items():
        if isinstance(value, np.ndarray):
            value = [None if isinstance(x, float) and not np.isfinite(x) else x for x in value.ravel().tolist()]
            shown[key] = [float('nan') if x is None else x for x in np.array(shown[key], dtype=object).ravel()]
            value = [float('nan') if x is None else x for x in value]
            assert np.array_equal(value, shown[key], equal_nan=True), (kind, key)
            print(kind, key, len(value))
        else:
            assert shown[key] == value, (kind, key)
PY
    } > compare.py
    run "$python" compare.py "$streams/route.moes" < "$streams/route.moes"
    [ "$status" -eq 0 ] || { echo "$output"; return 1; }
    [[ $output == *"route logits 32"* ]]
    run "$python" compare.py "$streams/coact.moes" < "$streams/coact.moes"
    [ "$status" -eq 0 ] || { echo "$output"; return 1; }
    [[ $output == *"coverage served 3"* ]]
}
