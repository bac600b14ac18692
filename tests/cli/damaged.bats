#!/usr/bin/env bats
# Streams that are doubled, joined, mixed with other bytes, truncated, from another version or from another model: every command
# that reads streams refuses them in one line, with exit status 2, and writes no file.

load common

setup_file() {
    load common
    export WORK="$BATS_FILE_TMPDIR"
    cd "$WORK"
    ln -s "$MOE_POCKET" pocket.moe
    moe-profile -q -m pocket.moe -n 3 -p "One." -o route.moes
    moe-profile -q -m pocket.moe -n 3 -p "Another one." -o route2.moes
    moe-coact rank-experts route.moes -o rank.moes
    moe-coact coverage route.moes -o coact.moes
    moe-decode -q -m pocket.moe -n 6 -p "One." --stream decode.moes
    echo '{"model": "pocket.moe", "prompts": "p.jsonl", "measure-seconds": 0, "warm-up": 0, "limits": {"max-tokens": 3},
           "settings": [{"name": "none"}, {"name": "K", "draft": "ngram"}]}' > suite.json
    echo '{"prompt": "One."}' > p.jsonl
    moe-bench run suite.json -o bench.moes
    moe-profile features -q -m pocket.moe --mask all -p "One." -o feature.moes
    moe-profile features -q -m pocket.moe --mask all -p "Another one." -o feature2.moes
    cp "$BATS_TEST_DIRNAME/../golden/train/train-jakiro.moes" train.moes
    # a model of another shape
    mkdir other
    cp "$MOE_MODELS"/pocket/model/* other
    sed -i 's/"num_experts_per_tok": 4/"num_experts_per_tok": 3/' other/config.json
    moe-convert -q other -o other.moe
}

setup() { cd "$WORK"; }

# Readers of each kind of stream: kind, then the command, with IN for the stream.
consumers() {
    cat <<'LIST'
route moe-view --json IN
route moe-view --verify IN
route moe-coact rank-experts -o out IN
route moe-coact coverage --svg -o out IN
route moe-coact union -o out IN
route moe-coact locality --csv -o out IN
route moe-coact merge -o out route2.moes IN
rank moe-view --csv -o out IN
rank moe-coact coverage --rank IN -o out route.moes
rank moe-decode -q -m pocket.moe -n 2 --budget 8 --rank IN -p One. -o out
rank moe-profile -q -m pocket.moe -n 2 --budget 8 --rank IN -p One. -o out
coact moe-view --json -o out IN
decode moe-view --json -o out IN
decode moe-bench report -o out IN
bench moe-view --json -o out IN
bench moe-bench report --json -o out IN
feature moe-view --json -o out IN
feature moe-coact merge -o out feature2.moes IN
train moe-bench report -o out IN
LIST
}

# Every consumer of $1 streams refuses the file bad.moes, by name and through a pipe, with a message that contains $2.
all_refuse() {
    local kind command status said left sources='bad.moes -'
    # Sanitisers see the effect of a damaged byte however it arrives: one way with them, the other without.
    [ -n "$MOE_LONG" ] || sources=$([ -n "$MOE_SANITIZED" ] && echo - || echo bad.moes)
    rm -f out
    while read -r kind command; do
        [ "$kind" = "$1" ] || continue
        for source in $sources; do
            status=0
            bounded ${command/IN/$source} < bad.moes > printed 2> said || status=$?
            mapfile said < said
            [ "$status" = 2 ] || { echo "${command/IN/$source}: exit status $status, ${said[*]}"; return 1; }
            [ "${#said[@]}" = 1 ] || { echo "${command/IN/$source}: ${said[*]}"; return 1; }
            [[ ${said[0]} == "${command%% *}: "*"$2"*$'\n' ]] || { echo "${command/IN/$source}: ${said[0]}"; return 1; }
            left=(out*)
            [ ! -e "${left[0]}" ] || { echo "${command/IN/$source}: wrote a file"; return 1; }
        done
    done < <(consumers)
}

# Prints the offsets of a stream's records, one per line, the end record's last.
record_starts() {
    python3 - "$1" <<'PY'
import sys
data = open(sys.argv[1], 'rb').read()

def skip(at):
    """After the msgpack value at `at`."""
    b = data[at]
    def number(width): return int.from_bytes(data[at + 1:at + 1 + width], 'big')
    def values(at, n):
        for _ in range(n):
            at = skip(at)
        return at
    if b < 0x80 or b >= 0xe0 or b in (0xc0, 0xc2, 0xc3): return at + 1
    if b < 0x90: return values(at + 1, 2 * (b & 15))
    if b < 0xa0: return values(at + 1, b & 15)
    if b < 0xc0: return at + 1 + (b & 31)
    fixed = {0xca: 5, 0xcb: 9, 0xcc: 2, 0xcd: 3, 0xce: 5, 0xcf: 9, 0xd0: 2, 0xd1: 3, 0xd2: 5, 0xd3: 9}
    if b in fixed: return at + fixed[b]
    if 0xd4 <= b <= 0xd8: return at + 2 + (1 << (b - 0xd4))
    for first, extra in ((0xc4, 0), (0xc7, 1), (0xd9, 0)):
        if first <= b < first + 3:
            width = 1 << (b - first)
            return at + 1 + width + extra + number(width)
    width = 2 if b in (0xdc, 0xde) else 4
    return values(at + 1 + width, number(width) * (2 if b >= 0xde else 1))

at = skip(skip(0))
while at < len(data):
    print(at)
    at = skip(at)
PY
}

kinds="route rank coact decode bench feature train"
# Under sanitisers the daily check runs one of those that are read alike.
[ -z "$MOE_SANITIZED" ] || [ -n "$MOE_LONG" ] || kinds="route rank decode feature"

@test "every consumer accepts the intact stream" {
    while read -r kind command; do
        rm -f out
        ${command/IN/$kind.moes} > printed 2> said || { echo "$command: $(cat said)"; return 1; }
    done < <(consumers)
}

@test "a repeated stream and two concatenated streams are refused" {
    for kind in $kinds; do
        cat $kind.moes $kind.moes > bad.moes
        all_refuse $kind "the end record is followed by more bytes"
        cat $kind.moes route2.moes > bad.moes
        all_refuse $kind "the end record is followed by more bytes"
    done
}

@test "extra bytes before, between and after records are refused" {
    for kind in $kinds; do
        starts=$(record_starts $kind.moes)
        last=$(tail -n 1 <<< "$starts")
        { echo garbage; cat $kind.moes; } > bad.moes
        all_refuse $kind "not a moekit stream"
        { cat $kind.moes; echo; } > bad.moes
        all_refuse $kind "the end record is followed by more bytes"
        for garbage in '\0' 'text' '\300' '\223\243abc\001\200'; do
            { head -c "$last" $kind.moes; printf "$garbage"; tail -c +$((last + 1)) $kind.moes; } > bad.moes
            all_refuse $kind ""
        done
    done
}

@test "a missing, repeated or foreign record is refused" {
    for kind in $kinds; do
        starts=($(record_starts $kind.moes))
        first=${starts[0]} second=${starts[1]}
        { head -c "$first" $kind.moes; tail -c +$((second + 1)) $kind.moes; } > bad.moes
        all_refuse $kind ""
        { head -c "$second" $kind.moes; tail -c +$((first + 1)) $kind.moes; } > bad.moes
        all_refuse $kind ""
    done
    starts=($(record_starts route.moes))
    others=($(record_starts route2.moes))
    { head -c "${starts[1]}" route.moes; tail -c +$((others[1] + 1)) route2.moes; } > bad.moes
    all_refuse route ""
}

@test "a stream truncated anywhere is refused" {
    for kind in $kinds; do
        size=$(wc -c < $kind.moes)
        starts=($(record_starts $kind.moes))
        for cut in 0 7 15 "${starts[0]}" "${starts[1]}" "${starts[-1]}" $((size - 1)); do
            head -c "$cut" $kind.moes > bad.moes
            all_refuse $kind ""
        done
    done
}

@test "a later version of the framing or of the kind is refused" {
    for kind in $kinds; do
        cp $kind.moes bad.moes
        flip bad.moes 11 3                              # 1 becomes 2
        all_refuse $kind "version 2"
        sed 's/\xa7version\x01/\xa7version\x02/' $kind.moes > bad.moes
        cmp -s bad.moes $kind.moes && { echo "the version is not where it was"; return 1; }
        all_refuse $kind "version 2"
    done
}

@test "a version that was changed afterwards" {
    cp rank.moes minor.moes
    flip minor.moes 13
    run moe-view --verify minor.moes
    assert_trouble moe-view                             # the digest holds for every byte
    [[ $output == *"digest"* ]]
}

@test "a stream of another kind" {
    for kind in $kinds; do
        for other in $kinds; do
            case $kind.$other in "$kind.$kind" | decode.bench | bench.decode | decode.train | bench.train | train.decode | train.bench) continue ;; esac
            cp $other.moes bad.moes
            while read -r takes command; do
                [ "$takes" = "$kind" ] && [[ $command != moe-view* ]] || continue
                case $kind.$command in route.*merge*) continue ;; esac
                run ${command/IN/bad.moes}
                assert_trouble "${command%% *}"
                [[ $output == *"a $other stream"* ]] || { echo "$command: $output"; return 1; }
            done < <(consumers)
        done
    done
}

@test "a stream of another model" {
    moe-profile -q -m other.moe -p "One." -o other-route.moes
    moe-coact rank-experts other-route.moes -o other-rank.moes
    rm -f out
    run moe-coact merge -o out route.moes other-route.moes
    assert_trouble moe-coact
    run moe-coact rank-experts -o out route.moes other-route.moes
    assert_trouble moe-coact
    run moe-coact coverage --rank other-rank.moes -o out route.moes
    assert_trouble moe-coact
    run moe-decode -q -m pocket.moe --budget 8 --rank other-rank.moes -p One. -o out
    assert_trouble moe-decode
    [ ! -e out ]
}

@test "a pipeline whose middle gets a cut stream ends with one fault, and no text" {
    size=$(wc -c < route.moes)
    for cut in 0 500 $((size / 2)) $((size - 1)); do
        status=0
        head -c "$cut" route.moes | moe-coact rank-experts 2> coact.said |
            moe-decode -q -m pocket.moe -n 4 --budget 8 --rank - -p One. > printed 2> decode.said || status=$?
        [ "$status" = 2 ]
        [ ! -s printed ]
        [ "$(wc -l < coact.said)" = 1 ]
        [ "$(wc -l < decode.said)" = 1 ]
        [[ $(cat decode.said) == "moe-decode: standard input"* ]] || { cat decode.said; return 1; }
    done
}
