// Our sockets among each other, and bound to those of other libraries.
#include "models/tlm/sockets.h"

#include <gmock/gmock.h>
#include <tlm_utils/passthrough_target_socket.h>
#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

#include <string>
#include <vector>

#include "tests/support/sim_test.h"

namespace ahbm::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Target : public sc_core::sc_module {
 public:
  explicit Target(const sc_core::sc_module_name& name, Binding binding = Binding::Required)
      : sc_core::sc_module(name), in("in", binding) {
    in.register_b_transport(this, &Target::b_transport, 7);
    in.register_transport_dbg(this, &Target::transport_dbg, 7);
  }
  InSocket<Target, int> in;
  std::vector<int> tags;

 private:
  void b_transport(int tag, tlm::tlm_generic_payload& trans, sc_core::sc_time&) {
    tags.push_back(tag);
    trans.set_response_status(tlm::TLM_OK_RESPONSE);
  }
  unsigned transport_dbg(int tag, tlm::tlm_generic_payload&) { return static_cast<unsigned>(tag); }
};

class Initiator : public sc_core::sc_module {
 public:
  explicit Initiator(const sc_core::sc_module_name& name) : sc_core::sc_module(name), out("out") {}
  OutSocket out;
};

class ForeignInitiator : public sc_core::sc_module {
 public:
  explicit ForeignInitiator(const sc_core::sc_module_name& name) : sc_core::sc_module(name), out("out") {}
  tlm_utils::simple_initiator_socket<ForeignInitiator> out;
};

/// Gives a pointer away and takes it back.
class ForeignTarget : public sc_core::sc_module {
 public:
  explicit ForeignTarget(const sc_core::sc_module_name& name) : sc_core::sc_module(name), in("in") {
    in.register_b_transport(this, &ForeignTarget::b_transport);
  }
  tlm_utils::simple_target_socket<ForeignTarget> in;
  tlm::tlm_phase phase;
  sc_core::sc_time time;

 private:
  void b_transport(tlm::tlm_generic_payload& trans, sc_core::sc_time&) {
    in->invalidate_direct_mem_ptr(0, 100);
    trans.set_response_status(tlm::TLM_OK_RESPONSE);
  }
};

/// A module of the user's around one of ours.
class Wrapper : public sc_core::sc_module {
 public:
  explicit Wrapper(const sc_core::sc_module_name& name) : sc_core::sc_module(name), in("in"), inner("inner") {
    in.bind(inner.in);
  }
  tlm::tlm_target_socket<> in;
  Target inner;
};

tlm::tlm_response_status send(tlm::tlm_fw_transport_if<>& to) {
  tlm::tlm_generic_payload trans;
  sc_core::sc_time delay;
  to.b_transport(trans, delay);
  return trans.get_response_status();
}

template <typename F>
std::string report_of(F&& f) {
  try {
    f();
  } catch (const sc_core::sc_report& report) {
    return report.get_msg();
  }
  return "no report";
}

std::vector<std::string> children(const sc_core::sc_module& module) {
  std::vector<std::string> out;
  for (const sc_core::sc_object* child : module.get_child_objects()) out.push_back(child->basename());
  return out;
}

class SocketsTest : public test::SimTest {};

TEST_F(SocketsTest, AreOneObjectEachBetweenModulesOfOurs) {
  Initiator initiator("initiator");
  Target target("target");
  initiator.out.bind(target.in);
  run([&] { EXPECT_EQ(send(*initiator.out.operator->()), tlm::TLM_OK_RESPONSE); });
  EXPECT_THAT(target.tags, ElementsAre(7));
  EXPECT_THAT(children(initiator), ElementsAre("out"));
  EXPECT_THAT(children(target), ElementsAre("in"));
}

TEST_F(SocketsTest, ForeignInitiatorBindsFromOutsideOfAnyModule) {
  ForeignInitiator initiator("initiator");
  Target target("target", Binding::Optional);
  initiator.out.bind(target.in);
  run([&] {
    EXPECT_EQ(send(*initiator.out.operator->()), tlm::TLM_OK_RESPONSE);
    tlm::tlm_generic_payload trans;
    EXPECT_EQ(initiator.out->transport_dbg(trans), 7u);
  });
  EXPECT_THAT(target.tags, ElementsAre(7));
  EXPECT_THAT(children(target), ElementsAre("in", "in_port_0"));  // the way back is the target's
}

