/* Philox4x32-10 compared with the known answers of its authors (Random123, kat_vectors), and uniform numbers at their
 * limits. */
#include "tests/unit/unit.h"

#include "kernels/plain/philox.h"

static void gives_the_known_answers(void **state)
{
    static const struct { uint32_t counter[4], key[2], answer[4]; } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct philox counter;
        memcpy(counter.word, known[i].counter, sizeof counter.word);
        struct philox answer = philox(counter, (uint64_t)known[i].key[1] << 32 | known[i].key[0]);
        assert_memory_equal(answer.word, known[i].answer, sizeof answer.word);
    }
}

static void uniforms_stay_inside_the_open_interval(void **state)
{
    (void)state;
    assert_true(philox_uniform(0, 0) == 0x1p-53);
    assert_true(philox_uniform(0xffffffff, 0xffffffff) == 1 - 0x1p-53);
    assert_true(philox_uniform(0x80000000, 0) == 0.5 + 0x1p-53);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_known_answers),
        cmocka_unit_test(uniforms_stay_inside_the_open_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
