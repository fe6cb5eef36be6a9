// What must hold after every run, whatever its numbers are: nothing outside the buffers was written, no queue holds
// anything, no figure is beyond what the links can carry.
#pragma once

#include <string>
#include <vector>

#include "models/core/topology.h"
#include "runtime/device.h"
#include "runtime/tensor.h"

namespace ahbm::platform {

/// Bytes of a known pattern before and behind the buffers of one tensor on one SIP, in the HBM of every cube. They are
/// written and read by debug transport: no simulated time, no traffic.
class BufferGuards {
 public:
  /// Without data in the simulation guards take their place only.
  /// Takes the guards in front. Make the tensor next, then `enclose` it.
  BufferGuards(runtime::Device& device, SipId sip);
  ~BufferGuards();
  BufferGuards(const BufferGuards&) = delete;
  BufferGuards& operator=(const BufferGuards&) = delete;

  /// Takes the guards behind, the gap between the buffer's last byte and them included, and writes the pattern.
  void enclose(const runtime::Tensor& tensor);

  /// Empty when every guard is as it was written; else which byte next to which buffer is not.
  std::string damage() const;

 private:
  struct Region {
    Addr begin = 0;
    uint64_t bytes = 0;
    std::string where;
  };
  runtime::Device& m_device;
  const SipId m_sip;
  std::vector<Addr> m_blocks;  ///< to be given back
  std::vector<Region> m_regions;
};

/// Empty when every enabled queue pair of the machine is empty, has all its credits and what it sent has arrived, and
/// no PE has recorded an error; else the first finding. Reads registers by debug transport.
std::string unclean_queues(runtime::Device& device);

/// Empty when an all-reduce of `bytes` over the SIPs of `group` may have taken `time`: not less than the lower bound,
/// and a bus bandwidth of at most (sum of the bandwidths of the directed links between SIPs) / n. Else which is broken.
std::string impossible_figures(const SipGraph& graph, const std::vector<SipId>& group, uint64_t bytes, Ps time);

}  // namespace ahbm::platform
