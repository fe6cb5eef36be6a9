#include "models/tl/tl.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "models/tl/tile_storage.h"

namespace ahbm::tl {

// --- names and arguments

std::string to_string(Dir dir) {
  switch (dir) {
    case Dir::N:
      return "N";
    case Dir::S:
      return "S";
    case Dir::E:
      return "E";
    case Dir::W:
      return "W";
    case Dir::GlobalN:
      return "GLOBAL_N";
    case Dir::GlobalS:
      return "GLOBAL_S";
    case Dir::GlobalE:
      return "GLOBAL_E";
    case Dir::GlobalW:
      return "GLOBAL_W";
    case Dir::Next:
      return "NEXT";
    case Dir::Prev:
      return "PREV";
    case Dir::None:
      return "NONE";
  }
  const auto v = static_cast<uint16_t>(dir);
  return v >= kPeerDirBase ? fmt::format("PEER_{}", v - kPeerDirBase) : fmt::format("DIR_{}", v);
}

uint64_t Args::u64(size_t i) const {
  if (i >= m_words.size()) {
    throw std::out_of_range(fmt::format("kernel argument {} asked for, but the launch has {}", i, m_words.size()));
  }
  return m_words[i];
}

double Args::f64(size_t i) const {
  const uint64_t bits = u64(i);
  double v = 0;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

uint64_t pack_f64(double v) {
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  return bits;
}

// --- who am I, neighbours

void Tl::configure(const launch::ArgHeader& header, std::vector<launch::LinkEntry> links, uint32_t flat_pe) {
  m_header = header;
  m_links = std::move(links);
  m_flat_pe = flat_pe;
}

uint32_t Tl::program_id(Axis axis) const {
  switch (axis) {
    case Axis::Pe:
      return m_header.program_pe;
    case Axis::Cube:
      return m_header.program_cube;
    case Axis::Sip:
      return m_header.program_rank;
  }
  throw std::invalid_argument(fmt::format("no axis has the number {}", static_cast<int>(axis)));
}

uint32_t Tl::num_programs(Axis axis) const {
  switch (axis) {
    case Axis::Pe:
      return m_header.program_pes;
    case Axis::Cube:
      return m_header.program_cubes;
    case Axis::Sip:
      return m_header.program_ranks;
  }
  throw std::invalid_argument(fmt::format("no axis has the number {}", static_cast<int>(axis)));
}

const launch::LinkEntry* Tl::find_link(Dir dir) const {
  for (const launch::LinkEntry& link : m_links) {
    if (link.dir == static_cast<uint16_t>(dir)) return &link;
  }
  return nullptr;
}

bool Tl::has(Dir dir) const {
  return find_link(dir) != nullptr;
}

Peer Tl::peer(Dir dir) const {
  if (const launch::LinkEntry* link = find_link(dir)) return {link->peer_flat_pe, link->slot_bytes, link->n_slots};
  std::string known;
  for (const launch::LinkEntry& link : m_links) {
    known += (known.empty() ? "" : ", ") + to_string(static_cast<Dir>(link.dir));
  }
  throw ProtocolError(fmt::format("PE {} has no neighbour in direction {}; it has {}", m_flat_pe, to_string(dir),
                                  known.empty() ? "none" : known));
}

// --- moves

Handle Tl::isend(DirList to, Addr src, uint64_t n, DType t, uint16_t step) {
  Move m;
  m.to = to;
  m.local = src;
  m.count = n;
  m.dtype = t;
  m.step = step;
  return submit(m);
}

Handle Tl::irecv(DirList from, Addr dst, uint64_t n, DType t, uint16_t step) {
  Move m;
  m.from = from;
  m.store = dst;
  m.count = n;
  m.dtype = t;
  m.step = step;
  return submit(m);
}

void Tl::recv_reduce(DirList from, Addr inout, uint64_t n, DType t, ReduceOp op, uint16_t step) {
  Move m;
  m.from = from;
  m.local = m.store = inout;
  m.count = n;
  m.dtype = t;
  m.op = op;
  m.step = step;
  wait(submit(m));
}

void Tl::recv_reduce_send(DirList from, DirList to, Addr local, uint64_t n, DType t, ReduceOp op, uint16_t step) {
  Move m;
  m.from = from;
  m.to = to;
  m.local = local;
  m.count = n;
  m.dtype = t;
  m.op = op;
  m.step = step;
  wait(submit(m));
}

void Tl::recv_copy_send(DirList from, DirList to, Addr dst, uint64_t n, DType t, uint16_t step) {
  Move m;
  m.from = from;
  m.to = to;
  m.store = dst;
  m.count = n;
  m.dtype = t;
  m.step = step;
  wait(submit(m));
}

void Tl::recv_reduce_copy_send(DirList from, DirList to, Addr inout, uint64_t n, DType t, ReduceOp op, uint16_t step) {
  Move m;
  m.from = from;
  m.to = to;
  m.local = m.store = inout;
  m.count = n;
  m.dtype = t;
  m.op = op;
  m.step = step;
  wait(submit(m));
}

void Tl::copy(Addr src, Addr dst, uint64_t n, DType t) {
  Move m;
  m.local = src;
  m.store = dst;
  m.count = n;
  m.dtype = t;
  wait(submit(m));
}

// --- slots

Slot& Slot::operator=(Slot&& o) noexcept {
  if (this == &o) return *this;
  release();
  m_tl = std::exchange(o.m_tl, nullptr);
  m_dir = o.m_dir;
  m_data = std::exchange(o.m_data, nullptr);
  m_bytes = std::exchange(o.m_bytes, 0);
  m_ticket = o.m_ticket;
  return *this;
}

const void* Slot::data() const {
  if (m_tl == nullptr) {
    throw ProtocolError(fmt::format("a slot received from {} is read after it was given back", to_string(m_dir)));
  }
  return m_data;
}

void Slot::release() {
  if (m_tl == nullptr) return;
  std::exchange(m_tl, nullptr)->release_slot(m_dir, m_ticket);
  m_data = nullptr;
  m_bytes = 0;
}

Slot Tl::make_slot(Dir dir, const uint8_t* payload, uint64_t bytes, uint64_t ticket) {
  Slot s;
  s.m_tl = this;
  s.m_dir = dir;
  s.m_data = payload;
  s.m_bytes = bytes;
  s.m_ticket = ticket;
  return s;
}

// --- tiles

namespace {

/// To another dtype with one rounding; integers wrap.
void convert(DType from, const uint8_t* in, DType to, uint8_t* out, uint64_t n) {
  if (from == to) {
    if (n != 0) std::memcpy(out, in, n * item_bytes(from));
    return;
  }
  if (is_floating(from) && is_floating(to)) {
    dispatch_arithmetic("cast", from, [&](auto source) {
      dispatch_arithmetic("cast", to, [&](auto target) {
        using From = decltype(source);
        using To = decltype(target);
        matrix<To>(out, 1, n) =
            matrix<From>(in, 1, n).unaryExpr([](From v) { return static_cast<To>(static_cast<float>(v)); });
      });
    });
    return;
  }
  const auto wraps = [](DType t) { return !is_floating(t) && t != DType::Bool; };
  if (wraps(from) && wraps(to)) {
    dispatch_every(from, [&](auto source) {
      dispatch_every(to, [&](auto target) {
        using From = decltype(source);
        using To = decltype(target);
        if constexpr (kInteger<From> && kInteger<To>) {
          matrix<To>(out, 1, n) = matrix<From>(in, 1, n).unaryExpr([](From v) { return static_cast<To>(v); });
        }
      });
    });
    return;
  }
  // Through double, which holds every element exactly but large int64.
  for (uint64_t i = 0; i < n; ++i) store_element(to, out, i, load_element(from, in, i));
}

const char* name_of(Unary f) {
  static constexpr const char* kNames[] = {"neg",        "abs",  "exp",     "log",  "sqrt",  "rsqrt",
                                           "reciprocal", "relu", "sigmoid", "tanh", "erf",   "gelu",
                                           "silu",       "sin",  "cos",     "sign", "square"};
  return kNames[static_cast<size_t>(f)];
}
const char* name_of(Binary f) {
  static constexpr const char* kNames[] = {"add", "sub", "mul", "div", "max", "min", "pow"};
  return kNames[static_cast<size_t>(f)];
}

// The scalar functions of the C library, not Eigen's packet versions: those give other last bits in a vector body than
// in its tail, and equal inputs must give equal outputs wherever a layout puts them.
float apply(Unary f, float x) {
  switch (f) {
    case Unary::Neg:
      return -x;
    case Unary::Abs:
      return std::fabs(x);
    case Unary::Exp:
      return std::exp(x);
    case Unary::Log:
      return std::log(x);
    case Unary::Sqrt:
      return std::sqrt(x);
    case Unary::Rsqrt:
      return 1.0f / std::sqrt(x);
    case Unary::Reciprocal:
      return 1.0f / x;
    case Unary::Relu:
      return x < 0 ? 0.0f : x;  // passes on a NaN
    case Unary::Sigmoid:
      return 1.0f / (1.0f + std::exp(-x));
    case Unary::Tanh:
      return std::tanh(x);
    case Unary::Erf:
      return std::erf(x);
    case Unary::Gelu:
      // 1 + erf(x / sqrt 2) would cancel for negative x
      return static_cast<float>(0.5 * x * std::erfc(-static_cast<double>(x) * 0.70710678118654752));
    case Unary::Silu:
      return x / (1.0f + std::exp(-x));
    case Unary::Sin:
      return std::sin(x);
    case Unary::Cos:
      return std::cos(x);
    case Unary::Sign:
      return x > 0 ? 1.0f : (x < 0 ? -1.0f : x);  // zeros and NaN as they are
    case Unary::Square:
      return x * x;
  }
  return x;
}

/// Integers are int32_t or int64_t and wrap.
template <typename I>
auto wrapped(I v) {
  return static_cast<std::make_unsigned_t<I>>(v);
}
template <typename I>
I negated(I x) {
  return static_cast<I>(0 - wrapped(x));
}

template <typename I>
std::enable_if_t<std::is_integral_v<I>, I> apply(Unary f, I x) {
  switch (f) {
    case Unary::Neg:
      return negated(x);
    case Unary::Abs:
      return x < 0 ? negated(x) : x;
    case Unary::Relu:
      return std::max<I>(x, 0);
    case Unary::Sign:
      return (x > 0) - (x < 0);
    case Unary::Square:
      return static_cast<I>(wrapped(x) * wrapped(x));
    default:
      return x;  // integers_do says no
  }
}
bool integers_do(Unary f) {
  return f == Unary::Neg || f == Unary::Abs || f == Unary::Relu || f == Unary::Sign || f == Unary::Square;
}

float apply(Binary f, float a, float b) {
  switch (f) {
    case Binary::Add:
      return a + b;
    case Binary::Sub:
      return a - b;
    case Binary::Mul:
      return a * b;
    case Binary::Div:
      return a / b;
    case Binary::Max:
      return a >= b || a != a ? a : b;
    case Binary::Min:
      return a <= b || a != a ? a : b;
    case Binary::Pow:
      return std::pow(a, b);
  }
  return a;
}

template <typename I>
std::enable_if_t<std::is_integral_v<I>, I> apply(Binary f, I a, I b) {
  switch (f) {
    case Binary::Add:
      return static_cast<I>(wrapped(a) + wrapped(b));
    case Binary::Sub:
      return static_cast<I>(wrapped(a) - wrapped(b));
    case Binary::Mul:
      return static_cast<I>(wrapped(a) * wrapped(b));
    case Binary::Div:
      if (b == 0) throw std::domain_error("integer division by 0 in a tile");
      return b == -1 ? negated(a) : a / b;
    case Binary::Max:
      return std::max(a, b);
    case Binary::Min:
      return std::min(a, b);
    case Binary::Pow: {
      if (b < 0) throw std::domain_error("an integer to a negative power in a tile");
      std::make_unsigned_t<I> result = 1, factor = wrapped(a);
      for (auto left = wrapped(b); left != 0; left >>= 1, factor *= factor) {
        if ((left & 1) != 0) result *= factor;
      }
      return static_cast<I>(result);
    }
  }
  return a;
}

/// f is a template argument of the loop, so that the loop has no switch inside.
template <typename F>
void with_binary(Binary f, F&& body) {
  switch (f) {
    case Binary::Add:
      return body([](auto a, auto b) { return apply(Binary::Add, a, b); });
    case Binary::Sub:
      return body([](auto a, auto b) { return apply(Binary::Sub, a, b); });
    case Binary::Mul:
      return body([](auto a, auto b) { return apply(Binary::Mul, a, b); });
    case Binary::Div:
      return body([](auto a, auto b) { return apply(Binary::Div, a, b); });
    case Binary::Max:
      return body([](auto a, auto b) { return apply(Binary::Max, a, b); });
    case Binary::Min:
      return body([](auto a, auto b) { return apply(Binary::Min, a, b); });
    case Binary::Pow:
      return body([](auto a, auto b) { return apply(Binary::Pow, a, b); });
  }
}

}  // namespace

uint64_t Tile::rows() const {
  return m_storage ? m_storage->rows : 0;
}
uint64_t Tile::cols() const {
  return m_storage ? m_storage->cols : 0;
}
DType Tile::dtype() const {
  if (!m_storage) throw ProtocolError("the dtype of an empty tile");
  return m_storage->dtype;
}
const void* Tile::data() const {
  return m_storage ? m_storage->data : nullptr;
}

Tile Tl::make_tile(uint64_t rows, uint64_t cols, DType t) {
  Tile x;
  x.m_storage = std::make_shared<Tile::Storage>(*this, rows, cols, t);
  return x;
}

const Tile::Storage& Tl::storage(const Tile& x, const char* what) {
  if (!x.m_storage) throw ProtocolError(fmt::format("{} of an empty tile", what));
  return *x.m_storage;
}

Tile Tl::load(Addr src, uint64_t rows, uint64_t cols, uint64_t row_stride, DType t) {
  if (rows > 1 && row_stride < cols) {
    throw ProtocolError(fmt::format("load: a row stride of {} elements for rows of {}", row_stride, cols));
  }
  Tile x = make_tile(rows, cols, t);
  Tile::Storage& s = *x.m_storage;
  if (s.bytes == 0) return x;
  const uint64_t item = item_bytes(t);
  if (rows == 1 || row_stride == cols) {
    s.ready = dma_load(src, s.data, s.bytes);
    return x;
  }
  for (uint64_t r = 0; r < rows; ++r) {
    s.ready = std::max(s.ready, dma_load(src + r * row_stride * item, s.data + r * cols * item, cols * item));
  }
  return x;
}

void Tl::store(Addr dst, const Tile& x, uint64_t row_stride) {
  const Tile::Storage& s = storage(x, "store");
  if (s.rows > 1 && row_stride < s.cols) {
    throw ProtocolError(fmt::format("store: a row stride of {} elements for rows of {}", row_stride, s.cols));
  }
  if (s.bytes == 0) return;
  const uint64_t item = item_bytes(s.dtype);
  if (s.rows == 1 || row_stride == s.cols) {
    dma_store(dst, s.data, s.bytes, s.ready);
    return;
  }
  for (uint64_t r = 0; r < s.rows; ++r) {
    dma_store(dst + r * row_stride * item, s.data + r * s.cols * item, s.cols * item, s.ready);
  }
}

Tile Tl::full(uint64_t rows, uint64_t cols, DType t, double v) {
  Tile y = make_tile(rows, cols, t);
  Tile::Storage& s = *y.m_storage;
  if (functional()) fill(t, s.data, y.size(), v);
  s.ready = vector_time(y.size(), 0);
  return y;
}

Tile Tl::unary(Unary f, const Tile& x) {
  const Tile::Storage& a = storage(x, name_of(f));
  if (!is_floating(a.dtype) && !integers_do(f)) {
    throw NotImplementedError(fmt::format("{} on {}", name_of(f), ahbm::to_string(a.dtype)));
  }
  Tile y = make_tile(a.rows, a.cols, a.dtype);
  Tile::Storage& s = *y.m_storage;
  dispatch_numbers(name_of(f), a.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (!functional()) return;
    matrix<T>(s.data, s.rows, s.cols) =
        matrix<T>(a.data, a.rows, a.cols).unaryExpr([f](T v) { return static_cast<T>(apply(f, Wide<T>(v))); });
  });
  s.ready = vector_time(y.size(), a.ready);
  return y;
}

Tile Tl::binary(Binary f, const Tile& a, const Tile& b) {
  const Tile::Storage& x = storage(a, name_of(f));
  const Tile::Storage& y = storage(b, name_of(f));
  if (x.dtype != y.dtype) {
    throw ProtocolError(
        fmt::format("{} of {} and {}: cast one", name_of(f), ahbm::to_string(x.dtype), ahbm::to_string(y.dtype)));
  }
  const bool row = y.rows == 1 && y.cols == x.cols;
  const bool column = y.cols == 1 && y.rows == x.rows;
  if (!row && !column && (x.rows != y.rows || x.cols != y.cols)) {
    throw ProtocolError(fmt::format("{} of {}x{} and {}x{}: equal shapes, a 1x{} row or a {}x1 column are expected",
                                    name_of(f), x.rows, x.cols, y.rows, y.cols, x.cols, x.rows));
  }
  Tile out = make_tile(x.rows, x.cols, x.dtype);
  Tile::Storage& s = *out.m_storage;
  dispatch_numbers(name_of(f), x.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (!functional() || s.bytes == 0) return;
    with_binary(f, [&](auto op) {
      const auto g = [op](T p, T q) { return static_cast<T>(op(Wide<T>(p), Wide<T>(q))); };
      const auto left = matrix<T>(x.data, x.rows, x.cols);
      const auto right = matrix<T>(y.data, y.rows, y.cols);
      auto result = matrix<T>(s.data, s.rows, s.cols);
      if (x.rows == y.rows && x.cols == y.cols) {
        result = left.binaryExpr(right, g);
      } else if (row) {
        result = left.binaryExpr(right.replicate(left.rows(), 1), g);
      } else {
        result = left.binaryExpr(right.replicate(1, left.cols()), g);
      }
    });
  });
  s.ready = vector_time(out.size(), std::max(x.ready, y.ready));
  return out;
}

