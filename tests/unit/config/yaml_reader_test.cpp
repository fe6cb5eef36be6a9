// The strict reader: positions, unknown and duplicate keys, types, overrides.
#include "models/core/config/yaml_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "models/core/suggest.h"

namespace ahbm::yaml {
namespace {

using ::testing::HasSubstr;

std::string errors(const Document& doc) {
  try {
    doc.throw_if_errors();
    return "";
  } catch (const ConfigError& e) {
    return e.what();
  }
}

TEST(YamlReader, ReadsWhatIsAskedFor) {
  Document doc = Document::from_text("a: 5\nb: {c: true, d: 4 KiB, e: [1, 2]}\n", "f.yaml");
  {
    Section root = doc.root();
    const auto a = root.count("a", 0, 10);
    EXPECT_EQ(a.value, 5u);
    EXPECT_EQ(a.position.str(), "f.yaml:1:4");
    EXPECT_EQ(a.path, "a");
    Section b = root.section("b");
    EXPECT_EQ(b.boolean("c").value, true);
    EXPECT_EQ(b.bytes("d", 0, 1 << 20).value, 4096u);
    const Node* e = b.node("e");
    ASSERT_NE(e, nullptr);
    EXPECT_EQ(e->items.size(), 2u);
    EXPECT_EQ(e->items[1].position.str(), "f.yaml:2:31");
    EXPECT_FALSE(b.text("absent"));
    EXPECT_FALSE(b.text("absent").given);
  }
  EXPECT_EQ(errors(doc), "");
}

TEST(YamlReader, MisspeltKeyNamesTheRightOne) {
  // A misspelt hardware key must not decode to zero, a duplicate must not be dropped (T47).
  Document doc = Document::from_text("noc:\n  link_bandwith: 100\n", "f.yaml");
  {
    Section root = doc.root();
    Section noc = root.section("noc");
    noc.bandwidth("link_bandwidth");
  }
  EXPECT_EQ(errors(doc), "f.yaml:2:3: unknown key 'link_bandwith' (did you mean 'link_bandwidth'?)");
}

TEST(YamlReader, DuplicateKeyIsAnError) {
  Document doc = Document::from_text("a: 1\nb: 2\na: 3\n", "f.yaml");
  {
    Section root = doc.root();
    EXPECT_EQ(root.count("a", 0, 9).value, 1u);
    root.count("b", 0, 9);
  }
  EXPECT_EQ(errors(doc), "f.yaml:3:1: duplicate key 'a' (first at 1:1)");
}

TEST(YamlReader, DuplicateKeysAreFoundAnywhere) {
  Document doc = Document::from_text("a:\n  - {x: 1, x: 2}\n  - y: {z: 1,\n        z: 2}\n", "f.yaml");
  { doc.root().node("a"); }
  EXPECT_EQ(errors(doc), "f.yaml:2:12: duplicate key 'x' (first at 2:6)\nf.yaml:4:9: duplicate key 'z' (first at 3:9)");
}

TEST(YamlReader, UnknownKeyWithoutANearOneListsWhatIsKnown) {
  Document doc = Document::from_text("s: {qqqqqqqq: 1}\n", "f.yaml");
  {
    Section root = doc.root();
    Section s = root.section("s");
    s.boolean("alpha");
    s.boolean("beta");
  }
  EXPECT_EQ(errors(doc), "f.yaml:1:5: unknown key 'qqqqqqqq' in 's' (known: alpha, beta)");
}

TEST(YamlReader, KeyInTheWrongPlaceIsPointedToTheRightOne) {
  Document doc = Document::from_text("stall_limit: 4 us\n", "f.yaml");
  {
    Section root = doc.root();
    Section s = root.section("simulation");
    s.time("stall_limit", 0, us(10));
  }
  EXPECT_EQ(errors(doc), "f.yaml:1:1: unknown key 'stall_limit' (did you mean 'simulation.stall_limit'?)");
}

TEST(YamlReader, WrongTypesSayWhatTheyAreAndWhatWasExpected) {
  Document doc = Document::from_text(
      "n1: abc\nn2: 1.5\nn3: -1\nn4: \"4\"\nn5: [1]\nn6: {a: 1}\nn7:\nn8: 99999999999999999999999\nn9: 11\nn10: 1e3\n"
      "b1: yes\nb2: 1\nt: [x]\nq: {}\nw: sharde\ns: 5\nl: 7\n",
      "f.yaml");
  {
    Section root = doc.root();
    for (const char* k : {"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10"})
      EXPECT_FALSE(root.count(k, 1, 10));
    EXPECT_TRUE(root.count("n1", 1, 10).given);
    root.boolean("b1");
    root.boolean("b2");
    root.text("t");
    root.time("q", 0, 1);
    root.choice<int>("w", {{"sharded", 1}, {"partial", 2}});
    { root.section("s"); }
    root.sections_of_list("l");
  }
  EXPECT_EQ(errors(doc),
            "f.yaml:1:5: 'n1' must be a whole number from 1 to 10, got 'abc'\n"
            "f.yaml:1:5: 'n1' must be a whole number from 1 to 10, got 'abc'\n"
            "f.yaml:2:5: 'n2' must be a whole number from 1 to 10, got '1.5'\n"
            "f.yaml:3:5: 'n3' must be a whole number from 1 to 10, got '-1'\n"
            "f.yaml:4:5: 'n4' must be a whole number from 1 to 10, got the text \"4\"\n"
            "f.yaml:5:5: 'n5' must be a whole number, got a list\n"
            "f.yaml:6:5: 'n6' must be a whole number, got a map\n"
            "f.yaml:7:1: 'n7' has no value; expected a whole number\n"
            "f.yaml:8:5: 'n8' must be a whole number from 1 to 10, got '99999999999999999999999'\n"
            "f.yaml:9:5: 'n9' must be a whole number from 1 to 10, got '11'\n"
            "f.yaml:10:6: 'n10' must be a whole number from 1 to 10, got '1e3'\n"
            "f.yaml:11:5: 'b1' must be true or false, got 'yes'\n"
            "f.yaml:12:5: 'b2' must be true or false, got '1'\n"
            "f.yaml:13:4: 't' must be a text, got a list\n"
            "f.yaml:14:4: 'q' must be a time like '250 ns', got a map\n"
            "f.yaml:15:4: 'w' must be one of sharded, partial, got 'sharde' (did you mean 'sharded'?)\n"
            "f.yaml:16:4: 's' must be a map of keys and values, got '5'\n"
            "f.yaml:17:4: 'l' must be a list, got '7'");
}

TEST(YamlReader, BrokenYamlHasItsPosition) {
  const Document doc = Document::from_text("a: 1\nb: [1, 2\nc: 3\n", "f.yaml");
  EXPECT_THAT(errors(doc), HasSubstr("f.yaml:3:"));
  EXPECT_THAT(errors(doc), HasSubstr("not valid YAML"));
  EXPECT_THAT(errors(Document::from_text("a: {b: 1\n", "g.yaml")), HasSubstr("g.yaml:2:1: not valid"));
}

TEST(YamlReader, OnlyOneDocument) {
  EXPECT_THAT(errors(Document::from_text("a: 1\n---\nb: 2\n", "f.yaml")), HasSubstr("a second YAML document"));
}

TEST(YamlReader, EmptyFilesHaveNoKeys) {
  for (const char* text : {"", "# only a comment\n", "---\n", "~\n"}) {
    Document doc = Document::from_text(text, "f.yaml");
    { EXPECT_FALSE(doc.root().count("a", 0, 1)); }
    EXPECT_EQ(errors(doc), "") << text;
  }
}

TEST(YamlReader, AFileThatIsNoMap) {
  Document doc = Document::from_text("- 1\n- 2\n", "f.yaml");
  { doc.root().count("a", 0, 1); }
  EXPECT_EQ(errors(doc), "f.yaml:1:1: the file must be a map of keys and values, got a list");
}

TEST(YamlReader, SelfReferenceAndExpansionEnd) {
  EXPECT_THAT(errors(Document::from_text("a: &x [*x]\n", "f.yaml")), HasSubstr("nested more than 64 levels deep"));
  std::string bomb = "l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string below = "*l" + std::to_string(i - 1);
    bomb += "l" + std::to_string(i) + ": &l" + std::to_string(i) + " [" + below;
    for (int j = 1; j < 10; ++j) bomb += ", " + below;
    bomb += "]\n";
  }
  EXPECT_THAT(errors(Document::from_text(bomb, "f.yaml")), HasSubstr("more than 1000000 values"));
}

TEST(YamlReader, FilesThatCannotBeRead) {
  EXPECT_THROW(Document::from_file("/no/such/file.yaml"), ConfigError);
  try {
    Document::from_file(std::filesystem::temp_directory_path().string());
    FAIL() << "a directory was read";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr("is a directory"));
  }
}

