#include "framework/options/mappings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "framework/base/files.h"
#include "tests/cli/run_program.h"
#include "tests/own_folder.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

/// A change of one table that a command must show.
struct MappingsCase {
  Words command;  ///< "OUT" stands for a folder that does not exist
  std::string table;
  std::string words, by;  ///< the first occurrence of `words` becomes `by`
  std::string shows;      ///< told with the changed table, and not with the program's own
};

std::string words_of(const Words& command) {
  std::string all;
  for (const auto& word : command) all += word + " ";
  return all;
}

void PrintTo(const MappingsCase& one, std::ostream* out) { *out << words_of(one.command); }

const std::string flags = "flags/megatron.yaml", flag = "--num-layers:", other_flag = "--layer-count:";
const std::string weights = "weights/megatron.yaml", renamed = "renamed:",
                  twice = "renamed:\n  decoder.final_layernorm.weight: decoder.layers.0.input_layernorm.weight";
const std::string llama = "models/llama.yaml", depth = "num_hidden_layers:", other_depth = "depth:";

/// Commands that read no table of mappings/.
const Words read_none = {"checkpoint reshard", "data checksum", "data inspect",  "data merge",
                         "data render-chat",   "export",        "data to-jsonl", "data llava-to-mllm",
                         "data train-bpe",     "doctor",        "man",           "state clean",
                         "state finish",       "state probe",   "state save",    "watch"};

const std::string mm = TESTS_DATA "/mindspeed_mm/checkpoints/";

/// A command of mm-convert with another name of the last norm.
MappingsCase mm_convert(const std::string& name, const Words& arguments, const std::string& shows) {
  Words command = {"checkpoint", "mm-convert", "Qwen2VLConverter", name};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return {command, "weights/mindspeed_mm.yaml", "{to: text_decoder.decoder.final_layernorm",
          "{to: text_decoder.decoder.other_layernorm", shows};
}

