// Drives a fuzz target where there is no libFuzzer: a fixed seed, the corpus as it is, then mutations of it.
//
//   fuzz_config [--seconds N] [--runs N] [--seed N] CORPUS...      (files or folders)
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace {

namespace fs = std::filesystem;
using Input = std::vector<uint8_t>;

Input current;

/// Keeps the input that broke the target: a crash must be repeatable.
void on_crash(int signal) {
  std::ofstream("crash-input", std::ios::binary)
      .write(reinterpret_cast<const char*>(current.data()), static_cast<std::streamsize>(current.size()));
  std::fprintf(stderr, "signal %d; the input is in ./crash-input (%zu bytes)\n", signal, current.size());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void add_corpus(const fs::path& path, std::vector<Input>& corpus) {
  std::vector<fs::path> files;
  if (fs::is_directory(path)) {
    for (const auto& e : fs::directory_iterator(path)) {
      if (e.is_regular_file()) files.push_back(e.path());
    }
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  for (const fs::path& f : files) {
    std::ifstream in(f, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
}

class Mutator {
 public:
  Mutator(const std::vector<Input>& corpus, uint64_t seed) : m_corpus(corpus), m_random(seed) {}

  Input next() {
    Input x = pick();
    for (uint64_t n = 1 + below(4); n > 0; --n) mutate(x);
    if (x.size() > 1 << 16) x.resize(1 << 16);
    return x;
  }

 private:
  uint64_t below(uint64_t n) { return n == 0 ? 0 : m_random() % n; }
  const Input& pick() { return m_corpus[below(m_corpus.size())]; }

  void mutate(Input& x) {
    static const std::vector<std::string> kTokens = {"-1",     "0",     "18446744073709551616",
                                                     "1e400",  "nan",   "{}",
                                                     "[]",     "~",     "\n",
                                                     ": ",     "- ",    "&a",
                                                     "*a",     "<<:",   "!!binary ",
                                                     "\"",     "'",     "\\x00",
                                                     "GiB",    "ps",    "9.9",
                                                     "=",      "--set", "-b",
                                                     "true",   "\t",    "%",
                                                     "|",      "0x7F",  "\xEF\xBB\xBF",
                                                     ",",      "..",    "--",
                                                     "faults", "switch"};
    const size_t at = below(x.size() + 1);
    switch (below(8)) {
      case 0:
        if (!x.empty()) x[below(x.size())] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:
        if (!x.empty()) x[below(x.size())] = static_cast<uint8_t>(m_random());
        break;
      case 2: {
        const std::string& t = kTokens[below(kTokens.size())];
        x.insert(x.begin() + static_cast<std::ptrdiff_t>(at), t.begin(), t.end());
        break;
      }
      case 3: {
        const size_t n = std::min<size_t>(below(32), x.size() - at);
        x.erase(x.begin() + static_cast<std::ptrdiff_t>(at), x.begin() + static_cast<std::ptrdiff_t>(at + n));
        break;
      }
      case 4: {  // a piece of another input
        const Input& other = pick();
        const size_t from = below(other.size() + 1);
        const size_t n = std::min<size_t>(below(128), other.size() - from);
        x.insert(x.begin() + static_cast<std::ptrdiff_t>(at), other.begin() + static_cast<std::ptrdiff_t>(from),
                 other.begin() + static_cast<std::ptrdiff_t>(from + n));
        break;
      }
      case 5:
        x.resize(at);
        break;
      case 6: {  // a line twice
        const auto begin = x.begin() + static_cast<std::ptrdiff_t>(at);
        const Input line(begin, std::find(begin, x.end(), '\n'));
        x.insert(x.begin() + static_cast<std::ptrdiff_t>(at), line.begin(), line.end());
        break;
      }
      case 7: {  // another number
        const auto digit = std::find_if(x.begin() + static_cast<std::ptrdiff_t>(at), x.end(),
                                        [](uint8_t c) { return c >= '0' && c <= '9'; });
        if (digit == x.end()) break;
        const std::string n = std::to_string(m_random() >> below(64));
        x.insert(x.erase(digit), n.begin(), n.end());
        break;
      }
    }
  }

  const std::vector<Input>& m_corpus;
  std::mt19937_64 m_random;
};

}  // namespace

int main(int argc, char** argv) {
  double seconds = 1e9;
  uint64_t runs = ~uint64_t{0}, seed = 1;
  std::vector<Input> corpus{{}};
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : "0"; };
    if (a == "--seconds") {
      seconds = std::strtod(value(), nullptr);
    } else if (a == "--runs") {
      runs = std::strtoull(value(), nullptr, 10);
    } else if (a == "--seed") {
      seed = std::strtoull(value(), nullptr, 10);
    } else {
      add_corpus(a, corpus);
    }
  }
  for (const int s : {SIGABRT, SIGSEGV, SIGFPE, SIGBUS, SIGILL}) std::signal(s, on_crash);

  const auto start = std::chrono::steady_clock::now();
  Mutator mutator(corpus, seed);
  uint64_t n = 0;
  for (; n < runs; ++n) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) break;
    current = n < corpus.size() ? corpus[n] : mutator.next();
    LLVMFuzzerTestOneInput(current.data(), current.size());
  }
  std::printf("%llu inputs from %zu of the corpus, seed %llu\n", static_cast<unsigned long long>(n), corpus.size(),
              static_cast<unsigned long long>(seed));
  return n > 0 ? 0 : 1;
}
