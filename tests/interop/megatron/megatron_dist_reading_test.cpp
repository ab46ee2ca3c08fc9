#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/sha256.h"
#include "framework/interop/megatron/megatron_dist_checkpoint.h"
#include "framework/interop/megatron/megatron_dist_format.h"
#include "tests/interop/megatron/dist_writer.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::megatron {
namespace {

namespace fs = std::filesystem;

const std::string fc1_key = "decoder.layers.mlp.linear_fc1.weight", norm_key = "decoder.final_layernorm.weight";

class DistCheckpoint : public InOwnFolder {
 protected:
  static std::vector<float> read(const MegatronDistCheckpoint& from, const std::string& name) {
    std::vector<float> out(static_cast<std::size_t>(from.shape(name).elements()));
    from.read(name, Tensor(std::span(out), from.shape(name)));
    return out;
  }
  static MegatronDistCheckpoint open() { return MegatronDistCheckpoint(".", options::Mappings()); }
  static std::string refusal(DistWriter& writer) {
    writer.write();
    return refusal();
  }
  static std::string refusal() {
    try {
      const auto checkpoint = open();
      for (const auto& name : checkpoint.names()) read(checkpoint, name);
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
  /// Two chunks of a norm.
  static DistWriter two_chunks() {
    DistWriter writer;
    writer.add(norm_key, {4}, {0}, {1, 2}, {2});
    writer.add(norm_key, {4}, {2}, {3, 4}, {2});
    return writer;
  }
};

std::vector<float> counted(std::int64_t count, float first = 0) {
  std::vector<float> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

TEST_F(DistCheckpoint, LayersOfOneTensorAreReadWhole) {
  const std::string fc2 = "decoder.layers.mlp.linear_fc2.weight";
  DistWriter writer;
  writer.add(fc2, {2, 2, 4}, {0, 0, 2}, {2, 3, 6, 7}, {1, 2, 2});
  writer.add(fc2, {2, 2, 4}, {0, 0, 0}, {0, 1, 4, 5}, {1, 2, 2});
  writer.add(fc2, {2, 2, 4}, {1, 0, 0}, counted(8, 8), {1, 2, 4});
  writer.add("optimizer.state.fp32_param." + norm_key, {2}, {0}, {1.5F, 2.5F}, {2});
  writer.add(norm_key, {2}, {0}, {1, 2}, {2});
  writer.add("optimizer.state.exp_avg_sq.decoder.layers.self_attention.linear_qkv.layer_norm_bias", {2, 2}, {0, 0},
             {5, 6, 7, 8}, {2, 2});
  writer.write();
  ASSERT_EQ(MegatronDistFormat().find("."), fs::path("."));
  const auto checkpoint = open();
  EXPECT_EQ(checkpoint.iteration(), 10);
  EXPECT_EQ(checkpoint.names(),
            (std::vector<std::string>{"decoder.layers.0.mlp.linear_fc2.weight",
                                      "decoder.layers.1.mlp.linear_fc2.weight", "decoder.final_layernorm.weight"}));
  EXPECT_EQ(read(checkpoint, "decoder.layers.0.mlp.linear_fc2.weight"), counted(8));
  EXPECT_EQ(read(checkpoint, "decoder.layers.1.mlp.linear_fc2.weight"), counted(8, 8));
  EXPECT_EQ(read(checkpoint, norm_key), (std::vector<float>{1.5F, 2.5F}));
  EXPECT_EQ(read(checkpoint, "optimizer.exp_avg_sq.decoder.layers.1.input_layernorm.bias"), (std::vector<float>{7, 8}));
  checkpoint.verify();
}

TEST_F(DistCheckpoint, LayersAndExpertsOfTheirOwnTensorsAreReadAsWell) {
  DistWriter writer;
  writer.add("decoder.layers.7.mlp.experts.experts.linear_fc2.weight", {3, 1, 2}, {0, 0, 0}, counted(6), {3, 1, 2});
  writer.add("decoder.layers.mlp.experts.experts.linear_fc1.weight", {2, 2, 1, 2}, {0, 0, 0, 0}, counted(8),
             {2, 2, 1, 2});
  writer.add("chained_1.optimizer.state.exp_avg.decoder.layers.7.mlp.experts.experts.linear_fc2.weight", {3, 1, 2},
             {0, 0, 0}, counted(6, 10), {3, 1, 2});
  writer.write();
  const auto checkpoint = open();
  EXPECT_EQ(read(checkpoint, "decoder.layers.7.mlp.experts.local_experts.2.linear_fc2.weight"), counted(2, 4));
  EXPECT_EQ(read(checkpoint, "decoder.layers.1.mlp.experts.local_experts.0.linear_fc1.weight"), counted(2, 4));
  EXPECT_EQ(read(checkpoint, "optimizer.exp_avg.decoder.layers.7.mlp.experts.local_experts.1.linear_fc2.weight"),
            counted(2, 12));
}

TEST_F(DistCheckpoint, ExpertsOfTheLegacyGroupedFormAreRefusedByName) {
  const std::string state = "chained_1.optimizer.state.exp_avg.decoder.layers.mlp.experts.experts.linear_fc2.weight";
  DistWriter joined;
  joined.add("decoder.layers.mlp.experts.weight1", {2, 4, 6}, {0, 0, 0}, counted(48), {2, 4, 6});
  EXPECT_TRUE(says(refusal(joined), "'decoder.layers.mlp.experts.weight1' is a tensor of all experts of a layer"));
  DistWriter flattened;
  flattened.add(state, {1, 2, 1, 1, 2}, {0, 0, 0, 0, 0}, counted(4), {1, 2, 1, 1, 2}, {1, 2, 1, 2});
  EXPECT_EQ(refusal(flattened), "");
  flattened.true_argument = "moe_use_legacy_grouped_gemm";
  EXPECT_TRUE(says(refusal(flattened), "'" + state + "' is flattened state of experts")) << refusal();
  EXPECT_TRUE(says(refusal(), "--moe-use-legacy-grouped-gemm, which is not read; let Megatron-LM load it"));
}

/// A flattened tensor, of blocks that are cut into slices at random places, is the tensor it was.
TEST_F(DistCheckpoint, FlattenedStateIsPutTogetherForEveryCut) {
  const auto seed = std::random_device{}();
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)) + 1;
  };
  for (int round = 0; round < 20; ++round) {
    const std::vector<std::int64_t> blocks = {draw(3), draw(2), draw(2)}, extents = {1, draw(4), draw(5)};
    const std::vector<std::int64_t> whole = {blocks[0], blocks[1] * extents[1], blocks[2] * extents[2]};
    const auto of_block = extents[1] * extents[2];
    const auto key = "optimizer.state.exp_avg." + fc1_key;
    DistWriter writer;
    writer.add(fc1_key, whole, {0, 0, 0}, counted(whole[0] * whole[1] * whole[2]), whole);
    for (std::int64_t l = 0; l < blocks[0]; ++l)
      for (std::int64_t r = 0; r < blocks[1]; ++r)
        for (std::int64_t c = 0; c < blocks[2]; ++c)
          for (std::int64_t begin = 0; begin < of_block;) {
            const auto count = std::min(of_block - begin, draw(of_block));
            std::vector<float> slice;
            for (auto i = begin; i < begin + count; ++i)
              slice.push_back(static_cast<float>((l * whole[1] + r * extents[1] + i / extents[2]) * whole[2] +
                                                 c * extents[2] + i % extents[2]));
            writer.add(key, {blocks[0], blocks[1], blocks[2], of_block}, {l, r, c, begin}, slice, {1, 1, 1, count},
                       whole);
            begin += count;
          }
    writer.write();
    const auto checkpoint = open();
    for (std::int64_t l = 0; l < whole[0]; ++l) {
      const auto name = text("decoder.layers.", l, ".mlp.linear_fc1.weight");
      ASSERT_EQ(read(checkpoint, "optimizer.exp_avg." + name), read(checkpoint, name)) << "seed " << seed;
    }
  }
}

TEST_F(DistCheckpoint, ABoxIsReadFromTheChunksThatHaveIt) {
  DistWriter writer;
  writer.add(norm_key, {4}, {2}, {3, 4}, {2});
  writer.add(norm_key, {4}, {0}, {1, 2}, {2});
  writer.write();
  std::vector<float> part(2);
  open().read_box(
      {.name = norm_key, .global_shape = Shape{4}, .offsets = {1}, .tensor = Tensor(std::span(part), Shape{2})});
  EXPECT_EQ(part, (std::vector<float>{2, 3}));
}

TEST_F(DistCheckpoint, ASaveThatWasInterruptedIsNamed) {
  auto writer = two_chunks();
  writer.write();
  fs::remove("metadata.json");
  ASSERT_TRUE(MegatronDistFormat().find("."));
  EXPECT_PRED2(says, refusal(), "the save was interrupted");
  write_file_atomic("metadata.json", std::string(R"({"sharded_backend": "zarr"})"));
  EXPECT_PRED2(says, refusal(), "sharded_backend is 'zarr'");
  write_file_atomic("metadata.json", std::string(R"({"sharded_backend": "torch_dist", "sharded_backend_version": 2})"));
  EXPECT_PRED2(says, refusal(), "metadata.json: sharded_backend_version is 2; at most 1 is read");
  write_file_atomic("metadata.json", std::string(R"({"sharded_backend": "torch_dist", "common_backend_version": 1})"));
  EXPECT_EQ(refusal(), "");
  fs::remove(".metadata");
  EXPECT_PRED2(says, refusal(), "has no .metadata, the index of its tensors");
}

TEST_F(DistCheckpoint, VerifyingTellsAnItemThatIsNoneAsDamage) {
  auto writer = two_chunks();
  writer.chunks[1].bytes -= 50;
  writer.write();
  EXPECT_THROW(open().verify(), checkpoint::DamageError);
}

TEST_F(DistCheckpoint, VerifyingNamesTheFileThatChanged) {
  auto writer = two_chunks();
  writer.write();
  const auto of = [](const char* name) { return sha256(read_file(name)); };
  const auto list = [&](const std::string& sum) {
    write_file_atomic("integrity.json", text(R"({"algorithm": "sha256", "files": {"common.pt": ")", of("common.pt"),
                                             R"(", "__0_0.distcp": ")", sum, R"("}})"));
  };
  list(of("__0_0.distcp"));
  open().verify();
  list(std::string(64, '0'));
  EXPECT_PRED2(says, story_of([&] { open().verify(); }), "__0_0.distcp: its SHA-256 is not the one of integrity.json");
  fs::remove("integrity.json");
  auto bytes = read_file("__0_0.distcp");
  const std::vector<float> last = {3, 4};
  const auto at = bytes.find(std::string(reinterpret_cast<const char*>(last.data()), 8));
  ASSERT_NE(at, std::string::npos);
  bytes[at] ^= 1;
  std::ofstream("__0_0.distcp", std::ios::binary) << bytes;
  EXPECT_PRED2(says, story_of([&] { open().verify(); }), "'decoder.final_layernorm.weight' at byte");
  const auto damaged = open();
  for (int twice = 0; twice < 2; ++twice)
    EXPECT_PRED2(says, story_of([&] { read(damaged, norm_key); }), "its CRC is not the one it was saved with");
}

