#include "common/store/expert_source.h"

int expert_source_open(struct expert_source **out, const struct model *model, struct device *device, struct err *err)
{
    return device_info(device)->host_memory ? expert_source_mapped(out, model, device, err)
                                            : expert_source_uploaded(out, model, device, err);
}

void expert_source_close(struct expert_source **source)
{
    if (*source)
        (*source)->class->free(*source);
    *source = NULL;
}
