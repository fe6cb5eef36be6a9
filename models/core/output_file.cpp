#include "models/core/output_file.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace ahbm {

namespace fs = std::filesystem;

struct OutputGate::File : std::streambuf {
  std::string name;
  std::filebuf file;
  OutputGate* gate = nullptr;  ///< while nothing is decided
  std::string held;
  bool made = false;    ///< was not there before
  bool closed = false;  ///< by the writer
  bool dropped = false;
  bool failed = false;

  void accept() {
    gate = nullptr;
    std::error_code error;
    if (fs::is_regular_file(name, error)) fs::resize_file(name, 0, error);
    failed = error || put(held.data(), held.size()) != held.size();
    held = {};
    if (closed) close();
  }

  void refuse() {
    gate = nullptr;
    dropped = true;
    held = {};
    file.close();
    std::error_code ignored;
    if (made) fs::remove(name, ignored);
  }

  void close() {
    closed = true;
    if (gate == nullptr && file.is_open()) failed = file.close() == nullptr || failed;
  }

 protected:
  std::streamsize xsputn(const char* text, std::streamsize n) override {
    if (dropped) return n;
    if (gate != nullptr) {
      held.append(text, static_cast<size_t>(n));
      gate->m_held += static_cast<size_t>(n);
      if (gate->m_held > gate->m_most_held) gate->accept();
      return n;
    }
    return static_cast<std::streamsize>(put(text, static_cast<size_t>(n)));
  }
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char one = traits_type::to_char_type(c);
    return xsputn(&one, 1) == 1 ? c : traits_type::eof();
  }
  int sync() override { return gate != nullptr || dropped || !file.is_open() ? 0 : file.pubsync(); }

 private:
  size_t put(const char* text, size_t n) {
    return failed ? 0 : static_cast<size_t>(file.sputn(text, static_cast<std::streamsize>(n)));
  }
};

void OutputGate::accept() {
  if (m_state != State::Open) return;
  m_state = State::Accepted;
  std::string incomplete;
  for (const auto& f : m_files) {
    f->accept();
    if (f->closed && f->failed && incomplete.empty()) incomplete = f->name;
  }
  m_files.clear();
  if (!incomplete.empty()) throw std::runtime_error('\'' + incomplete + "' could not be written completely");
}

void OutputGate::refuse() {
  if (m_state != State::Open) return;
  m_state = State::Refused;
  for (const auto& f : m_files) f->refuse();
  m_files.clear();
}

OutputFile::OutputFile(const std::string& name, std::shared_ptr<OutputGate> gate) : OutputFile() {
  open(name, std::move(gate));
}

OutputFile::~OutputFile() {
  if (m_file != nullptr) m_file->close();
}

void OutputFile::open(const std::string& name, std::shared_ptr<OutputGate> gate) {
  using State = OutputGate::State;
  auto file = std::make_shared<OutputGate::File>();
  file->name = name;
  const bool waits = gate != nullptr && gate->m_state == State::Open;
  if (gate != nullptr && gate->m_state == State::Refused) {
    file->dropped = true;
  } else {
    std::error_code ignored;
    file->made = waits && !fs::exists(name, ignored);
    if (file->file.open(name, waits ? std::ios::out | std::ios::app : std::ios::out | std::ios::trunc) == nullptr) {
      setstate(std::ios::failbit);
      return;
    }
  }
  if (waits) {
    file->gate = gate.get();
    gate->m_files.push_back(file);
  }
  m_gate = std::move(gate);
  m_file = std::move(file);
  rdbuf(m_file.get());
}

void OutputFile::close() {
  if (!is_open()) return;
  m_file->close();
  if (m_file->failed) setstate(std::ios::failbit);
}

bool OutputFile::is_open() const {
  return m_file != nullptr && !m_file->closed;
}

}  // namespace ahbm
