// Patterns over hierarchy paths such as `system.sip0.cube1.pe3`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ahbm {

/// `*` stands for any characters, dots included, `?` for one. The whole of `text` must match.
bool glob_matches(std::string_view pattern, std::string_view text);

/// A pattern selects every path that it matches and everything below: `system.sip0` selects `system.sip0.cube1` too.
bool path_selected(std::string_view pattern, std::string_view path);

/// Whether some pattern selects the path; no patterns select everything.
bool path_selected(const std::vector<std::string>& patterns, std::string_view path);

/// Whether the pattern may select something below `path`, whatever that is called.
bool may_select_below(std::string_view pattern, std::string_view path);

}  // namespace ahbm
