#include "models/core/launch.h"

namespace ahbm::launch {

const char* to_string(Status s) {
  switch (s) {
    case Status::Ok:
      return "ok";
    case Status::UnknownKernel:
      return "unknown kernel";
    case Status::KernelThrew:
      return "the kernel threw";
    case Status::BadAddress:
      return "bad address";
    case Status::Protocol:
      return "protocol error";
    case Status::Aborted:
      return "aborted";
    case Status::BadArguments:
      return "bad arguments";
  }
  return "unknown status";
}

}  // namespace ahbm::launch
