// A register description as read from YAML, checked and expanded. Format: docs/registers.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/core/registers/register_layout.h"

namespace ahbm::regen {

/// Where something was declared, for messages. Lines and columns start at 1.
struct Place {
  std::string file;
  int line = 0;
  int column = 0;
};

struct FieldDescription {
  std::string name, doc;
  unsigned lsb = 0, width = 1;
  RegAccess access = RegAccess::RW;
  uint64_t reset = 0;
  Place place;
};

struct RegisterDescription {
  std::string name, doc;
  uint64_t offset = 0;
  unsigned width_bytes = 4;
  bool fifo = false;
  bool array = false;
  uint32_t count = 1;
  uint64_t stride = 0;
  std::vector<FieldDescription> fields;
  Place place;

  std::string element_name(uint32_t i) const { return array ? name + std::to_string(i) : name; }
};

struct BlockDescription {
  std::string name, doc;
  uint64_t size = 0;
  std::vector<RegisterDescription> registers;
  Place place;
};

/// Messages of everything that is wrong, `file:line:column: text` each.
using Errors = std::vector<std::string>;

/// Reads and checks one file. What is returned is complete only when `errors` did not grow.
BlockDescription read_block(const std::string& path, Errors& errors);

void report(Errors& errors, const Place& place, const std::string& text);
std::string to_string(const Place& place);

}  // namespace ahbm::regen