Tile Tl::binary(Binary f, const Tile& a, double b) {
  const Tile::Storage& x = storage(a, name_of(f));
  Tile out = make_tile(x.rows, x.cols, x.dtype);
  Tile::Storage& s = *out.m_storage;
  dispatch_numbers(name_of(f), x.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (!functional() || s.bytes == 0) return;
    const bool wraps = kInteger<T> && b == std::trunc(b);
    if (f == Binary::Mul && !wraps) {  // the rule of `scale`: integers are multiplied by a fraction in double
      std::memcpy(s.data, x.data, s.bytes);
      scale(s.dtype, s.data, out.size(), b);
      return;
    }
    Wide<T> scalar{};
    store_element(kWideType<T>, &scalar, 0, b);
    with_binary(f, [&](auto op) {
      matrix<T>(s.data, s.rows, s.cols) = matrix<T>(x.data, x.rows, x.cols).unaryExpr([op, scalar](T v) {
        return static_cast<T>(op(Wide<T>(v), scalar));
      });
    });
  });
  s.ready = vector_time(out.size(), x.ready);
  return out;
}

template <typename Step>
Tile Tl::fold_rows(const char* what, const Tile& x, Step&& step) {
  const Tile::Storage& a = storage(x, what);
  if (a.cols == 0) throw ProtocolError(fmt::format("{} of {} rows without columns", what, a.rows));
  Tile y = make_tile(a.rows, 1, a.dtype);
  Tile::Storage& s = *y.m_storage;
  dispatch_numbers(what, a.dtype, [&](auto tag) {
    using T = decltype(tag);
    if (!functional()) return;
    const auto in = matrix<T>(a.data, a.rows, a.cols);
    auto out = matrix<T>(s.data, s.rows, 1);
    for (Eigen::Index r = 0; r < in.rows(); ++r) {
      auto acc = Wide<T>(in(r, 0));
      for (Eigen::Index c = 1; c < in.cols(); ++c) acc = step(acc, Wide<T>(in(r, c)));
      out(r, 0) = static_cast<T>(acc);
    }
  });
  s.ready = vector_time(x.size(), a.ready);
  return y;
}

