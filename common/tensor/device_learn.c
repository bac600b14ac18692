/* In a file of its own, because linking this function links the host's training operations, and so OpenBLAS. */
#include "common/tensor/device_class.h"
#include "kernels/host/learn.h"

const struct learn_ops *device_learn(const struct device *device)
{
    if (!device->info.host_memory)
        return device->learn;
    host_learn_open();
    return &host_learn_ops;
}
