#include "ccl/module_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "models/core/errors.h"

namespace ahbm::ccl {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ModuleFile : public testing::Test {
 protected:
  void SetUp() override {
    register_builtin_algorithms(registry);
    for (const auto& [name, module] : registry.modules()) kernels.add(module.kernel_name, module.kernel);
    m_modules = registry.names();
    m_kernels = kernels.entries().size();
  }
  static std::string path(const std::string& variant) { return MODULES "/libmodule_" + variant + ".so"; }
  std::vector<const AlgorithmModule*> load(const std::string& file) {
    return load_module_file(file, registry, kernels);
  }
  /// The message; nothing may have been added.
  std::string refused(const std::string& file) {
    std::string text;
    try {
      load(file);
      ADD_FAILURE() << file << " was loaded";
    } catch (const ConfigError& e) {
      text = e.what();
    }
    EXPECT_EQ(registry.names(), m_modules);
    EXPECT_EQ(kernels.entries().size(), m_kernels);
    EXPECT_THAT(text, HasSubstr(file));
    return text;
  }

  Registry registry;
  tl::KernelRegistry kernels;

 private:
  std::vector<std::string> m_modules;
  size_t m_kernels = 0;
};

TEST_F(ModuleFile, APathHasASlash) {
  EXPECT_TRUE(is_module_file("./libmine.so"));
  EXPECT_TRUE(is_module_file("/opt/libmine.so"));
  EXPECT_FALSE(is_module_file("ring"));
  EXPECT_FALSE(is_module_file("libmine.so"));
}

TEST_F(ModuleFile, AddsModuleAndKernel) {
  const auto modules = load(path("good"));
  ASSERT_EQ(modules.size(), 1u);
  EXPECT_EQ(modules[0], registry.find("mine"));
  ASSERT_NE(kernels.find("my_kernel"), nullptr);
  EXPECT_EQ(kernels.find("my_kernel")->fn, modules[0]->kernel);
}

TEST_F(ModuleFile, TheSameFileAgainAddsNothing) {
  const auto first = load(path("good"));
  const size_t n = kernels.entries().size();
  EXPECT_EQ(load(path("good")), first);
  EXPECT_EQ(kernels.entries().size(), n);
}

TEST_F(ModuleFile, SeveralModulesComeByName) {
  const auto modules = load(path("two"));
  ASSERT_EQ(modules.size(), 2u);
  EXPECT_EQ(modules[0]->name, "first");
  EXPECT_EQ(modules[1]->name, "second");
}

TEST_F(ModuleFile, AnEntryStaysWhereItIsWhileOthersAreAdded) {
  const tl::KernelRegistry::Entry* const ring = kernels.find("ccl_ring");
  ASSERT_NE(ring, nullptr);
  load(path("two"));
  EXPECT_EQ(kernels.find("ccl_ring"), ring);
}

TEST_F(ModuleFile, MissingFile) {
  EXPECT_THAT(refused(MODULES "/nothing.so"), HasSubstr("no such file"));
}
TEST_F(ModuleFile, NotASharedObject) {
  EXPECT_THAT(refused(AHBM_SOURCE_DIR "/README.md"), HasSubstr("cannot be loaded"));
}
TEST_F(ModuleFile, NoRegisterFunction) {
  EXPECT_THAT(refused(path("silent")), HasSubstr("has no function 'ahbm_register'"));
}
TEST_F(ModuleFile, AnotherAbiIsRefused) {
  EXPECT_THAT(refused(path("abi")), AllOf(HasSubstr("ABI " + std::to_string(kAbiVersion + 40)),
                                          HasSubstr("expected " + std::to_string(kAbiVersion))));
}
TEST_F(ModuleFile, NoModules) {
  EXPECT_THAT(refused(path("empty")), HasSubstr("added no algorithm module"));
}
TEST_F(ModuleFile, AThrowingRegistrationAddsNothing) {
  EXPECT_THAT(refused(path("throwing")), HasSubstr("no licence"));
}
TEST_F(ModuleFile, ATakenModuleName) {
  EXPECT_THAT(refused(path("clash")), HasSubstr("an algorithm module named 'ring' exists already"));
}
TEST_F(ModuleFile, ATakenKernelName) {
  EXPECT_THAT(refused(path("kernel_clash")), HasSubstr("a kernel named 'ccl_ring' exists already"));
}

}  // namespace
}  // namespace ahbm::ccl
