#include <gmock/gmock.h>

#include "runtime/dtensor/session.h"
#include "tests/dtensor/world.h"

namespace ahbm::dtensor::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using DeviceMeshTest = SimTest;

TEST_F(DeviceMeshTest, EveryRankHasItsCoordinateAndGroups) {
  World w(6);
  run([&] {
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2, 3}, {"dp", "tp"});
      EXPECT_THAT(*mesh.get_coordinate(), ElementsAre(rank / 3, rank % 3));
      EXPECT_EQ(mesh.get_local_rank("tp"), rank % 3);
      auto& d = w.ctx.distributed;
      EXPECT_THAT(d.get_process_group_ranks(mesh.get_group("dp")), ElementsAre(rank % 3, rank % 3 + 3));
      EXPECT_EQ(d.get_process_group_ranks(mesh.get_group(1)).size(), 3u);
      EXPECT_EQ(mesh.get_all_groups().size(), 2u);
      EXPECT_THAT(message_of<MeshError>([&] { mesh.get_group(); }), HasSubstr("2-d mesh"));
      EXPECT_THAT(message_of<MeshKeyError>([&] { mesh.get_group("pp"); }), HasSubstr("'pp'"));
      EXPECT_THAT(message_of<MeshError>([&] { mesh.get_group(2); }), HasSubstr("mesh dimension 2"));
    });
  });
}

TEST_F(DeviceMeshTest, AMeshOverTheWorldUsesTheDefaultGroupInAnyOrder) {
  World w(3);
  run([&] {
    w.on_ranks([&](uint32_t) {
      EXPECT_TRUE(init_device_mesh(w.ctx, "sip", {3}).get_group().is_default());
      EXPECT_TRUE(DeviceMesh(w.ctx, "sip", {3}, {2, 0, 1}).get_group().is_default());
      EXPECT_EQ(w.ctx.dtensor_session().groups(), 0u);
    });
  });
}

TEST_F(DeviceMeshTest, EqualMeshesShareTheirGroups) {
  World w(4);
  run([&] {
    w.on_ranks([&](uint32_t) {
      const DeviceMesh first = init_device_mesh(w.ctx, "sip", {2, 2}, {"a", "b"});
      const size_t groups = w.ctx.dtensor_session().groups();
      EXPECT_EQ(groups, 4u);
      for (int i = 0; i < 100; ++i) {
        const DeviceMesh again = init_device_mesh(w.ctx, "sip", {2, 2}, {"a", "b"});
        EXPECT_EQ(again, first);
        EXPECT_EQ(again.get_group("a"), first.get_group("a"));
        EXPECT_EQ(again["b"].get_group(), first.get_group("b"));
      }
      EXPECT_EQ(w.ctx.dtensor_session().groups(), groups);
    });
  });
}

TEST_F(DeviceMeshTest, SlicesAndFlattenedDimensionsHoldThisRank) {
  World w(8);
  run([&] {
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2, 2, 2}, {"dp", "cp", "tp"});
      EXPECT_THAT(mesh["tp"].ranks(), ElementsAre(rank / 2 * 2, rank / 2 * 2 + 1));
      const DeviceMesh data = mesh[{"dp", "cp"}];
      EXPECT_EQ(data.ndim(), 2u);
      const DeviceMesh flat = data.flatten("data");
      EXPECT_THAT(flat.ranks(), ElementsAre(rank % 2, 2 + rank % 2, 4 + rank % 2, 6 + rank % 2));
      EXPECT_EQ(w.ctx.distributed.get_process_group_ranks(flat.get_group()).size(), 4u);
      EXPECT_EQ(mesh["data"], flat);
      EXPECT_EQ((mesh[{"dp", "cp"}].flatten("data")), flat);
      EXPECT_EQ((mesh[{"data", "tp"}].ndim()), 2u);
      EXPECT_THAT(message_of<MeshError>([&] { mesh[{"dp", "tp"}].flatten("data"); }), HasSubstr("other dimensions"));
      EXPECT_THAT(message_of<MeshError>([&] { data.flatten("tp"); }), HasSubstr("'tp'"));
      EXPECT_THAT(message_of<MeshKeyError>([&] { mesh.slice({"tp", "dp"}); }), HasSubstr("order"));
      // Something goes through the flattened group.
      const Tensor t = to_tensor(w.ctx, {{1}, {double(rank)}});
      w.ctx.distributed.all_reduce(t, ReduceOp::Sum, flat.get_group());
      EXPECT_EQ(t.to_host<float>()[0], 12 + 4 * (rank % 2));
    });
  });
}

