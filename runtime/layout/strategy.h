// How an operator on distributed tensors runs: which placements its inputs need, how to get there, and what comes out.
//
// `decide` looks at an operator, the specs of its inputs and its other arguments, and at nothing else; the answer is
// the same on every rank and is cached. Whoever executes a decision redistributes the inputs by the plans in it (in
// argument order), runs the operator on the local tensors, and wraps the results in the output specs; nothing is left
// to derive.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/layout/cost_model.h"
#include "runtime/layout/redistribute_plan.h"

namespace ahbm::dtensor {

enum class Op : uint8_t {
  // Pointwise, one tensor.
  Neg,
  Clone,
  Cast,
  Relu,
  Abs,
  Exp,
  Log,
  Sqrt,
  Rsqrt,
  Reciprocal,
  Tanh,
  Sigmoid,
  Silu,
  Gelu,
  Square,
  Sin,
  Cos,
  Sign,
  LogicalNot,
  Fill,
  Zero,
  // Pointwise, a tensor and a number.
  AddScalar,
  SubScalar,
  RsubScalar,
  MulScalar,
  DivScalar,
  RdivScalar,
  PowScalar,
  MaximumScalar,
  MinimumScalar,
  EqScalar,
  NeScalar,
  LtScalar,
  LeScalar,
  GtScalar,
  GeScalar,
  MaskedFill,
  // Pointwise, several tensors.
  Add,
  Sub,
  Mul,
  Div,
  Pow,
  Maximum,
  Minimum,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  LogicalAnd,
  LogicalOr,
  Copy,
  Where,
  // Only the shape of the input matters.
  ZerosLike,
  OnesLike,
  FullLike,
  EmptyLike,
  // Reductions.
  Sum,
  Mean,
  Max,
  Min,
  Prod,
  All,
  Any,
  Norm,
  Std,
  Var,
  LogSumExp,
  ArgMax,
  ArgMin,
  Cumsum,
  // Normalisations and losses.
  Softmax,
  LogSoftmax,
  LayerNorm,
  RmsNorm,
  CrossEntropy,
  CrossEntropyLossParallel,
  // Contractions.
  Mm,
  Bmm,
  Dot,
  Matmul,
  Addmm,
  Baddbmm,
  Linear,
  Sdpa,
  // Structure.
  Identity,
  T,
  Transpose,
  Permute,
  Squeeze,
  Unsqueeze,
  Expand,
  Cat,
  Stack,
  Split,
  Chunk,
  Slice,
  Select,
  Unbind,
  Equal,
  Gather,
  IndexSelect,
  Triu,
  Tril,
  View,
  Reshape,
  // Lookup.
  Embedding,
};
/// snake_case: add, add_scalar, log_softmax, ...
const char* to_string(Op op);
/// The names of `to_string`; an in-place form is its operator with `OpArgs::inplace`.
std::optional<Op> parse_op(std::string_view name);

/// The dtype of what is computed from both, as torch promotes tensors.
DType promote(DType a, DType b);

enum class LossReduction : uint8_t { None, Sum, Mean };

/// Every argument that is no tensor; which ones an operator reads is said at each. A decision depends on all of them.
struct OpArgs {
  std::optional<Dims> dims;    ///< reductions (absent: all), permute, transpose (two)
  std::optional<int64_t> dim;  ///< softmax, cumsum, cat, stack, split, slice, select, squeeze (absent: all), ...
  Dims sizes;                  ///< view and reshape (one -1), expand (-1: as it is), split (one size, or all)
  int64_t start = 0;           ///< slice
  int64_t end = std::numeric_limits<int64_t>::max();
  int64_t step = 1;
  int64_t index = 0;            ///< select; chunk: how many; triu, tril: the diagonal
  int64_t normalized_dims = 1;  ///< layer_norm, rms_norm: how many last dimensions
  double value = 0;             ///< the number of a scalar operator; layer_norm, rms_norm: an epsilon (0: torch's)
  double p = 2;                 ///< norm
  bool keepdim = false;         ///< reductions
  bool inplace = false;         ///< pointwise: the result is the first operand
  bool causal = false;          ///< scaled_dot_product_attention
  bool linear_partials = true;  ///< matmul family: take P(sum|avg) operands without reducing them (the newer rule)
  bool implicit_replication = false;  ///< plain tensors of any size count as replicated
  LossReduction reduction = LossReduction::Mean;
  std::optional<DType> dtype;  ///< cast