TEST_F(SocketsTest, ForeignTargetMayCallBack) {
  Initiator initiator("initiator");
  ForeignTarget target("target");
  initiator.out.bind(target.in);
  run([&] {
    EXPECT_EQ(send(*initiator.out.operator->()), tlm::TLM_OK_RESPONSE);
    tlm::tlm_generic_payload trans;
    EXPECT_THAT(report_of([&] { target.in->nb_transport_bw(trans, target.phase, target.time); }),
                HasSubstr("initiator.out: nb_transport_bw is not served here"));
  });
}

TEST_F(SocketsTest, TargetSocketOfAModuleAroundBindsDown) {
  Initiator initiator("initiator");
  Wrapper wrapper("wrapper");
  initiator.out.bind(wrapper.in);
  run([&] { EXPECT_EQ(send(*initiator.out.operator->()), tlm::TLM_OK_RESPONSE); });
  EXPECT_THAT(wrapper.inner.tags, ElementsAre(7));
}

TEST_F(SocketsTest, InitiatorSocketOfAModuleAroundBindsUp) {
  struct Around : sc_core::sc_module {
    explicit Around(const sc_core::sc_module_name& name) : sc_core::sc_module(name), out("out"), inner("inner") {
      // What tlm_base_initiator_socket::bind does for a hierarchical bind, from the outside.
      inner.out.get_base_port()(out.get_base_port());
      out.get_base_export()(inner.out.get_base_export());
    }
    tlm::tlm_initiator_socket<> out;
    Initiator inner;
  };
  Around around("around");
  ForeignTarget target("target");
  around.out.bind(target.in);
  run([&] { EXPECT_EQ(send(*around.inner.out.operator->()), tlm::TLM_OK_RESPONSE); });
  EXPECT_THAT(children(around.inner), ElementsAre("out", "out_export_0"));
}

TEST_F(SocketsTest, NameWhatTheyDoNotServe) {
  Initiator initiator("initiator");
  Target target("target");
  initiator.out.bind(target.in);
  run([&] {
    tlm::tlm_generic_payload trans;
    tlm::tlm_phase phase;
    sc_core::sc_time time;
    EXPECT_THAT(report_of([&] { initiator.out->nb_transport_fw(trans, phase, time); }),
                HasSubstr("target.in: nb_transport_fw is not served here; b_transport"));
    tlm::tlm_dmi dmi;
    EXPECT_FALSE(initiator.out->get_direct_mem_ptr(trans, dmi));
    EXPECT_EQ(dmi.get_end_address(), ~sc_dt::uint64{0});
  });
}

TEST_F(SocketsTest, TakeOneInitiator) {
  Initiator one("one"), two("two");
  ForeignInitiator foreign("foreign");
  Target target("target");
  one.out.bind(target.in);
  EXPECT_THAT(report_of([&] { two.out.bind(target.in); }), HasSubstr("target.in: a second initiator socket"));
  EXPECT_THAT(report_of([&] { foreign.out.bind(target.in); }), HasSubstr("target.in: a second initiator socket"));
}

TEST_F(SocketsTest, HaveToBeBoundUnlessOptional) {
  Target optional("optional", Binding::Optional);
  Target required("required");
  EXPECT_THAT(report_of([] { sc_core::sc_start(sc_core::SC_ZERO_TIME); }),
              HasSubstr("required.in: no initiator socket is bound to it"));
}

TEST_F(SocketsTest, OptionalOnesMayStayUnbound) {
  Target target("target", Binding::Optional);
  struct Module : sc_core::sc_module {
    explicit Module(const sc_core::sc_module_name& name) : sc_core::sc_module(name), out("out") {}
    OptionalOutSocket out;
  } module("module");
  run([&] { EXPECT_EQ(module.out.get_interface(0), nullptr); });
}

TEST_F(SocketsTest, ServeACallerWithoutASocket) {
  Target target("target");
  bind_to_caller(target.in);
  ForeignTarget foreign("foreign");
  bind_to_caller(foreign.in);
  run([&] {
    EXPECT_EQ(send(target.in.get_base_interface()), tlm::TLM_OK_RESPONSE);
    EXPECT_EQ(send(foreign.in.get_base_interface()), tlm::TLM_OK_RESPONSE);
  });
}

}  // namespace
}  // namespace ahbm::models