TEST_F(DeviceMeshTest, ARankOutsideHasNoPlaceButMayTakePart) {
  World w(4);
  run([&] {
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh(w.ctx, "sip", {2}, {2, 0}, {"tp"});
      if (rank % 2 == 1) {
        EXPECT_FALSE(mesh.get_coordinate());
        EXPECT_THAT(message_of<MeshError>([&] { mesh.get_group(); }), HasSubstr("not in mesh"));
        EXPECT_THAT(message_of<MeshError>([&] { mesh.get_local_rank(); }), HasSubstr("not in mesh"));
        EXPECT_EQ(mesh["tp"], mesh);
      }
      const DTensor t = distribute_tensor(to_tensor(w.ctx, arange({4, 2})), mesh, {Shard{0}});
      const DTensor sum = (t * 2.0).sum();
      EXPECT_EQ(t.to_local().shape(), rank % 2 == 1 ? runtime::Shape{0} : (runtime::Shape{2, 2}));
      EXPECT_EQ(sum.to_local().shape(), runtime::Shape{});
      const double whole = sum.item();
      EXPECT_EQ(whole, rank % 2 == 1 ? 0 : 56);
    });
  });
}

TEST_F(DeviceMeshTest, TheDriverMakesMeshesForAllRanks) {
  World w(4);
  run([&] {
    w.ctx.distributed.init_process_group();
    const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2, 2});
    w.ctx.spawn(
        [&](uint32_t rank) {
          const DTensor t = distribute_tensor(to_tensor(w.ctx, arange({4})), mesh, {Shard{0}, Shard{0}});
          EXPECT_THAT(t.to_local().to_host<float>(), ElementsAre(static_cast<float>(rank)));
          EXPECT_EQ(init_device_mesh(w.ctx, "sip", {2, 2}), mesh);
        },
        4);
    w.ctx.distributed.destroy_process_group();
  });
}

TEST_F(DeviceMeshTest, MeshesEndWithTheProcessGroup) {
  World w(4);
  run([&] {
    DeviceMesh old;
    w.on_ranks([&](uint32_t rank) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2, 2});
      if (rank == 0) old = mesh;
    });
    w.on_ranks([&](uint32_t) {
      const DeviceMesh mesh = init_device_mesh(w.ctx, "sip", {2, 2});
      const DTensor t = distribute_tensor(to_tensor(w.ctx, arange({4})), mesh, {Shard{0}, Replicate{}});
      expect_same(to_array(t.full_tensor()), arange({4}), "after another init");
      EXPECT_THAT(message_of<std::runtime_error>([&] {
                    distribute_tensor(to_tensor(w.ctx, arange({4})), old, {Shard{0}, Replicate{}});
                  }),
                  HasSubstr("was destroyed"));
    });
    EXPECT_THAT(message_of<std::runtime_error>([&] { init_device_mesh(w.ctx, "sip", {4}); }),
                HasSubstr("has not been initialized"));
  });
}

TEST_F(DeviceMeshTest, MeshesThatCannotBe) {
  World w(4);
  run([&] {
    w.on_ranks([&](uint32_t) {
      EXPECT_THAT(message_of<MeshError>([&] { init_device_mesh(w.ctx, "sip", {8}); }), HasSubstr("world of 4"));
      EXPECT_THAT(message_of<MeshError>([&] { init_device_mesh(w.ctx, "sip:0", {4}); }), HasSubstr("sip:0"));
      EXPECT_THAT(message_of<MeshError>([&] { DeviceMesh(w.ctx, "sip", {2}, {1, 1}); }), HasSubstr("twice"));
      EXPECT_THAT(message_of<MeshError>([&] {
                    init_device_mesh(w.ctx, "sip", {2, 2}, {"a", "a"});
                  }),
                  HasSubstr("twice"));
      EXPECT_THAT(message_of<MeshError>([] { DeviceMesh().size(); }), HasSubstr("empty DeviceMesh"));
      const DeviceMesh grid = init_device_mesh(w.ctx, "sip", {2, 2});
      EXPECT_THAT(message_of<MeshError>([&] { grid.get_local_rank(-1); }),
                  HasSubstr("mesh dimension -1 of a 2-d mesh"));
      EXPECT_THAT(message_of<MeshError>([&] { grid.size(2); }), HasSubstr("mesh dimension 2 of a 2-d mesh"));
    });
  });
}

}  // namespace
}  // namespace ahbm::dtensor::test
