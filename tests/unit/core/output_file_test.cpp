// Output files that wait until a run is accepted.
#include "models/core/output_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace ahbm {
namespace {

namespace fs = std::filesystem;

class OutputFiles : public testing::Test {
 protected:
  OutputFiles() : m_name((fs::path(testing::TempDir()) / ("ahbm_output_" + std::to_string(getpid()))).string()) {}
  ~OutputFiles() override { fs::remove(m_name); }
  std::string text() const {
    std::ifstream in(m_name);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& text) const { std::ofstream(m_name) << text; }

  const std::string m_name;
};

TEST_F(OutputFiles, WithoutAGateTheFileIsEmptiedAtOnce) {
  write("what was there");
  OutputFile out(m_name);
  EXPECT_EQ(text(), "");
  out << "new " << 1 << 'x' << std::flush;
  EXPECT_EQ(text(), "new 1x");
  out.close();
  EXPECT_TRUE(out);
  EXPECT_FALSE(out.is_open());
}

TEST_F(OutputFiles, TheGateDecides) {
  for (const bool closed : {false, true}) {
    write("what was there");
    const auto gate = std::make_shared<OutputGate>();
    OutputFile out(m_name, gate);
    out << "before " << std::flush;
    if (closed) out.close();
    EXPECT_EQ(text(), "what was there");
    gate->accept();
    gate->refuse();  // too late
    if (!closed) out << "after" << std::flush;
    EXPECT_EQ(text(), closed ? "before " : "before after");
    EXPECT_TRUE(out);
  }
  for (const bool there : {false, true}) {
    fs::remove(m_name);
    if (there) write("what was there");
    const auto gate = std::make_shared<OutputGate>();
    OutputFile out(m_name, gate);
    out << "before";
    gate->refuse();
    gate->accept();  // too late
    out << "after";
    out.close();
    EXPECT_TRUE(out);
    EXPECT_EQ(fs::exists(m_name), there);
    EXPECT_EQ(text(), there ? "what was there" : "");
  }
}

TEST_F(OutputFiles, WhatGoesOnWithoutADecisionIsAccepted) {
  write("what was there");
  const auto gate = std::make_shared<OutputGate>(8);
  OutputFile out(m_name, gate);
  out << "12345678" << std::flush;
  EXPECT_EQ(text(), "what was there");
  out << '9' << std::flush;
  EXPECT_EQ(text(), "123456789");
}

TEST_F(OutputFiles, FailuresShow) {
  OutputFile none("/nonexistent/x", std::make_shared<OutputGate>());
  EXPECT_FALSE(none);
  const auto gate = std::make_shared<OutputGate>();
  OutputFile full("/dev/full", gate), closed("/dev/full", gate);
  full << "x";
  closed << "x";
  closed.close();
  EXPECT_THROW(gate->accept(), std::runtime_error) << "whoever closed it does not look again";
  full.close();
  EXPECT_FALSE(full);
}

}  // namespace
}  // namespace ahbm
