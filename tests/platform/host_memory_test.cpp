#include "platform/host_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace ahbm::platform {
namespace {

/// Flags of the mapping that holds `p`, as the kernel lists them: "hg" is a wish for huge pages.
std::string mapping_flags(const void* p) {
  std::ifstream maps("/proc/self/smaps");
  const auto address = reinterpret_cast<uintptr_t>(p);
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) here = address >= begin && address < end;
    if (here && line.rfind("VmFlags:", 0) == 0) return line + " ";
  }
  return {};
}

TEST(HostMemory, WhatTheHeapGrowsByAsksForHugePages) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer has a heap of its own";
#endif
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled")) GTEST_SKIP() << "this kernel has no huge pages";
  prefer_huge_pages_for_heap();
  std::vector<std::unique_ptr<char[]>> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(std::make_unique<char[]>(1 << 20));
  EXPECT_NE(mapping_flags(blocks.back().get()).find(" hg "), std::string::npos) << mapping_flags(blocks.back().get());
}

}  // namespace
}  // namespace ahbm::platform
