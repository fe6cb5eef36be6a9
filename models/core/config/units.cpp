#include "models/core/config/units.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <optional>
#include <vector>

#include "models/core/suggest.h"

namespace ahbm::units {

namespace {

enum class Kind { Bytes, Bandwidth, Frequency, Time };

struct Unit {
  const char* name;
  Kind kind;
  uint64_t factor;  // base units in one
};

constexpr uint64_t kKi = 1024, kMi = kKi * 1024, kGi = kMi * 1024, kTi = kGi * 1024;
constexpr uint64_t kK = 1000, kM = kK * 1000, kG = kM * 1000, kT = kG * 1000;

// Inside a kind, ascending; formatting picks from the entries that the tables below name.
constexpr Unit kUnits[] = {
    {"B", Kind::Bytes, 1},           {"kB", Kind::Bytes, kK},         {"KiB", Kind::Bytes, kKi},
    {"MB", Kind::Bytes, kM},         {"MiB", Kind::Bytes, kMi},       {"GB", Kind::Bytes, kG},
    {"GiB", Kind::Bytes, kGi},       {"TB", Kind::Bytes, kT},         {"TiB", Kind::Bytes, kTi},
    {"B/s", Kind::Bandwidth, 1},     {"kB/s", Kind::Bandwidth, kK},   {"KiB/s", Kind::Bandwidth, kKi},
    {"MB/s", Kind::Bandwidth, kM},   {"MiB/s", Kind::Bandwidth, kMi}, {"GB/s", Kind::Bandwidth, kG},
    {"GiB/s", Kind::Bandwidth, kGi}, {"TB/s", Kind::Bandwidth, kT},   {"TiB/s", Kind::Bandwidth, kTi},
    {"B/us", Kind::Bandwidth, kM},   {"B/ns", Kind::Bandwidth, kG},   {"B/ps", Kind::Bandwidth, kT},
    {"Hz", Kind::Frequency, 1},      {"kHz", Kind::Frequency, kK},    {"MHz", Kind::Frequency, kM},
    {"GHz", Kind::Frequency, kG},    {"THz", Kind::Frequency, kT},    {"ps", Kind::Time, 1},
    {"ns", Kind::Time, kK},          {"us", Kind::Time, kM},          {"ms", Kind::Time, kG},
    {"s", Kind::Time, kT},
};

const char* noun(Kind kind) {
  switch (kind) {
    case Kind::Bytes:
      return "a size like '16 KiB'";
    case Kind::Bandwidth:
      return "a bandwidth like '819.2 GB/s'";
    case Kind::Frequency:
      return "a frequency like '1.5 GHz'";
    default:
      return "a time like '250 ns'";
  }
}

const char* short_noun(Kind kind) {
  switch (kind) {
    case Kind::Bytes:
      return "a size";
    case Kind::Bandwidth:
      return "a bandwidth";
    case Kind::Frequency:
      return "a frequency";
    default:
      return "a time";
  }
}

const char* base_name(Kind kind) {
  switch (kind) {
    case Kind::Bytes:
      return "bytes";
    case Kind::Bandwidth:
      return "bytes per second";
    case Kind::Frequency:
      return "hertz";
    default:
      return "picoseconds";
  }
}

[[noreturn]] void fail(std::string_view text, std::string_view why) {
  throw QuantityError(fmt::format("'{}' {}", text, why));
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string lower(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

const Unit& find_unit(std::string_view text, std::string_view name, Kind kind) {
  if (name.empty()) fail(text, fmt::format("has no unit; expected {}", noun(kind)));
  for (const Unit& u : kUnits) {
    if (name != u.name) continue;
    if (u.kind != kind) fail(text, fmt::format("is {}; expected {}", short_noun(u.kind), noun(kind)));
    return u;
  }
  if (kind == Kind::Bandwidth &&
      (name.find("b/s") != name.npos || name.find("bit") != name.npos || name.find("bps") != name.npos)) {
    fail(text, fmt::format("is in bits; expected {} in bytes (8 bits)", noun(kind)));
  }
  std::vector<std::string> known;
  for (const Unit& u : kUnits) {
    if (u.kind == kind) known.emplace_back(u.name);
  }
  std::string suggestion;
  for (const std::string& k : known) {
    if (suggestion.empty() && lower(k) == lower(name)) suggestion = fmt::format(" (did you mean '{}'?)", k);
  }
  if (suggestion.empty()) suggestion = did_you_mean(name, known);
  std::string list;
  for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
  fail(text, fmt::format("has the unknown unit '{}'{}; expected {} (units: {})", name, suggestion, noun(kind), list));
}

/// value = mantissa * 10^exponent, with as few digits as the text allows.
struct Decimal {
  Uint128 mantissa = 0;
  int exponent = 0;
};

constexpr Uint128 kHuge = (~static_cast<Uint128>(0)) / 16;

uint64_t parse(std::string_view text, Kind kind) {
  std::string_view rest = text;
  const auto skip_blanks = [&rest] {
    while (!rest.empty() && (rest[0] == ' ' || rest[0] == '\t')) rest.remove_prefix(1);
  };
  skip_blanks();
  while (!rest.empty() && (rest.back() == ' ' || rest.back() == '\t')) rest.remove_suffix(1);
  if (rest.empty()) fail(text, fmt::format("is empty; expected {}", noun(kind)));
  {
    const std::string word = lower(rest.substr(rest[0] == '-' || rest[0] == '+' || rest[0] == '.'));
    if (word.rfind("nan", 0) == 0 || word.rfind("inf", 0) == 0) {
      fail(text, fmt::format("is not a finite number; expected {}", noun(kind)));
    }
  }
  if (rest[0] == '-') fail(text, fmt::format("is negative; expected {}", noun(kind)));
  if (rest[0] == '+') rest.remove_prefix(1);

  Decimal number;
  bool any_digit = false;
  bool seen_point = false;
  std::vector<uint8_t> digits;
  while (!rest.empty() && (is_digit(rest[0]) || (rest[0] == '.' && !seen_point))) {
    if (rest[0] == '.') {
      seen_point = true;
    } else {
      any_digit = true;
      digits.push_back(static_cast<uint8_t>(rest[0] - '0'));
      if (seen_point) --number.exponent;
    }
    rest.remove_prefix(1);
  }
  if (!any_digit) fail(text, fmt::format("is not a number with a unit; expected {}", noun(kind)));
  // 'e' starts an exponent only when a number follows it.
  if (!rest.empty() && (rest[0] == 'e' || rest[0] == 'E')) {
    size_t at = 1;
    const bool minus = at < rest.size() && rest[at] == '-';
    if (at < rest.size() && (rest[at] == '-' || rest[at] == '+')) ++at;
    if (at < rest.size() && is_digit(rest[at])) {
      int e = 0;
      for (; at < rest.size() && is_digit(rest[at]); ++at) e = std::min(e * 10 + (rest[at] - '0'), 100000);
      number.exponent += minus ? -e : e;
      rest.remove_prefix(at);
    }
  }
  skip_blanks();
  const Unit& unit = find_unit(text, rest, kind);

  // Zeros at either end carry no value and must not count as digits.
  while (!digits.empty() && digits.back() == 0) {
    digits.pop_back();
    ++number.exponent;
  }
  const auto overflow = [&] { fail(text, fmt::format("is too large to be held in {}", base_name(kind))); };
  const auto not_whole = [&] { fail(text, fmt::format("is not a whole number of {}", base_name(kind))); };
  for (const uint8_t d : digits) {
    if (number.mantissa > kHuge / 16) {
      // More significant digits than any value of 64 bits times a unit needs.
      number.exponent >= 0 ? overflow() : not_whole();
    }
    number.mantissa = number.mantissa * 10 + d;
  }
  if (number.mantissa == 0) {
    if (kind == Kind::Bandwidth || kind == Kind::Frequency) fail(text, fmt::format("is zero; expected {}", noun(kind)));
    return 0;
  }
  // The mantissa does not end in 0, so a factor of 10 that is missing can only come out of the unit.
  Uint128 factor = unit.factor;
  for (; number.exponent < 0; ++number.exponent) {
    if (factor % 10 == 0) {
      factor /= 10;
    } else if (number.mantissa % 2 == 0 && factor % 5 == 0) {
      number.mantissa /= 2;
      factor /= 5;
    } else if (number.mantissa % 5 == 0 && factor % 2 == 0) {
      number.mantissa /= 5;
      factor /= 2;
    } else {
      not_whole();
    }
  }
  for (; number.exponent > 0; --number.exponent) {
    if (number.mantissa > kHuge / 16) overflow();
    number.mantissa *= 10;
  }
  constexpr Uint128 kMax = std::numeric_limits<uint64_t>::max();
  if (number.mantissa > kMax / factor) overflow();
  return static_cast<uint64_t>(number.mantissa * factor);
}

/// Largest unit that the value reaches, with as many decimals as it needs: decimal prefixes always end.
std::string format_decimal(uint64_t v, const std::vector<const char*>& names) {
  size_t i = 0;
  uint64_t factor = 1;
  while (i + 1 < names.size() && v / factor >= 1000) {
    factor *= 1000;
    ++i;
  }
  std::string out = fmt::format("{}", v / factor);
  if (uint64_t fraction = v % factor; fraction != 0) {
    out += '.';
    for (uint64_t place = factor / 10; fraction != 0; fraction %= place, place /= 10) {
      out += static_cast<char>('0' + fraction / place);
      if (place == 1) break;
    }
  }
  return out + ' ' + names[i];
}

}  // namespace

uint64_t parse_bytes(std::string_view text) {
  return parse(text, Kind::Bytes);
}
uint64_t parse_bandwidth(std::string_view text) {
  return parse(text, Kind::Bandwidth);
}
uint64_t parse_frequency(std::string_view text) {
  return parse(text, Kind::Frequency);
}
Ps parse_time(std::string_view text) {
  return parse(text, Kind::Time);
}

std::string format_bytes(uint64_t bytes) {
  static constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  size_t i = 0;
  while (i + 1 < kNames.size() && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++i;
  }
  return fmt::format("{} {}", bytes, kNames[i]);
}
std::string format_bandwidth(uint64_t bytes_per_second) {
  return format_decimal(bytes_per_second, {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"});
}
std::string format_frequency(uint64_t hertz) {
  return format_decimal(hertz, {"Hz", "kHz", "MHz", "GHz", "THz"});
}
std::string format_time(Ps time) {
  return time == 0 ? "0 ns" : format_decimal(time, {"ps", "ns", "us", "ms", "s"});
}

}  // namespace ahbm::units
