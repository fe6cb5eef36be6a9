#include "models/core/config/yaml_reader.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <tuple>

#include "models/core/config/units.h"
#include "models/core/suggest.h"

namespace ahbm::yaml {

namespace {

// A file that names the same anchor again and again, or inside itself, must not eat the machine.
constexpr int kMaxDepth = 64;
constexpr size_t kMaxNodes = 1000000;

/// Where documents of a text start. YAML::LoadAll never ends on some texts (one that starts with a comma, say): it
/// reads an empty document there again and again.
class DocumentStarts : public YAML::EventHandler {
 public:
  std::vector<YAML::Mark> starts;
  void OnDocumentStart(const YAML::Mark& mark) override { starts.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

std::string join(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + '.' + key;
}

Position at_mark(const std::shared_ptr<const std::string>& source, const YAML::Mark& mark, bool from_set) {
  if (from_set || mark.is_null()) return {source, 0, 0, from_set};
  return {source, mark.line + 1, mark.column + 1, false};
}

/// yaml-cpp's tree to ours, duplicate keys noted on the way.
class Importer {
 public:
  using Report = std::function<void(const Position&, std::string)>;
  Importer(std::shared_ptr<const std::string> source, bool from_set, Report report)
      : m_source(std::move(source)), m_from_set(from_set), m_report(std::move(report)) {}

  Node import(const YAML::Node& in, int depth = 0) {
    Node out;
    out.position = at_mark(m_source, in.Mark(), m_from_set);
    if (++m_nodes > kMaxNodes || depth > kMaxDepth) {
      if (!m_gave_up) {
        m_report(out.position, depth > kMaxDepth ? fmt::format("nested more than {} levels deep", kMaxDepth)
                                                 : fmt::format("more than {} values", kMaxNodes));
      }
      m_gave_up = true;
      return out;
    }
    switch (in.Type()) {
      case YAML::NodeType::Scalar:
        out.kind = Node::Kind::Scalar;
        out.scalar = in.Scalar();
        out.quoted = in.Tag() == "!";
        break;
      case YAML::NodeType::Sequence:
        out.kind = Node::Kind::Sequence;
        for (const auto& item : in) {
          if (m_gave_up) break;
          out.items.push_back(import(item, depth + 1));
        }
        break;
      case YAML::NodeType::Map:
        out.kind = Node::Kind::Map;
        for (const auto& pair : in) {
          if (m_gave_up) break;
          import_entry(pair.first, pair.second, depth, out);
        }
        break;
      default:
        break;
    }
    return out;
  }

 private:
  void import_entry(const YAML::Node& key, const YAML::Node& value, int depth, Node& out) {
    const Position key_position = at_mark(m_source, key.Mark(), m_from_set);
    if (!key.IsScalar()) {
      m_report(key_position, "a key must be a plain word");
      return;
    }
    if (const Node::Entry* first = out.find(key.Scalar())) {
      const Position& p = first->key_position;
      m_report(key_position, p.line > 0
                                 ? fmt::format("duplicate key '{}' (first at {}:{})", key.Scalar(), p.line, p.column)
                                 : fmt::format("duplicate key '{}'", key.Scalar()));
      return;
    }
    Node node = import(value, depth + 1);
    if (node.kind == Node::Kind::Null) node.position = key_position;
    out.entries.push_back({key.Scalar(), key_position, std::move(node)});
  }

  std::shared_ptr<const std::string> m_source;
  bool m_from_set;
  Report m_report;
  size_t m_nodes = 0;
  bool m_gave_up = false;
};

bool is_index(const std::string& text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string Position::str() const {
  if (!source) return "?";
  return line > 0 ? fmt::format("{}:{}:{}", *source, line, column) : *source;
}

const Node::Entry* Node::find(const std::string& key) const {
  const auto it = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; });
  return it == entries.end() ? nullptr : &*it;
}

std::string Node::describe() const {
  switch (kind) {
    case Kind::Null:
      return "nothing";
    case Kind::Sequence:
      return "a list";
    case Kind::Map:
      return "a map";
    default:
      return quoted ? fmt::format("the text \"{}\"", scalar) : fmt::format("'{}'", scalar);
  }
}

// ---------------------------------------------------------------------------------------------------------- Section

Section::Section(Document& document, const Node* node, std::string path, Position position)
    : m_document(document), m_node(node), m_path(std::move(path)), m_position(std::move(position)) {
  if (m_node == nullptr || m_node->kind == Node::Kind::Null) {
    m_node = nullptr;
  } else if (m_node->kind != Node::Kind::Map) {
    document.error(m_node->position, fmt::format("{} must be a map of keys and values, got {}",
                                                 m_path.empty() ? "the file" : "'" + m_path + "'", m_node->describe()));
    m_node = nullptr;
  }
}

Section::~Section() {
  if (m_node == nullptr) return;
  for (const Node::Entry& e : m_node->entries) {
    if (m_known.count(e.key) != 0) continue;
    m_document.m_unknown.push_back(
        {e.key_position, e.key, m_path, std::vector<std::string>(m_known.begin(), m_known.end())});
  }
}

bool Section::has(const std::string& key) const {
  return m_node != nullptr && m_node->find(key) != nullptr;
}

std::vector<std::string> Section::keys() const {
  std::vector<std::string> out;
  if (m_node == nullptr) return out;
  for (const Node::Entry& e : m_node->entries) out.push_back(e.key);
  return out;
}

const Node* Section::node(const std::string& key) {
  m_known.insert(key);
  m_document.m_known_paths.insert(join(m_path, key));
  const Node::Entry* e = m_node == nullptr ? nullptr : m_node->find(key);
  return e == nullptr ? nullptr : &e->value;
}

Section Section::section(const std::string& key) {
  const Node* n = node(key);
  const Node::Entry* e = n == nullptr ? nullptr : m_node->find(key);
  return Section(m_document, n, join(m_path, key), e == nullptr ? m_position : e->key_position);
}

std::deque<Section> Section::sections_of_list(const std::string& key) {
  std::deque<Section> out;
  const Node* n = node(key);
  if (n == nullptr || n->kind == Node::Kind::Null) return out;
  if (n->kind != Node::Kind::Sequence) {
    m_document.error(n->position, fmt::format("'{}' must be a list, got {}", join(m_path, key), n->describe()));
    return out;
  }
  for (size_t i = 0; i < n->items.size(); ++i) {
    out.emplace_back(m_document, &n->items[i], fmt::format("{}.{}", join(m_path, key), i), n->items[i].position);
  }
  return out;
}

template <typename T>
Item<T> Section::start(const std::string& key) const {
  Item<T> item;
  item.path = join(m_path, key);
  item.position = m_position;
  return item;
}

template <typename T>
const Node* Section::scalar(const std::string& key, const char* expected, Item<T>& item) {
  const Node* n = node(key);
  if (n == nullptr) return nullptr;
  item.position = n->position;
  item.given = true;
  if (n->kind == Node::Kind::Scalar) return n;
  if (n->kind == Node::Kind::Null) {
    m_document.error(n->position, fmt::format("'{}' has no value; expected {}", join(m_path, key), expected));
  } else {
    m_document.error(n->position, fmt::format("'{}' must be {}, got {}", join(m_path, key), expected, n->describe()));
  }
  return nullptr;
}

Item<uint64_t> Section::count(const std::string& key, uint64_t min, uint64_t max) {
  auto item = start<uint64_t>(key);
  const Node* n = scalar(key, "a whole number", item);
  if (n == nullptr) return item;
  uint64_t v = 0;
  const char* end = n->scalar.data() + n->scalar.size();
  const auto [ptr, ec] = std::from_chars(n->scalar.data(), end, v);
  const bool number = !n->quoted && ptr == end && (ec == std::errc() || ec == std::errc::result_out_of_range);
  if (number && ec == std::errc() && v >= min && v <= max) {
    item.value = v;
  } else {
    m_document.error(n->position, fmt::format("'{}' must be a whole number from {} to {}, got {}", item.path, min, max,
                                              n->describe()));
  }
  return item;
}

Item<bool> Section::boolean(const std::string& key) {
  auto item = start<bool>(key);
  const Node* n = scalar(key, "true or false", item);
  if (n == nullptr) return item;
  if (!n->quoted && (n->scalar == "true" || n->scalar == "false")) {
    item.value = n->scalar == "true";
  } else {
    m_document.error(n->position, fmt::format("'{}' must be true or false, got {}", item.path, n->describe()));
  }
  return item;
}

Item<std::string> Section::text(const std::string& key) {
  auto item = start<std::string>(key);
  if (const Node* n = scalar(key, "a text", item)) item.value = n->scalar;
  return item;
}

Item<std::string> Section::one_of(const std::string& key, const std::vector<std::string>& words) {
  auto item = start<std::string>(key);
  std::string list;
  for (const std::string& w : words) list += (list.empty() ? "" : ", ") + w;
  const std::string expected = "one of " + list;
  const Node* n = scalar(key, expected.c_str(), item);
  if (n == nullptr) return item;
  if (std::find(words.begin(), words.end(), n->scalar) != words.end()) {
    item.value = n->scalar;
  } else {
    m_document.error(n->position, fmt::format("'{}' must be {}, got {}{}", item.path, expected, n->describe(),
                                              did_you_mean(n->scalar, words)));
  }
  return item;
}

template <typename T>
Item<T> Section::quantity(const std::string& key, const char* expected, T (*parse)(std::string_view),
                          std::string (*format)(T), T min, T max) {
  auto item = start<T>(key);
  const Node* n = scalar(key, expected, item);
  if (n == nullptr) return item;
  try {
    const T v = parse(n->scalar);
    if (v >= min && v <= max) {
      item.value = v;
    } else {
      m_document.error(n->position, fmt::format("'{}': '{}' is out of range; expected {} to {}", item.path, n->scalar,
                                                format(min), format(max)));
    }
  } catch (const units::QuantityError& e) {
    m_document.error(n->position, fmt::format("'{}': {}", item.path, e.what()));
  }
  return item;
}

Item<uint64_t> Section::bytes(const std::string& key, uint64_t min, uint64_t max) {
  return quantity<uint64_t>(key, "a size like '16 KiB'", units::parse_bytes, units::format_bytes, min, max);
}
Item<uint64_t> Section::bandwidth(const std::string& key) {
  return quantity<uint64_t>(key, "a bandwidth like '819.2 GB/s'", units::parse_bandwidth, units::format_bandwidth, 1,
                            UINT64_MAX);
}
Item<uint64_t> Section::frequency(const std::string& key) {
  return quantity<uint64_t>(key, "a frequency like '1.5 GHz'", units::parse_frequency, units::format_frequency, 1,
                            UINT64_MAX);
}
Item<Ps> Section::time(const std::string& key, Ps min, Ps max) {
  return quantity<Ps>(key, "a time like '250 ns'", units::parse_time, units::format_time, min, max);
}

// --------------------------------------------------------------------------------------------------------- Document

Document Document::from_file(const std::string& path) {
  std::error_code ec;
  const auto status = std::filesystem::status(path, ec);
  if (!std::filesystem::exists(status)) throw ConfigError(fmt::format("{}: no such file", path));
  if (std::filesystem::is_directory(status)) throw ConfigError(fmt::format("{}: is a directory, not a file", path));
  std::ifstream in(path, std::ios::binary);
  if (!in) throw ConfigError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  return from_text(text, path);
}

Document Document::from_text(const std::string& text, const std::string& source_name) {
  Document doc;
  doc.m_source = std::make_shared<const std::string>(source_name);
  doc.m_root.position = {doc.m_source, 1, 1, false};
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    DocumentStarts documents;
    for (int i = 0; i < 2 && parser.HandleNextDocument(documents); ++i) {
    }
    if (documents.starts.size() > 1) {
      doc.error(at_mark(doc.m_source, documents.starts[1], false), "a second YAML document; one per file is read");
    }
    const YAML::Node first = YAML::Load(text);
    if (!first.IsNull()) {
      Importer importer(doc.m_source, false, [&doc](const Position& p, std::string t) { doc.error(p, std::move(t)); });
      doc.m_root = importer.import(first);
    }
  } catch (const YAML::Exception& e) {
    doc.error(at_mark(doc.m_source, e.mark, false), fmt::format("not valid YAML: {}", e.msg));
  }
  return doc;
}

void Document::set(const std::string& assignment) {
  const auto source = std::make_shared<const std::string>("--set " + assignment);
  const Position here{source, 0, 0, true};
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    error(here, "expected KEY=VALUE, for example system.sips.count=8");
    return;
  }
  std::vector<std::string> steps(1);
  for (const char c : assignment.substr(0, equals)) {
    if (c == '.') {
      steps.emplace_back();
    } else {
      steps.back() += c;
    }
  }
  if (std::any_of(steps.begin(), steps.end(), [](const std::string& s) { return s.empty(); })) {
    error(here, "an empty name in the key; expected KEY=VALUE, for example system.sips.count=8");
    return;
  }
  Node value;
  try {
    Importer importer(source, true, [this](const Position& p, std::string t) { error(p, std::move(t)); });
    value = importer.import(YAML::Load(assignment.substr(equals + 1)));
    value.position = here;
  } catch (const YAML::Exception& e) {
    error(here, fmt::format("the value is not valid YAML: {}", e.msg));
    return;
  }

