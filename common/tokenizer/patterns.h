/* Patterns that several file formats need, in the syntax of tokenizer.json: GGUF files and tiktoken's vocabularies do not
 * contain the pattern that splits text. */
#ifndef MOE_TOKENIZER_PATTERNS_H
#define MOE_TOKENIZER_PATTERNS_H

#define PATTERN_CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define PATTERN_REST "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PATTERN_SIGNS "| ?[^\\s\\p{L}\\p{N}]+"

/* Words as runs of letters, of any case; `digits` is the form of a number. */
#define PATTERN_WORDS(digits) \
    PATTERN_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits PATTERN_SIGNS "[\\r\\n]*" PATTERN_REST

/* Words end before a capital letter that follows a small one. end: follows a word; but: intersects the classes of letters. */
#define PATTERN_CASES(end, but) \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" but "]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" but "]+" end \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" but "]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" but "]*" end

/* Kimi: Chinese characters apart from all other letters. */
#define PATTERN_KIMI \
    "[\\p{Han}]+|" PATTERN_CASES(PATTERN_CONTRACTION "?", "&&[^\\p{Han}]") "|\\p{N}{1,3}" PATTERN_SIGNS "[\\r\\n]*" PATTERN_REST

#endif
