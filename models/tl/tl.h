// What a kernel sees. A kernel is a C++ function `void kernel(tl::Tl&, const tl::Args&)`. On the platform every call
// costs simulated time and moves real bytes through TLM; on the twin (models/tl/twin.h) the same function runs in plain
// memory.
//
// Two families of verbs:
//  * moves: send, recv, recv_reduce, recv_reduce_send, recv_copy_send, recv_reduce_copy_send, copy. All are one `Move`,
//    cut into pieces of at most one slot; pieces of one move, and moves submitted after one another, overlap.
//  * tiles: load, arithmetic, store, on arrays that live in the PE's TCM.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/core/address_map.h"
#include "models/core/chunk.h"
#include "models/core/dtype.h"
#include "models/core/ids.h"
#include "models/core/launch.h"

namespace ahbm::tl {

/// Name of a direction in the communicator's table. Hardware knows queue pairs only.
enum class Dir : uint16_t {
  N,
  S,
  E,
  W,  ///< neighbour in the cube mesh
  GlobalN,
  GlobalS,
  GlobalE,
  GlobalW,  ///< same cube of the neighbouring SIP
  Next = 16,
  Prev = 17,  ///< neighbours on the algorithm's ring
  None = 0xFFFF,
};
/// Directions from 64 on name a peer rank: the connection to the same cube of that rank's SIP.
constexpr uint16_t kPeerDirBase = 64;
constexpr Dir peer_dir(uint32_t rank) {
  return static_cast<Dir>(kPeerDirBase + rank);
}
std::string to_string(Dir dir);

/// The launch arguments: 64-bit words with checked access.
class Args {
 public:
  Args() = default;
  explicit Args(std::vector<uint64_t> words) : m_words(std::move(words)) {}
  size_t size() const { return m_words.size(); }
  /// \throws std::out_of_range naming the index and the count
  uint64_t u64(size_t i) const;
  int64_t i64(size_t i) const { return static_cast<int64_t>(u64(i)); }
  uint32_t u32(size_t i) const { return static_cast<uint32_t>(u64(i)); }
  double f64(size_t i) const;
  Addr address(size_t i) const { return u64(i); }

 private:
  std::vector<uint64_t> m_words;
};
uint64_t pack_f64(double v);

/// Up to four directions without an allocation.
class DirList {
 public:
  DirList() = default;
  DirList(Dir d) { push(d); }  // NOLINT(google-explicit-constructor): a single direction is the common list
  DirList(std::initializer_list<Dir> dirs) {
    for (Dir d : dirs) push(d);
  }
  void push(Dir d) {
    if (m_size == m_dirs.size()) throw std::length_error("a move takes at most 4 directions on a side");
    m_dirs[m_size++] = d;
  }
  size_t size() const { return m_size; }
  bool empty() const { return m_size == 0; }
  Dir operator[](size_t i) const { return m_dirs[i]; }
  const Dir* begin() const { return m_dirs.data(); }
  const Dir* end() const { return m_dirs.data() + m_size; }

 private:
  std::array<Dir, 4> m_dirs{};
  uint8_t m_size = 0;
};

/// A stream of `count` elements. Per piece, in this order:
///   acc = local operand (if `local`), then acc = op(acc, slot) for every direction of `from` in order
///   (without `local` the first received piece is acc itself; with `local_last`, acc = op(slot, local));
///   then, if `divisor` > 1, acc = acc / divisor; then acc goes to `store` (if set) and to every direction of `to`.
/// `from` empty needs `local`; `store` unset needs a `to`. A move of no elements does nothing on any side.
///
/// Order. The messages of one queue pair keep the order in which their moves were submitted, on both ends; nothing else
/// is ordered. In particular a move that reads what an earlier one stores needs a `wait` between them, unless the data
/// itself makes it later.
/// Buffering, for those who argue about deadlocks: a move receives only while it is the oldest unfinished one on each
/// of its `from`. A piece that is computed (a local operand, several sources, a divisor) gives its slots back before it
/// waits for credits of `to`; a piece that is only passed on keeps its slot until every `to` and `store` has it.
struct Move {
  DirList from;
  DirList to;
  Addr local = 0;  ///< device address of the local operand, 0: none
  Addr store = 0;  ///< device address of the result, 0: not stored
  uint64_t count = 0;
  DType dtype = DType::Float32;
  ReduceOp op = ReduceOp::Sum;
  uint64_t divisor = 1;     ///< at most 2^32 - 1
  bool local_last = false;  ///< needs `local` and one of `from`; so two ranks that exchange reduce in the same order
  uint16_t step = 0;        ///< written to sent headers and checked in received ones
  uint16_t recv_step = 0xFFFF;  ///< step expected in received headers when it differs from `step`
  uint32_t piece_bytes = 0;  ///< payload bytes of a message; 0: the smallest slot's capacity among all directions. Both
                             ///< sides of a connection must cut alike
};

using Handle = uint64_t;  ///< names a submitted move until it is waited for
/// The next move of a sequence, read before the next call; null: there is none.
using MoveSource = std::function<const Move*()>;

/// A message that is not what the receiving kernel expected, a use of a slot after its release, an unknown direction.
class ProtocolError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// A device address that answered with an error.
class FaultError : public std::runtime_error {
 public:
  FaultError(const std::string& what, Addr address) : std::runtime_error(what), m_address(address) {}
  Addr address() const { return m_address; }

