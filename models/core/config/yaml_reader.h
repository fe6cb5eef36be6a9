// Strict reading of YAML: every node knows where it stands, every key is either asked for or reported, duplicate keys
// are errors, and all mistakes of a file are collected before anything is thrown.
//
//   yaml::Document doc = yaml::Document::from_file("ccl.yaml");
//   {
//     yaml::Section defaults = doc.root().section("defaults");
//     auto algorithm = defaults.text("algorithm");   // yaml::Item<std::string>: value (optional) and position
//   }                                                // keys that nobody asked for are noted when a Section ends
//   doc.throw_if_errors();                           // ConfigError with one line per mistake
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/core/errors.h"
#include "models/core/time.h"

namespace ahbm::yaml {

/// `file:line:column` (both from 1), or an override like `--set system.sips.count=8` that has no line.
struct Position {
  std::shared_ptr<const std::string> source;
  int line = 0;
  int column = 0;
  bool from_set = false;
  std::string str() const;
};

struct Node {
  enum class Kind : uint8_t { Null, Scalar, Sequence, Map };
  struct Entry;

  Kind kind = Kind::Null;
  std::string scalar;   ///< text of a scalar
  bool quoted = false;  ///< the scalar is in quotes, hence a text whatever it looks like
  Position position;
  std::vector<Entry> entries;  ///< of a map, in the order of the file
  std::vector<Node> items;     ///< of a sequence

  const Entry* find(const std::string& key) const;
  /// For messages: `the text "x"`, `a list`, `a map`, `nothing`.
  std::string describe() const;
};

struct Node::Entry {
  std::string key;
  Position key_position;
  Node value;
};

/// A value that was asked for. `position` is that of the value, else of the nearest thing around it.
template <typename T>
struct Item {
  std::optional<T> value;
  Position position;
  std::string path;    ///< e.g. `system.sips.count`
  bool given = false;  ///< the key is in the file, right or wrong
  explicit operator bool() const { return value.has_value(); }
  const T& operator*() const { return *value; }
  T value_or(T other) const { return value.value_or(other); }
};

class Document;

/// One map, read key by key. Getters answer an Item without a value when the key is absent or wrong (then an error has
/// been noted). When a Section ends, its keys that nobody asked for are noted as unknown.
class Section {
 public:
  Section(Document& document, const Node* node, std::string path, Position position);
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;
  ~Section();

  bool has(const std::string& key) const;  ///< without marking it as known
  std::vector<std::string> keys() const;
  const std::string& path() const { return m_path; }
  const Position& position() const { return m_position; }

  Section section(const std::string& key);
  /// One Section per element of a list of maps.
  std::deque<Section> sections_of_list(const std::string& key);
  const Node* node(const std::string& key);  ///< null when absent; marks the key as known

  Item<uint64_t> count(const std::string& key, uint64_t min, uint64_t max);  ///< a whole number in [min, max]
  Item<bool> boolean(const std::string& key);
  Item<std::string> text(const std::string& key);
  Item<uint64_t> bytes(const std::string& key, uint64_t min, uint64_t max);
  Item<uint64_t> bandwidth(const std::string& key);
  Item<uint64_t> frequency(const std::string& key);
  Item<Ps> time(const std::string& key, Ps min, Ps max);
  /// One of the given words.
  template <typename E>
  Item<E> choice(const std::string& key, const std::vector<std::pair<std::string, E>>& choices) {
    Item<E> out;
    std::vector<std::string> words;
    for (const auto& c : choices) words.push_back(c.first);
    const Item<std::string> word = one_of(key, words);
    out.position = word.position;
    out.path = word.path;
    out.given = word.given;
    for (const auto& c : choices) {
      if (word.value == c.first) out.value = c.second;
    }
    return out;
  }

 private:
  Item<std::string> one_of(const std::string& key, const std::vector<std::string>& words);
  template <typename T>
  const Node* scalar(const std::string& key, const char* expected, Item<T>& item);
  template <typename T>
  Item<T> start(const std::string& key) const;
  template <typename T>
  Item<T> quantity(const std::string& key, const char* expected, T (*parse)(std::string_view), std::string (*format)(T),
                   T min, T max);

  Document& m_document;
  const Node* m_node;
  std::string m_path;
  Position m_position;
  std::set<std::string> m_known;
};

class Document {
 public:
  /// \throws ConfigError when the file cannot be read; mistakes in the text are collected
  static Document from_file(const std::string& path);
  static Document from_text(const std::string& text, const std::string& source_name);

  /// Applies `key.path=value` (value in YAML) on top; a list element is named by its index. Later ones win.
  void set(const std::string& assignment);

  Section root();
  const Node& root_node() const { return m_root; }
  void error(const Position& position, std::string text);
  /// Position that stands for the whole file.
  Position whole() const;
  size_t error_count() const { return m_errors.size(); }
  bool ok() const { return m_errors.empty() && m_unknown.empty(); }
  /// \throws ConfigError with every mistake on a line of its own, in the order of the file
  void throw_if_errors() const;

 private:
  friend class Section;
  struct Error {
    Position position;
    std::string text;
  };
  struct Unknown {
    Position position;
    std::string key;
    std::string path;
    std::vector<std::string> siblings;
  };
  std::string unknown_text(const Unknown& u) const;

  Node m_root;
  std::shared_ptr<const std::string> m_source;
  std::vector<Error> m_errors;
  std::vector<Unknown> m_unknown;
  std::set<std::string> m_known_paths;
};

}  // namespace ahbm::yaml
