#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "framework/base/files.h"
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

/// A folder of Hugging Face Transformers with a key that no table has.
class ForeignKeys : public InOwnFolder {
 protected:
  ForeignKeys() {
    fs::copy(fs::path(TESTS_DATA) / "models/llama/hf", "theirs");
    auto config = nlohmann::json::parse(read_file("theirs/config.json"));
    config["clever_new_thing"] = 3;
    write("theirs/config.json", config.dump());
    write("run.yaml",
          "training_config: {training_iters: 1, load_checkpoint: theirs}\noptimizer_config: {learning_rate: 1e-3}\n"
          "model_config: {seq_length: 16}\ndataset_config: {dataset_type: mock}\n");
  }
};

TEST_F(ForeignKeys, AreNamedWithTheOptionThatIgnoresThem) {
  const std::vector<std::vector<std::string>> commands = {
      {"checkpoint", "inspect", "theirs"},
      {"checkpoint", "convert", "--from", "hf", "--to", "tessera", "theirs", "out"},
      {"generate", "theirs", "--prompt-tokens", "1 2", "--tokens", "1", "--threads", "1"}};
  for (auto words : commands) {
    const auto refused = run_program(words);
    EXPECT_NE(refused.code, 0) << words[0];
    EXPECT_NE(refused.err.find("--ignore-key clever_new_thing"), std::string::npos) << refused.err;
    words.insert(words.end(), {"--ignore-key", "clever_new_thing"});
    const auto read = run_program(words);
    EXPECT_EQ(read.code, 0) << read.err;
    EXPECT_NE((read.out + read.err).find("as asked: clever_new_thing"), std::string::npos) << read.out << read.err;
  }
  const auto verified = run_program({"checkpoint", "verify", "theirs", "--ignore-key", "clever_new_thing"});
  EXPECT_NE(verified.err.find("have no checksums"), std::string::npos) << verified.err;
}

TEST_F(ForeignKeys, AreIgnoredByAnOptionOfTheRecipe) {
  const auto refused = run_program({"check", "run.yaml"});
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.err.find("training_config.ignore_config_keys: [clever_new_thing]"), std::string::npos)
      << refused.err;
  const auto read =
      run_program({"check", "run.yaml", "--set", "training_config.ignore_config_keys=[clever_new_thing]"});
  EXPECT_EQ(read.code, 0) << read.out << read.err;
}

/// A folder of Transformers whose config.json and tokenizer_config.json name Python code.
class CodeBesideAModel : public InOwnFolder {
 protected:
  CodeBesideAModel() {
    fs::copy(fs::path(TESTS_DATA) / "models/llama/hf", "theirs");
    auto config = nlohmann::json::parse(read_file("theirs/config.json"));
    config["auto_map"] = {{"AutoConfig", "configuration_llama.LlamaConfig"},
                          {"AutoModelForCausalLM", "modeling_llama.LlamaForCausalLM"},
                          {"AutoModel", "some/where--modeling_llama.LlamaModel"}};
    write("theirs/config.json", config.dump());
    const nlohmann::json tokenizer = {{"auto_map", {{"AutoTokenizer", {"tokenization_own.OwnTokenizer", nullptr}}}},
                                      {"clean_up", false}};
    write("theirs/tokenizer_config.json", tokenizer.dump());
    write("theirs/modeling_llama.py", "import math\nfrom .helper_of_llama import help\nfrom .. import os\n");
    for (const auto* name : {"configuration_llama", "helper_of_llama", "tokenization_own", "unrelated"})
      write(text("theirs/", name, ".py"), name);
  }
  static std::string there_and_back() {
    for (const auto* folder : {"ours", "back"}) fs::remove_all(folder);
    EXPECT_EQ(run_program({"checkpoint", "convert", "--from", "hf", "--to", "tessera", "theirs", "ours"}).code, 0);
    const auto back = run_program({"checkpoint", "convert", "--from", "tessera", "--to", "hf", "ours", "back"});
    EXPECT_EQ(back.code, 0) << back.err;
    return back.out;
  }
};

TEST_F(CodeBesideAModel, IsCopiedWithWhatItImports) {
  there_and_back();
  const auto of = [](const char* folder) {
    return nlohmann::json::parse(read_file(text(folder, "/config.json")))["auto_map"];
  };
  EXPECT_EQ(of("back"), of("theirs"));
  for (const auto* name : {"configuration_llama", "modeling_llama", "helper_of_llama", "tokenization_own"})
    EXPECT_EQ(read_file(text("back/", name, ".py")), read_file(text("theirs/", name, ".py")));
  EXPECT_FALSE(fs::exists("back/unrelated.py"));
  EXPECT_EQ(read_file("back/tokenizer_config.json"), read_file("theirs/tokenizer_config.json"));
}

TEST_F(CodeBesideAModel, IsNotNamedWhereItIsNot) {
  fs::remove("theirs/modeling_llama.py");
  fs::remove("theirs/tokenization_own.py");
  const auto said = there_and_back();
  EXPECT_NE(said.find("config.json: auto_map is written without AutoModelForCausalLM, because"), std::string::npos)
      << said;
  const auto map = nlohmann::json::parse(read_file("back/config.json"))["auto_map"];
  EXPECT_EQ(map.size(), 2U) << map;
  EXPECT_TRUE(map.contains("AutoConfig") && map.contains("AutoModel")) << map;
  const auto tokenizer = nlohmann::json::parse(read_file("back/tokenizer_config.json"));
  EXPECT_EQ(tokenizer, (nlohmann::json{{"clean_up", false}}));
}

}  // namespace
}  // namespace tessera::cli
