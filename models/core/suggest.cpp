#include "models/core/suggest.h"

#include <algorithm>
#include <cctype>

namespace ahbm {

double edit_distance(std::string_view a, std::string_view b) {
  const auto differ = [](char x, char y) {
    if (x == y) return 0.0;
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y)) ? 0.5 : 1.0;
  };
  const size_t n = b.size();
  std::vector<double> before(n + 1), above(n + 1), row(n + 1);
  for (size_t j = 0; j <= n; ++j) above[j] = static_cast<double>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<double>(i);
    for (size_t j = 1; j <= n; ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + differ(a[i - 1], b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[n];
}

std::string closest(std::string_view name, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  double least = 0;
  for (const std::string& k : known) {
    const double d = edit_distance(name, k);
    if (best == nullptr || d < least) {
      best = &k;
      least = d;
    }
  }
  // A third of the letters may be wrong, at least one, but never all of them.
  const double allowed = std::max(1.0, static_cast<double>(std::min<size_t>(name.size(), 24)) / 3.0);
  if (best != nullptr && least <= allowed && least < static_cast<double>(name.size())) return *best;
  // A word that breaks off early.
  for (const std::string& k : known) {
    if (name.size() >= 3 && k.compare(0, name.size(), name) == 0) return k;
  }
  return {};
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::string best = closest(name, known);
  return best.empty() ? best : " (did you mean '" + best + "'?)";
}

}  // namespace ahbm
