/* The ablation of CAS-Spec (arXiv 2510.26843) on all that its figures allow. Of Vicuna-7B the speed-ups of its parts alone are
 * known: SWIFT 1.06, prompt lookup 1.54. Many pairs of acceptance and cost give SWIFT its 1.06: along that curve each scheduler
 * decodes the same worlds (tests/unit/scenario.h, dense), and the table says where the paper's order holds, DyTC 1.47 times
 * VC+HC (CS-Drafting) and 1.48 times Tr. The look-up costs a hundredth of a forward; its acceptance follows from 1.54. */
#include "tests/unit/scenario.h"

enum { TOKENS = 8000 };

static double speed_of(const char *policy, const double *chance, const double *cost, int first, int drafters)
{
    struct world_tally tally;
    struct world w;
    world_pair(&w, 77, TOKENS, chance, cost, first, drafters);
    world_run(&w, policy, &tally);
    world_free(&w);
    return TOKENS / tally.cost;
}

static double best_alone(const double *chance, const double *cost)
{
    struct world_best best;
    struct world w;
    world_pair(&w, 77, TOKENS, chance, cost, 0, 1);
    world_best(&w, WORLD_LENGTH, &best);
    world_free(&w);
    return TOKENS / best.best.cost;
}

static void along_the_curve(void **state)
{
    static const char *const policies[] = {"cs-drafting", "tr", "dytc", "dytc:lookahead=no", "dytc:bracket=last", "dytc-verify",
                                           "dytc-verify:lookahead=no"};
    double chance[2] = {0}, cost[2] = {0, 0.01};
    int over_cs = 0, over_tr = 0, points = 0;
    (void)state;
    double low = 0.05, high = 0.95;
    for (int i = 0; i < 12; i++) {
        chance[1] = (low + high) / 2;
        *(speed_of("static:K=10", chance, cost, 1, 1) < 1.54 ? &low : &high) = chance[1];
    }
    printf("look-up: acceptance %.3f, alone %.3f\nacceptance  cost   SWIFT", chance[1],
           speed_of("static:K=10", chance, cost, 1, 1));
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        printf("  %s", policies[p]);
    printf("\n");
    for (chance[0] = 0.3; chance[0] < 0.975; chance[0] += 0.05) {
        double speed[8];
        low = 0.001;
        high = 1;
        for (int i = 0; i < 12; i++) {
            cost[0] = (low + high) / 2;
            *(best_alone(chance, cost) > 1.06 ? &low : &high) = cost[0];
        }
        double alone = best_alone(chance, cost);
        printf("%10.2f  %.3f  %.3f", chance[0], cost[0], alone);
        assert_true(fabs(alone - 1.06) < 0.01);
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
            speed[p] = speed_of(policies[p], chance, cost, 0, 2);
            printf("  %*.3f", (int)strlen(policies[p]), speed[p]);
        }
        printf("\n");
        over_cs += speed[2] >= 1.47 * speed[0];
        over_tr += speed[2] >= 1.48 * speed[1];
        points++;
        assert_true(speed[5] > 0.97 * fmax(1.54, fmax(speed[0], speed[1])));
    }
    printf("of %d points, DyTC as printed is 1.47 times VC+HC at %d, 1.48 times Tr at %d\n", points, over_cs, over_tr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(along_the_curve)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
