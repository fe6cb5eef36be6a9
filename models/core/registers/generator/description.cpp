#include "models/core/registers/generator/description.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "models/core/suggest.h"

namespace ahbm::regen {

namespace {

constexpr uint64_t kMaxBlockBytes = 1 << 20;
constexpr uint32_t kMaxCount = 4096;

/// Block names become namespaces.
bool is_keyword(const std::string& s) {
  static const std::set<std::string> kWords = {
      "alignas",  "alignof", "and",     "asm",      "auto",     "bool",    "break",    "case",      "catch",
      "char",     "class",   "compl",   "const",    "continue", "default", "delete",   "detail",    "do",
      "double",   "else",    "enum",    "explicit", "export",   "extern",  "false",    "float",     "for",
      "friend",   "goto",    "if",      "inline",   "int",      "long",    "mutable",  "namespace", "new",
      "noexcept", "not",     "nullptr", "offset",   "operator", "or",      "private",  "protected", "public",
      "register", "return",  "short",   "signed",   "sizeof",   "static",  "struct",   "switch",    "template",
      "this",     "throw",   "true",    "try",      "typedef",  "typeid",  "typename", "union",     "unsigned",
      "using",    "virtual", "void",    "volatile", "while",    "xor"};
  return kWords.count(s) != 0;
}

bool is_identifier(const std::string& s, bool upper) {
  if (s.empty()) return false;
  const auto letter = [&](char c) { return upper ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z'; };
  if (!letter(s[0])) return false;
  return std::all_of(s.begin(), s.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_'; });
}

std::optional<uint64_t> parse_number(const std::string& s) {
  const bool hex = s.size() > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
  const std::string digits = hex ? s.substr(2) : s;
  if (digits.empty()) return std::nullopt;
  const uint64_t base = hex ? 16 : 10;
  uint64_t v = 0;
  for (char c : digits) {
    uint64_t d;
    if (c >= '0' && c <= '9') {
      d = static_cast<uint64_t>(c - '0');
    } else if (hex && std::isxdigit(static_cast<unsigned char>(c))) {
      d = static_cast<uint64_t>(std::tolower(static_cast<unsigned char>(c)) - 'a') + 10;
    } else {
      return std::nullopt;
    }
    if (v > (std::numeric_limits<uint64_t>::max() - d) / base) return std::nullopt;
    v = v * base + d;
  }
  return v;
}

/// Reads one YAML map: every key is taken at most once, what is left over is reported.
class Map {
 public:
  Map(const YAML::Node& node, const std::string& file, const std::string& what, Errors& errors)
      : m_file(file), m_what(what), m_errors(errors), m_place(place_of(node)) {
    if (!node.IsMap()) {
      report(errors, m_place, fmt::format("{}: expected a map", what));
      return;
    }
    for (const auto& entry : node) {
      const std::string key = entry.first.Scalar();
      if (!m_entries.emplace(key, entry.second).second) {
        report(errors, place_of(entry.first), fmt::format("{}: duplicate key '{}'", what, key));
      }
      m_key_places.emplace(key, place_of(entry.first));
    }
  }

  Place place_of(const YAML::Node& node) const { return {m_file, node.Mark().line + 1, node.Mark().column + 1}; }
  const Place& place() const { return m_place; }
  void rename(const std::string& what) { m_what = what; }

  /// The value of `key`; a null node when it is absent (reported if required).
  YAML::Node take(const std::string& key, bool required) {
    m_known.push_back(key);
    const auto it = m_entries.find(key);
    if (it != m_entries.end()) return it->second;
    if (required) report(m_errors, m_place, fmt::format("{}: key '{}' is missing", m_what, key));
    return YAML::Node(YAML::NodeType::Null);
  }
  std::string text(const std::string& key, bool required) {
    const YAML::Node n = take(key, required);
    if (n.IsNull()) return "";
    if (!n.IsScalar()) {
      report(m_errors, place_of(n), fmt::format("{}: '{}' must be text", m_what, key));
      return "";
    }
    return n.Scalar();
  }
  std::string identifier(const std::string& key, bool upper) {
    const std::string s = text(key, true);
    if (!s.empty() && !is_identifier(s, upper)) {
      report(m_errors, place_of(m_entries.at(key)),
             fmt::format("{}: '{}: {}' must be {}, digits and _", m_what, key, s,
                         upper ? "upper-case letters" : "lower-case letters"));
    }
    return s;
  }
  uint64_t number(const std::string& key, std::optional<uint64_t> fallback) {
    const YAML::Node n = take(key, !fallback);
    if (n.IsNull()) return fallback.value_or(0);
    const auto v = n.IsScalar() ? parse_number(n.Scalar()) : std::nullopt;
    if (!v) {
      report(m_errors, place_of(n),
             fmt::format("{}: '{}: {}' must be a whole number below 2^64, decimal or 0x hexadecimal", m_what, key,
                         n.IsScalar() ? n.Scalar() : "..."));
    }
    return v.value_or(fallback.value_or(0));
  }
  bool flag(const std::string& key) {
    const YAML::Node n = take(key, false);
    if (n.IsNull()) return false;
    if (n.IsScalar() && n.Scalar() == "true") return true;
    if (!n.IsScalar() || n.Scalar() != "false") {
      report(m_errors, place_of(n), fmt::format("{}: '{}' must be true or false", m_what, key));
    }
    return false;
  }
  void finish() {
    for (const auto& [key, node] : m_entries) {
      if (std::find(m_known.begin(), m_known.end(), key) != m_known.end()) continue;
      report(m_errors, m_key_places.at(key),
             fmt::format("{}: unknown key '{}'{}", m_what, key, did_you_mean(key, m_known)));
    }
  }

 private:
  std::string m_file, m_what;
  Errors& m_errors;
  Place m_place;
  std::map<std::string, YAML::Node> m_entries;
  std::map<std::string, Place> m_key_places;
  std::vector<std::string> m_known;
};

FieldDescription read_field(const YAML::Node& node, const std::string& file, const RegisterDescription& reg,
                            Errors& errors) {
  FieldDescription f;
  Map map(node, file, fmt::format("field of register {}", reg.name), errors);
  f.place = map.place();
  if (!node.IsMap()) return f;
  f.name = map.identifier("name", true);
  const std::string what = fmt::format("field {}.{}", reg.name, f.name);
  map.rename(what);
  f.doc = map.text("doc", false);

  const std::string bits = map.text("bits", true);
  if (!bits.empty()) {
    const size_t colon = bits.find(':');
    const auto hi = parse_number(bits.substr(0, colon));
    const auto lo = colon == std::string::npos ? hi : parse_number(bits.substr(colon + 1));
    if (!hi || !lo || *lo > *hi) {
      report(errors, f.place, fmt::format("{}: bits '{}' must be \"high:low\" or one bit number", what, bits));
    } else if (*hi >= 8 * reg.width_bytes) {
      report(errors, f.place,
             fmt::format("{}: bits {} do not fit the register's width of {} bits", what, bits, 8 * reg.width_bytes));
    } else {
      f.lsb = static_cast<unsigned>(*lo);
      f.width = static_cast<unsigned>(*hi - *lo + 1);
    }
  }

  const std::string access = map.text("access", true);
  if (!access.empty()) {
    std::vector<std::string> names;
    for (RegAccess a : {RegAccess::RW, RegAccess::RO, RegAccess::WO, RegAccess::W1C, RegAccess::W1S, RegAccess::RC,
                        RegAccess::Pulse}) {
      names.emplace_back(ahbm::to_string(a));
      if (access == names.back()) f.access = a;
    }
    if (std::find(names.begin(), names.end(), access) == names.end()) {
      report(errors, f.place, fmt::format("{}: access '{}' is none of {}", what, access, fmt::join(names, ", ")));
    }
  }

  f.reset = map.number("reset", 0);
  if (f.width < 64 && (f.reset >> f.width) != 0) {
    report(errors, f.place, fmt::format("{}: reset value {:#x} does not fit {} bits", what, f.reset, f.width));
  }
  if (f.access == RegAccess::Pulse && f.reset != 0) {
    report(errors, f.place, fmt::format("{}: a pulse field stores nothing and cannot have a reset value", what));
  }
  map.finish();
  return f;
}

void check_fields(const RegisterDescription& reg, Errors& errors) {
  for (size_t i = 0; i < reg.fields.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const FieldDescription &a = reg.fields[j], &b = reg.fields[i];
      if (a.name == b.name) {
        report(errors, b.place,
               fmt::format("register {}: duplicate field {} (first at {})", reg.name, b.name, to_string(a.place)));
      }
      if (a.lsb < b.lsb + b.width && b.lsb < a.lsb + a.width) {
        report(errors, b.place,
               fmt::format("register {}: field {} (bits {}:{}) overlaps field {} (bits {}:{}) of {}", reg.name, b.name,
                           b.lsb + b.width - 1, b.lsb, a.name, a.lsb + a.width - 1, a.lsb, to_string(a.place)));
      }
    }
  }
}

RegisterDescription read_register(const YAML::Node& node, const std::string& file, const BlockDescription& block,
                                  Errors& errors) {
  RegisterDescription r;
  Map map(node, file, fmt::format("register of block {}", block.name), errors);
  r.place = map.place();
  if (!node.IsMap()) return r;
  r.name = map.identifier("name", true);
  const std::string what = fmt::format("register {}", r.name);
  map.rename(what);
  r.doc = map.text("doc", false);
  r.fifo = map.flag("fifo");
  r.offset = map.number("offset", std::nullopt);

  const uint64_t width = map.number("width", std::nullopt);
  if (width == 8 || width == 16 || width == 32 || width == 64) {
    r.width_bytes = static_cast<unsigned>(width / 8);
  } else {
    report(errors, r.place, fmt::format("{}: width {} is none of 8, 16, 32, 64", what, width));
  }
  if (r.offset % r.width_bytes != 0) {
    report(errors, r.place,
           fmt::format("{}: offset {:#x} is not a multiple of its {} bytes", what, r.offset, r.width_bytes));
  }

  r.array = !map.take("count", false).IsNull();
  const uint64_t count = map.number("count", 1);
  if (count < 1 || count > kMaxCount) {
    report(errors, r.place, fmt::format("{}: count {} is not in 1..{}", what, count, kMaxCount));
  } else {
    r.count = static_cast<uint32_t>(count);
  }
  r.stride = map.number("stride", r.width_bytes);
  if (r.stride < r.width_bytes || r.stride % r.width_bytes != 0 || r.stride > kMaxBlockBytes) {
    report(errors, r.place,
           fmt::format("{}: stride {:#x} is not a multiple of its {} bytes", what, r.stride, r.width_bytes));
    r.stride = r.width_bytes;
  }
  if (block.size != 0 && (r.offset >= block.size || (r.count - 1) * r.stride + r.width_bytes > block.size - r.offset)) {
    report(errors, r.place,
           fmt::format("{}: [{:#x}, {:#x}) does not fit the block's size of {:#x}", what, r.offset,
                       r.offset + (r.count - 1) * r.stride + r.width_bytes, block.size));
  }

  const YAML::Node fields = map.take("fields", true);
  if (!fields.IsNull() && (!fields.IsSequence() || fields.size() == 0)) {
    report(errors, map.place_of(fields), fmt::format("{}: 'fields' must be a list of at least one field", what));
  } else {
    for (const auto& f : fields) r.fields.push_back(read_field(f, file, r, errors));
    check_fields(r, errors);
  }
  map.finish();
  return r;
}

void check_registers(const BlockDescription& block, Errors& errors) {
  struct Element {
    uint64_t begin, end;
    const RegisterDescription* reg;
    uint32_t i;
  };
  std::vector<Element> elements;
  for (const RegisterDescription& r : block.registers) {
    for (uint32_t i = 0; i < r.count; ++i) {
      const uint64_t begin = r.offset + i * r.stride;
      elements.push_back({begin, begin + r.width_bytes, &r, i});
    }
  }
  std::stable_sort(elements.begin(), elements.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::set<std::pair<const RegisterDescription*, const RegisterDescription*>> told;  // one message per pair
  for (size_t i = 0; i < elements.size(); ++i) {
    for (size_t j = i + 1; j < elements.size() && elements[j].begin < elements[i].end; ++j) {
      const Element &a = elements[i], &b = elements[j];
      if (!told.insert(std::minmax(a.reg, b.reg)).second) continue;
      const bool swap = b.reg->place.line < a.reg->place.line;
      const Element &first = swap ? b : a, &second = swap ? a : b;
      report(errors, second.reg->place,
             fmt::format("register {} [{:#x}, {:#x}) overlaps register {} [{:#x}, {:#x}) of {}",
                         second.reg->element_name(second.i), second.begin, second.end, first.reg->element_name(first.i),
                         first.begin, first.end, to_string(first.reg->place)));
    }
  }

  // Everything below becomes an identifier in one namespace of the generated code.
  std::map<std::string, std::pair<std::string, Place>> names;
  const auto claim = [&](const std::string& name, const std::string& what, const Place& place) {
    const auto [it, fresh] = names.emplace(name, std::make_pair(what, place));
    if (!fresh) {
      report(errors, place,
             fmt::format("{} has the same name {} as {} of {}", what, name, it->second.first,
                         to_string(it->second.second)));
    }
  };
  for (const RegisterDescription& r : block.registers) {
    claim(r.name, "register " + r.name, r.place);
    if (r.array) {
      claim(r.name + "_COUNT", "the length of array " + r.name, r.place);
      for (uint32_t i = 0; i < r.count; ++i) claim(r.element_name(i), "register " + r.element_name(i), r.place);
    }
  }
  for (const RegisterDescription& r : block.registers) {
    for (size_t i = 0; i < r.fields.size(); ++i) {
      const FieldDescription& f = r.fields[i];
      const bool repeated =
          std::any_of(r.fields.begin(), r.fields.begin() + static_cast<std::ptrdiff_t>(i),
                      [&](const FieldDescription& g) { return g.name == f.name; });  // told by check_fields
      if (!repeated) claim(r.name + "_" + f.name, "field " + r.name + "." + f.name, f.place);
    }
  }
}

}  // namespace

std::string to_string(const Place& place) {
  return fmt::format("{}:{}:{}", place.file, place.line, place.column);
}

void report(Errors& errors, const Place& place, const std::string& text) {
  errors.push_back(to_string(place) + ": " + text);
}

BlockDescription read_block(const std::string& path, Errors& errors) {
  BlockDescription block;
  block.place = {path, 1, 1};
  YAML::Node root;
  try {
    root = YAML::LoadFile(path);
  } catch (const YAML::ParserException& e) {
    report(errors, {path, e.mark.line + 1, e.mark.column + 1}, e.msg);
    return block;
  } catch (const YAML::BadFile&) {
    errors.push_back(path + ": cannot be read");
    return block;
  }
  Map map(root, path, "block", errors);
  if (!root.IsMap()) return block;
  block.place = map.place();
  block.name = map.identifier("block", false);
  if (is_keyword(block.name)) {
    report(errors, block.place, fmt::format("block name '{}' is a word of C++ or of the generated code", block.name));
  }
  map.rename("block " + block.name);
  block.doc = map.text("doc", false);
  block.size = map.number("size", std::nullopt);
  if (block.size == 0 || block.size > kMaxBlockBytes) {
    report(errors, block.place,
           fmt::format("block {}: size {:#x} is not in 1..{:#x}", block.name, block.size, kMaxBlockBytes));
    block.size = 0;
  }
  const YAML::Node registers = map.take("registers", true);
  if (!registers.IsNull() && (!registers.IsSequence() || registers.size() == 0)) {
    report(errors, map.place_of(registers),
           fmt::format("block {}: 'registers' must be a list of at least one register", block.name));
  } else {
    for (const auto& r : registers) block.registers.push_back(read_register(r, path, block, errors));
    check_registers(block, errors);
  }
  map.finish();
  return block;
}

}  // namespace ahbm::regen
