#include "ccl/algorithm.h"
#include "runtime/layout/dp_policy.h"

int main() {
  ahbm::ccl::Registry registry;
  ahbm::ccl::register_builtin_algorithms(registry);
  return registry.find("ring") != nullptr && ahbm::layout::element_count({2, 3}) == 6 ? 0 : 1;
}
