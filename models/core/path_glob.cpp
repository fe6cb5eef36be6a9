#include "models/core/path_glob.h"

#include <algorithm>

namespace ahbm {

bool glob_matches(std::string_view pattern, std::string_view text) {
  // Greedy with one point to fall back to: the last `*` and the text that it has swallowed so far.
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool path_selected(std::string_view pattern, std::string_view path) {
  if (glob_matches(pattern, path)) return true;
  for (size_t dot = path.rfind('.'); dot != std::string_view::npos && dot != 0; dot = path.rfind('.', dot - 1)) {
    if (glob_matches(pattern, path.substr(0, dot))) return true;
  }
  return false;
}

bool may_select_below(std::string_view pattern, std::string_view path) {
  if (path_selected(pattern, path)) return true;
  for (size_t i = 0; i < path.size(); ++i) {
    if (i == pattern.size()) return false;
    if (pattern[i] == '*') return true;
    if (pattern[i] != '?' && pattern[i] != path[i]) return false;
  }
  return path.size() < pattern.size() &&
         (pattern[path.size()] == '.' || pattern[path.size()] == '?' || pattern[path.size()] == '*');
}

bool path_selected(const std::vector<std::string>& patterns, std::string_view path) {
  return patterns.empty() || std::any_of(patterns.begin(), patterns.end(),
                                         [path](const std::string& pattern) { return path_selected(pattern, path); });
}

}  // namespace ahbm
