// What SystemC 2.3 and 3 say differently, in one place: a module that declares processes with SC_METHOD/SC_THREAD needs
// a typedef in 2.3, whose macro 3 deprecates; and objects are made as children of a module in another way.
#pragma once

#include <systemc>

#if defined(SC_VERSION_MAJOR) && SC_VERSION_MAJOR >= 3
#define AHBM_HAS_PROCESS(module)
/// Until the end of the block, what is made has the parent of `object`. In its members.
#define AHBM_SIBLINGS_OF(object) const auto ahbm_siblings = (object).get_hierarchy_scope()
#else
#define AHBM_HAS_PROCESS(module) SC_HAS_PROCESS(module)
#define AHBM_SIBLINGS_OF(object) const ::ahbm::models::ParentScope ahbm_siblings(object)

namespace ahbm::models {

class ParentScope {
 public:
  explicit ParentScope(const sc_core::sc_object& object) : m_context(*object.simcontext()) {
    m_context.hierarchy_push(dynamic_cast<sc_core::sc_module*>(object.get_parent_object()));
  }
  ~ParentScope() { m_context.hierarchy_pop(); }
  ParentScope(const ParentScope&) = delete;
  ParentScope& operator=(const ParentScope&) = delete;

 private:
  sc_core::sc_simcontext& m_context;
};

}  // namespace ahbm::models
#endif
