// What a crash of the machine, at any moment of a save, leaves on the disk.
#include <gtest/gtest.h>

#include <deque>

#include "framework/interop/megatron/megatron.h"
#include "framework/interop/megatron/megatron_dist_format.h"
#include "tests/interop/megatron/save.h"
#include "tests/names_given.h"
#include "tests/own_folder.h"

namespace tessera {
namespace {

class MegatronCrashTest : public InOwnFolder {};

TEST_F(MegatronCrashTest, ACheckpointForMegatronIsStoredBeforeItGetsItsName) {
  const options::Mappings mappings;
  const megatron::MegatronCheckpoint source(TESTS_DATA "/megatron", mappings);
  std::deque<std::vector<float>> memory;
  std::vector<checkpoint::TensorRange> ranges;
  for (const auto& name : source.names()) {
    auto& values = memory.emplace_back(static_cast<std::size_t>(source.shape(name).elements()));
    ranges.push_back(checkpoint::whole(name, Tensor(std::span(values), source.shape(name))));
    source.read(name, ranges.back().tensor);
  }
  const auto given = names_given([&] {
    save_megatron("for/megatron", *source.progress(), ranges, source.recipe(), DType::float32, mappings,
                  {2, 1, {}, false});
  });
  EXPECT_EQ(given,
            (Names{"model_optim_rng.pt", "model_optim_rng.pt", "iter_0000005", "latest_checkpointed_iteration.txt"}));
}

TEST_F(MegatronCrashTest, ADistributedCheckpointIsStoredBeforeItGetsItsName) {
  const options::Mappings mappings;
  const megatron::MegatronCheckpoint source(TESTS_DATA "/megatron", mappings);
  std::deque<std::vector<float>> memory;
  std::vector<checkpoint::TensorRange> ranges;
  for (const auto& name : source.names()) {
    auto& values = memory.emplace_back(static_cast<std::size_t>(source.shape(name).elements()));
    ranges.push_back(checkpoint::whole(name, Tensor(std::span(values), source.shape(name))));
  }
  auto save = megatron_save("dist", *source.progress(), source.recipe(), DType::float32, mappings);
  save.files = {{"resolved.yaml", "a: b\n"}};
  const megatron::MegatronDistFormat format;
  const auto given = names_given([&] {
    format.begin(save);
    format.write_owned(save, ranks_of(save.recipe, save.layout)[0], 0, checkpoint::LiveState(ranges));
    format.finish(save);
  });
  EXPECT_EQ(given, (Names{"common.pt", ".metadata", "manifest.json", "metadata.json",
                          checkpoint::checkpoint_name("", save.iteration), "latest_checkpointed_iteration.txt"}));
}

}  // namespace
}  // namespace tessera
