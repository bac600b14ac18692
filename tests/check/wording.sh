#!/bin/sh
# Plain words, as far as a machine can judge (CONTRIBUTING.md, "Words"): comments, identifiers, man pages and Markdown pages have
# no vague words, boasts, history or first person; no comment begins with a pronoun, and no sentence with "Of" or "What".
# CHANGELOG.md is history and docs/benchmarks.md a record of measurements, so neither is checked.
cd "$(dirname "$0")/../.." || exit 2
LC_ALL=C
export LC_ALL

vague='things?|stuff|nobody|somebody|everybody|theirs|tells?|told|telling|said|behind|so many|so much|as ever|stands? for'
vague="$vague|(is|are|was|were|be) had"
history='no longer|any ?more|formerly|previously|until now|nowadays'
boast='simply|obviously|of course|clever|elegant|powerful|actually|basically|really|easily'
person='[Ww]e|[Oo]urs?|I (am|have|think)'
words="\\<($vague|$history|$boast|$person)\\>"
names='tells?|told|said|says?|most|least|behind|things?|stuff|nobody|hope|settle|farewell|rode|gave'

# Allowed lines that break a rule: part of the line, with its file.
allowed() {
    cat << 'END'
^common/base/file\.h:.*takes no longer than
^common/report/grade_choice\.c:.*"the answer is I think"
END
}

sources() { find cmd common kernels -name '*.[ch]' -o -name '*.cu'; }
tests() { find tests -name '*.[ch]' -o -name '*.cc' -o -name '*.cu'; }
makefiles() { find GNUmakefile kernels tests -name GNUmakefile -o -name '*.mk'; }
markdown() { find README.md docs -name '*.md' ! -name benchmarks.md; }

look() {
    comment='(//|/\*|^ *\* )'
    grep -nHiE "$comment.*$words" $(sources) $(tests)
    grep -nHE "(//|/\\*) (Of|What|That|It|These|Those|They|Its|Theirs) |$comment.*[.] (Of|What) " \
        $(sources) $(tests)
    grep -nHiE "^[[:space:]]*#.*$words" $(makefiles)
    grep -nHiE "$words" man/* $(markdown)
    grep -nHE "^(Of|What)\\>|[.] (Of|What) " man/* $(markdown)
    # a word of an identifier, in a line without its strings and comments
    word="(^|[^A-Za-z0-9])($names)([^A-Za-z0-9]|\$)"
    grep -nHiE "$word" $(sources) |
        sed -E -e 's/^([^:]*:[0-9]+:) *\* .*/\1/' -e 's/"([^"\\]|\\.)*"//g' -e 's/(\/\*|\/\/).*//' | grep -iE ":[0-9]+:.*$word"
}
found=$(look | grep -vE "$(allowed | paste -sd '|')")
[ -z "$found" ] || { printf '%s\n' "$found"; echo 'wording: use plain words, or allow the line in tests/check/wording.sh'; exit 1; }