Tile Tl::sum_rows(const Tile& x) {
  return fold_rows("sum_rows", x, [](auto a, auto b) { return apply(Binary::Add, a, b); });
}

Tile Tl::max_rows(const Tile& x) {
  return fold_rows("max_rows", x, [](auto a, auto b) { return apply(Binary::Max, a, b); });
}

Tile Tl::cast(const Tile& x, DType t) {
  const Tile::Storage& a = storage(x, "cast");
  Tile y = make_tile(a.rows, a.cols, t);
  Tile::Storage& s = *y.m_storage;
  if (functional()) convert(a.dtype, a.data, t, s.data, y.size());
  s.ready = vector_time(y.size(), a.ready);
  return y;
}

Tile Tl::dot(const Tile& a, const Tile& b) {
  return dot(a, b, Tile());
}

Tile Tl::dot(const Tile& a, const Tile& b, const Tile& acc) {
  const Tile::Storage& x = storage(a, "dot");
  const Tile::Storage& y = storage(b, "dot");
  if (x.dtype != y.dtype) {
    throw ProtocolError(fmt::format("dot of {} and {}: cast one", ahbm::to_string(x.dtype), ahbm::to_string(y.dtype)));
  }
  if (x.cols != y.rows) {
    throw ProtocolError(fmt::format("dot of {}x{} and {}x{}: the inner sizes differ", x.rows, x.cols, y.rows, y.cols));
  }
  const DType result = x.dtype == DType::Int32 ? DType::Int32 : DType::Float32;
  if (acc && (acc.rows() != x.rows || acc.cols() != y.cols || acc.dtype() != result)) {
    throw ProtocolError(fmt::format("dot: an accumulator of {}x{} {} where {}x{} {} is expected", acc.rows(),
                                    acc.cols(), ahbm::to_string(acc.dtype()), x.rows, y.cols, ahbm::to_string(result)));
  }
  Tile out = make_tile(x.rows, y.cols, result);
  Tile::Storage& s = *out.m_storage;
  dispatch_arithmetic("dot", x.dtype, [&](auto tag) {
    using T = decltype(tag);
    using Acc = std::conditional_t<kInteger<T>, uint32_t, float>;  // integer overflow wraps
    if (!functional() || s.bytes == 0) return;
    auto c = matrix<Acc>(s.data, s.rows, s.cols);
    if (acc) {
      std::memcpy(s.data, acc.data(), s.bytes);
    } else {
      c.setZero();
    }
    if constexpr (sizeof(T) == sizeof(Acc)) {
      c.noalias() += matrix<Acc>(x.data, x.rows, x.cols) * matrix<Acc>(y.data, y.rows, y.cols);
    } else {
      const Matrix<float> left = matrix<T>(x.data, x.rows, x.cols).template cast<float>();
      const Matrix<float> right = matrix<T>(y.data, y.rows, y.cols).template cast<float>();
      c.noalias() += left * right;
    }
  });
  uint64_t ready = std::max(x.ready, y.ready);
  if (acc) ready = std::max(ready, acc.m_storage->ready);
  s.ready = mac_time(x.rows, y.cols, x.cols, ready);
  return out;
}

