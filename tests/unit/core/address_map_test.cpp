// The decode function at every boundary of the address map.
#include "models/core/address_map.h"

#include <gtest/gtest.h>

#include <random>

namespace ahbm {
namespace {

constexpr Addr kGiB = Addr{1} << 30;

MapShape small_shape() {
  MapShape s;
  s.sips = 3;
  s.cubes = 5;
  s.pes = 2;
  s.hbm_bytes = 2 * kGiB;
  s.tcm_bytes = 4 << 20;
  s.queue_pairs = 64;
  return s;
}

/// One region of a cube or SIP block: [begin, end), with holes on both sides unless told otherwise.
struct Boundary {
  Addr begin, bytes;
  Region region;
};

void expect_region(Addr at, const MapShape& shape, Region region, Addr offset, Addr room) {
  const Decoded d = decode(at, shape);
  EXPECT_EQ(d.region, region) << std::hex << at << ": " << describe(d);
  EXPECT_EQ(d.offset, offset) << std::hex << at;
  EXPECT_EQ(d.room, room) << std::hex << at;
}

void expect_hole(Addr at, const MapShape& shape) {
  const Decoded d = decode(at, shape);
  EXPECT_EQ(d.region, Region::Hole) << std::hex << at << ": " << describe(d);
  EXPECT_EQ(d.room, 0u);
  EXPECT_FALSE(fits(d, 1));
  EXPECT_FALSE(fits(d, 0));
}

TEST(AddressMap, EveryCubeBoundary) {
  const MapShape shape = small_shape();
  for (const uint32_t sip : {0u, 2u}) {
    for (const uint32_t cube : {0u, 4u}) {
      const Addr base = cube_base(SipId{sip}, CubeId{cube});
      expect_region(base, shape, Region::Hbm, 0, 2 * kGiB);
      expect_region(base + 2 * kGiB - 1, shape, Region::Hbm, 2 * kGiB - 1, 1);
      expect_hole(base + 2 * kGiB, shape);
      expect_hole(base + addr::kPeWindows - 1, shape);
      for (const uint32_t pe : {0u, 1u}) {
        const Addr window = base + 0x300000000 + pe * 0x1000000;
        expect_region(window, shape, Region::Tcm, 0, 4 << 20);
        expect_region(window + (4 << 20) - 1, shape, Region::Tcm, (4 << 20) - 1, 1);
        expect_hole(window + (4 << 20), shape);
        expect_hole(window + 0x7FFFFF, shape);
        expect_region(window + 0x800000, shape, Region::PeSfr, 0, 0x10000);
        expect_region(window + 0x80FFFF, shape, Region::PeSfr, 0xFFFF, 1);
        expect_region(window + 0x810000, shape, Region::QpRegs, 0, 0x100);
        expect_region(window + 0x8100FF, shape, Region::QpRegs, 0xFF, 1);
        expect_region(window + 0x810100, shape, Region::QpRegs, 0, 0x100);
        expect_region(window + 0x84FFFF, shape, Region::QpRegs, 0xFF, 1);
        expect_hole(window + 0x850000, shape);
        expect_hole(window + 0xBFFFFF, shape);
        expect_region(window + 0xC00000, shape, Region::Doorbell, 0, 0x1000);
        expect_region(window + 0xC00FFF, shape, Region::Doorbell, 0xFFF, 1);
        expect_region(window + 0xC01000, shape, Region::Doorbell, 0, 0x1000);
        expect_region(window + 0xFFFFFF, shape, Region::Doorbell, 0xFFF, 1);
      }
      expect_hole(base + 0x302000000, shape);  // PE 2 of 2
      expect_hole(base + 0x3FEFFFFFF, shape);
      expect_region(base + 0x3FF000000, shape, Region::CubeSfr, 0, 0x10000);
      expect_region(base + 0x3FF00FFFF, shape, Region::CubeSfr, 0xFFFF, 1);
      expect_hole(base + 0x3FF010000, shape);
      expect_hole(base + 0x3FFFFFFFF, shape);
    }
    expect_hole(cube_base(SipId{sip}, CubeId{5}), shape);
    expect_hole(cube_base(SipId{sip}, CubeId{254}), shape);
  }
  expect_hole(cube_base(SipId{3}, CubeId{0}), shape);
  expect_hole(sip_block_base(SipId{3}), shape);
}

TEST(AddressMap, EverySipBlockBoundary) {
  const MapShape shape = small_shape();
  const Boundary regions[] = {
      {0x00000000, 0x10000, Region::BootRom},
      {0x02000000, 0x10000, Region::Timer},
      {0x0C000000, 0x4000000, Region::InterruptController},
      {0x10000000, 0x1000, Region::Uart},
      {0x11000000, 0x80000, Region::Mailbox},
      {0x80000000, 0x1000000, Region::FirmwareRam},
  };
  for (const uint32_t sip : {0u, 2u}) {
    const Addr base = sip_block_base(SipId{sip});
    Addr previous_end = 0;
    for (const Boundary& r : regions) {
      if (r.begin > previous_end) {
        expect_hole(base + previous_end, shape);
        expect_hole(base + r.begin - 1, shape);
      }
      expect_region(base + r.begin, shape, r.region, 0, r.bytes);
      expect_region(base + r.begin + r.bytes - 1, shape, r.region, r.bytes - 1, 1);
      EXPECT_EQ(decode(base + r.begin, shape).sip, SipId{sip});
      EXPECT_EQ(decode_boot_view(r.begin, SipId{sip}, shape).region, r.region);
      previous_end = r.begin + r.bytes;
    }
    expect_hole(base + previous_end, shape);
    expect_hole(base + addr::kCubeBytes - 1, shape);
  }
}

TEST(AddressMap, BootViewIsTheOwnSipBlockBelow4GiB) {
  const MapShape shape = small_shape();
  const Decoded uart = decode_boot_view(0x10000008, SipId{1}, shape);
  EXPECT_EQ(uart.region, Region::Uart);
  EXPECT_EQ(uart.sip, SipId{1});
  EXPECT_EQ(uart.offset, 8u);
  EXPECT_EQ(uart.room, 0x1000u - 8);
  EXPECT_EQ(decode_boot_view(0, SipId{2}, shape).region, Region::BootRom);
  EXPECT_EQ(decode_boot_view(0xFFFFFFFF, SipId{0}, shape).region, Region::Hole);
  EXPECT_EQ(decode_boot_view(0x100000000, SipId{0}, shape).region, Region::Hole);
  EXPECT_EQ(decode_boot_view(0x110000000, SipId{0}, shape).region, Region::Hole);  // 0x1000_0000 above 4 GiB: no mirror
  const Decoded other = decode_boot_view(tcm_address({SipId{2}, CubeId{3}, PeId{1}}, 16), SipId{0}, shape);
  EXPECT_EQ(other.region, Region::Tcm);
  EXPECT_EQ(other.sip, SipId{2});
}

TEST(AddressMap, NullPointerAndEverythingWithoutBit55IsAHole) {
  const MapShape widest;
  for (const Addr a : {Addr{0}, Addr{8}, Addr{0x80000000}, (Addr{1} << 55) - 1, Addr{1} << 54}) expect_hole(a, widest);
}

TEST(AddressMap, BitsAbove55AreNoAddress) {
  const MapShape widest;
  const Addr good = hbm_address(SipId{0}, CubeId{0}, 0);
  EXPECT_EQ(decode(good, widest).region, Region::Hbm);
  for (unsigned bit = 56; bit < 64; ++bit) expect_hole(good | (Addr{1} << bit), widest);
}

TEST(AddressMap, TheWidestMachine) {
  const MapShape widest;
  const PeLocation last{SipId{8191}, CubeId{254}, PeId{254}};
  const Addr end = pe_base(last) + 0xFFFFFF;
  EXPECT_EQ(end, Addr{0x00FFFFFBFEFFFFFF});  // bit 55, SIP 8191, cube 254, the last byte below the cube SFRs
  const Decoded d = decode(end, widest);
  EXPECT_EQ(d.region, Region::Doorbell);
  EXPECT_EQ(d.sip, last.sip);
  EXPECT_EQ(d.cube, last.cube);
  EXPECT_EQ(d.pe, last.pe);
  EXPECT_EQ(d.qp, QpId{1023});
  expect_region(end + 1, widest, Region::CubeSfr, 0, 0x10000);
  expect_region(hbm_address(last.sip, last.cube, addr::kHbmMaxBytes - 1), widest, Region::Hbm, addr::kHbmMaxBytes - 1,
                1);
  expect_region(hbm_address(last.sip, last.cube, addr::kHbmMaxBytes), widest, Region::Tcm, 0, 8 << 20);
  expect_region(tcm_address(last, (8 << 20) - 1), widest, Region::Tcm, (8 << 20) - 1, 1);
  expect_region(tcm_address(last, 8 << 20), widest, Region::PeSfr, 0, 0x10000);  // the map is dense here
  EXPECT_EQ(decode(mailbox_address(last.sip, 65535), widest).room, 8u);
}

TEST(AddressMap, QueuePairsBeyondTheMachineStillDecode) {
  // The PE answers them itself: a doorbell for an unknown queue pair must be recorded, not lost in a router.
  MapShape shape = small_shape();
  shape.queue_pairs = 1;
  const PeLocation pe{SipId{0}, CubeId{0}, PeId{0}};
  const Decoded door = decode(doorbell_address(pe, QpId{1023}, 8), shape);
  EXPECT_EQ(door.region, Region::Doorbell);
  EXPECT_EQ(door.qp, QpId{1023});
  EXPECT_EQ(door.offset, 8u);
  EXPECT_EQ(decode(qp_reg_address(pe, QpId{1023}, 0), shape).qp, QpId{1023});
}

TEST(AddressMap, AnAccessAcrossTheEndDoesNotFit) {
  const MapShape shape = small_shape();
  const PeLocation pe{SipId{1}, CubeId{2}, PeId{1}};
  const Addr ends[] = {hbm_address(pe.sip, pe.cube, 2 * kGiB),
                       tcm_address(pe, 4 << 20),
                       pe_sfr_address(pe, 0x10000),
                       qp_reg_address(pe, QpId{1}, 0),
                       doorbell_address(pe, QpId{1}, 0),
                       cube_base(pe.sip, pe.cube) + 0x3FF010000,
                       sip_block_base(pe.sip) + 0x10000,
                       sip_block_base(pe.sip) + 0x11080000,
                       sip_block_base(pe.sip) + 0x81000000};
  for (const Addr end : ends) {
    EXPECT_TRUE(fits(decode(end - 2, shape), 2)) << std::hex << end;
    EXPECT_FALSE(fits(decode(end - 2, shape), 4)) << std::hex << end;
    EXPECT_FALSE(fits(decode(end - 2, shape), 3)) << std::hex << end;
    EXPECT_TRUE(fits(decode(end - 1, shape), 0)) << "length 0 counts as 1";
    EXPECT_FALSE(fits(decode(end - 8, shape), UINT64_MAX)) << std::hex << end;
  }
}

TEST(AddressMap, BuildersAndDecodeAgree) {
  const MapShape shape = small_shape();
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const PeLocation pe{SipId{static_cast<uint32_t>(random() % shape.sips)},
                        CubeId{static_cast<uint32_t>(random() % shape.cubes)},
                        PeId{static_cast<uint32_t>(random() % shape.pes)}};
    const QpId qp{static_cast<uint32_t>(random() % 1024)};
    const Addr o = random() % 0x100;
    const struct {
      Addr at;
      Region region;
      bool has_pe, has_qp;
    } cases[] = {{hbm_address(pe.sip, pe.cube, o), Region::Hbm, false, false},
                 {tcm_address(pe, o), Region::Tcm, true, false},
                 {pe_sfr_address(pe, o), Region::PeSfr, true, false},
                 {qp_reg_address(pe, qp, o), Region::QpRegs, true, true},
                 {doorbell_address(pe, qp, o), Region::Doorbell, true, true}};
    for (const auto& c : cases) {
      const Decoded d = decode(c.at, shape);
      ASSERT_EQ(d.region, c.region);
      ASSERT_EQ(d.offset, o);
      ASSERT_EQ(d.sip, pe.sip);
      ASSERT_EQ(d.cube, pe.cube);
      if (c.has_pe) {
        ASSERT_EQ(d.pe, pe.pe);
      }
      if (c.has_qp) {
        ASSERT_EQ(d.qp, qp);
      }
    }
  }
}

TEST(AddressMap, DescribesWhatAnAddressIs) {
  const MapShape shape = small_shape();
  const PeLocation pe{SipId{1}, CubeId{3}, PeId{0}};
  EXPECT_EQ(describe(decode(doorbell_address(pe, QpId{5}, 8), shape)), "sip1.cube3.pe0 doorbell qp 5 + 0x8");
  EXPECT_EQ(describe(decode(hbm_address(pe.sip, pe.cube, 0x40), shape)), "sip1.cube3 hbm + 0x40");
  EXPECT_EQ(describe(decode(mailbox_address(pe.sip, 2), shape)), "sip1 mailbox + 0x10");
  EXPECT_EQ(describe(decode(0, shape)), "a hole of the address map");
}

}  // namespace
}  // namespace ahbm
