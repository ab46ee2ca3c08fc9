#include <fstream>
#include <numeric>

#include "framework/checkpoint/checkpoint.h"
#include "tests/cli/run_program.h"
#include "tests/own_folder.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

/// `tessera checkpoint WORDS...` inside this process.
Outcome checkpoint_command(std::vector<std::string> words) {
  words.insert(words.begin(), "checkpoint");
  return run_program(std::move(words));
}

class CheckpointCommand : public InOwnFolder {
 protected:
  CheckpointCommand() {
    std::vector<float> weight(12), moment(12);
    std::iota(weight.begin(), weight.end(), 0.F);
    for (const int iteration : {5, 10})
      checkpoint::save_checkpoint(
          "run/checkpoints", "network", iteration,
          std::vector{checkpoint::whole("layer.weight", Tensor(std::span(weight), Shape{3, 4})),
                      checkpoint::whole("optimizer.exp_avg.layer.weight", Tensor(std::span(moment), Shape{3, 4}))},
          {{"resolved.yaml", "a: 1\n"}});
  }
  const std::string older = "run/checkpoints/network_iter_0000005", newer = "run/checkpoints/network_iter_0000010";

  static void damage(const std::string& folder) {
    std::ofstream file(folder + "/model_00000.safetensors", std::ios::in | std::ios::out | std::ios::ate);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
};

TEST_F(CheckpointCommand, InspectTellsWhatIsInTheNewestOfARun) {
  const auto said = checkpoint_command({"inspect", "run"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_NE(said.out.find(newer), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("iteration        10"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("weights          1 tensors, 12 elements"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("resolved.yaml, 5 bytes"), std::string::npos) << said.out;
  EXPECT_EQ(said.out.find("float32"), std::string::npos) << said.out;
}

TEST_F(CheckpointCommand, InspectListsTensorsWhenAsked) {
  const auto said = checkpoint_command({"inspect", older, "--tensors"});
  EXPECT_NE(said.out.find("layer.weight float32 [3, 4]\n"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("optimizer.exp_avg.layer.weight float32 [3, 4]\n"), std::string::npos) << said.out;
}

TEST_F(CheckpointCommand, VerifyPraisesAWholeOneAndNamesWhatIsDamaged) {
  EXPECT_EQ(checkpoint_command({"verify", older}).code, 0);
  damage(older);
  const auto said = checkpoint_command({"verify", older});
  EXPECT_EQ(said.code, 24);
  EXPECT_NE(said.err.find("model_00000.safetensors: tensor 'layer.weight'"), std::string::npos) << said.err;
  EXPECT_TRUE(fs::exists(older));  // looking changes nothing
  EXPECT_EQ(checkpoint_command({"verify", newer}).code, 0);
}

TEST_F(CheckpointCommand, ACheckpointWithoutManifestIsDamagedAndAnyOtherFolderIsAWrongArgument) {
  fs::remove(newer + "/manifest.json");
  EXPECT_EQ(checkpoint_command({"verify", newer}).code, 24);
  EXPECT_EQ(checkpoint_command({"verify", "run"}).code, 24);
  fs::create_directory("elsewhere");
  EXPECT_EQ(checkpoint_command({"verify", "elsewhere"}).code, 2);
  EXPECT_EQ(checkpoint_command({"inspect", "absent"}).code, 2);
}

}  // namespace
}  // namespace tessera::cli
