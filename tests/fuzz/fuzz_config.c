/* Any bytes as a config.json: a shape with the properties that hparams_check promises, or an error. */
#include "common/arch/arch.h"
#include "common/model/layout.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct hparams shape;
    struct layout layout = {0};
    uint64_t end;
    if (arch_read_text((const char *)data, bytes, bytes % 4 ? 0 : (int)(bytes % 9), &shape, NULL))
        return 0;
    if (hparams_check(&shape, NULL))
        abort();
    if (!layout_make(&layout, &shape, NULL))
        (void)layout_arrange(&layout, MODEL_PAGE, &end, NULL);
    layout_free(&layout);
    return 0;
}
