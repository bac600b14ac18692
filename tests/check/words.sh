#!/bin/sh
# No marks of postponed work (they belong into the list of issues), and no merge conflict markers.
cd "$(dirname "$0")/../.." || exit 2
look() {
    find . \( -path ./.git -o -path ./build -o -path ./tests/models \) -prune -o -type f ! -path ./tests/check/words.sh \
        -exec grep -nIE "$1" {} +
}
found=$(look "\<(TODO|FIXME|XXX)\>|^(<<<<<<<|>>>>>>>)( |$)")
[ -z "$found" ] || { echo "$found"; exit 1; }
