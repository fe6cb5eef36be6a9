// ahbm_regen as the build runs it: what it refuses, what it says, and that what it makes compiles.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace ahbm {
namespace {

namespace fs = std::filesystem;

struct Result {
  int code = -1;
  std::string output;
};

Result shell(const std::string& command) {
  Result r;
  FILE* p = popen((command + " 2>&1").c_str(), "r");
  if (p == nullptr) return r;
  char buffer[4096];
  for (size_t n = fread(buffer, 1, sizeof buffer, p); n > 0; n = fread(buffer, 1, sizeof buffer, p)) {
    r.output.append(buffer, n);
  }
  const int status = pclose(p);
  if (WIFEXITED(status)) r.code = WEXITSTATUS(status);
  return r;
}

struct Generator : ::testing::Test {
  fs::path dir;
  Generator() {
    std::string name = (fs::temp_directory_path() / "ahbm_regen_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    dir = name;
  }
  ~Generator() override { fs::remove_all(dir); }

  std::string path(const std::string& name) const { return (dir / name).string(); }
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(dir / name) << text;
    return path(name);
  }
  Result generate(const std::string& files) const {
    return shell(std::string(AHBM_REGEN) + " --cpp-dir " + path("cpp") + " --c-header " + path("c/ahbm_registers.h") +
                 " --markdown " + path("registers.md") + " " + files);
  }
  /// Generates from one block with these registers and expects exit code 1, every message, and no output files.
  void refuse(const std::string& registers, const std::vector<std::string>& messages) const {
    refuse_file("block: bad\ndoc: d\nsize: 0x100\nregisters:\n" + registers, messages);
  }
  void refuse_file(const std::string& text, const std::vector<std::string>& messages) const {
    const Result r = generate(file("bad.yaml", text));
    EXPECT_EQ(r.code, 1) << r.output;
    for (const std::string& m : messages) EXPECT_NE(r.output.find(m), std::string::npos) << m << "\nin\n" << r.output;
    size_t lines = 0;
    for (char c : r.output) lines += c == '\n';
    EXPECT_EQ(lines, messages.size()) << r.output;  // nothing else is said
    EXPECT_FALSE(fs::exists(dir / "cpp"));
    EXPECT_FALSE(fs::exists(dir / "registers.md"));
  }
};

const char* const kField = "fields: [{name: V, bits: \"7:0\", access: RW}]";

// T16: two registers in one place are refused with both names and places.
TEST_F(Generator, OverlappingRegisters) {
  refuse(std::string("  - {name: ALPHA, offset: 0x10, width: 64, ") + kField + "}\n" +
             "  - {name: BETA, offset: 0x14, width: 32, " + kField + "}\n",
         {"bad.yaml:6:5: register BETA [0x14, 0x18) overlaps register ALPHA [0x10, 0x18) of " + path("bad.yaml:5:5")});
}

TEST_F(Generator, OverlappingRegistersWhereverTheyStand) {
  refuse(std::string("  - {name: LATE, offset: 0x14, width: 32, ") + kField + "}\n" +
             "  - {name: MIDDLE, offset: 0x20, width: 32, " + kField + "}\n" +
             "  - {name: EARLY, offset: 0x10, width: 64, " + kField + "}\n",
         {"bad.yaml:7:5: register EARLY [0x10, 0x18) overlaps register LATE [0x14, 0x18)"});
}

TEST_F(Generator, OverlapWithAnArrayElement) {
  refuse(std::string("  - {name: A, offset: 0, width: 32, count: 8, stride: 8, ") + kField + "}\n" +
             "  - {name: B, offset: 0x18, width: 32, count: 4, " + kField + "}\n",
         {"register B0 [0x18, 0x1c) overlaps register A3 [0x18, 0x1c)"});
}

TEST_F(Generator, OverlappingFields) {
  refuse(
      "  - name: R\n    offset: 0\n    width: 32\n    fields:\n"
      "      - {name: LOW, bits: \"7:0\", access: RW}\n      - {name: HIGH, bits: \"15:7\", access: RO}\n",
      {"bad.yaml:10:9: register R: field HIGH (bits 15:7) overlaps field LOW (bits 7:0) of " + path("bad.yaml:9:9")});
}

TEST_F(Generator, DuplicateNames) {
  refuse(std::string("  - {name: R, offset: 0, width: 32, ") + kField + "}\n" + "  - {name: R, offset: 8, width: 32, " +
             "fields: [{name: W, bits: \"0\", access: RW}]}\n",
         {"bad.yaml:6:5: register R has the same name R as register R of"});
  refuse(
      "  - {name: R, offset: 0, width: 32, fields: [{name: V, bits: \"0\", access: RW}, {name: V, bits: \"1\", "
      "access: RW}]}\n",
      {"register R: duplicate field V (first at"});
}

TEST_F(Generator, NamesThatOnlyClashInGeneratedCode) {
  refuse(std::string("  - {name: R, offset: 0, width: 32, ") + kField + "}\n" +
             "  - {name: R_V, offset: 8, width: 32, " + kField + "}\n",
         {"field R.V has the same name R_V as register R_V"});
  refuse(std::string("  - {name: R, offset: 0, width: 32, count: 2, ") + kField + "}\n" +
             "  - {name: R1, offset: 0x10, width: 32, fields: [{name: W, bits: \"0\", access: RW}]}\n",
         {"register R1 has the same name R1 as register R1"});
}

TEST_F(Generator, FieldsThatDoNotFit) {
  refuse("  - {name: R, offset: 0, width: 16, fields: [{name: V, bits: \"16:8\", access: RW}]}\n",
         {"field R.V: bits 16:8 do not fit the register's width of 16 bits"});
  refuse("  - {name: R, offset: 0, width: 16, fields: [{name: V, bits: \"8:12\", access: RW}]}\n",
         {"field R.V: bits '8:12' must be"});
  refuse("  - {name: R, offset: 0, width: 16, fields: [{name: V, bits: \"3:0\", access: RW, reset: 16}]}\n",
         {"field R.V: reset value 0x10 does not fit 4 bits"});
  refuse("  - {name: R, offset: 0, width: 16, fields: [{name: V, bits: \"0\", access: pulse, reset: 1}]}\n",
         {"field R.V: a pulse field stores nothing"});
}

TEST_F(Generator, BadAccessWidthOffsetAndStride) {
  refuse("  - {name: R, offset: 0, width: 32, fields: [{name: V, bits: \"0\", access: WR}]}\n",
         {"field R.V: access 'WR' is none of RW, RO, WO, W1C, W1S, RC, pulse"});
  refuse(std::string("  - {name: R, offset: 0, width: 24, ") + kField + "}\n",
         {"register R: width 24 is none of 8, 16, 32, 64"});
  refuse(std::string("  - {name: R, offset: 2, width: 32, ") + kField + "}\n",
         {"register R: offset 0x2 is not a multiple of its 4 bytes"});
  refuse(std::string("  - {name: R, offset: 0xFC, width: 64, ") + kField + "}\n",
         {"register R: offset 0xfc is not a multiple of its 8 bytes",
          "register R: [0xfc, 0x104) does not fit the block's size of 0x100"});
  refuse(std::string("  - {name: R, offset: 0, width: 32, count: 2, stride: 2, ") + kField + "}\n",
         {"register R: stride 0x2 is not a multiple of its 4 bytes"});
  refuse(std::string("  - {name: R, offset: 0, width: 32, count: 65, ") + kField + "}\n",
         {"register R: [0x0, 0x104) does not fit"});
  refuse(std::string("  - {name: R, offset: 0, width: 32, count: 0, ") + kField + "}\n",
         {"register R: count 0 is not in 1..4096"});
}

TEST_F(Generator, UnknownMissingAndDuplicateKeys) {
  refuse(std::string("  - {name: R, ofset: 0, width: 32, ") + kField + "}\n",
         {"register R: key 'offset' is missing",
          "bad.yaml:5:15: register R: unknown key 'ofset' (did you mean 'offset'?)"});
  refuse(std::string("  - {name: R, offset: 0, offset: 4, width: 32, ") + kField + "}\n", {"duplicate key 'offset'"});
  refuse("  - {name: R, offset: 0, width: 32, fields: [{name: V, bits: \"0\", access: RW, rest: 1}]}\n",
         {"field R.V: unknown key 'rest' (did you mean 'reset'?)"});
  refuse("  - {name: R, offset: 0, width: 32, fields: []}\n", {"register R: 'fields' must be a list of at least one"});
  refuse(std::string("  - {name: lower, offset: 0, width: 32, ") + kField + "}\n", {"must be upper-case letters"});
  refuse(std::string("  - {name: R, offset: -4, width: 32, ") + kField + "}\n",
         {"'offset: -4' must be a whole number"});
  refuse(std::string("  - {name: R, offset: 0x1FFFFFFFFFFFFFFFF, width: 32, ") + kField + "}\n",
         {"must be a whole number below 2^64"});
}

TEST_F(Generator, EveryMistakeOfEveryFileIsToldAtOnce) {
  const std::string one =
      file("one.yaml",
           "block: one\ndoc: d\nsize: 0x10\nregisters:\n  - {name: R, offset: 0, width: 33, fields: "
           "[{name: V, bits: \"0\", access: XX}]}\n");
  const std::string two = file("two.yaml", "block: one\nsiz: 0x10\n");
  const Result r = generate(one + " " + two);
  EXPECT_EQ(r.code, 1);
  for (const char* m : {"width 33", "access 'XX'", "unknown key 'siz'", "key 'size' is missing",
                        "key 'registers' is missing", "block one is declared by"}) {
    EXPECT_NE(r.output.find(m), std::string::npos) << m << "\nin\n" << r.output;
  }
}

TEST_F(Generator, BadFiles) {
  Result r = generate(path("absent.yaml"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.output.find("absent.yaml: cannot be read"), std::string::npos);
  r = generate(file("broken.yaml", "block: [\n"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.output.find("broken.yaml:"), std::string::npos);
  r = generate(file("list.yaml", "- 1\n"));
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.output.find("expected a map"), std::string::npos);
  EXPECT_EQ(generate("").code, 2);
  EXPECT_EQ(generate("--nonsense x.yaml").code, 2);
  refuse_file(
      "block: switch\ndoc: d\nsize: 4\nregisters:\n  - {name: R, offset: 0, width: 32, " + std::string(kField) + "}\n",
      {"block name 'switch' is a word of C++"});
  refuse_file("block: big\ndoc: d\nsize: 0x200000\nregisters:\n  - {name: R, offset: 0, width: 32, " +
                  std::string(kField) + "}\n",
              {"size 0x200000 is not in 1..0x100000"});
}

TEST_F(Generator, BlocksWhoseMacrosClash) {
  const std::string a = file("a.yaml", "block: a\ndoc: d\nsize: 4\nregisters:\n  - {name: B_R, offset: 0, width: 32, " +
                                           std::string(kField) + "}\n");
  const std::string b = file("b.yaml", "block: a_b\ndoc: d\nsize: 4\nregisters:\n  - {name: R, offset: 0, width: 32, " +
                                           std::string(kField) + "}\n");
  const Result r = generate(a + " " + b);
  EXPECT_EQ(r.code, 1);
  EXPECT_NE(r.output.find("macro AHBM_A_B_R_OFFSET of the C header"), std::string::npos) << r.output;
}

TEST_F(Generator, CHeaderCompilesWithAPlainCompiler) {
  const Result g =
      generate(AHBM_SOURCE_DIR "/configs/registers/*.yaml " AHBM_SOURCE_DIR "/tests/unit/registers/zoo.yaml");
  ASSERT_EQ(g.code, 0) << g.output;
  const std::string c = file("use.c", R"(
#include "ahbm_registers.h"
int check(void) {
  return AHBM_PE_SFR_BASE(1, 2, 3) == (UINT64_C(1) << 55 | UINT64_C(1) << 42 | UINT64_C(2) << 34) + 0x303800000 &&
         AHBM_DOORBELL_BASE(0, 0, 0, 5) + AHBM_DOORBELL_CREDIT_OFFSET ==
             (UINT64_C(1) << 55) + 0x300000000 + 0xC05008 &&
         AHBM_QP_PEER_RING_OFFSET == 0x10 && AHBM_PE_STATUS_QUEUED_SHIFT == 8 && AHBM_PE_STATUS_QUEUED_MASK == 0xFF00 &&
         AHBM_CUBE_IRQ_ENABLE_STRIDE == 8 && AHBM_ZOO_LAST_OFFSET == 0x7C;
}
int main(void) { return check() ? 0 : 1; }
)");
  const Result r = shell(std::string(AHBM_C_COMPILER) + " -std=c99 -Wall -Wextra -Wpedantic -Werror -I" + path("c") +
                         " " + c + " -o " + path("use") + " && " + path("use"));
  EXPECT_EQ(r.code, 0) << r.output;
  const std::string s = file("use.S", "#include \"ahbm_registers.h\"\n.quad AHBM_PE_LAUNCH_OFFSET\n");
  EXPECT_EQ(shell(std::string(AHBM_C_COMPILER) + " -c -I" + path("c") + " " + s + " -o " + path("use.o")).code, 0);
}

TEST_F(Generator, ReferenceNamesEveryRegisterAndTheOutputIsReproducible) {
  const std::string files = AHBM_SOURCE_DIR "/configs/registers/*.yaml";
  ASSERT_EQ(generate(files).code, 0);
  const auto slurp = [&](const char* name) {
    std::ostringstream s;
    s << std::ifstream(dir / name).rdbuf();
    return s.str();
  };
  const std::string md = slurp("registers.md"), c = slurp("c/ahbm_registers.h"), cpp = slurp("cpp/pe.h");
  for (const char* name : {"`pe.FAULT_ADDR`", "`qp.PEER_RING`", "`doorbell.PUSH` (fifo)", "`cube.IRQ_PENDING`",
                           "| 2 | UNKNOWN_QP | W1C | `0x0` | doorbell page of a QP that does not exist |"}) {
    EXPECT_NE(md.find(name), std::string::npos) << name;
  }
  ASSERT_EQ(generate(files).code, 0);
  EXPECT_EQ(slurp("registers.md"), md);
  EXPECT_EQ(slurp("c/ahbm_registers.h"), c);
  EXPECT_EQ(slurp("cpp/pe.h"), cpp);
}

}  // namespace
}  // namespace ahbm
