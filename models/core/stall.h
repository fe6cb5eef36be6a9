// A run in which nothing moves any more while somebody waits, as data: what reports print and files carry.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ahbm {

/// Who waits for what.
struct StallRow {
  std::string who;        ///< `rank 2`, `driver`
  std::string operation;  ///< `all_reduce #3`, `kernel scale`
  std::string pe;         ///< `sip0.cube1.pe0`
  std::string queue;
  std::string direction;
  std::string waits_for;
  std::optional<uint32_t> credits;  ///< towards the other end of the queue pair; unset where there is none
};

/// The simulation ran dry, or made no progress for `simulation.stall_limit`, while somebody waited. what() is the rows
/// as a table.
class StallError : public std::runtime_error {
 public:
  explicit StallError(const std::string& what, std::vector<StallRow> rows = {})
      : std::runtime_error(what), m_rows(std::make_shared<const std::vector<StallRow>>(std::move(rows))) {}
  StallError(const std::string& what, const StallError& original) : std::runtime_error(what), m_rows(original.m_rows) {}
  const std::vector<StallRow>& rows() const { return *m_rows; }

 private:
  std::shared_ptr<const std::vector<StallRow>> m_rows;  ///< shared: copying an exception must not throw
};

}  // namespace ahbm