  Node* at = &m_root;
  for (const std::string& step : steps) {
    if (at->kind == Node::Kind::Sequence) {
      if (!is_index(step) || std::stoul(step) >= at->items.size()) {
        error(here, fmt::format("'{}' is no element of a list of {} (the first is 0)", step, at->items.size()));
        return;
      }
      at = &at->items[std::stoul(step)];
      continue;
    }
    if (at->kind != Node::Kind::Map) {  // nothing, or a value that the override replaces by a map
      Node map;
      map.kind = Node::Kind::Map;
      map.position = here;
      *at = std::move(map);
    }
    auto it = std::find_if(at->entries.begin(), at->entries.end(), [&](const auto& e) { return e.key == step; });
    if (it == at->entries.end()) {
      at->entries.push_back({step, here, Node{}});
      it = std::prev(at->entries.end());
      it->value.position = here;
    }
    at = &it->value;
  }
  *at = std::move(value);
}

Section Document::root() {
  return Section(*this, &m_root, "", whole());
}

Position Document::whole() const {
  return {m_source, 0, 0, false};
}

void Document::error(const Position& position, std::string text) {
  m_errors.push_back({position, std::move(text)});
}

std::string Document::unknown_text(const Unknown& u) const {
  const std::string full = join(u.path, u.key);
  const std::vector<std::string> known(m_known_paths.begin(), m_known_paths.end());
  // `tail` at the end of a known path, after a dot.
  const auto ending_in = [&known](const std::string& tail) -> std::string {
    const std::string dotted = '.' + tail;
    for (const std::string& p : known) {
      if (p.size() > dotted.size() && p.compare(p.size() - dotted.size(), dotted.size(), dotted) == 0) return p;
    }
    return {};
  };
  std::string shown = u.key;
  std::string near;
  if (u.position.from_set) {
    // The whole key as it was typed; it names one key, so whole paths are what can be meant.
    constexpr size_t kPrefix = sizeof("--set ") - 1;
    shown = u.position.source->substr(kPrefix, u.position.source->find('=') - kPrefix);
    near = ending_in(shown);
    if (near.empty()) near = closest(shown, known);
  } else {
    near = closest(u.key, u.siblings);
  }
  if (near.empty()) near = ending_in(u.key);
  if (near.empty() && !u.position.from_set) {
    std::vector<std::string> names;
    for (const std::string& p : known) names.push_back(p.substr(p.rfind('.') + 1));
    const std::string name = closest(u.key, names);
    if (!name.empty()) near = ending_in(name).empty() ? name : ending_in(name);
  }
  if (near.empty()) near = closest(full, known);
  if (!near.empty()) return fmt::format("unknown key '{}' (did you mean '{}'?)", shown, near);
  std::string list;
  for (const std::string& s : u.siblings) list += (list.empty() ? "" : ", ") + s;
  return fmt::format("unknown key '{}' in {} (known: {})", shown, u.path.empty() ? "the file" : "'" + u.path + "'",
                     list.empty() ? "none" : list);
}

void Document::throw_if_errors() const {
  if (ok()) return;
  std::vector<Error> all = m_errors;
  for (const Unknown& u : m_unknown) all.push_back({u.position, unknown_text(u)});
  std::stable_sort(all.begin(), all.end(), [](const Error& a, const Error& b) {
    return std::make_tuple(a.position.from_set, a.position.line, a.position.column) <
           std::make_tuple(b.position.from_set, b.position.line, b.position.column);
  });
  std::string text;
  for (const Error& e : all) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", e.position.str(), e.text);
  }
  throw ConfigError(text);
}

}  // namespace ahbm::yaml
