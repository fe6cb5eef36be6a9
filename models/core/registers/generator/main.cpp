// ahbm_regen: register descriptions in, C++ layouts, C header and Markdown reference out. Writes nothing when anything
// is wrong. Exit codes: 0 done, 1 mistakes in the descriptions, 2 bad arguments or a file that cannot be written.
#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "models/core/registers/generator/description.h"
#include "models/core/registers/generator/emit.h"

namespace po = boost::program_options;
namespace fs = std::filesystem;
using namespace ahbm::regen;

namespace {

void write_file(const fs::path& path, const std::string& text) {
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw std::runtime_error(path.string() + ": cannot be written");
}

int run(int argc, char** argv) {
  std::vector<std::string> files;
  std::string cpp_dir, c_header, markdown;
  po::options_description options("ahbm_regen [options] FILE.yaml...");
  auto add = options.add_options();
  add("help", "show this");
  add("cpp-dir", po::value(&cpp_dir), "folder for one BLOCK.h per block");
  add("c-header", po::value(&c_header), "C header of all blocks");
  add("markdown", po::value(&markdown), "reference of all blocks");
  add("file", po::value(&files), "register descriptions");
  po::positional_options_description positional;
  positional.add("file", -1);
  po::variables_map vars;
  po::store(po::command_line_parser(argc, argv).options(options).positional(positional).run(), vars);
  po::notify(vars);
  if (vars.count("help") != 0) {
    std::cout << options;
    return 0;
  }
  if (files.empty()) throw po::error("no register description given");

  Errors errors;
  std::vector<BlockDescription> blocks;
  std::map<std::string, Place> names;
  for (const std::string& file : files) {
    blocks.push_back(read_block(file, errors));
    const BlockDescription& b = blocks.back();
    const auto [it, fresh] = names.emplace(b.name, b.place);
    if (!fresh && !b.name.empty()) {
      report(errors, b.place, fmt::format("block {} is declared by {} too", b.name, to_string(it->second)));
    }
  }
  const std::string c_text = errors.empty() ? emit_c(blocks, errors) : "";
  if (!errors.empty()) {
    for (const std::string& e : errors) std::cerr << e << "\n";
    return 1;
  }
  if (!cpp_dir.empty()) {
    for (const BlockDescription& b : blocks) write_file(fs::path(cpp_dir) / (b.name + ".h"), emit_cpp(b));
  }
  if (!c_header.empty()) write_file(c_header, c_text);
  if (!markdown.empty()) write_file(markdown, emit_markdown(blocks));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "ahbm_regen: " << e.what() << "\n";
    return 2;
  }
}
