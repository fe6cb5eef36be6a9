// Files of a test and what a trace file says, as its readers see it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ahbm::observe::test {

/// A file name in the temporary directory that is gone afterwards.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& name)
      : m_path((std::filesystem::temp_directory_path() / ("ahbm_" + std::to_string(getpid()) + "_" + name)).string()) {}
  ~ScratchFile() {
    std::error_code ignored;
    std::filesystem::remove(m_path, ignored);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return m_path; }
  std::string text() const {
    std::ifstream in(m_path);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }

 private:
  std::string m_path;
};

/// A parsed trace. Times in ps. Anything that is not as the format wants it fails the test.
struct TraceFile {
  struct Slice {
    std::string name;
    uint32_t pid = 0, tid = 0;
    uint64_t ts = 0, dur = 0;
    nlohmann::json args;
    uint64_t end() const { return ts + dur; }
  };
  struct Flow {
    uint32_t from_pid = 0, from_tid = 0, to_pid = 0, to_tid = 0;
    uint64_t from_ts = 0, to_ts = 0;
  };
  using Key = std::pair<uint32_t, uint32_t>;

  explicit TraceFile(const std::string& text) {
    const nlohmann::json doc = nlohmann::json::parse(text);
    std::map<uint64_t, Flow> open;
    for (const auto& e : doc.at("traceEvents")) {
      const std::string ph = e.at("ph");
      const Key key{e.at("pid"), e.at("tid")};
      if (ph == "M") {
        if (e.at("name") == "thread_name") names[key] = e.at("args").at("name");
        if (e.at("name") == "process_name") processes[key.first] = e.at("args").at("name");
      } else if (ph == "X") {
        slices.push_back({e.at("name"), key.first, key.second, ps(e.at("ts")), ps(e.at("dur")), e.at("args")});
        EXPECT_TRUE(names.count(key) != 0) << "a slice before its track is named";
        EXPECT_TRUE(processes.count(key.first) != 0);
      } else if (ph == "s") {
        Flow f;
        f.from_pid = key.first;
        f.from_tid = key.second;
        f.from_ts = ps(e.at("ts"));
        EXPECT_TRUE(open.emplace(e.at("id"), f).second) << "flow id used twice";
      } else if (ph == "f") {
        const auto it = open.find(e.at("id"));
        if (it == open.end()) {
          ADD_FAILURE() << "a flow ends that never began";
          continue;
        }
        it->second.to_pid = key.first;
        it->second.to_tid = key.second;
        it->second.to_ts = ps(e.at("ts"));
        flows.push_back(it->second);
      } else {
        ADD_FAILURE() << "unexpected event " << e.dump();
      }
    }
    EXPECT_EQ(flows.size(), open.size()) << "flows without an end";
  }

  const Slice& slice(const std::string& name) const {
    for (const Slice& s : slices) {
      if (s.name == name) return s;
    }
    throw std::runtime_error("no slice named " + name);
  }
  size_t count(const std::string& track) const {
    size_t n = 0;
    for (const Slice& s : slices) n += names.at({s.pid, s.tid}) == track;
    return n;
  }
  bool covered(uint32_t pid, uint32_t tid, uint64_t ts, const std::string& name) const {
    return std::any_of(slices.begin(), slices.end(), [&](const Slice& s) {
      return s.pid == pid && s.tid == tid && s.name == name && s.ts <= ts && ts <= s.end();
    });
  }
  /// Two slices of one track are apart or one is inside the other: else viewers draw them wrongly.
  void expect_laminar() const {
    std::map<Key, std::vector<const Slice*>> tracks;
    for (const Slice& s : slices) tracks[{s.pid, s.tid}].push_back(&s);
    for (auto& [key, list] : tracks) {
      std::sort(list.begin(), list.end(),
                [](const Slice* a, const Slice* b) { return a->ts != b->ts ? a->ts < b->ts : a->dur > b->dur; });
      std::vector<uint64_t> open;
      for (const Slice* s : list) {
        while (!open.empty() && open.back() <= s->ts) open.pop_back();
        if (!open.empty() && s->end() > open.back()) {
          ADD_FAILURE() << names.at(key) << ": " << s->name << " [" << s->ts << ", " << s->end()
                        << ") overlaps one that ends at " << open.back();
          return;
        }
        open.push_back(s->end());
      }
    }
  }

  std::vector<Slice> slices;
  std::vector<Flow> flows;
  std::map<Key, std::string> names;
  std::map<uint32_t, std::string> processes;

 private:
  static uint64_t ps(const nlohmann::json& us) { return static_cast<uint64_t>(std::llround(us.get<double>() * 1e6)); }
};

}  // namespace ahbm::observe::test