 private:
  Addr m_address;
};

enum class Axis : uint8_t { Pe, Cube, Sip };

/// The peer behind a direction.
struct Peer {
  uint32_t flat_pe = 0;
  uint32_t slot_bytes = 0;
  uint32_t n_slots = 0;
};

class Tl;

/// An array in the PE's TCM, row-major, at most two-dimensional (a vector is 1 x n). Copies share the array; the TCM is
/// given back with the last copy.
class Tile {
 public:
  struct Storage;
  Tile() = default;
  uint64_t rows() const;
  uint64_t cols() const;
  uint64_t size() const { return rows() * cols(); }
  DType dtype() const;
  const void* data() const;
  explicit operator bool() const { return m_storage != nullptr; }

 private:
  friend class Tl;
  std::shared_ptr<Storage> m_storage;
};

/// A received slot, read-only. Given back (and its credit returned) by `release` or by destruction; reading it
/// afterwards is a ProtocolError.
class Slot {
 public:
  Slot() = default;
  Slot(Slot&& o) noexcept { *this = std::move(o); }
  Slot& operator=(Slot&& o) noexcept;
  ~Slot() { release(); }
  const void* data() const;  ///< payload. \throws ProtocolError after release
  uint64_t bytes() const { return m_bytes; }
  void release();

 private:
  friend class Tl;
  Tl* m_tl = nullptr;
  Dir m_dir = Dir::None;
  const uint8_t* m_data = nullptr;
  uint64_t m_bytes = 0;
  uint64_t m_ticket = 0;
};

enum class Unary : uint8_t {
  Neg,
  Abs,
  Exp,
  Log,
  Sqrt,
  Rsqrt,
  Reciprocal,
  Relu,
  Sigmoid,
  Tanh,
  Erf,
  Gelu,
  Silu,
  Sin,
  Cos,
  Sign,
  Square
};
enum class Binary : uint8_t { Add, Sub, Mul, Div, Max, Min, Pow };
enum class Compare : uint8_t { Eq, Ne, Lt, Le, Gt, Ge };
enum class Fold : uint8_t { Sum, Max, Min, Prod };

class Tl {
 public:
  virtual ~Tl() = default;

  // --- who am I
  uint32_t program_id(Axis axis) const;
  uint32_t num_programs(Axis axis) const;
  uint32_t group() const { return m_header.group; }
  uint32_t sequence() const { return m_header.seq; }
  uint32_t flat_pe() const { return m_flat_pe; }

  // --- neighbours
  bool has(Dir dir) const;
  Peer peer(Dir dir) const;  ///< \throws ProtocolError when there is none
  static std::vector<Range> chunks(uint64_t count, uint64_t parts, uint64_t align = 1) {
    return ahbm::chunks(count, parts, align);
  }

