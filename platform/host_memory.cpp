#include "platform/host_memory.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdlib>

namespace ahbm::platform {

void prefer_huge_pages_for_heap() {
#ifdef __GLIBC__
  // The C library takes the heap in steps. One large step, of which only what is touched costs memory, can be advised
  // as a whole. What is made last - the state of running kernels - is what is used most, so it is as large as mallopt
  // allows.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uint64_t host = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * page;
  const int step = static_cast<int>(std::min<uint64_t>(host / 2, INT_MAX / 2 + 1));
  const auto begin = reinterpret_cast<uintptr_t>(sbrk(0));
  mallopt(M_TOP_PAD, step);
  mallopt(M_MMAP_THRESHOLD, 4 << 20);          // what mallopt would otherwise no longer adapt
  void* volatile more = std::malloc(1 << 20);  // than what is left of the first, small step; volatile: not left out
  std::free(more);
  const auto end = reinterpret_cast<uintptr_t>(sbrk(0));
  mallopt(M_TOP_PAD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_MXFAST, 0);  // small free blocks, kept apart, are gone through for every large one that is taken
  const uintptr_t first = (begin + page - 1) / page * page;
  if (end > first) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}

}  // namespace ahbm::platform
