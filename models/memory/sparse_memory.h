// Storage of a large memory of which little is used: address space on first write, pages when they are touched.
#pragma once

#include <cstdint>

namespace ahbm::models {

/// Not a module and not thread safe. Bytes that were never written read as zero and cost nothing.
class SparseMemory {
 public:
  /// What large writes are for: bulk data is written around the host's caches, which it would only wash out.
  enum class Use : uint8_t { Scratch, Bulk };
  explicit SparseMemory(uint64_t bytes, Use use = Use::Scratch) : m_bytes(bytes), m_use(use) {}
  ~SparseMemory();
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  uint64_t size() const { return m_bytes; }
  /// Whether anything was ever written.
  bool touched() const { return m_base != nullptr; }

  /// \pre offset + n <= size()
  /// \throws std::runtime_error when the host gives no address space (names the size and the host's reason)
  void write(uint64_t offset, const void* data, uint64_t n);
  /// \pre offset + n <= size()
  void read(uint64_t offset, void* data, uint64_t n) const;
  /// The storage itself, mapped if it was not. \throws as `write`
  uint8_t* data();
  /// Everything back to zero, pages given back.
  void clear();

 private:
  static constexpr uint64_t kLargeWrite = 256 << 10;
  static constexpr uint64_t kStreamedWrite = 12 << 10;
  void prefer_huge_pages(uint64_t offset, uint64_t n);

  const uint64_t m_bytes;
  const Use m_use;
  uint8_t* m_base = nullptr;
};

}  // namespace ahbm::models