TEST(YamlReader, SetOverridesAddsAndReplaces) {
  Document doc = Document::from_text("a: {b: 1}\nl: [{v: 1}, {v: 2}]\n", "f.yaml");
  doc.set("a.b=2");
  doc.set("a.b=3");
  doc.set("c.d.e=4");
  doc.set("l.1.v=9");
  doc.set("m={x: [1, 2]}");
  doc.set("t=a=b");
  {
    Section root = doc.root();
    EXPECT_EQ(root.section("a").count("b", 0, 9).value, 3u);
    EXPECT_EQ(root.section("c").section("d").count("e", 0, 9).value, 4u);
    std::deque<Section> l = root.sections_of_list("l");
    EXPECT_EQ(l[0].count("v", 0, 9).value, 1u);
    EXPECT_EQ(l[1].count("v", 0, 9).value, 9u);
    EXPECT_EQ(root.section("m").node("x")->items.size(), 2u);
    EXPECT_EQ(root.text("t").value, "a=b");
  }
  EXPECT_EQ(errors(doc), "");
}

TEST(YamlReader, WrongSetsNameThemselves) {
  Document doc = Document::from_text("a: {bcd: 1}\nl: [1]\n", "f.yaml");
  for (const char* s : {"a.bdc=2", "bcd=2", "novalue", "=3", "a..b=3", "l.7=1", "l.x=1", "a.bcd=[1", "a.bcd="})
    doc.set(s);
  {
    Section root = doc.root();
    root.section("a").count("bcd", 0, 9);
    root.node("l");
  }
  EXPECT_EQ(errors(doc),
            "--set novalue: expected KEY=VALUE, for example system.sips.count=8\n"
            "--set =3: expected KEY=VALUE, for example system.sips.count=8\n"
            "--set a..b=3: an empty name in the key; expected KEY=VALUE, for example system.sips.count=8\n"
            "--set l.7=1: '7' is no element of a list of 1 (the first is 0)\n"
            "--set l.x=1: 'x' is no element of a list of 1 (the first is 0)\n"
            "--set a.bcd=[1: the value is not valid YAML: end of sequence flow not found\n"
            "--set a.bcd=: 'a.bcd' has no value; expected a whole number\n"
            "--set a.bdc=2: unknown key 'a.bdc' (did you mean 'a.bcd'?)\n"
            "--set bcd=2: unknown key 'bcd' (did you mean 'a.bcd'?)");
}

TEST(Suggest, NearNamesOnly) {
  const std::vector<std::string> known{"count", "topology", "double_links", "w", "h"};
  EXPECT_EQ(closest("cuont", known), "count");
  EXPECT_EQ(closest("topolgy", known), "topology");
  EXPECT_EQ(closest("Topology", known), "topology");
  EXPECT_EQ(closest("doublelinks", known), "double_links");
  EXPECT_EQ(closest("topo", known), "topology");
  EXPECT_EQ(closest("W", known), "w");
  EXPECT_EQ(closest("x", known), "");
  EXPECT_EQ(closest("latency", known), "");
  EXPECT_EQ(closest("count", {}), "");
  EXPECT_EQ(did_you_mean("cuont", known), " (did you mean 'count'?)");
}

// Found by fuzzing: the parser offers the rest of such a text as a new document for ever.
TEST(YamlReader, ATextThatStartsInTheMiddleOfAListEnds) {
  for (const char* text : {", a: 1}, {b: 2}]\n\nc:\n  d: 1\n", "]", "}", ", "}) {
    const Document doc = Document::from_text(text, "t.yaml");
    EXPECT_FALSE(doc.ok()) << text;
  }
}

}  // namespace
}  // namespace ahbm::yaml
