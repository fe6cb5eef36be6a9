// An executable of one layer; see CMakeLists.txt.
#ifdef AHBM_WITH_SYSTEMC
#include <systemc>
int sc_main(int, char**) {
  return static_cast<int>(sc_core::sc_delta_count());
}
#else
int main() {
  return 0;
}
#endif
