/* Times drafters that look up text: microseconds per step at a given number of tokens, as ids.
 *
 *     drafting [TOKENS [CORPUS]]
 *
 * A step is a draft and the commit of three tokens. Texts: like language (tokens as frequent as words are, a third of it
 * repeated from before), of two random tokens, and one phrase over and over. Each drafter is timed over the 2,000 steps
 * after the first TOKENS tokens (8000) of a text, which are read at once; the corpus of suffix has CORPUS tokens (2500000,
 * the tokens of 10 MB of English), or a hundredth of that. It is written to $TMPDIR and removed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/draft/drafter.h"

enum { VOCAB = 50000, STEPS = 2000, STEP = 3 };

static uint64_t state = 0x9e3779b97f4a7c15;

static uint32_t draw(uint32_t max)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 11) % max);
}

static void fail(const struct err *err)
{
    fprintf(stderr, "drafting: %s\n", err->text);
    exit(2);
}

/* Rank r has a frequency of about 1 / r: each doubling of ranks is equally likely. */
static int32_t word(void)
{
    int32_t low = 1 << draw(15);
    return (low + (int32_t)draw((uint32_t)low)) % VOCAB;
}

static void like_language(int32_t *text, int tokens)
{
    for (int at = 0; at < tokens;) {
        int count = 1 + (int)draw(12), from = at > 100 && draw(3) == 0 ? (int)draw((uint32_t)at - 20) : -1;
        for (int i = 0; i < count && at < tokens; i++, at++)
            text[at] = from >= 0 ? text[from + i] : word();
    }
}

static void of_two(int32_t *text, int tokens)
{
    for (int at = 0; at < tokens; at++)
        text[at] = (int32_t)draw(2);
}

static void one_phrase(int32_t *text, int tokens)
{
    for (int at = 0; at < tokens; at++)
        text[at] = at % 7;
}

static const struct { const char *name; void (*make)(int32_t *text, int tokens); } texts[] = {
    {"like language", like_language}, {"two tokens", of_two}, {"one phrase", one_phrase}};

/* Writes answers of 500 tokens, as ids. */
static void write_corpus(const char *path, int tokens)
{
    int32_t *text = malloc((size_t)tokens * sizeof *text);
    FILE *file = fopen(path, "w");
    if (!text || !file)
        exit(2);
    like_language(text, tokens);
    for (int at = 0; at < tokens; at++)
        fprintf(file, "%s%d%s", at % 500 ? "," : "[", (int)text[at], at % 500 == 499 || at == tokens - 1 ? "]\n" : "");
    fclose(file);
    free(text);
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static void time_drafter(const char *name, const char *draft, int tokens, int siblings)
{
    const struct drafter_setup setup = {.vocab = VOCAB, .positions = tokens + STEP * STEPS};
    const struct draft_leaf leaf = {-1, siblings};
    const int whole = tokens + STEP * STEPS;
    int32_t *text = malloc((size_t)whole * sizeof *text);
    struct drafter *drafter = NULL;
    struct draft_tree tree = {0};
    struct err err = {0};
    double began = clock_seconds(), *step = malloc(STEPS * sizeof *step);
    if (!text || !step || drafter_open(&drafter, draft, &setup, &err) || draft_tree_init(&tree, 63, &err))
        fail(&err);
    double opened = clock_seconds() - began;
    for (size_t which = 0; which < sizeof texts / sizeof *texts; which++) {
        int length = tokens;
        double total = 0, read = 0;
        long drafted = 0;
        texts[which].make(text, whole);
        if (drafter->class->begin(drafter, &(struct draft_text){.tokens = whole}, &err))
            fail(&err);
        began = clock_seconds();
        if (drafter->class->commit(drafter, text, length, &err))
            fail(&err);
        read = clock_seconds() - began;
        for (int at = 0; at < STEPS; at++, length += STEP) {
            draft_tree_clear(&tree);
            began = clock_seconds();
            if (drafter->class->propose(drafter, &tree, &leaf, 1, siblings ? 4 : 64, &err) < 0 ||
                drafter->class->commit(drafter, text + length, STEP, &err))
                fail(&err);
            step[at] = 1e6 * (clock_seconds() - began);
            total += step[at];
            drafted += tree.nodes;
        }
        qsort(step, (size_t)STEPS, sizeof *step, compare);
        printf("%-26s %-14s %6s %8.2f %8.2f %8.2f %8.1f %9.2f\n", name, texts[which].name, siblings ? "chain" : "own",
               total / STEPS, step[STEPS / 2], step[STEPS * 99 / 100], (double)drafted / STEPS, 1e3 * read);
    }
    if (drafter->detail[0])
        printf("    %s; opened in %.2f s\n", drafter->detail, opened);
    drafter_close(&drafter);
    draft_tree_free(&tree);
    free(text);
    free(step);
}

int main(int argc, char **argv)
{
    const int tokens = argc > 1 ? atoi(argv[1]) : 8000, corpus = argc > 2 ? atoi(argv[2]) : 2500000;
    const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    char large[512], small[512], index[512], draft[2048];
    snprintf(large, sizeof large, "%s/drafting-%d-large.jsonl", folder, (int)getpid());
    snprintf(small, sizeof small, "%s/drafting-%d-small.jsonl", folder, (int)getpid());
    snprintf(index, sizeof index, "%s/drafting-%d-index", folder, (int)getpid());
    write_corpus(large, corpus);
    write_corpus(small, corpus / 100);
    printf("%-26s %-14s %6s %8s %8s %8s %8s %9s\n", "drafter", "text", "shape", "mean us", "median", "99 %", "drafted",
           "text ms");
    time_drafter("ngram", "ngram", tokens, 1);
    time_drafter("pld", "pld", tokens, 1);
    time_drafter("lookahead:prompt=yes", "lookahead:prompt=yes", tokens, 0);
    time_drafter("suffix", "suffix", tokens, 1);
    time_drafter("suffix", "suffix", tokens, 0);
    snprintf(draft, sizeof draft, "suffix:corpus=%s", small);
    time_drafter("suffix, small corpus", draft, tokens, 1);
    time_drafter("suffix, small corpus", draft, tokens, 0);
    snprintf(draft, sizeof draft, "suffix:corpus=%s,save=%s", large, index);
    time_drafter("suffix, large corpus", draft, tokens, 1);
    snprintf(draft, sizeof draft, "suffix:corpus=%s", index);
    time_drafter("suffix, its index", draft, tokens, 0);
    remove(large);
    remove(small);
    remove(index);
    return 0;
}