  // --- moves. The forms named i... return at once; `wait` ends one. A kernel's end waits for all of them.
  virtual Handle submit(const Move& move) = 0;
  virtual void wait(Handle handle) = 0;
  virtual void wait_all() = 0;
  /// Submits what `next` yields, in that order, each move as soon as there is room for it (a loop over `submit` may
  /// come later to that), and returns when the last one is submitted. `next` may be called outside of the kernel's
  /// thread and up to eight moves ahead of their turn, and must not use the Tl. What it throws comes out of submit_all
  /// after what it had yielded is submitted; after any other error, moves that it was asked for may be lost.
  virtual void submit_all(const MoveSource& next) {
    while (const Move* move = next()) submit(*move);
  }

  Handle isend(DirList to, Addr src, uint64_t n, DType t, uint16_t step = 0);
  Handle irecv(DirList from, Addr dst, uint64_t n, DType t, uint16_t step = 0);
  void send(DirList to, Addr src, uint64_t n, DType t, uint16_t step = 0) { wait(isend(to, src, n, t, step)); }
  void recv(DirList from, Addr dst, uint64_t n, DType t, uint16_t step = 0) { wait(irecv(from, dst, n, t, step)); }
  void recv_reduce(DirList from, Addr inout, uint64_t n, DType t, ReduceOp op, uint16_t step = 0);
  void recv_reduce_send(DirList from, DirList to, Addr local, uint64_t n, DType t, ReduceOp op, uint16_t step = 0);
  void recv_copy_send(DirList from, DirList to, Addr dst, uint64_t n, DType t, uint16_t step = 0);
  void recv_reduce_copy_send(DirList from, DirList to, Addr inout, uint64_t n, DType t, ReduceOp op, uint16_t step = 0);
  void copy(Addr src, Addr dst, uint64_t n, DType t);

  /// One message, without a copy out of the ring: blocks until it is there and checks its header.
  virtual Slot recv_slot(Dir from, DType t, uint64_t n, uint16_t step = 0) = 0;

  // --- tiles
  /// Whether there are values at all, or times only (`simulation.functional`).
  virtual bool functional() const { return true; }
  Tile load(Addr src, uint64_t n, DType t) { return load(src, 1, n, n, t); }
  Tile load(Addr src, uint64_t rows, uint64_t cols, uint64_t row_stride, DType t);  ///< stride in elements
  void store(Addr dst, const Tile& x) { store(dst, x, x.cols()); }
  void store(Addr dst, const Tile& x, uint64_t row_stride);
  Tile zeros(uint64_t rows, uint64_t cols, DType t) { return full(rows, cols, t, 0.0); }
  Tile full(uint64_t rows, uint64_t cols, DType t, double v);
  Tile unary(Unary f, const Tile& x);
  Tile binary(Binary f, const Tile& a, const Tile& b);  ///< equal shapes, or b a 1 x cols row or a rows x 1 column
  Tile binary(Binary f, const Tile& a, double b);
  Tile add(const Tile& a, const Tile& b) { return binary(Binary::Add, a, b); }
  Tile mul(const Tile& a, const Tile& b) { return binary(Binary::Mul, a, b); }
  Tile maximum(const Tile& a, const Tile& b) { return binary(Binary::Max, a, b); }
  Tile exp(const Tile& x) { return unary(Unary::Exp, x); }
  /// rows x 1, of x's dtype: sum over the columns in fp32, left to right, rounded once (integers wrap)
  Tile sum_rows(const Tile& x);
  Tile max_rows(const Tile& x);
  Tile cast(const Tile& x, DType t);

  // Every dtype. A comparison yields a Bool tile; operands as in `binary`, of one dtype.
  Tile compare(Compare f, const Tile& a, const Tile& b);
  Tile compare(Compare f, const Tile& a, double b);  ///< b limited and rounded to a's dtype
  /// mask ? a : b, of equal shapes and dtypes; mask is Bool.
  Tile select(const Tile& mask, const Tile& a, const Tile& b);
  /// rows x cols with y(r, c) = x[offset + r * row_stride + c * col_stride] of x's elements in row-major order: a
  /// transposition, a repetition (stride 0), every n-th element. One lane operation per element of the result.
  Tile strided(const Tile& x, uint64_t offset, uint64_t rows, uint64_t cols, uint64_t row_stride, uint64_t col_stride);
  /// The inverse: writes x into `into`, in place. One lane operation per element of x.
  void place(const Tile& into, const Tile& x, uint64_t offset, uint64_t row_stride, uint64_t col_stride);
  /// y(r, c) = x(r, index(r, c)); index is int64 or int32, with x's rows. \throws std::out_of_range for an index that
  /// is none of x's columns
  Tile take(const Tile& x, const Tile& index);
  /// x where a column is in the upper (lower) triangle, column >= row + diagonal (<=), `fill` elsewhere; the tile's
  /// rows begin with row `first_row` of its matrix.
  Tile triangle(const Tile& x, bool upper, int64_t first_row, int64_t diagonal, double fill);

