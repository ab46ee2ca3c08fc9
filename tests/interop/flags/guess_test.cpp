#include "framework/interop/flags/guess.h"

#include <gtest/gtest.h>

#include "tests/tree.h"

namespace tessera {
namespace {

flags::Launch launch_of(const std::vector<std::string>& words, const std::string& program = "pretrain_gpt.py",
                        const std::string& launcher = "torchrun") {
  flags::Launch launch;
  launch.flags = flags::flags_of(words);
  launch.program = program;
  launch.launcher = launcher;
  return launch;
}

std::string guessed_table(const flags::Launch& launch) {
  return flags::guess_source(launch, options::Mappings()).table;
}

TEST(Guess, OneFlagThatOnlyOneProgramHasTells) {
  EXPECT_EQ(guessed_table(launch_of({"--lr", "1", "--ai-framework", "mindspore"})), "mindspeed-llm");
  EXPECT_EQ(guessed_table(launch_of({"--spec", "mindspeed_llm.tasks.models.spec.qwen3_spec", "layer_spec"})),
            "mindspeed-llm");
  EXPECT_EQ(guessed_table(launch_of({"--lr", "1", "--deepspeed"})), "deepspeed");
  EXPECT_EQ(guessed_table(launch_of({"--num_layers", "2"})), "megatron-llm");
  EXPECT_EQ(flags::guess_source(launch_of({"--deepspeed"}), options::Mappings()).why,
            "--deepspeed is Megatron-DeepSpeed's");
}

TEST(Guess, TheTableThatKnowsMostFlagsIsTaken) {
  EXPECT_EQ(guessed_table(launch_of({"--lr", "1", "--use-fused-rmsnorm", "--reuse-fp32-param"})), "mindspeed-llm");
  EXPECT_EQ(guessed_table(launch_of({"--extra-vocab-size", "293", "--max-padding-length", "80"})),
            "pai-megatron-patch");
  EXPECT_EQ(guessed_table(launch_of({"--train-tokens", "300", "--zero-stage", "1"})), "deepspeed");
  const auto guess =
      flags::guess_source(launch_of({"--lr", "1", "--swap-attention", "--reuse-fp32-param"}), options::Mappings());
  EXPECT_EQ(guess.why, "it knows 2 more of its flags, --swap-attention first");
}

TEST(Guess, TheUsualTableIsTakenWhereNothingTells) {
  EXPECT_EQ(guessed_table(launch_of({"--lr", "1"})), flags::FlagTable::usual);
  EXPECT_EQ(guessed_table(launch_of({})), flags::FlagTable::usual);
  EXPECT_EQ(guessed_table(launch_of({"--no-such-flag-anywhere"})), flags::FlagTable::usual);
}

TEST(Guess, TheLauncherTellsWhereNoFlagDoes) {
  EXPECT_EQ(guessed_table(launch_of({"--lr", "1"}, "pretrain_gpt.py", "msrun")), "mindspeed-core-ms");
  EXPECT_EQ(guessed_table(launch_of({"--ai-framework", "mindspore"}, "pretrain_gpt.py", "msrun")), "mindspeed-llm");
}

TEST(Guess, EveryTableThatASignNamesExists) {
  const options::Mappings mappings;
  const auto signs = mappings.table("sources.yaml");
  for (const auto& sign : value_at(signs, "signs").items)
    EXPECT_NO_THROW(flags::FlagTable::named(value_at(sign, "table").scalar, mappings))
        << value_at(sign, "table").scalar;
}

}  // namespace
}  // namespace tessera
