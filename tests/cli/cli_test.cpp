#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/cli/recipe_arguments.h"
#include "tests/cli/run_program.h"
#include "tests/own_folder.h"

namespace tessera::cli {
namespace {

class Program : public InOwnFolder {
 protected:
  static Outcome tessera(std::vector<std::string> words) { return run_program(std::move(words)); }
  static bool has(const std::string& words, const std::string& part) { return words.find(part) != std::string::npos; }

  void SetUp() override {
    write("run.yaml",
          "training_config: {training_iters: 20}\n"
          "model_config: {num_layers: 2, hidden_size: 32, num_attention_heads: 4, seq_length: 16, vocab_size: 64}\n"
          "dataset_config: {dataset_type: mock, batch_size: 2}\n"
          "optimizer_config: {lr: 1e-3}\n");
  }
};

TEST_F(Program, HelpAndVersionEndWell) {
  const auto help = tessera({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const auto* command : {"train", "check", "options", "data", "checkpoint", "eval", "generate", "completion"})
    EXPECT_TRUE(has(help.out, command)) << command;
  const auto version = tessera({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(has(version.out, "tessera 0."));
}

TEST_F(Program, WhatIsMisspelledIsToldItsNearestName) {
  const auto command = tessera({"trian", "run.yaml"});
  EXPECT_EQ(command.code, 2);
  EXPECT_TRUE(has(command.err, "no command 'trian'; did you mean 'train'?")) << command.err;
  const auto option = tessera({"check", "--sett", "a.b=c", "run.yaml"});
  EXPECT_EQ(option.code, 2);
  EXPECT_TRUE(has(option.err, "no option '--sett'; did you mean '--set'?")) << option.err;
  EXPECT_EQ(tessera({}).code, 2);
  EXPECT_EQ(tessera({"check"}).code, 2);
  EXPECT_EQ(tessera({"check", "run.yaml", "left.yaml"}).code, 2);
}

TEST_F(Program, CheckTellsWhatFollowsFromARecipe) {
  const auto told = tessera({"check", "--set", "dataset_config.micro_batch_num=3", "run.yaml"});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_TRUE(has(told.out, "parameters                        28 032\n")) << told.out;
  EXPECT_TRUE(has(told.out, "6 samples = 3 micro-batches of 2, 96 tokens\n")) << told.out;
  EXPECT_EQ(told.err, "note: run.yaml:4: lr is read as learning_rate\n");
}

TEST_F(Program, CheckTellsWhichExpertsARankHas) {
  std::vector<std::string> words = {"check", "run.yaml", "--ranks", "4"};
  for (const auto* set :
       {"model_config.num_experts=8", "model_config.add_bias_linear=false", "moe_config.moe_ffn_hidden_size=16",
        "parallel_config.tensor_model_parallel_size=2", "parallel_config.sequence_parallel=true",
        "parallel_config.expert_tensor_parallel_size=2", "parallel_config.expert_model_parallel_size=2"})
    words.insert(words.end(), {"--set", set});
  const auto told = tessera(words);
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_TRUE(has(told.out, "experts of a stage: expert tensor 2 x expert 2 x data 1, neighbours first\n")) << told.out;
  EXPECT_TRUE(has(told.out, "  data  expert tensor  expert  experts  parameters"));
  EXPECT_TRUE(has(told.out, "     3       1         0     1              1       1      4-7 ")) << told.out;
  EXPECT_TRUE(has(told.out, " if all tokens choose experts of other ranks, ")) << told.out;
}

TEST_F(Program, CheckReportsEveryMistakeInText) {
  const auto told =
      tessera({"check", "run.yaml", "--set", "training_config.seed=x", "--set", "model_config.num_layers=0"});
  EXPECT_EQ(told.code, 2);
  EXPECT_EQ(told.out, "");
  EXPECT_TRUE(has(told.err,
                  "--set training_config.seed: seed takes int, not 'x'; for example 1234\n"
                  "--set model_config.num_layers: num_layers must be >= 1, is 0; give a value >= 1\n"))
      << told.err;
}

TEST_F(Program, CheckTellsARunInTheArgumentsOfMegatron) {
  const auto told = tessera(
      {"check", "run.yaml", "--as", "megatron", "--json", "--ranks", "2", "--set", "training_config.bf16=true"});
  EXPECT_EQ(told.code, 0) << told.err;
  const auto json = nlohmann::json::parse(told.out);
  EXPECT_EQ(json.at("data_parallel_size"), 2);
  EXPECT_EQ(json.at("params_dtype"), "torch.bfloat16");
  EXPECT_TRUE(has(tessera({"check", "run.yaml", "--as", "megatron"}).out, "params_dtype \"torch.float32\"\n"));
  EXPECT_EQ(tessera({"check", "run.yaml", "--as", "nobody"}).code, 2);
}

TEST_F(Program, CheckOfAScriptNamesItsFlagsAndEachRuleOnce) {
  write("run.sh",
        "torchrun pretrain_gpt.py --num-layers 2 --num-attention-heads 4 --hidden-size 66 --seq-length 32 "
        "--max-position-embeddings 32 --lr 1e-3 --train-iters 7 --micro-batch-size 1 --mock-data "
        "--tokenizer-type NullTokenizer --vocab-size 99 --squared-relu\n");
  const std::string heads =
      "run.sh:1: --num-attention-heads is 4, which does not divide --hidden-size 66; change one, "
      "or give --kv-channels\n";
  const auto told = tessera({"check", "run.sh"});
  EXPECT_EQ(told.code, 2);
  EXPECT_TRUE(has(told.err, heads)) << told.err;
  EXPECT_FALSE(has(told.err, "Megatron-LM stops here")) << told.err;
  const auto as_theirs = tessera({"check", "run.sh", "--as", "megatron"});
  EXPECT_EQ(as_theirs.code, 2);
  const auto first = as_theirs.err.find(heads);
  EXPECT_TRUE(first != std::string::npos && as_theirs.err.find(heads, first + 1) == std::string::npos) << as_theirs.err;
  EXPECT_TRUE(has(as_theirs.err, "run.sh:1: Megatron-LM stops here: the fusion of bias and activation"))
      << as_theirs.err;
  EXPECT_TRUE(has(tessera({"convert", "run.sh", "-o", "out.yaml"}).err, "note: " + heads));
}

TEST_F(Program, CheckReportsEveryMistakeAsJson) {
  write("bad.yaml", "training_config:\n  training_itres: 20\n");
  const auto told = tessera({"check", "bad.yaml", "--json"});
  EXPECT_EQ(told.code, 2);
  const auto json = nlohmann::json::parse(told.out);
  const auto found = std::find_if(json.begin(), json.end(), [](const auto& one) { return one["line"] == 2; });
  ASSERT_NE(found, json.end()) << told.out;
  EXPECT_EQ(*found, (nlohmann::json{{"file", "bad.yaml"},
                                    {"line", 2},
                                    {"key", "training_config.training_itres"},
                                    {"message", "no option 'training_itres' in training_config"},
                                    {"suggestion", "did you mean 'training_iters'?"}}));
  EXPECT_EQ(nlohmann::json::parse(tessera({"check", "run.yaml", "--json"}).out), nlohmann::json::array());
}

TEST_F(Program, CheckNamesDataThatIsNotThere) {
  const std::vector<std::string> words = {
      "check", "run.yaml", "--set", "dataset_config.dataset_type=gpt", "--set", "dataset_config.data_path=absent/text"};
  const auto told = tessera(words);
  EXPECT_EQ(told.code, 2);
  EXPECT_TRUE(has(told.err, "absent/text")) << told.err;
  auto json = words;
  json.push_back("--json");
  EXPECT_EQ(nlohmann::json::parse(tessera(json).out).size(), 1u);
}

TEST_F(Program, OptionsAreFoundByPartsOfNamesAliasesAndFlags) {
  EXPECT_TRUE(
      has(tessera({"options", "betas"}).out, "optimizer_config.betas: list of 2 float = [0.9, 0.999], >= 0, < 1"));
  EXPECT_TRUE(has(tessera({"options", "adam_beta1"}).out, "optimizer_config.betas"));
  EXPECT_TRUE(
      has(tessera({"options", "--adam-beta1"}).err + tessera({"options", "adam-beta1"}).out, "optimizer_config.betas"));
  EXPECT_TRUE(has(tessera({"options", "lr*style"}).out, "optimizer_config.lr_decay_style"));
  const auto nothing = tessera({"options", "betaz"});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_TRUE(has(nothing.err, "did you mean 'betas'?")) << nothing.err;
  const auto planned = tessera({"options", "--planned"}).out;
  EXPECT_TRUE(has(planned, "parallel_config.use_custom_fsdp"));
  EXPECT_FALSE(has(planned, "optimizer_config.betas"));
}

TEST_F(Program, TheSchemaForEditorsIsJson) {
  const auto schema = nlohmann::json::parse(tessera({"options", "--json-schema"}).out);
  const auto& optimizer = schema["properties"]["optimizer_config"]["properties"];
  EXPECT_EQ(optimizer["clip_grad"]["default"], 1.0);
  EXPECT_TRUE(optimizer.contains("betas"));
  EXPECT_FALSE(optimizer["betas"].contains("default")) << "optimizers have defaults of their own";
  EXPECT_TRUE(schema["properties"]["model_config"]["properties"]["fa_config"]["properties"].contains("pre_tokens"));
}

TEST_F(Program, MappingsComeFromAFolderWhenOneIsGiven) {
  std::filesystem::create_directories("own/flags");
  write("own/flags/megatron.yaml", "flags: {--rate: {to: optimizer_config.learning_rate}}\n");
  EXPECT_TRUE(has(tessera({"--mappings", "own", "options", "learning_rate"}).out, "Megatron: --rate\n"));
  const auto wrong = tessera({"--mappings", "nowhere", "options"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_TRUE(has(wrong.err, "nowhere"));
}

TEST_F(Program, AConditionThatIsNotKnownStopsWhateverReadsAScript) {
  write(
      "size.sh",
      "SIZE=$2\nif [ $SIZE = small ]; then L=2; else L=4; fi\n"
      "torchrun pretrain_gpt.py --num-layers $L --hidden-size 32 --num-attention-heads 4 --seq-length 16 \\\n"
      "  --max-position-embeddings 16 --micro-batch-size $3 --train-iters 2 --lr 1e-3 --mock-data --num-workers 2 \\\n"
      "  --tokenizer-type NullTokenizer --vocab-size 63\n");
  const auto* story = "size.sh:2: '[ $SIZE = small ]' decides --num-layers, but $2 is not known; give --arg 2=VALUE";
  const auto converted = tessera({"convert", "size.sh", "-o", "recipe.yaml"});
  EXPECT_EQ(converted.code, 3);
  EXPECT_TRUE(has(converted.err, story)) << converted.err;
  EXPECT_TRUE(has(converted.err, "$3 of --micro-batch-size is left to the caller; give --arg 3=VALUE"))
      << converted.err;
  EXPECT_FALSE(std::filesystem::exists("recipe.yaml"));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"check", "size.sh"}, {"train", "size.sh", "--print-output-dir"}}) {
    const auto told = tessera(words);
    EXPECT_EQ(told.code, 2);
    EXPECT_TRUE(has(told.err, story)) << told.err;
    EXPECT_TRUE(has(told.err, "give --arg 3=VALUE")) << told.err;
    EXPECT_FALSE(has(told.err, "missing")) << told.err;
  }
  const auto explained = tessera({"explain", "model_config.num_layers", "size.sh"});
  EXPECT_EQ(explained.code, 2) << explained.out;  // the default is not the value
  EXPECT_TRUE(has(explained.err, story)) << explained.err;
  EXPECT_TRUE(has(tessera({"diff", "run.yaml", "size.sh"}).err, story));
  EXPECT_EQ(tessera({"diff", "size.sh", "size.sh", "--arg", "2=small", "--arg", "3=1"}).code, 0);
  const auto allowed = tessera({"convert", "size.sh", "--allow-refused"});
  EXPECT_EQ(allowed.code, 0);
  for (const auto* comment : {"#   --num-layers 2  # undecided: by '[ $SIZE = small ]', line 2",
                              "#   --num-layers 4  # undecided: where '[ $SIZE = small ]' falls otherwise"})
    EXPECT_TRUE(has(allowed.out, comment)) << allowed.out;
  EXPECT_FALSE(has(allowed.out, "\n  num_layers: ")) << allowed.out;
  const auto answered = tessera({"convert", "size.sh", "--arg", "2=small", "--arg", "3=1"});
  EXPECT_EQ(answered.code, 0) << answered.err;
  EXPECT_TRUE(has(answered.out, "num_layers: 2\n")) << answered.out;
  EXPECT_NE(tessera({"diff", "run.yaml", "size.sh", "--arg", "2=small", "--arg", "3=1"}).code, 2);
  const auto unused = tessera({"check", "run.yaml", "--env", "SIZE=small"});
  EXPECT_EQ(unused.code, 2);
  EXPECT_TRUE(has(unused.err, "how another program's launch script is read, and run.yaml is a recipe")) << unused.err;
  write("env.sh", "python pretrain_gpt.py --num-layers $LAYERS\n");
  const auto last = tessera({"convert", "env.sh", "--env", "LAYERS=1", "--env", "LAYERS=3"});
  EXPECT_TRUE(has(last.out, "num_layers: 3\n")) << last.out << last.err;
  const auto missing = tessera({"check", "env.sh", "--env", "LAYERS=3"});
  EXPECT_TRUE(has(missing.err, "env.sh:1: model_config.hidden_size is missing")) << missing.err;
}

TEST_F(Program, NumbersOfArgumentsAreDecimal) {
  for (const char* wrong : {"010", "0x10", " 010"}) {
    const auto told = tessera({"check", "run.yaml", "--ranks", wrong});
    EXPECT_EQ(told.code, 2) << wrong;
    EXPECT_TRUE(has(told.err, text("'", wrong, "' is not in decimal digits"))) << told.err;
  }
  EXPECT_EQ(tessera({"check", "run.yaml", "--ranks", "1"}).code, 0);
}

TEST_F(Program, TheValueOfAnOptionBeforeACommandIsNotTakenForACommand) {
  const auto told = tessera({"--log-level", "debug", "check"});
  EXPECT_TRUE(has(told.err, "RECIPE is required")) << told.err;
}

TEST_F(Program, AnExportedFileNeverReplacesOneOfTheRun) {
  std::filesystem::create_directory("run");
  write("run/metrics.jsonl", "{\"iteration\": 1, \"loss\": 2.5}\n");
  write("run/events.jsonl", "{}\n");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"export", "run", "--to", "csv", "-o", "run/metrics.jsonl"},
        {"export", "run", "--to", "prometheus", "-o", "run/events.jsonl"},
        {"report", "run", "--force", "-o", "run/metrics.jsonl"}}) {
    const auto told = tessera(words);
    EXPECT_EQ(told.code, 2) << told.out;
    EXPECT_TRUE(has(told.err, "would overwrite the input")) << told.err;
  }
  EXPECT_EQ(read_file("run/metrics.jsonl"), "{\"iteration\": 1, \"loss\": 2.5}\n");
  EXPECT_EQ(tessera({"export", "run", "--to", "csv", "-o", "run/metrics.csv"}).code, 0);
  EXPECT_EQ(tessera({"export", "run", "--to", "csv", "-o", "run/metrics.csv"}).code, 0);
}

TEST_F(Program, ARecipeWithoutDataIsCheckedWithANote) {
  const std::vector<std::string> gpt = {"check", "run.yaml", "--set", "dataset_config.dataset_type=gpt"};
  const auto checked = tessera(gpt);
  EXPECT_EQ(checked.code, 0);
  EXPECT_TRUE(has(checked.err, "run.yaml: `tessera train` would refuse it: dataset_config.data_path is missing"))
      << checked.err;
  EXPECT_FALSE(has(tessera({"check", "run.yaml"}).err, "data_path is missing"));
}

TEST_F(Program, AFolderWithoutCheckpointIsToldByCheck) {
  const auto told = [](const std::string& set) { return tessera({"check", "run.yaml", "--set", set}).err; };
  for (const std::string option : {"training_config.load_checkpoint", "training_config.pretrained_checkpoint"})
    EXPECT_TRUE(has(told(option + "=nowhere"),
                    "run.yaml: `tessera train` would refuse it: " + option + ": there is no checkpoint in nowhere"))
        << told(option + "=nowhere");
  EXPECT_FALSE(has(told("training_config.load_checkpoint=output"), "would refuse it")) << "the run's own folder";
}

TEST_F(Program, WhatIsAcceptedForCompatibilityIsOneLineUnlessAskedFor) {
  write("flags.sh",
        "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 \\\n"
        "  --max-position-embeddings 16 --micro-batch-size 1 --train-iters 2 --lr 1e-3 --mock-data "
        "--adlr-autoresume-interval 2 \\\n"
        "  --tokenizer-type NullTokenizer --vocab-size 63 --distributed-backend nccl\n");
  const auto brief = tessera({"check", "flags.sh"});
  EXPECT_TRUE(has(brief.err, "note: 2 flags are accepted for compatibility and have no effect; --verbose lists them\n"))
      << brief.err;
  EXPECT_FALSE(has(brief.err, "--adlr-autoresume-interval")) << brief.err;
  EXPECT_TRUE(has(tessera({"check", "flags.sh", "--verbose"}).err, "--adlr-autoresume-interval")) << brief.err;
  EXPECT_FALSE(has(tessera({"convert", "flags.sh"}).err, "--adlr-autoresume-interval"));
  EXPECT_TRUE(has(tessera({"convert", "flags.sh", "--verbose"}).err, "--adlr-autoresume-interval"));
  const std::vector<std::string> words = {
      "check", "run.yaml", "--set", "model_config.fp8_margin=0", "--set", "parallel_config.use_custom_fsdp=false"};
  EXPECT_TRUE(
      has(tessera(words).out, "2 options are accepted for compatibility and have no effect; --verbose lists them\n"))
      << tessera(words).out;
  auto verbose = words;
  verbose.emplace_back("--verbose");
  EXPECT_TRUE(
      has(tessera(verbose).out, "model_config.fp8_margin: accepted for compatibility, as 0 does not affect the run"))
      << tessera(verbose).out;
}

TEST_F(Program, PreprocessTakesEveryFlagOfTheGuides) {
  const auto help = tessera({"data", "preprocess", "--help"}).out;
  std::ifstream file(TESTS_DATA "/flags_in_guides.txt");
  int count = 0;
  for (std::string reader, flag; file >> reader && std::getline(file, flag);) {
    if (reader != "preprocess") continue;
    ++count;
    EXPECT_TRUE(has(help, flag.substr(1))) << flag;
  }
  EXPECT_EQ(count, 8);
}

TEST_F(Program, OptionsAreFoundByTheirDescriptionToo) {
  const auto found = tessera({"options", "end of warm-up", "--names"});
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_TRUE(has(found.out, "optimizer_config.learning_rate\n")) << found.out;
  const auto both = tessera({"options", "clip_grad", "--names"}).out;
  EXPECT_EQ(both.rfind("optimizer_config.clip_grad\n", 0), 0U) << "names come first:\n" << both;
  EXPECT_EQ(tessera({"options", "no such words"}).code, 2);
}

TEST_F(Program, AnAcceptedOptionIsNotCalledUnimplemented) {
  for (const auto* command : {"explain", "options"}) {
    const auto accepted = tessera({command, "moe_token_dispatcher_type"}).out;
    EXPECT_TRUE(has(accepted, "accepted for compatibility; has no effect")) << accepted;
    EXPECT_FALSE(has(accepted, "not implemented")) << accepted;
    EXPECT_TRUE(has(tessera({command, "use_custom_fsdp"}).out, "not implemented yet"));
  }
  const auto refused = tessera({"check", "run.yaml", "--set", "moe_config.moe_token_dispatcher_type=x"});
  EXPECT_TRUE(
      has(refused.err, "moe_token_dispatcher_type takes allgather or alltoall or alltoall_seq or flex, not 'x'"))
      << refused.err;
}

TEST_F(Program, WeightsOfASplitAreCheckedWithTheRecipe) {
  for (const auto* split : {"nan,1,1", "inf,1,1", "-1,1,1", "0,0,0", "", "1e-3,1"}) {
    const auto told = tessera({"check", "run.yaml", "--set", "dataset_config.dataset_type=gpt", "--set",
                               "dataset_config.data_path=data", "--set", text("dataset_config.split=\"", split, "\"")});
    EXPECT_EQ(told.code, 2);
    EXPECT_TRUE(has(told.err, text("--set dataset_config.split: split '", split, "' has "))) << told.err;
  }
}

TEST_F(Program, CompletionKnowsEveryCommand) {
  const auto script = tessera({"completion", "bash"}).out;
  for (const auto* words : {"\"tessera check\") echo \"-h", "complete -F _tessera tessera"})
    EXPECT_TRUE(has(script, words)) << script;
}

}  // namespace
}  // namespace tessera::cli
