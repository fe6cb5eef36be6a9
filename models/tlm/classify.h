// Which virtual channel a message travels on when its initiator does not say so (a foreign module knows nothing of
// channels): doorbell NOTIFY and CREDIT and the completion mailbox use the control channel, everything else is data.
#pragma once

#include "models/core/address_map.h"
#include "models/core/ipcq_protocol.h"
#include "models/tlm/transit.h"

#include <tlm>

namespace ahbm::models {

inline Channel classify(const Decoded& d, bool is_write) {
  if (!is_write) return Channel::Data;
  if (d.region == Region::Mailbox) return Channel::Control;
  return d.region == Region::Doorbell && d.offset < ipcq::kPush ? Channel::Control : Channel::Data;
}

/// For a transaction of a foreign initiator (TransitScope::foreign()), at the first module of ours that sees it.
inline void classify_foreign(const tlm::tlm_generic_payload& trans, const MapShape& shape, Transit& transit) {
  transit.channel = classify(decode(trans.get_address(), shape), trans.is_write());
}

}  // namespace ahbm::models
