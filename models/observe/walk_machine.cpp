#include "models/observe/walk_machine.h"

#include <string>

#include "models/pe/dma.h"
#include "models/pe/tcm.h"

namespace ahbm::observe {

using namespace models;

namespace {

void walk_pe(Pe& pe, uint32_t flat, const MachineVisitor& v) {
  const std::string path = pe.name();
  if (v.pe) v.pe(path, pe, flat);
  if (!v.hop) return;
  v.hop(path + ".dma.out", Place::Port, pe.dma().out_hop());
  v.hop(path + ".dma.in", Place::Port, pe.dma().in_hop());
  v.hop(path + ".tcm", Place::Port, pe.tcm().port());
}

void walk_cube(System& system, Cube& cube, SipId sip, CubeId id, const MachineVisitor& v) {
  if (v.memory && cube.has_hbm()) v.memory(cube.hbm().name(), cube.hbm());
  if (v.hop) {
    using Port = Crossbar::Port;
    Crossbar& x = cube.crossbar;
    v.hop(x.mesh_out.name(), Place::Port, x.port_hop(Port::Mesh));
    v.hop(x.spare_out.name(), Place::Port, x.port_hop(Port::Spare));
    v.hop(x.hbm_out.name(), Place::Port, x.port_hop(Port::Hbm));
    v.hop(x.sfr_out.name(), Place::Port, x.port_hop(Port::Sfr));
    for (uint32_t p = 0; p < cube.pes(); ++p) v.hop(x.pe_out(PeId{p}).name(), Place::Port, x.pe_hop(PeId{p}));
  }
  for (uint32_t p = 0; p < cube.pes(); ++p) {
    walk_pe(cube.pe(PeId{p}), system.config().flat_pe({sip, id, PeId{p}}), v);
  }
}

void walk_sip(System& system, SipId id, const MachineVisitor& v) {
  Sip& sip = system.sip(id);
  if (v.hop) {
    v.hop(system.host_bridge.sip_out(id).name(), Place::Link, system.host_bridge.hop_down(id));
    v.hop(system.host_bridge.sip_in(id).name(), Place::Link, system.host_bridge.hop_up(id));
    v.hop(sip.fabric_router.block_out.name(), Place::Port, sip.fabric_router.block_hop());
    v.hop(sip.fabric_router.spare_out.name(), Place::Port, sip.fabric_router.spare_hop());
    for (uint32_t a = 0; a < sip.fabric_router.attachments(); ++a) {
      v.hop(sip.port_out(a).name(), Place::Link, sip.port_out(a).hop());
      v.hop(sip.port_in(a).name(), Place::Link, sip.port_in(a).hop());
    }
    for (uint32_t c = 0; c < sip.cubes(); ++c) {
      for (const Side side : {Side::N, Side::S, Side::E, Side::W}) {
        if (Link* link = sip.cube_link(CubeId{c}, side)) v.hop(link->name(), Place::Link, link->hop());
      }
    }
  }
  if (v.sip_block) v.sip_block(sip.sip_block.name(), sip.sip_block);
  if (v.line) {
    v.line(system.sip_rst_n[value(id)].name(), system.sip_rst_n[value(id)]);
    for (uint32_t c = 0; c < sip.cubes(); ++c) v.line(sip.cube_irq[c].name(), sip.cube_irq[c]);
  }
  for (uint32_t c = 0; c < sip.cubes(); ++c) walk_cube(system, sip.cube(CubeId{c}), id, CubeId{c}, v);
}

}  // namespace

void walk_machine(System& system, const MachineVisitor& visitor) {
  if (visitor.hop) {
    for (const auto& link : system.sip_links()) visitor.hop(link->name(), Place::Link, link->hop());
  }
  for (uint32_t s = 0; s < system.config().sips; ++s) walk_sip(system, SipId{s}, visitor);
}

}  // namespace ahbm::observe