void Tl::gemm(Addr a, Addr b, Addr c, uint64_t m, uint64_t n, uint64_t k, uint64_t lda, uint64_t ldb, uint64_t ldc,
              DType t) {
  if (m == 0 || n == 0) return;
  const auto stride = [](const char* name, uint64_t rows, uint64_t cols, uint64_t ld) {
    if (rows > 1 && ld < cols) {
      throw ProtocolError(fmt::format("gemm: {} of {}x{} has a row stride of {} elements", name, rows, cols, ld));
    }
  };
  stride("A", m, k, lda);
  stride("B", k, n, ldb);
  stride("C", m, n, ldc);
  // Square tiles of at most 64 KiB per operand: two of A and of B, and three of C in fp32, stay below half a MiB.
  constexpr uint64_t kTile = 128;
  const uint64_t item = item_bytes(t);
  struct Operands {
    Tile a, b;
  };
  for (uint64_t i = 0; i < m; i += kTile) {
    const uint64_t rows = std::min(kTile, m - i);
    for (uint64_t j = 0; j < n; j += kTile) {
      const uint64_t cols = std::min(kTile, n - j);
      const auto fetch = [&](uint64_t at) {
        const uint64_t depth = std::min(kTile, k - at);
        return Operands{load(a + (i * lda + at) * item, rows, depth, lda, t),
                        load(b + (at * ldb + j) * item, depth, cols, ldb, t)};
      };
      Tile acc = k == 0 ? zeros(rows, cols, t) : Tile();
      Operands now, next;
      if (k != 0) next = fetch(0);
      for (uint64_t at = 0; at < k; at += kTile) {
        now = std::exchange(next, {});
        if (at + kTile < k) next = fetch(at + kTile);  // streams in while the MACs work on `now`
        acc = dot(now.a, now.b, acc);
      }
      store(c + (i * ldc + j) * item, acc.dtype() == t ? acc : cast(acc, t), ldc);
    }
  }
}

}  // namespace ahbm::tl
