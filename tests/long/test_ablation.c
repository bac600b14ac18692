/* The ablation of CAS-Spec (arXiv 2510.26843, of which only a summary was at hand) on all that its figures allow. For
 * Vicuna-7B the speed-ups of its parts alone are known: SWIFT 1.06, prompt lookup 1.54. Many pairs of acceptance and cost give
 * SWIFT its 1.06: along that curve each scheduler decodes the same worlds (tests/unit/scenario.h, dense), and the table says
 * where the paper's order holds, DyTC 1.47 times VC+HC (CS-Drafting) and 1.48 times Tr. The look-up costs a hundredth of a
 * forward; its acceptance follows from 1.54. MOE_SEED takes other worlds (77).
 *
 * The summary does not say when a draft ends nor how wide a tree is. So the verdicts are ranges over `variants`, and
 * CS-Drafting runs with its default lengths and with its best ones, known only afterwards. */
#include "tests/unit/scenario.h"

enum { TOKENS = 8000, POLICIES = 6, CHAINS_MAX = 6, VARIANTS = 12 };

static const char *const policies[POLICIES] = {"cs-drafting", "tr", "dytc", "dytc:bracket=last", "dytc-verify",
                                               "dytc-verify:siblings=no"};
enum { CS_DRAFTING, TR, DYTC, DYTC_LAST, DYTC_VERIFY };

static const char *const variants[VARIANTS] = {
    "dytc:min=0.3", "dytc:min=0.5", "dytc:min=0.7", "dytc:min=0.8", "dytc:min=0.9", "dytc:min=0.95",
    "dytc:width=1,top-p=0,min=0.3", "dytc:width=1,top-p=0,min=0.5", "dytc:width=1,top-p=0,min=0.7",
    "dytc:width=1,top-p=0,min=0.8", "dytc:width=1,top-p=0,min=0.9", "dytc:width=1,top-p=0,min=0.95"};

static uint64_t seed(void) { return getenv("MOE_SEED") ? strtoull(getenv("MOE_SEED"), NULL, 10) : 77; }

static double speed_of(const struct world *w, const char *policy)
{
    struct world_tally tally;
    world_run(w, policy, &tally);
    return TOKENS / tally.cost;
}

static double best_alone(const double *chance, const double *cost)
{
    struct world_best best;
    struct world w;
    world_pair(&w, seed(), TOKENS, chance, cost, 0, 1);
    world_best(&w, WORLD_LENGTH, &best);
    world_free(&w);
    return TOKENS / best.best.cost;
}

static double lookup_alone(const double *chance, const double *cost)
{
    struct world w;
    world_pair(&w, seed(), TOKENS, chance, cost, 1, 1);
    double speed = speed_of(&w, "static:K=10");
    world_free(&w);
    return speed;
}

/* Runs CS-Drafting with its best lengths for this world. */
static double tuned(const struct world *w, char *name, size_t room)
{
    double best = 0;
    for (int first = 0; first <= CHAINS_MAX; first++)
        for (int second = 0; second <= 10; second += 2)
            for (int inner = 0; inner <= 4; inner += 2) {
                char text[60];
                snprintf(text, sizeof text, "cs-drafting:lengths=%d/%d,inner=%d", first, second, inner);
                if (!first && !second)
                    continue;
                double speed = speed_of(w, text);
                if (speed > best)
                    snprintf(name, room, "%d/%d,%d", first, second, inner);
                best = fmax(best, speed);
            }
    return best;
}

struct verdict { int over_cs, over_tuned, over_tr, ahead_cs, ahead_tuned, ahead_tr; };

static void judge(struct verdict *verdict, double dytc, double cs, double best, double tr)
{
    verdict->over_cs += dytc >= 1.47 * cs;
    verdict->over_tuned += dytc >= 1.47 * best;
    verdict->over_tr += dytc >= 1.48 * tr;
    verdict->ahead_cs += dytc > cs;
    verdict->ahead_tuned += dytc > best;
    verdict->ahead_tr += dytc > tr;
}

static void along_the_curve(void **state)
{
    double chance[2] = {0}, cost[2] = {0, 0.01};
    struct verdict verdict[VARIANTS] = {{0}};
    int points = 0;
    double ahead_least = INFINITY, ahead_most = 0;
    (void)state;
    double low = 0.05, high = 0.95;
    for (int i = 0; i < 12; i++) {
        chance[1] = (low + high) / 2;
        *(lookup_alone(chance, cost) < 1.54 ? &low : &high) = chance[1];
    }
    printf("look-up: acceptance %.3f, alone %.3f\nacceptance  cost   SWIFT", chance[1], lookup_alone(chance, cost));
    for (int p = 0; p < POLICIES; p++)
        printf("  %s", policies[p]);
    printf("  cs-drafting tuned (lengths)  dytc of all variants\n");
    for (chance[0] = 0.3; chance[0] < 0.975; chance[0] += 0.05) {
        double speed[POLICIES], least = INFINITY, most = 0;
        char lengths[20] = "";
        struct world w;
        low = 0.001;
        high = 1;
        for (int i = 0; i < 12; i++) {
            cost[0] = (low + high) / 2;
            *(best_alone(chance, cost) > 1.06 ? &low : &high) = cost[0];
        }
        double alone = best_alone(chance, cost);
        printf("%10.2f  %.3f  %.3f", chance[0], cost[0], alone);
        assert_true(fabs(alone - 1.06) < 0.01);
        world_pair(&w, seed(), TOKENS, chance, cost, 0, 2);
        for (int p = 0; p < POLICIES; p++) {
            speed[p] = speed_of(&w, policies[p]);
            printf("  %*.3f", (int)strlen(policies[p]), speed[p]);
        }
        double best = tuned(&w, lengths, sizeof lengths);
        for (int v = 0; v < VARIANTS; v++) {
            double one = speed_of(&w, variants[v]);
            least = fmin(least, one);
            most = fmax(most, one);
            judge(&verdict[v], one, speed[CS_DRAFTING], best, speed[TR]);
        }
        double without = speed_of(&w, "dytc:lookahead=no");
        ahead_least = fmin(ahead_least, speed[DYTC] / without);
        ahead_most = fmax(ahead_most, speed[DYTC] / without);
        printf("  %.3f (%s)  %.3f-%.3f\n", best, lengths, least, most);
        points++;
        assert_true(speed[DYTC_VERIFY] > 0.97 * fmax(1.54, fmax(speed[CS_DRAFTING], speed[TR])));
        world_free(&w);
    }
    printf("of %d points; DyTC over DyTC without its look-ahead term: %.3f to %.3f\n", points, ahead_least, ahead_most);
    for (int v = 0; v < VARIANTS; v++)
        printf("%-32s 1.47 VC+HC at %d, 1.47 tuned VC+HC at %d, 1.48 Tr at %d; ahead of them at %d, %d, %d\n", variants[v],
               verdict[v].over_cs, verdict[v].over_tuned, verdict[v].over_tr, verdict[v].ahead_cs, verdict[v].ahead_tuned,
               verdict[v].ahead_tr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(along_the_curve)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
