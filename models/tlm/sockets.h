// The sockets of our modules: TLM-2.0 sockets of the base protocol that bind to any others, but are one object for the
// kernel each.
//
// A socket of tlm_utils is a port and an export, and the second one has a generated name: together half of what a
// machine of 16,384 PEs takes to elaborate. Of the four objects that join two modules of ours only two are ever used,
// since our targets call nothing back. The others are made when somebody asks for them: a socket of another library
// that is bound to one of these, or a hierarchical bind.
#pragma once

#include <memory>
#include <systemc>
#include <tlm>
#include <tuple>
#include <typeindex>

#include "models/core/host_lines.h"
#include "models/tlm/process_macro.h"

namespace ahbm::models {

/// Every target and initiator socket of TLM-2.0 with the default protocol and width converts to these.
using TargetSocket = tlm::tlm_base_target_socket_b<32>;
using InitiatorSocket = tlm::tlm_base_initiator_socket_b<32>;

/// Binds a pair of sockets, as `from.bind(to)` of TLM-2.0.
void bind_sockets(InitiatorSocket& from, TargetSocket& to);
/// For who calls `to.get_base_interface()` without a socket: `to` is bound, and what it calls back is ignored.
void bind_to_caller(TargetSocket& to);

enum class Binding : uint8_t { Required, Optional };

/// A target socket without its callbacks.
class InSocketBase : public TargetSocket, public sc_core::sc_export<tlm::tlm_fw_transport_if<>> {
 public:
  using Forward = tlm::tlm_fw_transport_if<>;
  using Backward = tlm::tlm_bw_transport_if<>;

  InSocketBase(const char* name, Binding binding);
  ~InSocketBase() override;
  using sc_core::sc_export<Forward>::bind;
  void bind(InitiatorSocket& from) { bind_sockets(from, *this); }
  void operator()(InitiatorSocket& from) { bind(from); }
  const char* kind() const override { return "tlm_target_socket"; }

  sc_core::sc_port_b<Backward>& get_base_port() override;
  const sc_core::sc_port_b<Backward>& get_base_port() const override;
  sc_core::sc_export<Forward>& get_base_export() override { return *this; }
  const sc_core::sc_export<Forward>& get_base_export() const override { return *this; }
  Forward& get_base_interface() override { return *operator->(); }
  const Forward& get_base_interface() const override { return *operator->(); }
  unsigned get_bus_width() const override { return 32; }
  std::type_index get_protocol_types() const override { return typeid(tlm::tlm_base_protocol_types); }
  tlm::tlm_socket_category get_socket_category() const override { return tlm::TLM_TARGET_SOCKET; }
  bool is_multi_socket() const { return false; }  ///< overrides, from SystemC 3 on

 protected:
  /// What a socket that was never told what to do with a call reports.
  [[noreturn]] void refuse(const char* call) const;
  void serve(Forward& target) { sc_core::sc_export<Forward>::bind(target); }

 private:
  friend void bind_sockets(InitiatorSocket& from, TargetSocket& to);
  friend void bind_to_caller(TargetSocket& to);
  void take_initiator();  ///< that expects nothing back
  void end_of_elaboration() override;

  template <sc_core::sc_port_policy kPolicy>
  void make_way_back();

  std::shared_ptr<sc_core::sc_port_b<Backward>> m_back;  ///< for whoever wants to be called back
  const Binding m_binding;
  bool m_taken = false;
};

/// A target socket whose transactions `Module` serves in callbacks, which get `Tag` first if there is one.
template <typename Module, typename... Tag>
class InSocket final : public InSocketBase {
 public:
  explicit InSocket(const char* name, Binding binding = Binding::Required)
      : InSocketBase(name, binding), m_target(*this) {
    serve(m_target);
  }
  using BTransport = void (Module::*)(Tag..., tlm::tlm_generic_payload&, sc_core::sc_time&);
  using TransportDbg = unsigned (Module::*)(Tag..., tlm::tlm_generic_payload&);
  using GetDirectMemPtr = bool (Module::*)(Tag..., tlm::tlm_generic_payload&, tlm::tlm_dmi&);
  void register_b_transport(Module* module, BTransport callback, Tag... tag) {
    m_target.own(module, tag...);
    m_target.m_b_transport = callback;
  }
  void register_transport_dbg(Module* module, TransportDbg callback, Tag... tag) {
    m_target.own(module, tag...);
    m_target.m_transport_dbg = callback;
  }
  void register_get_direct_mem_ptr(Module* module, GetDirectMemPtr callback, Tag... tag) {
    m_target.own(module, tag...);
    m_target.m_get_direct_mem_ptr = callback;
  }
  /// What a transaction touches here.
  void name_touched(HostLines& lines) const { lines.add(&m_target, &m_target + 1); }

