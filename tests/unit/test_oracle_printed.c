/* The oracle by equation 6 as printed, compared with the equation computed literally: an expert's contribution to a row is
 * the difference of residual streams of forwards in which this expert alone is forced. */
#include "tests/unit/unit.h"

#include <math.h>
#include <unistd.h>

#include "common/engine/oracle.h"
#include "tests/unit/rig.h"

enum { ROWS = 5, MANY = 12, HIDDEN_MAX = 80, PROMPT = 6 };

struct world {
    struct hparams shape;
    int experts, top_k, hidden, moe;
    double g[ROWS][MANY];                    /* eq. 1 */
    double E[ROWS][MANY][HIDDEN_MAX];        /* times a constant that is equal in all rows */
    bool routed[ROWS][MANY];                 /* T_k */
};

static void forward(struct rig *rig, const struct batch *options, struct forward *out)
{
    struct batch batch = *options;
    batch.rows = batch.logit_rows = ROWS;
    batch.token = rig->token + PROMPT;
    must(engine_forward(rig->engine, rig->sequence, &batch, out, &rig->err), &rig->err);
    sequence_rollback(rig->sequence);
}

/* Returns the residual stream after the first layer if `expert` (-1: none) is forced on all rows there. */
static void force(struct rig *rig, const struct world *world, int expert, double stream[ROWS][HIDDEN_MAX])
{
    int32_t forced[LAYERS_MAX * ROWS * MANY];
    struct forward out;
    for (int i = 0; i < world->moe * ROWS * world->top_k; i++)
        forced[i] = i < ROWS * world->top_k && i % world->top_k == 0 ? expert : -1;
    forward(rig, &(struct batch){.forced = forced, .want_hidden = true}, &out);
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < world->hidden; i++)
            stream[row][i] = (double)out.hidden[(row * out.layers) * out.hidden_size + i];
}

static void look(struct rig *rig, struct world *world)
{
    static double without[ROWS][HIDDEN_MAX], with[ROWS][HIDDEN_MAX];
    struct forward out;
    forward(rig, &(struct batch){.want_scores = true}, &out);
    memset(world->routed, 0, sizeof world->routed);
    for (int row = 0; row < ROWS; row++) {
        for (int e = 0; e < world->experts; e++)
            world->g[row][e] = (double)out.score[row * world->moe * world->experts + e];
        for (int s = 0; s < world->top_k; s++)
            world->routed[row][out.wanted[row * world->moe * world->top_k + s]] = true;
    }
    force(rig, world, -1, without);
    for (int e = 0; e < world->experts; e++) {
        force(rig, world, e, with);
        for (int row = 0; row < ROWS; row++)
            for (int i = 0; i < world->hidden; i++)
                world->E[row][e][i] = with[row][i] - without[row][i];
    }
}

/* Computes equation 6 for the set S. */
static double missing(const struct world *world, const bool *S)
{
    double all = 0;
    for (int t = 0; t < ROWS; t++)
        for (int i = 0; i < world->hidden; i++) {
            double gold = 0, sum = 0;
            for (int j = 0; j < world->experts; j++) {
                gold += world->routed[t][j] ? world->g[t][j] * world->E[t][j][i] : 0;
                sum += S[j] ? world->g[t][j] * world->E[t][j][i] : 0;
            }
            all += (gold - sum) * (gold - sum);
        }
    return all;
}

/* Returns false if two choices are so close that rounding may decide. */
static bool choose(const struct world *world, int budget, bool *S)
{
    const bool none[MANY] = {false};
    const double scale = missing(world, none);
    memset(S, 0, MANY * sizeof *S);
    for (int taken = 0; taken < budget; taken++) {
        double min = INFINITY, second = INFINITY;
        int best = -1;
        for (int i = 0; i < world->experts; i++) {
            if (S[i])
                continue;
            S[i] = true;
            double left = missing(world, S);
            S[i] = false;
            second = left < min ? min : left < second ? left : second;
            best = left < min ? i : best;
            min = left < min ? left : min;
        }
        if (second - min < 1e-3 * scale)
            return false;
        S[best] = true;
    }
    return true;
}

