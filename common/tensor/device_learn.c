/* A file of its own: what is linked with it is linked with the host's operations of training, and so with OpenBLAS. */
#include "common/tensor/device_class.h"
#include "kernels/host/learn.h"

const struct learn_ops *device_learn(const struct device *device)
{
    if (!device->info.host_memory)
        return device->learn;
    host_learn_open();
    return &host_learn_ops;
}