 private:
  struct Target final : Forward {
    explicit Target(const InSocket& socket) : m_socket(socket) {}
    void own(Module* module, Tag... tag) {
      m_module = module;
      m_tag = {tag...};
    }
    void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time& delay) override {
      if (m_b_transport == nullptr) m_socket.refuse("b_transport");
      call(m_b_transport, trans, delay);
    }
    tlm::tlm_sync_enum nb_transport_fw(tlm::tlm_generic_payload&, tlm::tlm_phase&, sc_core::sc_time&) override {
      m_socket.refuse("nb_transport_fw");
    }
    unsigned transport_dbg(tlm::tlm_generic_payload& trans) override {
      if (m_transport_dbg == nullptr) return 0;
      return call(m_transport_dbg, trans);
    }
    bool get_direct_mem_ptr(tlm::tlm_generic_payload& trans, tlm::tlm_dmi& dmi) override {
      if (m_get_direct_mem_ptr == nullptr) {
        dmi.allow_read_write();  // no range of all addresses has direct memory
        dmi.set_start_address(0);
        dmi.set_end_address(~sc_dt::uint64{0});
        return false;
      }
      return call(m_get_direct_mem_ptr, trans, dmi);
    }

    /// The lambda must not capture `this`: GCC 12 takes a wrong one with -fsanitize=vptr, where a function is called
    /// through a base that is virtual, as these are.
    template <typename Callback, typename... Args>
    auto call(Callback callback, Args&... args) {
      Module* const module = m_module;
      return std::apply([&](Tag... tag) { return (module->*callback)(tag..., args...); }, m_tag);
    }

    const InSocket& m_socket;
    Module* m_module = nullptr;
    BTransport m_b_transport = nullptr;
    TransportDbg m_transport_dbg = nullptr;
    GetDirectMemPtr m_get_direct_mem_ptr = nullptr;
    std::tuple<Tag...> m_tag;
  };
  Target m_target;
};

/// An initiator socket that is not called back: invalidated DMI pointers are none of its concern.
template <sc_core::sc_port_policy kPolicy>
class OutSocketOf : public InitiatorSocket, public sc_core::sc_port<tlm::tlm_fw_transport_if<>, 1, kPolicy> {
 public:
  using Forward = tlm::tlm_fw_transport_if<>;
  using Backward = tlm::tlm_bw_transport_if<>;
  using Port = sc_core::sc_port<Forward, 1, kPolicy>;

  explicit OutSocketOf(const char* name);
  ~OutSocketOf() override;
  using Port::bind;
  void bind(TargetSocket& to) { bind_sockets(*this, to); }
  void operator()(TargetSocket& to) { bind(to); }
  const char* kind() const override { return "tlm_initiator_socket"; }

  sc_core::sc_port_b<Forward>& get_base_port() override { return *this; }
  const sc_core::sc_port_b<Forward>& get_base_port() const override { return *this; }
  sc_core::sc_export<Backward>& get_base_export() override;
  const sc_core::sc_export<Backward>& get_base_export() const override;
  Backward& get_base_interface() override { return m_called_back; }
  const Backward& get_base_interface() const override { return m_called_back; }
  unsigned get_bus_width() const override { return 32; }
  std::type_index get_protocol_types() const override { return typeid(tlm::tlm_base_protocol_types); }
  tlm::tlm_socket_category get_socket_category() const override { return tlm::TLM_INITIATOR_SOCKET; }
  bool is_multi_socket() const { return false; }  ///< overrides, from SystemC 3 on

 private:
  struct CalledBack final : Backward {
    explicit CalledBack(const sc_core::sc_object& socket) : m_socket(socket) {}
    tlm::tlm_sync_enum nb_transport_bw(tlm::tlm_generic_payload&, tlm::tlm_phase&, sc_core::sc_time&) override;
    void invalidate_direct_mem_ptr(sc_dt::uint64, sc_dt::uint64) override {}
    const sc_core::sc_object& m_socket;
  };
  CalledBack m_called_back;
  std::unique_ptr<sc_core::sc_export<Backward>> m_export;  ///< of m_called_back, for whoever asks for it
};
using OutSocket = OutSocketOf<sc_core::SC_ONE_OR_MORE_BOUND>;
using OptionalOutSocket = OutSocketOf<sc_core::SC_ZERO_OR_MORE_BOUND>;
extern template class OutSocketOf<sc_core::SC_ONE_OR_MORE_BOUND>;
extern template class OutSocketOf<sc_core::SC_ZERO_OR_MORE_BOUND>;

}  // namespace ahbm::models