/* Returns whether each row has the top_k of S by its scores, as substitution defines. */
static bool is_applied(const struct world *world, const struct forward *out, const bool *S, int budget)
{
    for (int row = 0; row < ROWS; row++) {
        bool left[MANY];
        memcpy(left, S, sizeof left);
        for (int s = 0; s < world->top_k; s++) {
            int best = -1;
            for (int e = 0; e < world->experts; e++)
                if (left[e] && (best < 0 || world->g[row][e] > world->g[row][best]))
                    best = e;
            if (out->expert[row * world->moe * world->top_k + s] != (s < budget ? best : -1))
                return false;
            if (best >= 0)
                left[best] = false;
        }
    }
    return true;
}

static void the_choice_is_that_of_the_printed_equation(void **state)
{
    static struct world world;
    int compared = 0, unlike_routed = 0;
    char path[64];
    (void)state;
    snprintf(path, sizeof path, "/tmp/moe-test-printed-%d.moe", (int)getpid());
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct chance chance = {seed};
        struct rig rig;
        struct forward out;
        int32_t budget[LAYERS_MAX];
        world.shape = tiny_shape(&chance);
        if (world.shape.router.experts < 4 || world.shape.router.kind == ROUTER_SPARSEMIXER || world.shape.router.groups ||
            world.shape.router.correction || world.shape.layer[0].ffn != FFN_EXPERTS || world.shape.norms != NORM_BEFORE)
            continue;
        world.experts = world.shape.router.experts;
        world.top_k = world.shape.router.top_k;
        world.hidden = world.shape.hidden;
        world.moe = hparams_moe_layers(&world.shape);
        struct err err = {0};
        must(tiny_write(path, &world.shape, FORMAT_F32, seed, &err), &err);
        rig_open(&rig, path, device_name(seed % 2 ? "ref" : "host"));
        rig_engine(&rig, (struct engine_setup){.max_rows = ROWS + PROMPT, .max_logit_rows = ROWS}, PROMPT + ROWS);
        must(engine_prompt(rig.engine, rig.sequence, rig.token, PROMPT, NULL, NULL, NULL, &out, &rig.err), &rig.err);
        look(&rig, &world);
        for (int b = 1; b < world.experts; b++) {
            struct expert_plan plan = {PLAN_PRINTED, BUDGET_SUBSTITUTE, world.moe, world.experts, budget, NULL};
            bool S[MANY];
            for (int n = 0; n < world.moe; n++)
                budget[n] = n ? world.experts : b;
            if (!choose(&world, b, S))
                continue;
            forward(&rig, &(struct batch){.plan = &plan}, &out);
            assert_true(is_applied(&world, &out, S, b));
            compared++;
            plan.ranking = PLAN_ORACLE;
            forward(&rig, &(struct batch){.plan = &plan}, &out);
            unlike_routed += !is_applied(&world, &out, S, b);
        }
        rig_close(&rig);
        unlink(path);
    }
    assert_true(compared > 20);
    assert_true(unlike_routed > 5);
}

/* The sum of row 0 is 1, contributed by expert 0; that of row 1 is 1, by expert 1. Expert 0 would add 2 to row 1, expert 1
 * nothing to row 0: each leaves an error of 1. Expert 2, to which neither row routes, adds 1/2 to both and leaves 1/4 + 1/4. */
static void experts_that_harm_other_rows_are_not_taken_first(void **state)
{
    (void)state;
    static const float contribution[] = {1, 0, 0.5f, 2, 1, 0.5f};
    static const int32_t expert[] = {0, 1, 2, 0, 1, 2};
    static const uint8_t routed[] = {1, 0, 0, 0, 1, 0};
    struct oracle oracle = {contribution, expert, routed, 2, 3, 1, 3, 1};
    struct err err = {0};
    uint8_t mask[3];
    assert_int_equal(oracle_choose(&oracle, mask, &err), 0);
    assert_memory_equal(mask, ((uint8_t[]){0, 0, 1}), 3);
    oracle.budget = 3;                          /* finally all are chosen, whatever the error */
    assert_int_equal(oracle_choose(&oracle, mask, &err), 0);
    assert_memory_equal(mask, ((uint8_t[]){1, 1, 1}), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_choice_is_that_of_the_printed_equation),
        cmocka_unit_test(experts_that_harm_other_rows_are_not_taken_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
