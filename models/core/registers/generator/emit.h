// What is made of the descriptions.
#pragma once

#include <string>
#include <vector>

#include "models/core/registers/generator/description.h"

namespace ahbm::regen {

/// The C++ layout header of one block.
std::string emit_cpp(const BlockDescription& block);
/// The C header of all blocks and of the address map. Two blocks that give one macro twice are reported.
std::string emit_c(const std::vector<BlockDescription>& blocks, Errors& errors);
/// The reference of all blocks.
std::string emit_markdown(const std::vector<BlockDescription>& blocks);

}  // namespace ahbm::regen