TEST_F(DistCheckpoint, ChunksThatDoNotCoverTheirTensorAreNamed) {
  auto writer = two_chunks();
  writer.chunks[1].indexed = false;
  EXPECT_TRUE(
      says(refusal(writer), "the chunks of 'decoder.final_layernorm.weight' have 2 elements, the tensor [4] 4"));
  writer.chunks[1].indexed = true;
  writer.chunks[1].stored = false;
  EXPECT_PRED2(says, refusal(writer), "the chunk of 'decoder.final_layernorm.weight' at [2] is stored nowhere");
  writer.chunks[1].stored = true;
  writer.chunks[1].offsets = {3};
  EXPECT_TRUE(says(refusal(writer), "at [3], of extents [2] is outside") || says(refusal(writer), "is outside"));
  writer.chunks[1].offsets = {1};
  EXPECT_PRED2(says, refusal(writer), "have the same elements: those at [0] and at [1]");
  writer.chunks[1].offsets = {0};
  EXPECT_PRED2(says, refusal(writer), "a chunk of 'decoder.final_layernorm.weight' is stored twice");
}

TEST_F(DistCheckpoint, ItemsThatAreNotWhatTheIndexSaysAreNamed) {
  auto writer = two_chunks();
  writer.chunks[1].file = "../__0_0.distcp";
  EXPECT_PRED2(says, refusal(writer), "in the file '../__0_0.distcp'; the name of a file in this folder");
  writer.chunks[1].file = "__1_0.distcp";
  EXPECT_PRED2(says, refusal(writer), "__1_0.distcp: No such file");
  writer.chunks[1].file = "__0_0.distcp";
  writer.chunks[1].transform = "zstd";
  EXPECT_PRED2(says, refusal(writer), "has been transformed by 'zstd'");
  writer.chunks[1].transform = "";
  writer.chunks[1].bytes += 1;
  EXPECT_PRED2(says, refusal(writer), "it was truncated, or belongs to another checkpoint");
  writer.chunks[1].bytes -= 50;
  EXPECT_PRED2(says, refusal(writer), "as an archive");
  writer.chunks[1] = writer.chunks[0];
  writer.chunks[1].offsets = {2};
  writer.tensors[norm_key].type = "bfloat16";
  EXPECT_PRED2(says, refusal(writer), "is float32 [2]; the index says bfloat16 [2]");
  writer.tensors[norm_key].type = "float8_e4m3fn";
  EXPECT_PRED2(says, refusal(writer), "has elements of 'torch float8_e4m3fn', which are not read");
}

TEST_F(DistCheckpoint, AnIndexOnlyNamesWhatIndicesNeed) {
  auto writer = two_chunks();
  writer.stray_global = "os system";
  EXPECT_PRED2(says, refusal(writer), "it names os system, which no checkpoint of this kind needs");
  writer.stray_global = "";
  writer.root = "megatron.core.dist_checkpointing.strategies.torch MCoreMetadata";
  EXPECT_EQ(refusal(writer), "");
}

TEST_F(DistCheckpoint, PlansOfSavingRanksAreLeftOut) {
  auto writer = two_chunks();
  writer.plans = 500;
  EXPECT_EQ(refusal(writer), "");
  EXPECT_EQ(read(open(), norm_key), counted(4, 1));
}

TEST_F(DistCheckpoint, AFlattenedTensorOfOtherBlocksIsNamed) {
  DistWriter writer;
  writer.add("optimizer.state.exp_avg." + norm_key, {2, 3}, {0, 0}, counted(6), {2, 3}, {8});
  EXPECT_PRED2(says, refusal(writer), "is [2, 3] and was [8] before it was flattened");
}

}  // namespace
}  // namespace tessera::megatron
