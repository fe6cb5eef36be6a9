// Quantities: exact values, and every refusal with its reason.
#include "models/core/config/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace ahbm::units {
namespace {

using ::testing::HasSubstr;

template <typename F>
std::string why(F parse, const std::string& text) {
  try {
    const auto v = parse(text);
    return "accepted as " + std::to_string(v);
  } catch (const QuantityError& e) {
    return e.what();
  }
}

TEST(Units, ValuesAreExact) {
  EXPECT_EQ(parse_bandwidth("819.2 GB/s"), 819200000000u);
  EXPECT_EQ(parse_bandwidth("64 B/ns"), 64000000000u);
  EXPECT_EQ(parse_bandwidth("16 TB/s"), 16000000000000u);
  EXPECT_EQ(parse_bandwidth("0.5 B/ps"), 500000000000u);
  EXPECT_EQ(parse_bandwidth("1 GiB/s"), 1073741824u);
  EXPECT_EQ(parse_bandwidth("1 B/s"), 1u);
  EXPECT_EQ(parse_time("250 ns"), 250000u);
  EXPECT_EQ(parse_time("0.1 ns"), 100u);
  EXPECT_EQ(parse_time("1 ps"), 1u);
  EXPECT_EQ(parse_time("1.000000000001 s"), 1000000000001u);
  EXPECT_EQ(parse_time("0 ns"), 0u);
  EXPECT_EQ(parse_time("0.000 ms"), 0u);
  EXPECT_EQ(parse_frequency("1.5 GHz"), 1500000000u);
  EXPECT_EQ(parse_frequency("933.333333 MHz"), 933333333u);
  EXPECT_EQ(parse_bytes("16 KiB"), 16384u);
  EXPECT_EQ(parse_bytes("0.5 KiB"), 512u);
  EXPECT_EQ(parse_bytes("1.125 KiB"), 1152u);
  EXPECT_EQ(parse_bytes("12 GiB"), uint64_t{12} << 30);
  EXPECT_EQ(parse_bytes("3 kB"), 3000u);
  EXPECT_EQ(parse_bytes("18446744073709551615 B"), UINT64_MAX);
  EXPECT_EQ(parse_bytes("18446744073709551615.000 B"), UINT64_MAX);
}

TEST(Units, SpellingsOfTheNumber) {
  for (const char* text : {"250ns", "250 ns", "250.0 ns", "  250\tns ", "+250 ns", "2.5e2 ns", "2500e-1 ns", "0.25 us",
                           "25E+1ns", "250. ns", "000250 ns", "0.00000000000000000000000000000000000250e38 ns"}) {
    EXPECT_EQ(why(parse_time, text), "accepted as 250000") << text;
  }
  EXPECT_EQ(parse_time(".25 us"), 250000u);
}

TEST(Units, NonsenseIsRefusedWithItsReason) {
  EXPECT_EQ(why(parse_bandwidth, "-1 GB/s"), "'-1 GB/s' is negative; expected a bandwidth like '819.2 GB/s'");
  EXPECT_EQ(why(parse_bandwidth, "0 GB/s"), "'0 GB/s' is zero; expected a bandwidth like '819.2 GB/s'");
  EXPECT_EQ(why(parse_frequency, "0.0 GHz"), "'0.0 GHz' is zero; expected a frequency like '1.5 GHz'");
  EXPECT_EQ(why(parse_time, "-0.1 ns"), "'-0.1 ns' is negative; expected a time like '250 ns'");
  EXPECT_EQ(why(parse_time, "250"), "'250' has no unit; expected a time like '250 ns'");
  EXPECT_EQ(why(parse_bytes, ""), "'' is empty; expected a size like '16 KiB'");
  EXPECT_EQ(why(parse_bytes, "KiB"), "'KiB' is not a number with a unit; expected a size like '16 KiB'");
  EXPECT_EQ(why(parse_bytes, ". KiB"), "'. KiB' is not a number with a unit; expected a size like '16 KiB'");
  for (const char* text : {"nan GB/s", "NaN", "inf GB/s", "-inf GB/s", ".nan", ".inf GB/s", "infinity GB/s"}) {
    EXPECT_THAT(why(parse_bandwidth, text), HasSubstr("is not a finite number")) << text;
  }
  EXPECT_EQ(why(parse_time, "4 GB/s"), "'4 GB/s' is a bandwidth; expected a time like '250 ns'");
  EXPECT_EQ(why(parse_bandwidth, "100 GB"), "'100 GB' is a size; expected a bandwidth like '819.2 GB/s'");
  EXPECT_EQ(why(parse_bandwidth, "1.5 GHz"), "'1.5 GHz' is a frequency; expected a bandwidth like '819.2 GB/s'");
  EXPECT_THAT(why(parse_time, "250 NS"), HasSubstr("has the unknown unit 'NS' (did you mean 'ns'?)"));
  EXPECT_THAT(why(parse_bandwidth, "819.2 gb/S"), HasSubstr("(did you mean 'GB/s'?)"));
  EXPECT_THAT(why(parse_bytes, "16 Kib"), HasSubstr("(did you mean 'KiB'?)"));
  EXPECT_THAT(why(parse_bandwidth, "800 Gb/s"), HasSubstr("is in bits"));
  EXPECT_THAT(why(parse_bandwidth, "800 Gbit/s"), HasSubstr("is in bits"));
  EXPECT_THAT(why(parse_bytes, "16 furlongs"), HasSubstr("units: B, kB, KiB"));
  EXPECT_THAT(why(parse_time, "1,5 ns"), HasSubstr("unknown unit"));
  EXPECT_THAT(why(parse_time, "1.5.2 ns"), HasSubstr("unknown unit"));
}

TEST(Units, NothingIsRounded) {
  EXPECT_EQ(why(parse_time, "0.5 ps"), "'0.5 ps' is not a whole number of picoseconds");
  EXPECT_EQ(why(parse_time, "0.0001 ns"), "'0.0001 ns' is not a whole number of picoseconds");
  EXPECT_EQ(why(parse_bytes, "0.3 KiB"), "'0.3 KiB' is not a whole number of bytes");
  EXPECT_EQ(why(parse_time, "1e-400 s"), "'1e-400 s' is not a whole number of picoseconds");
  EXPECT_EQ(why(parse_bytes, "1.00000000000000000000000000000000000000000000001 TiB"),
            "'1.00000000000000000000000000000000000000000000001 TiB' is not a whole number of bytes");
}

TEST(Units, OverflowIsRefused) {
  EXPECT_EQ(why(parse_bytes, "18446744073709551616 B"), "'18446744073709551616 B' is too large to be held in bytes");
  EXPECT_EQ(why(parse_bytes, "16777216 TiB"), "'16777216 TiB' is too large to be held in bytes");
  EXPECT_EQ(why(parse_time, "18446745 s"), "'18446745 s' is too large to be held in picoseconds");
  EXPECT_EQ(why(parse_time, "1e30 ns"), "'1e30 ns' is too large to be held in picoseconds");
  EXPECT_EQ(why(parse_time, "1e999999999999 ns"), "'1e999999999999 ns' is too large to be held in picoseconds");
  EXPECT_EQ(why(parse_bandwidth, "99999999999999999999999999999999999999999999 B/s"),
            "'99999999999999999999999999999999999999999999 B/s' is too large to be held in bytes per second");
}

TEST(Units, FormatsRead) {
  EXPECT_EQ(format_bandwidth(819200000000), "819.2 GB/s");
  EXPECT_EQ(format_bandwidth(1024000000000), "1.024 TB/s");
  EXPECT_EQ(format_bandwidth(1), "1 B/s");
  EXPECT_EQ(format_time(250000), "250 ns");
  EXPECT_EQ(format_time(0), "0 ns");
  EXPECT_EQ(format_time(1), "1 ps");
  EXPECT_EQ(format_time(1500), "1.5 ns");
  EXPECT_EQ(format_frequency(1500000000), "1.5 GHz");
  EXPECT_EQ(format_bytes(16384), "16 KiB");
  EXPECT_EQ(format_bytes(1000), "1000 B");
  EXPECT_EQ(format_bytes(uint64_t{12} << 30), "12 GiB");
  EXPECT_EQ(format_bytes(0), "0 B");
}

TEST(Units, FormattingReadsBackToTheSameValue) {
  std::mt19937_64 random(11);
  std::vector<uint64_t> values{1, 9, 10, 999, 1000, 1001, 1023, 1024, UINT64_MAX, UINT64_MAX - 1};
  for (int i = 0; i < 20000; ++i) values.push_back(random() >> (random() % 64));
  for (const uint64_t v : values) {
    ASSERT_EQ(parse_bytes(format_bytes(v)), v) << format_bytes(v);
    ASSERT_EQ(parse_time(format_time(v)), v) << format_time(v);
    if (v == 0) continue;
    ASSERT_EQ(parse_bandwidth(format_bandwidth(v)), v) << format_bandwidth(v);
    ASSERT_EQ(parse_frequency(format_frequency(v)), v) << format_frequency(v);
  }
}

}  // namespace
}  // namespace ahbm::units
