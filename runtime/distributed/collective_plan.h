// What an operation launches: which lanes carry which elements, which buffers the kernels get, what is packed before
// and unpacked after, and the launches of every rank. See lane_plan.h for lanes and staging.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "ccl/algorithm.h"
#include "runtime/distributed/lane_plan.h"
#include "runtime/distributed/process_group.h"

namespace ahbm::runtime {
class Context;
}

namespace ahbm::runtime::distributed {

/// How a tensor lies on its cubes, as an all_reduce goes about it: Sharded for one cube, for a tensor without a handle,
/// and for a view, whose copies are renewed rather than reduced together.
ccl::CubeLayout cube_layout(const Tensor& tensor);

class CollectivePlan {
 public:
  /// Chooses the module of a collective; throws when there is none.
  using Choose = std::function<const ccl::AlgorithmModule&(
      ccl::Collective, const ccl::Group&, const ccl::CollectiveShape&, double bytes, std::string& why)>;

  /// Plans and fills the operation's record. \pre every rank has called. \throws std::runtime_error for splits that
  /// differ between ranks, NotImplementedError for layouts or groups that nothing can do
  CollectivePlan(Context& context, GroupState& group, Operation& operation, const Choose& choose);
  ~CollectivePlan();
  CollectivePlan(const CollectivePlan&) = delete;
  CollectivePlan& operator=(const CollectivePlan&) = delete;

  /// There is no element to move.
  bool nothing() const { return m_nothing; }
  /// Makes the missing connections; takes simulated time.
  void connect();
  std::vector<SipId> sips() const;
  const std::vector<Tensor>& tensors() const { return m_tensors; }
  const std::vector<Tensor>& tensors(uint32_t rank) const { return m_ranks[rank].tensors; }

  /// Stages follow one another: the kernels of the next start when all of the one before have completed.
  size_t stages() const { return m_fold ? 2 : 1; }
  /// The launches of a stage; `ranks` gets the group rank of each.
  std::vector<LaunchRequest> requests(size_t stage, std::vector<uint32_t>& ranks) const;
  /// The stage's kernels have completed.
  void stage_done(size_t stage);

  /// Of several point-to-point transfers together: one kernel per rank does all of its part. \pre connected
  /// \param plans  in an order that all ranks have in common  \param ranks  as of `requests`
  static std::vector<LaunchRequest> batch(const std::vector<std::unique_ptr<CollectivePlan>>& plans,
                                          std::vector<uint32_t>& ranks);

 private:
  using Call = DistributedContext::Call;
  struct Staging;
  /// What one rank does on one lane.
  struct LanePart {
    ccl::CollectiveBuffers buffers;
    std::unique_ptr<CopyList> before, after;
  };
  struct RankPart {
    std::vector<Tensor> tensors;
    std::vector<Laid> inputs, outputs;  ///< partial inputs as they are after the fold
    std::vector<LanePart> lanes;
  };
  struct Buffer {
    Addr address = 0;
    bool staged = false;
  };

  const Call& call(uint32_t rank) const { return m_op.calls[rank]; }
  uint32_t size() const { return m_group.size(); }
  void collect();
  void fold_partial_inputs();
  void whole(ccl::CubeLayout layout);
  bool has_views() const;
  bool same_layout_everywhere() const;
  void blocks();
  void all_to_all();
  void point_to_point();
  void barrier();
  void set_group(uint32_t n_cubes);
  void finish_shapes(std::vector<ccl::CollectiveShape> shapes, uint64_t bytes_elements);
  /// The PE that does a rank's part on a lane.
  PeLocation place(uint32_t rank, uint32_t cube) const;
  Addr allocate(uint32_t rank, uint32_t cube, uint64_t bytes);
  Addr stage(uint32_t rank, uint32_t cube, uint64_t bytes);
  Buffer input_buffer(uint32_t rank, uint32_t cube, const Side& side, const std::vector<LaneRun>& runs);
  Buffer output_buffer(uint32_t rank, uint32_t cube, const Side& side, const std::vector<LaneRun>& runs, Buffer reuse);
  CopyList& before(uint32_t rank, uint32_t cube);
  CopyList& after(uint32_t rank, uint32_t cube);
  PeLaunch pe_launch(uint32_t rank, uint32_t cube) const;
  LaunchRequest request(const std::string& kernel, uint32_t rank) const;
  /// The launches that pack (before) or unpack, one per rank that has something to do.
  void add_copies(bool before, std::vector<LaunchRequest>& out, std::vector<uint32_t>& ranks) const;
  LaunchRequest fold_request(uint32_t rank) const;

  Context& m_context;
  Device& m_device;
  GroupState& m_group;
  Operation& m_op;
  const Choose& m_choose;
  const DType m_dtype;
  DType m_wire;  ///< of staging buffers and messages
  uint64_t m_item, m_wire_item;
  bool m_nothing = false;
  std::vector<Tensor> m_tensors;
  PerRank<RankPart> m_ranks;  ///< of those that take part
  std::deque<layout::Layout> m_folded;
  std::shared_ptr<Staging> m_staging;
  const ccl::AlgorithmModule* m_module = nullptr;
  ccl::Group m_lanes_group;  ///< as the module sees it
  std::vector<ccl::CollectiveShape> m_shapes;
  ccl::CollectiveShape m_union;  ///< of all lanes, for the connections
  std::vector<bool> m_lane_used;
  const LinkTable* m_links = nullptr;
  /// The sum over the cubes that partial inputs need first.
  const ccl::AlgorithmModule* m_fold = nullptr;
  std::vector<ccl::Group> m_fold_groups;       ///< by rank
  std::vector<const LinkTable*> m_fold_links;  ///< by rank
};

}  // namespace ahbm::runtime::distributed
