// How the program asks the host for memory. For programs (`main`), not for libraries: it sets up the process.
#pragma once

namespace ahbm::platform {

/// Asks the host to back the heap with huge pages. A machine with a thousand busy PEs works on a hundred megabytes in
/// small pieces, and with pages of 4 KiB every look at one of them walks the page tables as well: without this a
/// timing-only all-reduce of 512 SIPs takes half as long again. Call it before anything large is built; a hint, so
/// nothing depends on whether the host follows.
void prefer_huge_pages_for_heap();

}  // namespace ahbm::platform
