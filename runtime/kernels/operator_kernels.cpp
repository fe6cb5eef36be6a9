#include "runtime/kernels/operator_kernels.h"

namespace ahbm::kernels {

void register_operator_kernels(tl::KernelRegistry& registry) {
  registry.add("copy_boxes", copy_boxes_kernel);
  registry.add("elementwise", elementwise_kernel);
}

}  // namespace ahbm::kernels