  friend bool operator==(const OpArgs& a, const OpArgs& b);
  size_t hash() const;
};

/// A distributed tensor (`spec`, which must outlive the call), or a plain one by shape and dtype.
struct OpInput {
  const DTensorSpec* spec = nullptr;
  Dims shape;
  DType dtype = DType::Float32;

  OpInput(const DTensorSpec& s) : spec(&s) {}  // NOLINT(google-explicit-constructor): inputs are listed as specs
  OpInput(Dims plain_shape, DType plain_dtype) : shape(std::move(plain_shape)), dtype(plain_dtype) {}
};

struct OpCall {
  Op op = Op::Identity;
  SmallVector<OpInput, 4> inputs;
  OpArgs args;
};

struct InputDecision {
  DTensorSpec required;
  bool redistribute = false;  ///< the plan has steps
  RedistributePlan plan;      ///< from the input's own placements; a plain tensor starts as Replicate
};

/// A collective in the middle of an operator.
struct InnerCollective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  uint32_t mesh_dim = 0;
  ReduceOp op = ReduceOp::Sum;
  int64_t elements = 0;
};

struct OpDecision {
  Op op = Op::Identity;
  OpArgs args;  ///< normalised: dimensions from the front, sizes resolved, slices clamped
  SmallVector<InputDecision, 3> inputs;
  SmallVector<DTensorSpec, 1> outputs;
  SmallVector<InnerCollective, 3> inner;  ///< cross entropy over a sharded vocabulary: max, sum of exp, own logit
  bool alias = false;                     ///< the output is the first input's local tensor, no kernel runs
  bool and_over_ranks = false;            ///< the local truth value holds only if it does on every rank of the mesh
  std::optional<bool> constant;           ///< the result is this truth value; nothing runs
  double cost_us = 0;                     ///< what the cost model says of all redistributions

  uint32_t collectives() const;
  /// kind@mesh_dim[:op] in order: redistributions in argument order, then the inner ones.
  std::vector<std::string> collective_sequence() const;
};

/// \throws the kinds of errors.h; std::invalid_argument for a wrong number of inputs or an argument without meaning
OpDecision decide(const OpCall& call, const CostModel& cost);

/// What the model says of the operator itself on one rank, as if every shard were even.
double compute_cost(const CostModel& model, const OpDecision& decision);

/// `decide` and `plan_redistribute` with memory. Not thread-safe: rank threads take turns, one runs at a time.
class StrategyEngine {
 public:
  explicit StrategyEngine(std::shared_ptr<const CostModel> cost = std::make_shared<RingCostModel>());

  std::shared_ptr<const OpDecision> decide(const OpCall& call);
  /// \pre `target` is normalised
  std::shared_ptr<const RedistributePlan> plan(const DTensorSpec& source, const Placements& target,
                                               Legality legality = Legality::User);

  const CostModel& cost_model() const { return *m_cost; }
  void set_cost_model(std::shared_ptr<const CostModel> cost);  ///< forgets everything
  uint64_t hits() const { return m_hits; }
  uint64_t misses() const { return m_misses; }
  void clear();

 private:
  struct CachedDecision {
    Op op;
    OpArgs args;
    SmallVector<DTensorSpec, 3> specs;  // a plain input is a spec without a mesh
    std::shared_ptr<const OpDecision> decision;
  };
  struct CachedPlan {
    DTensorSpec source;
    Placements target;
    Legality legality;
    std::shared_ptr<const RedistributePlan> plan;
  };
  static bool matches(const CachedDecision& entry, const OpCall& call);

  std::shared_ptr<const CostModel> m_cost;
  std::unordered_multimap<size_t, CachedDecision> m_decisions;
  std::unordered_multimap<size_t, CachedPlan> m_plans;
  uint64_t m_hits = 0;
  uint64_t m_misses = 0;
};

}  // namespace ahbm::dtensor
