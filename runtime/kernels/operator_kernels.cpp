#include "runtime/kernels/operator_kernels.h"

namespace ahbm::kernels {

void register_operator_kernels(tl::KernelRegistry& registry) {
  registry.add("copy_boxes", copy_boxes_kernel);
  registry.add("elementwise", elementwise_kernel);
  registry.add("reduce", reduce_kernel);
  registry.add("combine", combine_kernel);
  registry.add("rows", rows_kernel);
  registry.add("triangle", triangle_kernel);
  registry.add("matmul", matmul_kernel);
  registry.add("lookup", lookup_kernel);
}

}  // namespace ahbm::kernels
