/* Bytes that a token reads, from a model file alone, compared with those counted in a forward of one token, over random
 * shapes. */
#include "common/engine/kv.h"
#include "common/model/step.h"
#include "tests/unit/rig.h"

static void a_step_is_what_a_forward_of_one_token_reads(void **state)
{
    (void)state;
    struct chance chance = {11};
    char *folder = unit_folder();
    const char *path = unit_path(folder, "m.moe");
    for (int round = 0; round < 24; round++) {
        struct rig rig;
        struct forward forward;
        struct step_bytes bytes;
        struct hparams shape = tiny_shape(&chance);
        struct err err = {0};
        must(tiny_write(path, &shape, FORMAT_BF16, (uint64_t)round, &err), &err);
        rig_open(&rig, path, device_name("host"));
        rig_engine(&rig, (struct engine_setup){.max_rows = 1, .max_logit_rows = 1, .cache = CACHE_F32}, 4);
        const struct batch batch = {.rows = 1, .token = rig.token, .logit_rows = 1};
        must(engine_forward(rig.engine, rig.sequence, &batch, &forward, &rig.err), &rig.err);
        step_bytes(&bytes, rig.model);
        int64_t cache = kv_token_bytes(&shape, CACHE_F32);
        assert_int_equal(step_bytes_all(&bytes), forward.bytes - cache);
        assert_int_equal(bytes.experts > 0, hparams_moe_layers(&shape) > 0);
        assert_int_equal(bytes.shared > 0, shape.shared_inner > 0);
        assert_true(bytes.attention > 0 && bytes.head > 0);
        rig_close(&rig);
    }
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_what_a_forward_of_one_token_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
