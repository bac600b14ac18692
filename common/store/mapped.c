/* Expert source that uses the mapped model file in place, for devices that share the host's memory. */
#include "common/store/fixed.h"

int expert_source_mapped(struct expert_source **out, const struct model *model, struct device *device, struct err *err)
{
    static const struct expert_source_class class = {
        .name = "mapped", .fixed = true, .acquire = fixed_acquire, .release = fixed_release,
        .acquire_host = fixed_acquire_host, .release_host = fixed_release, .free = fixed_free};
    return fixed_source_open(out, &class, false, model, device, err);
}
