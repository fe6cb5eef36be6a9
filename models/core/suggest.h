// "Did you mean": the nearest of a set of known names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ahbm {

/// Insertions, deletions, substitutions and swaps of neighbours that turn one into the other; case counts half.
double edit_distance(std::string_view a, std::string_view b);

/// The known name nearest to a mistyped one (the first of equals), empty when none is near enough to be meant.
std::string closest(std::string_view name, const std::vector<std::string>& known);

/// ` (did you mean 'x'?)` or nothing.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

}  // namespace ahbm
