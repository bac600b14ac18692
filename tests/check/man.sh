#!/bin/sh
# mandoc finds nothing wrong with the man pages.
cd "$(dirname "$0")/../.." || exit 2
pages=$(find man -name '*.[1-9]' 2>/dev/null | sort)
[ -n "$pages" ] || exit 0
mandoc -T lint -W warning $pages
