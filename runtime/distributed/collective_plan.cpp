#include "runtime/distributed/collective_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <unordered_set>

#include "ccl/kernel_arguments.h"
#include "ccl/select.h"
#include "runtime/context.h"

namespace ahbm::runtime::distributed {

namespace {

using ccl::Collective;
using ccl::CubeLayout;

CubeLayout cube_layout(const layout::Layout& l) {
  if (l.occupied_cubes() <= 1) return CubeLayout::Sharded;  // nothing to do between cubes
  if (l.replicated_over_cubes()) return CubeLayout::Replicated;
  return l.partial_over_cubes() ? CubeLayout::Partial : CubeLayout::Sharded;
}

Laid laid(const Tensor& t) {
  return {t.handle()->layout(), t.shape(), t.strided_view()};
}

/// The runs of every lane, by the rank whose they are.
template <typename RankOf>
std::vector<std::vector<std::vector<LaneRun>>> runs_by(const std::vector<Lane>& lanes, uint32_t ranks,
                                                       const RankOf& rank_of) {
  std::vector<std::vector<std::vector<LaneRun>>> out;
  for (const Lane& lane : lanes) {
    out.emplace_back(ranks);
    for (const LaneRun& run : lane.runs()) out.back()[rank_of(run.block)].push_back(run);
  }
  return out;
}

}  // namespace

ccl::CubeLayout cube_layout(const Tensor& tensor) {
  if (tensor.handle() == nullptr || tensor.handle()->shards().empty() || tensor.is_view()) return CubeLayout::Sharded;
  return cube_layout(tensor.handle()->layout());
}

/// The buffers that elements go through. Freed with the last launch that uses them.
struct CollectivePlan::Staging {
  std::weak_ptr<Device*> device;
  std::vector<Addr> buffers;
  ~Staging() {
    if (const auto alive = device.lock()) {
      for (const Addr a : buffers) (*alive)->free(a);
    }
  }
};

CollectivePlan::CollectivePlan(Context& context, GroupState& group, Operation& operation, const Choose& choose)
    : m_context(context),
      m_device(context.device()),
      m_group(group),
      m_op(operation),
      m_choose(choose),
      m_dtype(operation.call.dtype),
      m_wire(m_dtype),
      m_item(item_bytes(m_dtype)),
      m_wire_item(m_item),
      m_staging(std::make_shared<Staging>()) {
  m_ranks.assign(operation.calls.ranks());
  m_staging->device = m_device.weak();
  const Collective c = operation.call.collective;
  if (ccl::reduces(c) && group.settings.accumulate_fp32 && is_floating(m_dtype)) {
    m_wire = DType::Float32;
    m_wire_item = item_bytes(m_wire);
  }
  if (c == Collective::Barrier) {
    barrier();
    return;
  }
  collect();
  if (c == Collective::Reduce || c == Collective::ReduceScatter) fold_partial_inputs();
  if (c == Collective::AllReduce && !has_views()) {
    whole(distributed::cube_layout(call(0).inputs.front()));
  } else if ((c == Collective::Broadcast || c == Collective::Reduce) && !has_views()) {
    const CubeLayout kind = cube_layout(*m_ranks[0].inputs.front().layout);
    if (same_layout_everywhere() && kind != CubeLayout::Replicated) {
      whole(CubeLayout::Sharded);  // the partial pieces of a broadcast too: every cube's for itself
    } else {
      blocks();
    }
  } else if (c == Collective::AllToAll) {
    all_to_all();
  } else if (c == Collective::SendRecv) {
    point_to_point();
  } else {
    blocks();
  }
}

CollectivePlan::~CollectivePlan() = default;

/// The ranks' tensors and their layouts.
void CollectivePlan::collect() {
  using Known = std::unordered_set<const TensorHandle*>;
  const auto add = [](std::vector<Tensor>& to, Known& known, const Tensor& t) {
    if (known.insert(t.handle().get()).second) to.push_back(t);
  };
  Known known;
  for (const uint32_t r : m_ranks.ranks()) {
    RankPart& part = m_ranks[r];
    const Call& c = call(r);
    Known known_here;
    for (const Tensor& t : c.inputs) {
      part.inputs.push_back(laid(t));
      add(part.tensors, known_here, t);
    }
    for (const Tensor& t : c.outputs) {
      part.outputs.push_back(laid(t));
      add(part.tensors, known_here, t);
    }
    for (const Tensor& t : part.tensors) add(m_tensors, known, t);
  }
}

void CollectivePlan::fold_partial_inputs() {
  for (uint32_t r = 0; r < size(); ++r) {
    for (Laid& input : m_ranks[r].inputs) {
      const layout::Layout* const l = input.layout;
      if (!l->partial_over_cubes()) continue;
      if (l->occupied_cubes() > 1) {
        if (m_fold == nullptr) {
          for (const auto& [name, module] : m_context.algorithms().modules()) {
            if (module.collective != Collective::AllReduce || module.layouts.count(CubeLayout::Partial) == 0) continue;
            if (module.ops.count(m_op.call.op) == 0 || module.dtypes.count(m_dtype) == 0) continue;
            m_fold = &module;
          }
          if (m_fold == nullptr) {
            throw NotImplementedError(
                fmt::format("{} of a tensor that is partial over cubes: no algorithm sums {} over the cubes by {}",
                            m_op.call.name, ahbm::to_string(m_dtype), ahbm::to_string(m_op.call.op)));
          }
          m_fold_groups.resize(size());
        }
        ccl::Group& g = m_fold_groups[r];
        g.sips = {m_group.sips[r]};
        g.n_cubes = l->occupied_cubes();
        g.cube_w = m_group.facts.cube_w;
        g.cube_h = m_group.facts.cube_h;
        g.machine_sips = m_group.facts.sips;
      }
      DPPolicy policy = l->policy();
      policy.cube = CubePolicy::Replicate;
      m_folded.emplace_back(l->shape(), l->dtype(), policy, m_group.facts.cube_w * m_group.facts.cube_h,
                            m_device.config().pes);
      input.layout = &m_folded.back();
    }
  }
  // An output that is the input of a rank (reduce) has changed with it.
  for (uint32_t r = 0; r < size(); ++r) {
    if (m_op.call.collective == Collective::Reduce && !m_ranks[r].outputs.empty()) {
      m_ranks[r].outputs = m_ranks[r].inputs;
    }
  }
}

bool CollectivePlan::has_views() const {
  const auto is_view = [](const Laid& t) { return t.view != nullptr; };
  return std::any_of(m_ranks.values().begin(), m_ranks.values().end(), [&](const RankPart& part) {
    return std::any_of(part.inputs.begin(), part.inputs.end(), is_view) ||
           std::any_of(part.outputs.begin(), part.outputs.end(), is_view);
  });
}

bool CollectivePlan::same_layout_everywhere() const {
  const layout::Layout& first = *m_ranks[0].inputs.front().layout;
  DPPolicy policy = first.policy();
  policy.sips = SipScope::Own;
  for (const RankPart& part : m_ranks.values()) {
    DPPolicy other = part.inputs.front().layout->policy();
    other.sips = SipScope::Own;
    if (other != policy) return false;
  }
  return true;
}

void CollectivePlan::set_group(uint32_t n_cubes) {
  ccl::Group& group = m_lanes_group;
  group.sips = m_group.sips;
  group.n_cubes = std::max(1u, n_cubes);
  if (group.n_cubes > 1) {
    group.cube_w = m_group.facts.cube_w;
    group.cube_h = m_group.facts.cube_h;
  }
  group.topology = m_group.facts.topology;
  group.sip_w = m_group.facts.sip_w;
  group.sip_h = m_group.facts.sip_h;
  group.machine_sips = m_group.facts.sips;
  group.double_links = m_context.config().double_links;
  group.queue_pairs = m_context.config().ipcq.queue_pairs;
  if (!m_group.pes.empty()) {
    group.pes = m_group.pes;
    group.sips.clear();
    for (uint32_t r = 0; r < size(); ++r) group.sips.push_back(SipId{r});
    group.topology = SipTopology::FullyConnected;
    group.machine_sips = group.sip_w = size();
    group.sip_h = 1;
  }
  for (RankPart& part : m_ranks.values()) part.lanes.resize(group.n_cubes);
}

/// The module, the record, and what all lanes together need of connections and working memory.
void CollectivePlan::finish_shapes(std::vector<ccl::CollectiveShape> shapes, uint64_t counted) {
  const Collective c = m_op.call.collective;
  m_shapes = std::move(shapes);
  CollectiveRecord& record = *m_op.record;
  record.count = counted;
  record.bytes = counted * m_item;
  m_nothing = counted == 0 && c != Collective::Barrier;
  m_union = m_shapes.front();
  if (!m_union.counts.empty()) {
    for (size_t lane = 1; lane < m_shapes.size(); ++lane) {
      for (size_t i = 0; i < m_union.counts.size(); ++i) m_union.counts[i] += m_shapes[lane].counts[i];
    }
  } else {
    m_union.count = 0;
    for (const ccl::CollectiveShape& s : m_shapes) m_union.count += s.count;
  }
  record.layout = m_union.layout;
  if (m_op.call.module == nullptr && m_module == nullptr) {
    if (m_nothing) return;
    m_module = &m_choose(c, m_lanes_group, m_union, static_cast<double>(counted) * static_cast<double>(m_wire_item),
                         record.selection);
  } else if (m_module == nullptr) {
    m_module = m_op.call.module;
  }
  record.algorithm = m_module->name;
  if (m_nothing) return;
  const std::string refusal =
      ccl::refusal_of(m_context.algorithms(), *m_module, m_lanes_group, m_union, m_context.config());
  if (!refusal.empty()) {
    throw NotImplementedError(fmt::format("{}: algorithm {}", m_op.call.name, refusal));
  }
  record.ranks = m_lanes_group;
  record.shapes = m_shapes;
  if (!m_module->scratch_bytes) return;
  for (uint32_t lane = 0; lane < m_shapes.size(); ++lane) {
    const uint64_t bytes = m_module->scratch_bytes(m_lanes_group, m_shapes[lane]);
    if (bytes == 0 || !m_lane_used[lane]) continue;
    for (const uint32_t r : m_ranks.ranks()) {
      m_staging->buffers.push_back(allocate(r, lane, bytes));
      m_ranks[r].lanes[lane].buffers.scratch = m_staging->buffers.back();
    }
  }
}

PeLocation CollectivePlan::place(uint32_t rank, uint32_t cube) const {
  return m_group.pes.empty() ? PeLocation{m_group.sips[rank], CubeId{cube}, PeId{0}} : m_group.pes[rank];
}

Addr CollectivePlan::allocate(uint32_t rank, uint32_t cube, uint64_t bytes) {
  const PeLocation pe = place(rank, cube);
  return m_device.allocate(pe.sip, pe.cube, bytes);
}

Addr CollectivePlan::stage(uint32_t rank, uint32_t cube, uint64_t bytes) {
  m_staging->buffers.push_back(allocate(rank, cube, bytes));
  m_op.record->staged_bytes += bytes;
  return m_staging->buffers.back();
}

CopyList& CollectivePlan::before(uint32_t rank, uint32_t cube) {
  std::unique_ptr<CopyList>& list = m_ranks[rank].lanes[cube].before;
  if (list == nullptr) list = std::make_unique<CopyList>(m_item, m_wire_item);
  return *list;
}

CopyList& CollectivePlan::after(uint32_t rank, uint32_t cube) {
  std::unique_ptr<CopyList>& list = m_ranks[rank].lanes[cube].after;
  if (list == nullptr) list = std::make_unique<CopyList>(m_wire_item, m_item);
  return *list;
}

/// Elementwise, the same layout on every rank: a cube's buffer is reduced or sent as it lies, whatever its order.
void CollectivePlan::whole(CubeLayout kind) {
  const layout::Layout& l = *m_ranks[0].inputs.front().layout;
  set_group(l.occupied_cubes());
  std::vector<ccl::CollectiveShape> shapes;
  for (uint32_t c = 0; c < m_lanes_group.n_cubes; ++c) {
    ccl::CollectiveShape s;
    s.count = l.elements() == 0 ? 0 : l.cube_logical_elements(CubeId{c});
    s.root = m_op.call.root;
    s.dtype = m_wire;
    s.op = m_op.call.op;
    s.layout = kind;
    shapes.push_back(s);
    m_lane_used.push_back(true);
  }
  for (uint32_t r = 0; r < size() && l.elements() != 0; ++r) {
    const Tensor& tensor = call(r).inputs.front();
    const TensorHandle& handle = *tensor.handle();
    const SipId sip = m_group.sips[r];
    const bool receives = !call(r).outputs.empty();
    const bool gives = m_op.call.collective != Collective::Broadcast || m_op.call.root == r;
    for (uint32_t c = 0; c < m_lanes_group.n_cubes; ++c) {
      const uint64_t n = shapes[c].count;
      const Addr buffer = handle.cube_buffer(sip, CubeId{c});
      Addr address = buffer;
      if (m_wire != m_dtype && n != 0) {
        address = stage(r, c, n * m_wire_item);
        if (gives) before(r, c).add(buffer, address, n);
        if (receives) after(r, c).add(address, buffer, n);
      }
      ccl::CollectiveBuffers& b = m_ranks[r].lanes[c].buffers;
      b.input = address;
      b.output = receives ? address : 0;
      // The PEs' copies are renewed by PE 0 when its part is over: its launch queue keeps the order.
      const layout::Layout& own = handle.layout();
      if (!own.replicated_over_pes() || !receives || n == 0) continue;
      for (uint32_t p = 1; p < own.pes(); ++p) {
        after(r, c).add(address, handle.shard(sip, CubeId{c}, PeId{p}).address, n);
      }
    }
  }
  if (m_op.call.collective == Collective::Reduce) {  // for a checker of the order; the others' lanes are their buffers
    m_op.record->lanes = Side::cut(l, BlockCut::whole(l.elements())).lanes(m_lanes_group.n_cubes);
  }
  finish_shapes(std::move(shapes), l.elements());
}

/// Where a lane reads what its rank gives: in place, or from a staging buffer that is packed before.
CollectivePlan::Buffer CollectivePlan::input_buffer(uint32_t rank, uint32_t cube, const Side& side,
                                                    const std::vector<LaneRun>& runs) {
  struct Found {
    Addr address;
    uint64_t count;
    bool here;
  };
  std::vector<Found> pieces;
  uint64_t total = 0;
  const SipId sip = m_group.sips[rank];
  for (const LaneRun& run : runs) {
    side.for_each_piece(run, [&](const Side::Piece& p) {
      const Laid& t = m_ranks[rank].inputs[p.tensor];
      const uint32_t from = t.on_every_cube() && cube < t.layout->cubes() ? cube : p.cube;
      const TensorHandle& handle = *call(rank).inputs[p.tensor].handle();
      const Addr address = handle.cube_buffer(sip, CubeId{from}) + p.offset * m_item;
      total += p.count;
      if (!pieces.empty() && pieces.back().here == (from == cube) &&
          pieces.back().address + pieces.back().count * m_item == address) {
        pieces.back().count += p.count;
      } else {
        pieces.push_back({address, p.count, from == cube});
      }
    });
  }
  if (pieces.empty()) return {};
  if (pieces.size() == 1 && pieces.front().here && m_wire == m_dtype) return {pieces.front().address, false};
  const Addr staging = stage(rank, cube, total * m_wire_item);
  CopyList& list = before(rank, cube);
  uint64_t at = 0;
  for (const Found& p : pieces) {
    list.add(p.address, staging + at * m_wire_item, p.count);
    at += p.count;
  }
  return {staging, true};
}

/// Where a lane leaves what its rank receives: in place, or in a staging buffer (`reuse`, where there is one already)
/// that is unpacked after; and every other copy of a replicated tensor.
CollectivePlan::Buffer CollectivePlan::output_buffer(uint32_t rank, uint32_t cube, const Side& side,
                                                     const std::vector<LaneRun>& runs, Buffer reuse) {
  struct Found {
    size_t tensor;
    uint32_t cube;
    uint64_t offset;
    uint64_t count;
  };
  std::vector<Found> pieces;
  uint64_t total = 0;
  const SipId sip = m_group.sips[rank];
  for (const LaneRun& run : runs) {
    side.for_each_piece(run, [&](const Side::Piece& p) {
      total += p.count;
      if (!pieces.empty() && pieces.back().tensor == p.tensor && pieces.back().cube == p.cube &&
          pieces.back().offset + pieces.back().count == p.offset) {
        pieces.back().count += p.count;
      } else {
        pieces.push_back({p.tensor, p.cube, p.offset, p.count});
      }
    });
  }
  if (pieces.empty()) return reuse;
  const auto address_of = [&](const Found& p, uint32_t c, uint32_t pe) {
    const TensorHandle& handle = *call(rank).outputs[p.tensor].handle();
    const layout::Layout& l = *m_ranks[rank].outputs[p.tensor].layout;
    const Addr base =
        l.replicated_over_pes() ? handle.shard(sip, CubeId{c}, PeId{pe}).address : handle.cube_buffer(sip, CubeId{c});
    return base + p.offset * m_item;
  };
  Buffer out = reuse;
  const Found& first = pieces.front();
  const Laid& holder = m_ranks[rank].outputs[first.tensor];
  const bool here = holder.on_every_cube() ? cube < holder.layout->cubes() : first.cube == cube;
  if (out.address == 0 && pieces.size() == 1 && here && m_wire == m_dtype) {
    out = {address_of(first, cube, 0), false};
  } else if (out.address == 0) {
    out = {stage(rank, cube, total * m_wire_item), true};
  }
  uint64_t at = 0;
  for (const Found& p : pieces) {
    const Laid& t = m_ranks[rank].outputs[p.tensor];
    const layout::Layout& l = *t.layout;
    const uint32_t from = t.on_every_cube() ? 0 : p.cube, to = t.on_every_cube() ? l.cubes() : p.cube + 1;
    const uint32_t pes = l.replicated_over_pes() ? l.pes() : 1;
    for (uint32_t c = from; c < to; ++c) {
      for (uint32_t pe = 0; pe < pes; ++pe) {
        const Addr destination = address_of(p, c, pe);
        const Addr source = out.address + at * m_wire_item;
        if (destination != source) after(rank, cube).add(source, destination, p.count);
      }
    }
    at += p.count;
  }
  return out;
}

/// Everything that is no all-to-all: block r is what rank r gives or gets; with one block, what the root gives or gets;
/// of an all_reduce of views, what every rank has.
void CollectivePlan::blocks() {
  const Collective c = m_op.call.collective;
  const uint32_t n = size(), root = m_op.call.root;
  const bool one_block = c == Collective::Broadcast || c == Collective::Reduce || c == Collective::AllReduce;
  const bool big_is_output = c == Collective::AllGather || c == Collective::Gather;
  const bool small_is_input = big_is_output;

  for (const RankPart& part : m_ranks.values()) {
    for (const auto* layouts : {&part.inputs, &part.outputs}) {
      for (const Laid& t : *layouts) {
        const layout::Layout* const l = t.layout;
        if (cube_layout(*l) != CubeLayout::Partial) continue;
        std::string others;
        for (const auto* all : {&part.inputs, &part.outputs}) {
          for (const Laid& o : *all) {
            if (o.layout != l && others.empty())
              others = fmt::format(", the other tensor is {}", layout::to_string(o.layout->policy()));
          }
        }
        throw NotImplementedError(
            fmt::format("{}: a tensor is partial over cubes ({}){}: all_reduce it first, or give both tensors another "
                        "cube policy",
                        m_op.call.name, layout::to_string(l->policy()), others));
      }
    }
  }

  // The side that holds all blocks decides which cube carries what, so that it is used in place.
  const uint32_t reference = c == Collective::Gather || c == Collective::Scatter ? root : 0;
  const auto big_side = [&](uint32_t r) {
    const std::vector<Laid>& all = big_is_output ? m_ranks[r].outputs : m_ranks[r].inputs;
    const Laid& only = all.front();
    if (one_block) return Side::cut(only, BlockCut::whole(only.elements()));
    if (all.size() > 1 || c == Collective::Gather || c == Collective::Scatter) return Side::list(all);
    const layout::Shape& shape = *only.shape;
    const size_t dim = m_op.call.dim;
    if (dim < shape.size() && shape[dim] % n == 0) return Side::cut(only, BlockCut::equal(shape, dim, n));
    return Side::cut(only, BlockCut{1, std::vector<uint64_t>(n, only.elements() / n)});  // stacked: rows do not matter
  };
  const std::vector<Laid>& big = big_is_output ? m_ranks[reference].outputs : m_ranks[reference].inputs;
  const Side reference_side = big_side(reference);
  uint64_t total = 0;
  uint32_t n_lanes = 0;
  bool sharded = true;
  for (const Laid& t : big) {
    total += t.elements();
    n_lanes = std::max(n_lanes, t.layout->occupied_cubes());
    sharded = sharded && !t.on_every_cube();
  }
  n_lanes = std::max(1u, n_lanes);
  const uint32_t n_blocks = one_block ? 1 : n;
  const std::vector<Lane> lanes =
      sharded ? reference_side.lanes(n_lanes) : even_lanes(std::vector<uint64_t>(n_blocks, total / n_blocks), n_lanes);
  set_group(n_lanes);
  m_lane_used.assign(n_lanes, true);

  std::vector<ccl::CollectiveShape> shapes(n_lanes);
  for (uint32_t lane = 0; lane < n_lanes; ++lane) {
    ccl::CollectiveShape& s = shapes[lane];
    s.root = root;
    s.dtype = m_wire;
    s.op = m_op.call.op;
    s.count = lanes[lane].count(0);
    bool equal = true;
    for (uint32_t b = 1; b < n_blocks; ++b) equal = equal && lanes[lane].count(b) == s.count;
    if (!equal) {
      for (uint32_t b = 0; b < n_blocks; ++b) s.counts.push_back(lanes[lane].count(b));
      s.count = *std::max_element(s.counts.begin(), s.counts.end());
    }
    m_lane_used[lane] = lanes[lane].count() != 0;
  }
  // Lanes with and without counts do not mix: the connections are asked for once.
  const bool any_counts = std::any_of(shapes.begin(), shapes.end(), [](const auto& s) { return !s.counts.empty(); });
  for (uint32_t lane = 0; any_counts && lane < n_lanes; ++lane) {
    if (shapes[lane].counts.empty()) shapes[lane].counts.assign(n_blocks, shapes[lane].count);
  }

  std::vector<std::vector<std::vector<LaneRun>>> own_runs;  // by lane and block
  if (!one_block) own_runs = runs_by(lanes, n, [](uint32_t block) { return block; });
  for (uint32_t r = 0; r < n && total != 0; ++r) {
    const bool has_big = c == Collective::Gather || c == Collective::Scatter ? r == root : true;
    for (uint32_t lane = 0; lane < n_lanes; ++lane) {
      const std::vector<LaneRun>& runs = lanes[lane].runs();
      ccl::CollectiveBuffers& b = m_ranks[r].lanes[lane].buffers;
      if (one_block) {
        const Side side = big_side(r);
        Buffer in;
        if (ccl::reduces(c) || r == root) in = input_buffer(r, lane, side, runs);
        Buffer out;
        if (c == Collective::AllReduce) {
          out = output_buffer(r, lane, side, runs, in);  // in place
        } else if (c == Collective::Reduce) {
          if (r == root) out = output_buffer(r, lane, side, runs, {});
        } else if (r == root) {
          out = in;  // in place; the root's other copies are what they were
        } else {
          out = output_buffer(r, lane, side, runs, {});
        }
        b.input = in.address != 0 ? in.address : out.address;
        b.output = out.address;
        continue;
      }
      const std::vector<LaneRun>& own = own_runs[lane][r];
      const Side small = Side::single(small_is_input ? m_ranks[r].inputs.front() : m_ranks[r].outputs.front(), r);
      if (small_is_input) {
        b.input = input_buffer(r, lane, small, own).address;
        if (has_big) b.output = output_buffer(r, lane, big_side(r), runs, {}).address;
      } else {
        if (has_big) b.input = input_buffer(r, lane, big_side(r), runs).address;
        b.output = output_buffer(r, lane, small, own, {}).address;
      }
    }
  }
  m_op.record->lanes = lanes;
  finish_shapes(std::move(shapes), total);
}

void CollectivePlan::all_to_all() {
  const uint32_t n = size();
  std::vector<uint64_t> sent(size_t{n} * n);
  uint64_t largest = 0;
  for (uint32_t i = 0; i < n; ++i) {
    uint64_t own = 0;
    for (uint32_t j = 0; j < n; ++j) {
      const uint64_t gives = call(i).input_splits[j], takes = call(j).output_splits[i];
      if (gives != takes) {
        throw std::runtime_error(fmt::format("op #{} ({}): rank {} sends {} elements to rank {}, which expects {}",
                                             m_op.seq, m_op.call.name, m_group.global_ranks[i], gives,
                                             m_group.global_ranks[j], takes));
      }
      sent[size_t{i} * n + j] = gives;
      own += gives;
    }
    largest = std::max(largest, own);
  }
  uint32_t n_lanes = 1;
  for (const RankPart& part : m_ranks.values()) {
    for (const auto* layouts : {&part.inputs, &part.outputs}) {
      for (const Laid& t : *layouts) {
        if (cube_layout(*t.layout) == CubeLayout::Partial) {
          throw NotImplementedError(fmt::format("{}: a tensor is partial over cubes ({}): all_reduce it first",
                                                m_op.call.name, layout::to_string(t.layout->policy())));
        }
        n_lanes = std::max(n_lanes, t.layout->occupied_cubes());
      }
    }
  }
  const std::vector<Lane> lanes = even_lanes(sent, n_lanes);
  set_group(n_lanes);
  std::vector<ccl::CollectiveShape> shapes(n_lanes);
  for (uint32_t lane = 0; lane < n_lanes; ++lane) {
    ccl::CollectiveShape& s = shapes[lane];
    s.dtype = m_dtype;
    for (uint32_t b = 0; b < n * n; ++b) s.counts.push_back(lanes[lane].count(b));
    s.count = *std::max_element(s.counts.begin(), s.counts.end());
    m_lane_used.push_back(lanes[lane].count() != 0);
  }
  const bool equal = std::all_of(shapes.begin(), shapes.end(), [](const ccl::CollectiveShape& s) {
    return std::all_of(s.counts.begin(), s.counts.end(), [&](uint64_t v) { return v == s.count; });
  });
  if (equal) {
    for (ccl::CollectiveShape& s : shapes) s.counts.clear();
  }
  const auto given = runs_by(lanes, n, [n](uint32_t pair) { return pair / n; });
  const auto taken = runs_by(lanes, n, [n](uint32_t pair) { return pair % n; });
  for (uint32_t r = 0; r < n && largest != 0; ++r) {
    const Side input = Side::cut(m_ranks[r].inputs.front(), BlockCut{1, call(r).input_splits});
    const Side output = Side::cut(m_ranks[r].outputs.front(), BlockCut{1, call(r).output_splits});
    for (uint32_t lane = 0; lane < n_lanes; ++lane) {
      std::vector<LaneRun> gives = given[lane][r], takes = taken[lane][r];
      for (LaneRun& run : gives) run.block %= n;
      for (LaneRun& run : takes) run.block /= n;
      ccl::CollectiveBuffers& b = m_ranks[r].lanes[lane].buffers;
      b.input = input_buffer(r, lane, input, gives).address;
      b.output = output_buffer(r, lane, output, takes, {}).address;
    }
  }
  m_op.record->lanes = lanes;
  finish_shapes(std::move(shapes), largest);
}

void CollectivePlan::point_to_point() {
  const uint32_t from = m_op.call.root, to = m_op.call.peer;
  const Laid& sent = m_ranks[from].inputs.front();
  const Laid& received = m_ranks[to].outputs.front();
  const layout::Layout& in = *sent.layout;
  const layout::Layout& out = *received.layout;
  DPPolicy sender = in.policy(), receiver = out.policy();
  sender.sips = receiver.sips = SipScope::Own;
  const bool alike = sender == receiver && in.shape() == out.shape() && !in.replicated_over_cubes() && !has_views();
  if (!alike && (cube_layout(in) == CubeLayout::Partial || cube_layout(out) == CubeLayout::Partial)) {
    throw NotImplementedError(
        fmt::format("send_recv: the sender's tensor is {}, the receiver's {}: a partial tensor goes to one of the same "
                    "policy only",
                    layout::to_string(in.policy()), layout::to_string(out.policy())));
  }
  const uint64_t total = sent.elements();
  const uint32_t n_lanes = std::max({1u, out.occupied_cubes(), alike ? 1u : in.occupied_cubes()});
  set_group(n_lanes);
  std::vector<ccl::CollectiveShape> shapes(n_lanes);
  std::vector<Lane> lanes;
  const Side source = Side::cut(sent, BlockCut::whole(total)), target = Side::cut(received, BlockCut::whole(total));
  if (!alike) {
    lanes = !received.on_every_cube() ? target.lanes(n_lanes)
            : !sent.on_every_cube()   ? source.lanes(n_lanes)
                                      : even_lanes({total}, n_lanes);
  }
  for (uint32_t lane = 0; lane < n_lanes; ++lane) {
    ccl::CollectiveShape& s = shapes[lane];
    s.root = from;
    s.peer = to;
    s.dtype = m_dtype;
    s.count = total == 0 ? 0 : alike ? in.cube_logical_elements(CubeId{lane}) : lanes[lane].count();
    m_lane_used.push_back(s.count != 0);
    if (s.count == 0) continue;
    if (!alike) {
      m_ranks[from].lanes[lane].buffers.input = input_buffer(from, lane, source, lanes[lane].runs()).address;
      m_ranks[to].lanes[lane].buffers.output = output_buffer(to, lane, target, lanes[lane].runs(), {}).address;
      continue;
    }
    const TensorHandle& handle = *call(to).outputs.front().handle();
    const SipId sip = m_group.sips[to];
    m_ranks[from].lanes[lane].buffers.input =
        call(from).inputs.front().handle()->cube_buffer(m_group.sips[from], CubeId{lane});
    const Addr buffer = m_ranks[to].lanes[lane].buffers.output = handle.cube_buffer(sip, CubeId{lane});
    for (uint32_t p = 1; out.replicated_over_pes() && p < out.pes(); ++p) {
      after(to, lane).add(buffer, handle.shard(sip, CubeId{lane}, PeId{p}).address, s.count);
    }
  }
  m_op.record->lanes = lanes;
  finish_shapes(std::move(shapes), total);
}

void CollectivePlan::barrier() {
  set_group(1);
  m_lane_used.assign(1, true);
  ccl::CollectiveShape s;
  s.dtype = m_dtype;
  finish_shapes({s}, 0);
}

void CollectivePlan::connect() {
  uint32_t made = 0;
  m_links = &m_group.connections->table(*m_module, m_lanes_group, m_union, made);
  for (ccl::CollectiveShape& s : m_shapes) s.message_bytes = m_links->message_bytes();
  m_op.record->shapes = m_shapes;
  if (m_fold != nullptr) {
    m_fold_links.resize(size());
    for (uint32_t r = 0; r < size(); ++r) {
      if (m_fold_groups[r].sips.empty()) continue;
      m_fold_links[r] = &m_group.connections->table(*m_fold, m_fold_groups[r], {}, made);
    }
  }
  m_op.record->connections = made;
}

std::vector<SipId> CollectivePlan::sips() const {
  std::set<SipId> out;
  for (const uint32_t r : m_ranks.ranks()) out.insert(m_group.sips[r]);
  return {out.begin(), out.end()};
}

LaunchRequest CollectivePlan::request(const std::string& kernel, uint32_t rank) const {
  LaunchRequest r;
  r.kernel = kernel;
  r.keep_alive.push_back(m_staging);
  for (const Tensor& t : m_ranks[rank].tensors) r.keep_alive.push_back(t.handle());
  return r;
}

LaunchRequest CollectivePlan::fold_request(uint32_t rank) const {
  const ccl::Group& group = m_fold_groups[rank];
  LaunchRequest fold = request(m_fold->kernel_name, rank);
  fold.group = m_group.id;
  fold.seq = m_op.seq;
  for (const Tensor& t : call(rank).inputs) {
    for (uint32_t c = 0; c < group.n_cubes; ++c) {
      const layout::Layout& l = t.handle()->layout();
      PeLaunch pe;
      pe.pe = {m_group.sips[rank], CubeId{c}, PeId{0}};
      ccl::CollectiveShape s;
      s.count = l.cube_logical_elements(CubeId{c});
      s.dtype = m_dtype;
      s.op = m_op.call.op == ReduceOp::Avg ? ReduceOp::Sum : m_op.call.op;  // the pieces are summands
      s.layout = CubeLayout::Partial;
      const Addr buffer = t.handle()->cube_buffer(m_group.sips[rank], CubeId{c});
      pe.args = ccl::pack_arguments(*m_fold, group, 0, {buffer, buffer, 0}, s);
      pe.links = m_fold_links[rank]->of(0, c);
      pe.program.program_cube = c;
      pe.program.program_cubes = group.n_cubes;
      fold.pes.push_back(std::move(pe));
    }
  }
  return fold;
}

void CollectivePlan::add_copies(bool before, std::vector<LaunchRequest>& out, std::vector<uint32_t>& ranks) const {
  const DType from = before ? m_dtype : m_wire, to = before ? m_wire : m_dtype;
  for (const uint32_t r : m_ranks.ranks()) {
    std::vector<LaunchRequest> copies;  // one after another
    for (uint32_t c = 0; c < m_ranks[r].lanes.size(); ++c) {
      const LanePart& lane = m_ranks[r].lanes[c];
      const CopyList* list = before ? lane.before.get() : lane.after.get();
      if (list == nullptr) continue;
      size_t round = 0;
      for (std::vector<uint64_t>& args : list->arguments(from, to)) {
        if (copies.size() == round) copies.push_back(request("copy_blocks", r));
        PeLaunch pe;
        pe.pe = place(r, c);
        pe.args = std::move(args);
        copies[round++].pes.push_back(std::move(pe));
      }
    }
    for (LaunchRequest& copy : copies) {
      out.push_back(std::move(copy));
      ranks.push_back(r);
    }
  }
}

std::vector<LaunchRequest> CollectivePlan::requests(size_t stage, std::vector<uint32_t>& ranks) const {
  std::vector<LaunchRequest> out;
  if (m_fold != nullptr && stage == 0) {
    for (uint32_t r = 0; r < size(); ++r) {
      if (m_fold_groups[r].sips.empty()) continue;
      out.push_back(fold_request(r));
      ranks.push_back(r);
    }
    return out;
  }
  add_copies(true, out, ranks);
  for (const uint32_t r : m_ranks.ranks()) {
    LaunchRequest main = request(m_module->kernel_name, r);
    main.group = m_group.id;
    main.seq = m_op.seq;
    for (uint32_t c = 0; c < m_lanes_group.n_cubes; ++c) {
      if (m_lane_used[c]) main.pes.push_back(pe_launch(r, c));
    }
    if (main.pes.empty()) continue;
    out.push_back(std::move(main));
    ranks.push_back(r);
  }
  add_copies(false, out, ranks);
  return out;
}

std::vector<LaunchRequest> CollectivePlan::batch(const std::vector<std::unique_ptr<CollectivePlan>>& plans,
                                                 std::vector<uint32_t>& ranks) {
  std::vector<LaunchRequest> out;
  const CollectivePlan& first = *plans.front();
  for (const auto& plan : plans) plan->add_copies(true, out, ranks);
  std::map<uint32_t, std::vector<uint32_t>> steps;  // by rank: indices of the plans that it takes part in
  for (uint32_t step = 0; step < plans.size(); ++step) {
    for (const uint32_t r : plans[step]->m_ranks.ranks()) steps[r].push_back(step);
  }
  for (const auto& [r, own_steps] : steps) {
    LaunchRequest main;
    std::map<uint32_t, std::vector<ccl::Transfer>> transfers;  // by cube
    std::map<uint32_t, std::vector<launch::LinkEntry>> links;
    for (const uint32_t step : own_steps) {
      const CollectivePlan& plan = *plans[step];
      LaunchRequest own = plan.request(plan.m_module->kernel_name, r);
      main.kernel = own.kernel;
      main.keep_alive.insert(main.keep_alive.end(), own.keep_alive.begin(), own.keep_alive.end());
      for (uint32_t c = 0; c < plan.m_lanes_group.n_cubes; ++c) {
        if (!plan.m_lane_used[c]) continue;
        const ccl::CollectiveShape& shape = plan.m_shapes[c];
        const ccl::CollectiveBuffers& buffers = plan.m_ranks[r].lanes[c].buffers;
        ccl::Transfer t;
        t.sends = shape.root == r;
        t.address = t.sends ? buffers.input : buffers.output;
        t.count = shape.count;
        t.dtype = shape.dtype;
        t.dir = tl::peer_dir(t.sends ? shape.peer : shape.root);
        t.step = step;
        transfers[c].push_back(t);
        for (const launch::LinkEntry& e : plan.m_links->of(r, c)) {
          auto& known = links[c];
          const bool there = std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.dir == e.dir; });
          if (!there) known.push_back(e);
        }
      }
    }
    if (transfers.empty()) continue;
    main.group = first.m_group.id;
    main.seq = first.m_op.seq;
    for (const auto& [c, list] : transfers) {
      PeLaunch pe;
      pe.pe = first.place(r, c);
      pe.args = ccl::pack_transfers(first.m_lanes_group, r, list, 0);
      pe.links = links[c];
      pe.program.program_rank = r;
      pe.program.program_ranks = first.size();
      pe.program.program_cube = c;
      pe.program.program_cubes = transfers.rbegin()->first + 1;
      main.pes.push_back(std::move(pe));
    }
    out.push_back(std::move(main));
    ranks.push_back(r);
  }
  for (const auto& plan : plans) plan->add_copies(false, out, ranks);
  return out;
}

PeLaunch CollectivePlan::pe_launch(uint32_t rank, uint32_t cube) const {
  PeLaunch pe;
  pe.pe = place(rank, cube);
  pe.args = ccl::pack_arguments(*m_module, m_lanes_group, rank, m_ranks[rank].lanes[cube].buffers, m_shapes[cube]);
  pe.links = m_links->of(rank, cube);
  pe.program.program_rank = rank;
  pe.program.program_ranks = size();
  pe.program.program_cube = cube;
  pe.program.program_cubes = m_lanes_group.n_cubes;
  return pe;
}

void CollectivePlan::stage_done(size_t /*stage*/) {
  for (const uint32_t r : m_ranks.ranks()) {
    for (const Tensor& t : call(r).inputs) t.handle()->become_replicated();
  }
}

}  // namespace ahbm::runtime::distributed