  // On every dtype but bool, of x's dtype; computed in fp32 (integers wrap), rounded once.
  /// Folds the columns into rows x 1. Element c of a row goes to accumulator c % 32 in order; then accumulator i takes
  /// i + 16, i + 8, ..., i + 1. A row without columns gives the operator's identity.
  Tile fold(Fold f, const Tile& x);
  /// Folds the rows into 1 x cols, from the first to the last.
  Tile fold_down(Fold f, const Tile& x);
  /// Sums of the first 1, 2, ... columns of every row, left to right.
  Tile scan(const Tile& x);
  /// rows x 1 int64: the first column with the row's largest (smallest) element; a NaN counts as that.
  /// \throws ProtocolError for rows without columns
  Tile arg(Fold f, const Tile& x);

  Tile dot(const Tile& a, const Tile& b);                   ///< [m,k] x [k,n] -> fp32 [m,n] (int32 for integers)
  Tile dot(const Tile& a, const Tile& b, const Tile& acc);  ///< acc + a x b
  /// C[m,n] = A[m,k] x B[k,n] with row strides in elements, streamed tile by tile from memory while the MACs run.
  void gemm(Addr a, Addr b, Addr c, uint64_t m, uint64_t n, uint64_t k, uint64_t lda, uint64_t ldb, uint64_t ldc,
            DType t);

  /// Names what follows in the trace until the returned object dies.
  struct Region {
    std::function<void()> end;
    Region() = default;
    Region(Region&& o) noexcept : end(std::move(o.end)) { o.end = nullptr; }
    Region& operator=(Region&&) = delete;
    ~Region() {
      if (end) end();
    }
  };
  virtual Region region(const char* name) {
    (void)name;
    return {};
  }

 protected:
  friend class Slot;
  friend class Tile;

  void configure(const launch::ArgHeader& header, std::vector<launch::LinkEntry> links, uint32_t flat_pe);
  const launch::LinkEntry* find_link(Dir dir) const;

  // What an implementation supplies for tiles. Times are opaque stamps of the implementation (picoseconds on the
  // platform, ignored by the twin): a value is usable from its stamp on, and `store` waits for it.
  virtual uint8_t* tcm_alloc(uint64_t bytes) = 0;  ///< \throws std::bad_alloc-like ProtocolError naming the sizes
  virtual void tcm_free(uint8_t* p, uint64_t bytes) = 0;
  virtual uint64_t dma_load(Addr src, uint8_t* dst, uint64_t bytes) = 0;  ///< returns the stamp of the last byte
  virtual void dma_store(Addr dst, const uint8_t* src, uint64_t bytes, uint64_t ready) = 0;
  virtual uint64_t vector_time(uint64_t elements, uint64_t ready) = 0;                ///< reserves the lanes
  virtual uint64_t mac_time(uint64_t m, uint64_t n, uint64_t k, uint64_t ready) = 0;  ///< reserves the MAC array
  virtual void release_slot(Dir dir, uint64_t ticket) = 0;
  /// A slot for `recv_slot` to return; `ticket` comes back in `release_slot`.
  Slot make_slot(Dir dir, const uint8_t* payload, uint64_t bytes, uint64_t ticket);

  launch::ArgHeader m_header;
  std::vector<launch::LinkEntry> m_links;
  uint32_t m_flat_pe = 0;

 private:
  Tile make_tile(uint64_t rows, uint64_t cols, DType t);
  static const Tile::Storage& storage(const Tile& x, const char* what);
  template <typename Step>
  Tile fold_rows(const char* what, const Tile& x, Step&& step);
};

using KernelFn = void (*)(Tl&, const Args&);

}  // namespace ahbm::tl