std::vector<MappingsCase> cases() {
  const std::string unknown = "--num-layers: unknown flag";
  return {
      {{"options", "num_layers"}, flags, flag, other_flag, "--layer-count"},
      {{"options", "--markdown"}, flags, flag, other_flag, "--layer-count"},
      {{"options", "--flags-markdown"}, flags, flag, other_flag, "--layer-count"},
      {{"options", "--flag", "--layer-count"}, flags, flag, other_flag, "model_config.num_layers"},
      {{"explain", "model_config.num_layers"}, flags, flag, other_flag, "--layer-count"},
      {{"explain", "model_config.hidden_size", "flags.sh"}, flags, flag, other_flag, "mistakes"},
      {{"check", "flags.sh"}, flags, flag, other_flag, unknown},
      {{"check", "run.yaml", "--as", "megatron"}, flags, flag, other_flag, "layer_count 2"},
      {{"check", "on_given.yaml"}, llama, depth, other_depth, "num_hidden_layers"},
      {{"train", "flags.sh", "--print-output-dir"}, flags, flag, other_flag, unknown},
      {{"data", "show", "flags.sh"}, flags, flag, other_flag, unknown},
      {{"data", "preprocess", "--recipe", "flags.sh", "--input", "text", "--output-prefix", "OUT"},
       flags,
       flag,
       other_flag,
       unknown},
      {{"diff", "run.yaml", "flags.sh"}, flags, flag, other_flag, unknown},
      {{"convert", "flags.sh"}, flags, flag, other_flag, "unknown flag"},
      {{"convert", "--", "--num-layers", "2"}, flags, flag, other_flag, "unknown flag"},
      {{"convert", "run.yaml", "--to", "megatron", "--allow-refused"}, flags, flag, other_flag, "--layer-count 2"},
      {{"convert", "run.yaml", "--to", "mindspeed-core-ms"},
       "recipes/core_ms.yaml",
       "training_iters: 0",
       "iterations: 0",
       "no key for training_config.training_iters"},
      {{"completion", "bash"}, "flags/pai.yaml", "name: pai-megatron-patch", "name: pai-renamed", "pai-renamed"},
      {{"completion", "zsh"}, "flags/pai.yaml", "name: pai-megatron-patch", "name: pai-renamed", "pai-renamed"},
      {{"completion", "fish"}, "flags/pai.yaml", "name: pai-megatron-patch", "name: pai-renamed", "pai-renamed"},
      {{"eval", "given", "--data", "text"}, llama, depth, other_depth, "num_hidden_layers"},
      {{"merge", TESTS_DATA "/finetune/lora/llama_qv/adapter", "OUT", "--base", "given"},
       llama,
       depth,
       other_depth,
       "num_hidden_layers"},
      {{"generate", "given", "--prompt-tokens", "1 2", "--tokens", "1"},
       llama,
       depth,
       other_depth,
       "num_hidden_layers"},
      {{"checkpoint", "inspect", "theirs"}, weights, renamed, twice, "is there twice"},
      {{"checkpoint", "list", "theirs"}, weights, renamed, twice, "is there twice"},
      {{"checkpoint", "verify", "theirs"}, weights, renamed, twice, "is there twice"},
      {{"report", "reported", "-o", "OUT"}, weights, renamed, twice, "is there twice"},
      {{"checkpoint", "convert", "--from", "megatron", "--to", "tessera", "theirs", "OUT"},
       weights,
       renamed,
       twice,
       "is there twice"},
      {{"checkpoint", "convert", "--from", "hf", "--to", "tessera", "given", "OUT"},
       llama,
       depth,
       other_depth,
       "num_hidden_layers is"},
      {{"checkpoint", "convert", "--from", "tessera", "--to", "hf", "ours", "OUT"},
       llama,
       depth,
       other_depth,
       "\"depth\": 2"},
      {{"checkpoint", "convert", "--from", "tessera", "--to", "megatron", "ours", "OUT"},
       "arguments/megatron.yaml",
       "num_layers: {to",
       "layer_count: {to",
       "layer_count"},
      mm_convert("hf_to_mm",
                 {"--cfg.mm_dir", "OUT", "--cfg.hf_config.hf_dir", mm + "hf_tied",
                  "--cfg.parallel_config.llm_pp_layers", "[6]", "--cfg.parallel_config.vit_pp_layers", "[4]"},
                 "other_layernorm"),
      mm_convert(
          "mm_to_hf",
          {"--cfg.save_hf_dir", "OUT", "--cfg.mm_dir", mm + "mm/tied_tp1_pp2", "--cfg.hf_config.hf_dir", mm + "hf_tied",
           "--cfg.parallel_config.llm_pp_layers", "[3,3]", "--cfg.parallel_config.vit_pp_layers", "[4,0]"},
          "another release"),
      mm_convert(
          "resplit",
          {"--cfg.target_dir", "OUT", "--cfg.source_dir", mm + "mm/tied_tp1_pp2",
           "--cfg.source_parallel_config.llm_pp_layers", "[3,3]", "--cfg.source_parallel_config.vit_pp_layers", "[4,0]",
           "--cfg.target_parallel_config.llm_pp_layers", "[6]", "--cfg.target_parallel_config.vit_pp_layers", "[4]"},
          "another release"),
  };
}

