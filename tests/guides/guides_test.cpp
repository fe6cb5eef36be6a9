// The code in docs/guides is the code of the examples, which are built and run against the installed package: every
// C++, YAML and CMake block names a file and, after a #, a region between two lines `// [region]`.
//
//   <!-- platform/examples/own_memory/main.cpp#memory -->
//
// AHBM_UPDATE_GUIDES=1 in the environment writes the blocks anew instead of comparing them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
const fs::path kRoot = AHBM_SOURCE_DIR;

std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error(file.string() + ": cannot be read");
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

/// The whole file, or what lies between its two `[region]` lines, without common indentation and inner region lines.
std::vector<std::string> source(const std::string& reference) {
  const size_t hash = reference.find('#');
  const std::vector<std::string> all = lines_of(kRoot / reference.substr(0, hash));
  if (hash == std::string::npos) return all;
  const std::string mark = "[" + reference.substr(hash + 1) + "]";
  std::vector<std::string> out;
  int marks = 0;
  for (const std::string& line : all) {
    const size_t text = line.find_first_not_of(' ');
    const bool is_mark = text != std::string::npos && line.compare(text, 4, "// [") == 0 && line.back() == ']';
    if (is_mark && line.substr(text + 3) == mark) {
      ++marks;
    } else if (marks == 1 && !is_mark) {
      out.push_back(line);
    }
  }
  if (marks != 2) throw std::runtime_error(reference + ": found " + std::to_string(marks) + " marks, expected 2");
  size_t indent = std::string::npos;
  for (const std::string& line : out) indent = std::min(indent, line.find_first_not_of(' '));
  for (std::string& line : out) line = line.size() < indent ? "" : line.substr(indent);
  return out;
}

std::vector<fs::path> guide_files() {
  std::vector<fs::path> out{kRoot / "docs" / "install.md"};
  for (const auto& entry : fs::directory_iterator(kRoot / "docs" / "guides")) {
    if (entry.path().extension() == ".md") out.push_back(entry.path());
  }
  return out;
}

bool is_code(const std::string& line) {
  return line == "```cpp" || line == "```yaml" || line == "```cmake";
}

TEST(Guides, CodeIsThatOfTheExamples) {
  const bool update = std::getenv("AHBM_UPDATE_GUIDES") != nullptr;
  size_t guides = 0, blocks = 0;
  for (const fs::path& file : guide_files()) {
    ++guides;
    const std::string name = file.filename().string();
    const std::vector<std::string> lines = lines_of(file);
    std::ostringstream updated;
    for (size_t i = 0; i < lines.size(); ++i) {
      updated << lines[i] << '\n';
      if (!is_code(lines[i])) continue;
      ++blocks;
      const std::string& mark = i > 0 ? lines[i - 1] : lines[i];
      ASSERT_TRUE(mark.rfind("<!-- ", 0) == 0 && mark.size() > 9)
          << name << ":" << i + 1 << ": a code block needs a line `<!-- file#region -->` before it";
      const std::vector<std::string> want = source(mark.substr(5, mark.size() - 9));
      std::vector<std::string> got;
      while (i + 1 < lines.size() && lines[i + 1] != "```") got.push_back(lines[++i]);
      for (const std::string& line : update ? want : got) updated << line << '\n';
      if (!update) {
        EXPECT_EQ(got, want) << name << ": the block of " << mark;
      }
    }
    if (update) std::ofstream(file) << updated.str();
  }
  EXPECT_GE(guides, 7u);
  EXPECT_GE(blocks, guides);
}

TEST(Guides, EveryExampleHasAGuideThatNamesIt) {
  std::string text;
  for (const fs::path& file : guide_files()) {
    for (const std::string& line : lines_of(file)) text += line + '\n';
  }
  for (const auto& entry : fs::directory_iterator(kRoot / "platform" / "examples")) {
    if (!entry.is_directory()) continue;
    const std::string path = "platform/examples/" + entry.path().filename().string();
    EXPECT_NE(text.find("<!-- " + path + "/"), std::string::npos) << "no guide shows code of " << path;
  }
}

}  // namespace
