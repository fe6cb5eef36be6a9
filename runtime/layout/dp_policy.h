// How one rank's tensor lies on the cubes and PEs of its SIP: a pure function from shape and policy to shards, and the
// mapping between the logical row-major tensor and each shard's contiguous buffer.
//
// `row_wise` cuts the first dimension, `column_wise` the last; both by torch.chunk's rule, so leading parts are full
// and trailing ones may be short or empty. The cubes cut the tensor, the PEs cut their cube's part. A 0-d tensor counts
// as one of shape (1); in one dimension first and last are the same.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/core/chunk.h"
#include "models/core/dtype.h"
#include "models/core/ids.h"

namespace ahbm::layout {

using Shape = std::vector<uint64_t>;

/// \throws std::invalid_argument when the product does not fit in 63 bits
uint64_t element_count(const Shape& shape);
std::string to_string(const Shape& shape);  ///< (2, 3), (5,), ()

enum class CubePolicy : uint8_t {
  Replicate,  ///< every cube holds the whole tensor
  RowWise,
  ColumnWise,
  Partial,  ///< every cube holds a summand of the whole tensor's shape
};
enum class PePolicy : uint8_t { Replicate, RowWise, ColumnWise };
enum class SipScope : uint8_t {
  Own,  ///< the SIP of the calling thread
  All,  ///< every SIP of the machine, each with a logical tensor of its own
};
const char* to_string(CubePolicy p);  ///< replicate, row_wise, column_wise, partial
const char* to_string(PePolicy p);
const char* to_string(SipScope s);  ///< own, all
/// \throws std::invalid_argument naming the word and what there is
CubePolicy parse_cube_policy(std::string_view name);
PePolicy parse_pe_policy(std::string_view name);

struct DPPolicy {
  CubePolicy cube = CubePolicy::RowWise;
  PePolicy pe = PePolicy::RowWise;
  uint32_t num_cubes = 0;  ///< the first n cubes of the SIP; 0: all
  uint32_t num_pes = 0;    ///< the first n PEs of a cube; 0: all
  SipScope sips = SipScope::Own;

  friend bool operator==(const DPPolicy& a, const DPPolicy& b) {
    return a.cube == b.cube && a.pe == b.pe && a.num_cubes == b.num_cubes && a.num_pes == b.num_pes && a.sips == b.sips;
  }
  friend bool operator!=(const DPPolicy& a, const DPPolicy& b) { return !(a == b); }
};
/// e.g. `cube=row_wise pe=replicate num_cubes=2`; numbers that are 0 (all) are left out.
std::string to_string(const DPPolicy& policy);

/// A block of the logical tensor on one PE. The tensor is seen as rows x middle x columns (first dimension, product of
/// those between, last dimension); in one dimension columns and middle are 1.
struct Shard {
  CubeId cube{};
  PeId pe{};
  Range rows;
  Range cols;
  uint64_t elements = 0;
  uint64_t offset = 0;  ///< in elements inside its cube's buffer: the shards of a cube lie back to back in PE order
};

/// A tensor cut by a policy.
class Layout {
 public:
  /// \param cubes, pes  what a SIP and a cube have
  /// \throws std::invalid_argument when the policy asks for more than that, or the shape is too large
  Layout(Shape shape, DType dtype, const DPPolicy& policy, uint32_t cubes, uint32_t pes);

  const Shape& shape() const { return m_shape; }
  DType dtype() const { return m_dtype; }
  const DPPolicy& policy() const { return m_policy; }
  uint64_t elements() const { return m_elements; }
  uint32_t cubes() const { return m_cubes; }  ///< that the policy names, those with an empty part included
  uint32_t pes() const { return m_pes; }
  /// Cube-major, every (cube, PE) the policy names, empty ones included.
  const std::vector<Shard>& shards() const { return m_shards; }
  const Shard& shard(CubeId cube, PeId pe) const { return m_shards.at(value(cube) * m_pes + value(pe)); }
  /// Elements of a cube's buffer: every PE's shard, all copies of a replicated one.
  uint64_t cube_elements(CubeId cube) const { return m_cube_elements.at(value(cube)); }
  /// Elements of one copy of what a cube holds: `cube_elements` unless the PEs hold copies.
  uint64_t cube_logical_elements(CubeId cube) const;
  /// The leading cubes whose buffer is not empty.
  uint32_t occupied_cubes() const;

  /// Calls fn(first element inside the shard's buffer, first element of the logical tensor, count) for every longest
  /// run that is contiguous on both sides, in the order of the shard's buffer.
  void for_each_run(const Shard& shard, const std::function<void(uint64_t, uint64_t, uint64_t)>& fn) const;

  /// Gathers a shard from the logical tensor, and puts it back.
  void pack(const Shard& shard, const void* logical, void* buffer) const;
  void unpack(const Shard& shard, const void* buffer, void* logical) const;

  bool replicated_over_cubes() const { return m_policy.cube == CubePolicy::Replicate; }
  bool partial_over_cubes() const { return m_policy.cube == CubePolicy::Partial; }
  bool replicated_over_pes() const { return m_policy.pe == PePolicy::Replicate; }

 private:
  Shape m_shape;
  DType m_dtype;
  DPPolicy m_policy;
  uint64_t m_elements = 0;
  uint64_t m_rows = 1, m_middle = 1, m_cols = 1;
  uint32_t m_cubes = 0, m_pes = 0;
  std::vector<Shard> m_shards;
  std::vector<uint64_t> m_cube_elements;
};

}  // namespace ahbm::layout
