/* Expert source that copies all experts to the device once, for devices whose own memory is large enough. */
#include "common/store/fixed.h"

int expert_source_uploaded(struct expert_source **out, const struct model *model, struct device *device, struct err *err)
{
    static const struct expert_source_class class = {
        .name = "uploaded", .fixed = true, .acquire = fixed_acquire, .release = fixed_release,
        .acquire_host = fixed_acquire_host, .release_host = fixed_release, .free = fixed_free};
    return fixed_source_open(out, &class, true, model, device, err);
}