class MappingsFolder : public InOwnFolder, public testing::WithParamInterface<MappingsCase> {
 protected:
  MappingsFolder() {
    write("run.yaml",
          "training_config: {training_iters: 20}\n"
          "model_config: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, seq_length: 16, vocab_size: 64}\n"
          "dataset_config: {dataset_type: mock, batch_size: 2}\n"
          "optimizer_config: {learning_rate: 1e-3}\n");
    write("flags.sh",
          "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 \\\n"
          "  --max-position-embeddings 16 --micro-batch-size 1 --train-iters 2 --lr 1e-3 --mock-data \\\n"
          "  --tokenizer-type NullTokenizer --vocab-size 63\n");
    write("on_given.yaml",
          "training_config: {training_iters: 2, load_checkpoint: given}\n"
          "model_config: {seq_length: 16}\n"
          "dataset_config: {dataset_type: mock, batch_size: 2}\n"
          "optimizer_config: {learning_rate: 1e-3}\n");
    fs::create_directory_symlink(TESTS_DATA "/megatron", "theirs");
    fs::create_directory("given");
    fs::create_directory("reported");
    fs::copy_file("run.yaml", "reported/resolved.yaml");
    fs::create_directory_symlink(TESTS_DATA "/megatron/iter_0000005", "reported/iter_0000005");
    for (const auto* file : {"config.json", "model.safetensors"})
      fs::copy_file(fs::path(TESTS_DATA "/families/llama") / file, fs::path("given") / file);
    if (std::count(GetParam().command.begin(), GetParam().command.end(), "ours") == 0) return;
    const auto made = run_program({"checkpoint", "convert", "--from", "hf", "--to", "tessera", "given", "ours"});
    EXPECT_EQ(made.code, 0) << made.err;
  }

  /// The program's own tables in `folder`, with the change of `one`.
  static void write_tables(const std::string& folder, const MappingsCase& one) {
    const options::Mappings own;
    for (const auto& file : own.names()) {
      auto table = own.text(file);
      if (file == one.table) {
        const auto at = table.find(one.words);
        ASSERT_NE(at, std::string::npos) << file << " has no " << one.words;
        table.replace(at, one.words.size(), one.by);
      }
      fs::create_directories((fs::path(folder) / file).parent_path());
      write((fs::path(folder) / file).string(), table);
    }
  }

  /// What the command prints and writes.
  std::string told(Words command, const Words& before) {
    const auto folder = "out" + std::to_string(++runs_);
    std::replace(command.begin(), command.end(), std::string("OUT"), folder);
    command.insert(command.begin(), before.begin(), before.end());
    const auto outcome = run_program(command);
    auto all = outcome.out + outcome.err;
    if (!fs::exists(folder)) return all;
    if (fs::is_regular_file(folder)) return all + read_file(folder);
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) all += read_file(entry.path());
    return all;
  }

 private:
  int runs_ = 0;
};

TEST_P(MappingsFolder, IsReadInsteadOfTheCompiledInTables) {
  const auto& one = GetParam();
  write_tables("changed", one);
  const auto with_own = told(one.command, {}), with_changed = told(one.command, {"--mappings", "changed"});
  EXPECT_EQ(with_own.find(one.shows), std::string::npos) << with_own;
  EXPECT_NE(with_changed.find(one.shows), std::string::npos) << with_changed;
}

INSTANTIATE_TEST_SUITE_P(Every, MappingsFolder, testing::ValuesIn(cases()), [](const auto& param) {
  auto name = std::to_string(param.index) + "_" + words_of(param.param.command);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name.substr(0, 60);
});

/// The commands without subcommands, by the words for which the completion script has options.
Words all_commands() {
  std::istringstream script(run_program({"completion", "bash"}).out);
  const std::string before = "\"tessera ", after = "\")";
  Words found, commands;
  for (std::string line; std::getline(script, line);) {
    const auto at = line.find(before), end = line.find(after, at + 1);
    if (at != std::string::npos && end != std::string::npos)
      found.push_back(line.substr(at + before.size(), end - at - before.size()));
  }
  for (const auto& command : found)
    if (std::none_of(found.begin(), found.end(), [&](const auto& other) { return other.rfind(command + " ", 0) == 0; }))
      commands.push_back(command);
  return commands;
}

TEST(MappingsCases, HaveEveryCommandThatReadsTables) {
  const auto commands = all_commands();
  const auto with_case = cases();
  EXPECT_GT(commands.size(), read_none.size());
  for (const auto& command : commands) {
    const bool has_case = std::any_of(with_case.begin(), with_case.end(), [&](const auto& one) {
      return words_of(one.command).rfind(command + " ", 0) == 0;
    });
    EXPECT_NE(has_case, std::count(read_none.begin(), read_none.end(), command) == 1)
        << command << ": give it a case, or list it in read_none";
  }
}

}  // namespace
}  // namespace tessera::cli
