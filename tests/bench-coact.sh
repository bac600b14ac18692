#!/bin/sh
# Times moe-coact over a route stream of OLMoE-1B-7B's shape, relative to `cat FILE | cat > /dev/null`: `make bench-coact` calls
# it, optionally with the numbers of tokens (1,000,000) and of pairs (7). The stream, 0.9 kB per token, stays in build/bench.
set -e
cd "$(dirname "$0")/.."
out=build/bench
tokens=${1:-1000000}
mkdir -p "$out"
[ -e "$out/routes-$tokens.moes" ] || routes "$tokens" "$out/routes-$tokens.moes"
python3 tests/bench/coact.py "$out/routes-$tokens.moes" "${2:-7}"
