// A queue of small values in one block of memory that is given out only when it is used. 24 bytes while empty: the
// models hold many of them, and most stay empty.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "models/core/host_lines.h"

namespace ahbm {

template <typename T, uint32_t kFirstCapacity = 4>
class RingBuffer {
 public:
  RingBuffer() = default;
  RingBuffer(const RingBuffer& o) { *this = o; }
  RingBuffer(RingBuffer&& o) noexcept { *this = std::move(o); }
  RingBuffer& operator=(const RingBuffer& o) {
    if (this == &o) return *this;
    clear();
    for (uint32_t i = 0; i < o.m_count; ++i) push_back(o[i]);
    return *this;
  }
  RingBuffer& operator=(RingBuffer&& o) noexcept {
    std::swap(m_values, o.m_values);
    std::swap(m_first, o.m_first);
    std::swap(m_count, o.m_count);
    std::swap(m_capacity, o.m_capacity);
    return *this;
  }
  uint32_t size() const { return m_count; }
  bool empty() const { return m_count == 0; }
  bool full() const { return m_count == m_capacity; }  ///< another value needs more memory
  /// \pre i < size()
  T& operator[](uint32_t i) { return m_values[(m_first + i) & (m_capacity - 1)]; }
  const T& operator[](uint32_t i) const { return m_values[(m_first + i) & (m_capacity - 1)]; }
  T& front() { return (*this)[0]; }              ///< \pre !empty()
  const T& front() const { return (*this)[0]; }  ///< \pre !empty()
  T& back() { return (*this)[m_count - 1]; }     ///< \pre !empty()

  /// Asks the host for both ends: they are about to be used.
  void fetch() const {
    if (m_count == 0) return;
    fetch_line(&(*this)[0]);
    fetch_line(&(*this)[m_count - 1]);
  }

  void push_back(const T& value) {
    if (m_count == m_capacity) grow();
    (*this)[m_count++] = value;
  }
  void pop_front() {  ///< \pre !empty()
    ++m_first;
    --m_count;
  }
  void pop_back() { --m_count; }  ///< \pre !empty()
  void clear() { m_count = 0; }
  void restart() { m_first = m_count = 0; }   ///< clears, and begins with the same memory as ever
  void truncate(uint32_t n) { m_count = n; }  ///< \pre n <= size()
  /// Before the i-th value. The shorter side makes room. \pre i <= size()
  void insert(uint32_t i, const T& value) {
    if (m_count == m_capacity) grow();
    ++m_count;
    if (i < m_count / 2) {
      --m_first;
      for (uint32_t j = 0; j < i; ++j) (*this)[j] = (*this)[j + 1];
    } else {
      for (uint32_t j = m_count - 1; j > i; --j) (*this)[j] = (*this)[j - 1];
    }
    (*this)[i] = value;
  }
  /// The values [i, i + n). \pre i + n <= size()
  void erase(uint32_t i, uint32_t n) {
    if (n == 0) return;
    if (i < (m_count - n) / 2) {
      for (uint32_t j = i; j > 0; --j) (*this)[j + n - 1] = (*this)[j - 1];
      m_first += n;
    } else {
      for (uint32_t j = i + n; j < m_count; ++j) (*this)[j - n] = (*this)[j];
    }
    m_count -= n;
  }

 private:
  [[gnu::noinline]] void grow() {
    const uint32_t capacity = std::max(kFirstCapacity, 2 * m_capacity);
    auto values = std::make_unique<T[]>(capacity);
    for (uint32_t i = 0; i < m_count; ++i) values[i] = (*this)[i];
    m_values = std::move(values);
    m_first = 0;
    m_capacity = capacity;
  }

  std::unique_ptr<T[]> m_values;
  uint32_t m_first = 0, m_count = 0;  ///< used: m_count from m_first (modulo the capacity) on
  uint32_t m_capacity = 0;            ///< 0 or a power of two
};

}  // namespace ahbm
