// SystemC 2.3 needs a typedef in a module that declares processes with SC_METHOD/SC_THREAD; SystemC 3 deprecates the
// macro that makes it. One place to tell them apart.
#pragma once

#include <systemc>

#if defined(SC_VERSION_MAJOR) && SC_VERSION_MAJOR >= 3
#define AHBM_HAS_PROCESS(module)
#else
#define AHBM_HAS_PROCESS(module) SC_HAS_PROCESS(module)
#endif
