// Every option that is not planned changes something other than its own echo in resolved.yaml: a number, a weight, a
// file, a line. A small model is trained once with and once without the change.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "framework/base/files.h"
#include "framework/base/system_call.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/parallel/pipeline_schedule.h"
#include "framework/recipe/build.h"
#include "framework/recipe/layout_figures.h"
#include "framework/training/loop/trainer.h"
#include "tests/images_of_rows.h"
#include "tests/own_folder.h"
#include "tests/pairs_of_rows.h"
#include "tests/recipe/every_option_cases.h"
#include "tests/recipe/every_option_exempt.h"
#include "tests/recipe/small_run.h"
#include "tests/recipe/text_format.h"
#include "tests/sanitized.h"
#include "tests/story.h"

namespace tessera::recipe {
namespace {

using namespace every_option;
namespace fs = std::filesystem;

/// What a run showed, apart from its own recipe and clocks.
using Sight = std::map<Seen, std::string>;

class EveryOption : public InOwnFolder {
 protected:
  EveryOption() : InOwnFolder(folder_in_memory()) {
    fs::create_directory("data");
    write_token_file("data/a", 7);
    write_token_file("data/b", 11);
    write("small.json", R"({"a": 0, "<|endoftext|>": 1})");
    std::string large = "{";
    for (int i = 0; i < 140; ++i) large += text("\"a", i, "\": ", i, ", ");
    write("large.json", large + "\"<|endoftext|>\": 140}");
    write("first.key", "clever");
    write("blend.txt", "data/a");
    write("other.txt", "data/b");
    write("blend.json", R"({"train": "data/a", "valid": ["data/a"], "test": null})");
    write("other.json", R"({"train": "1 data/a 1 data/b", "valid": ["data/a"], "test": null})");
    write("merges.txt", "#version: 0.2\n");
    fs::copy_file(fs::path(TESTS_DATA) / "bert" / "vocab.txt", "bert.txt");
    fs::copy_file(fs::path(TESTS_DATA) / "tiktoken" / "vocab.json", "tik.json");
    const auto models = fs::path(TESTS_DATA) / "sentencepiece" / "models";
    fs::copy_file(models / "word.model", "small.model");
    fs::copy_file(models / "plain.model", "large.model");
    std::string talks;
    for (int i = 0; i < 20; ++i)
      talks += R"({"messages": [{"role": "user", "content": ")" + std::string(1 + i % 4, 'a') +
               R"("}, {"role": "assistant", "content": ")" + std::string(1 + i % 3, 'a') +
               R"("}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}]})" + "\n";
    write("talks.jsonl", talks);
    std::string rows;
    for (int i = 0; i < 20; ++i)
      rows += text(R"({"instruction": ")", std::string(1 + i % 4, 'a'), R"(", "input": "", "output": ")",
                   std::string(1 + i % 3, 'a'), R"(", "history": [["a", "a"]]})", "\n");
    write("rows.jsonl", rows);
    plant_instructions("data/i", false);
    plant_instructions("data/p", true);
    write("run.yaml",
          "training_config: {training_iters: 6, output_dir: run, log_interval: 1, eval_interval: 3, eval_iters: 1, "
          "num_threads: 1}\n"
          "model_config: {num_layers: 1, hidden_size: 16, num_attention_heads: 4, seq_length: 8, vocab_size: 64}\n"
          "optimizer_config: {learning_rate: 1e-3}\n"
          "dataset_config: {batch_size: 2}\n");
    for (const auto& entry : fs::directory_iterator(".")) planted_.insert(entry.path());
  }

  /// Ten samples of a prompt and an answer, of 6 to 15 tokens, or packed ones of eight tokens in two parts.
  static void plant_instructions(const std::string& prefix, bool packed_ones) {
    const auto name = [&](const char* field) { return prefix + "_packed_" + field + "_document"; };
    indexed::IndexedDatasetBuilder ids(name("input_ids"), indexed::TokenType::int32),
        mask(name("attention_mask"), indexed::TokenType::int32), labels(name("labels"), indexed::TokenType::int32);
    for (std::int32_t i = 0; i < 10; ++i) {
      std::vector<std::int32_t> sample, parts, answers;
      for (std::int32_t k = 0; k < (packed_ones ? 8 : 6 + i); ++k) {
        sample.push_back((7 * i + 3 * k) % 60);
        parts.push_back(packed_ones && k > 2 ? 2 : 1);
        answers.push_back(k < (packed_ones ? 2 : 5) ? -100 : sample.back());
      }
      ids.add_sequence(sample);
      mask.add_sequence(parts);
      labels.add_sequence(answers);
      for (auto* one : {&ids, &mask, &labels}) one->end_document();
    }
    for (auto* one : {&ids, &mask, &labels}) one->finish();
  }

  std::string train_once(Lines sets) {
    const auto names = [&](const std::string& word) {
      return std::any_of(sets.begin(), sets.end(),
                         [&](const auto& set) { return set.find(word) != std::string::npos; });
    };
    if (!names("data_path=") && !names("mock"))
      sets.insert(sets.begin(), {d + "data_path=data/a", d + "split=\"80,10,10\""});
    const training::StopSignal stop;
    testing::internal::CaptureStdout();
    try {
      const auto end = training::train(build(read_recipe("run.yaml", sets, registries_)), stop);
      return testing::internal::GetCapturedStdout() + end.last_line;
    } catch (const Error& error) {
      return testing::internal::GetCapturedStdout() + "refused";
    }
  }

  /// The same for all cases that differ in their change alone.
  static std::string name_of(const Case& c) {
    std::string name = c.damaged ? "damaged" : "";
    for (const auto& set : c.with) name += " " + set;
    name += " after";
    for (const auto& set : c.earlier) name += " " + set;
    return name;
  }

  Sight look(const Case& c, const Lines& change) {
    for (const auto& entry : fs::directory_iterator("."))  // what the last run made, under whatever name
      if (!planted_.contains(entry.path())) fs::remove_all(entry.path());
    if (!c.earlier.empty()) train_once(c.earlier);
    if (c.damaged) damage();
    const auto console = train_once(c.with + change);
    Sight sight;
    sight[Seen::console] =
        std::regex_replace(console,
                           std::regex(R"(\[[^\]]*\] | elapsed time per iteration \(ms\): [\d.]+|Time: [\d.]+)"
                                      R"(|the process without pages of files .*)"),
                           "");
    sight[Seen::outcome] = console.find("refused") == std::string::npos ? "ran" : "refused";
    const std::regex clocks(
        R"re("(step_seconds|tokens_per_second|model_flops_utilization|data_wait_seconds|memory_bytes|activation_bytes|workspace_bytes)":[^,}]*)re");
    for (const auto& path : files()) {
      sight[Seen::files] += std::regex_replace(path.string(), std::regex(R"((tfevents|offline-run-).*)"), "$1") + "\n";
      if (path.extension() == ".wandb") sight[Seen::files] += end_of_name(read_file(path));
      if (path.filename() == "metrics.jsonl") sight[Seen::metrics] += std::regex_replace(read_file(path), clocks, "");
      if (path.extension() == ".safetensors") sight[Seen::weights] += read_file(path);
      if (path.filename() == "trace.json") sight[Seen::trace] += events_of(read_file(path));
    }
    return sight;
  }

  /// Of a trace, the names of its events and their arguments; of the data loader's workers only that there are some,
  /// since nobody knows how far they are ahead.
  static std::string events_of(const std::string& trace) {
    std::set<std::string> reading;
    std::string all;
    const auto document = nlohmann::json::parse(trace);
    for (const auto& event : document.at("traceEvents")) {
      const auto kind = event.value("cat", "");
      if (kind == "reading")
        reading.insert("reading\n");
      else if (kind == "memory" || kind == "phase" || kind == "kernel" || kind == "operation" ||
               kind == "communication")
        all += text(kind, " ", event.at("name"), " ", event.value("args", nlohmann::json()), "\n");
    }
    for (const auto& one : reading) all += one;
    return all;
  }

  /// The last letters of the run's name in a file of Weights & Biases: those before the field of the host.
  static std::string end_of_name(const std::string& content) {
    constexpr std::size_t letters = 4;
    const auto host = host_name();
    return content.substr(content.find("\x6a" + std::string(1, static_cast<char>(host.size())) + host) - letters,
                          letters);
  }

  static std::vector<fs::path> files() {
    std::set<fs::path> all;
    for (const auto& entry : fs::recursive_directory_iterator("."))
      if (entry.is_regular_file() && entry.path().string().rfind("./data", 0) != 0) all.insert(entry.path());
    return {all.begin(), all.end()};
  }

  /// Turn one byte in the middle of the weights.
  static void damage() {
    for (const auto& path : files()) {
      if (path.extension() != ".safetensors") continue;
      auto bytes = read_file(path);
      bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 1);
      write(path.string(), bytes);
    }
  }

  std::map<std::string, Sight> usual_;  ///< by name_of
  std::set<fs::path> planted_;

 private:
  static Registries with_text_format() {
    Registries all;
    all.formats.add(std::make_shared<TextFormat>());
    data::register_pairs(all.datasets);
    data::register_images(all.datasets);
    return all;
  }

  Registries registries_ = with_text_format();
};

/// Another value than the default, by what is known of the option.
std::string another_value(const options::OptionFacts& option) {
  for (const auto& choice : option.choices)
    if (choice != option.default_value.scalar) return choice;
  const auto other = [](const options::Value& value) {
    constexpr double tiny = 1e-3;
    double number = 0;
    EXPECT_TRUE(options::OptionType<double>::read(value, number));
    return number < tiny ? options::Value::of("0.01", {}) : options::OptionType<double>::write(number / 2);
  };
  auto value = option.default_value;
  for (auto& item : value.items) item = other(item);
  if (value.kind == options::Value::Kind::scalar) value = other(value);
  if (option.type == "int") value = options::Value::of(value.scalar.substr(0, value.scalar.find('.')), {});
  return text(value);
}

/// A case for each option of each optimizer: none has to be written by hand.
std::vector<Case> cases_of_optimizers() {
  std::vector<Case> all;
  const auto facts = all_facts({});
  for (const auto& schema : facts.at("optimizer_config"))
    for (const auto& option : schema.options)
      if (schema.key == "optimizer_type")
        all.push_back({o + option.name, another_value(option), Seen::weights, {o + "optimizer_type=" + schema.type}});
  return all;
}

TEST_F(EveryOption, ChangesSomethingOtherThanItsEcho) {
  auto all = cases_of_optimizers();
  EXPECT_GT(all.size(), 8U);
  all.insert(all.end(), cases.begin(), cases.end());
  int number = 0;
  for (const auto& c : all) {
    if (number++ % part_of_inputs != 0) continue;
    const auto usual = usual_.try_emplace(name_of(c)).first;
    if (usual->second.empty()) usual->second = look(c, {});
    const auto& before = usual->second;
    const auto after = look(c, {c.key + "=" + c.value});
    const bool ran = before.at(Seen::outcome) == "ran" && after.at(Seen::outcome) == "ran";
    EXPECT_TRUE(ran || c.differs == Seen::outcome) << c.key << " " << c.value << " was not taken";
    const auto seen = [&](const Sight& sight) { return sight.count(c.differs) ? sight.at(c.differs) : ""; };
    EXPECT_TRUE(seen(before) != seen(after)) << c.key << " " << c.value << " changes nothing that was promised";
  }
}

/// What the ranks of a run hold and when they do what; "refused: ..." for one that cannot be laid out.
std::string layout_of(const Lines& sets, std::int64_t ranks) {
  options::Report report;
  const auto recipe = read_recipe("run.yaml", Lines{m + "num_layers=4", d + "dataset_type=mock"} + sets, {}, report);
  if (report.good()) check_ranks(recipe, ranks, report);
  if (!report.good()) return "refused: " + report.problems().front();
  const auto layout = layout_figures(recipe, ranks);
  std::string all = parallel::drawing(parallel::PipelineSchedule::training(layout.shape), 1000);
  for (const auto& rank : layout.ranks)
    all += text("tensor ", rank.place.tensor, ", context ", rank.place.context, ", pipeline ", rank.place.pipeline,
                ", data ", rank.place.data, ": ", rank.parameters, " parameters, ", rank.state.all(), " bytes, ",
                layers_told(layout.plan, rank.place.pipeline), "\n");
  return all;
}

TEST_F(EveryOption, OfTheLayoutChangesWhatRanksHoldOrDo) {
  for (const auto& c : layout_cases) {
    const auto before = layout_of(c.with, c.ranks), after = layout_of(c.with + Lines{c.key + "=" + c.value}, c.ranks);
    for (const auto& layout : {before, after})
      EXPECT_NE(layout.rfind("refused", 0), 0U) << c.key << " " << c.value << ": " << layout;
    EXPECT_NE(before, after) << c.key << " " << c.value << " changes nothing";
  }
}

TEST_F(EveryOption, ThatOnlyRefusesDoesSo) {
  EXPECT_EQ(layout_of({p + "data_parallel_size=2"}, 2), layout_of({}, 2));
  EXPECT_TRUE(says(layout_of({p + "data_parallel_size=3"}, 2), "data_parallel_size"));
  EXPECT_TRUE(says(layout_of({p + "select_comm_recompute=[1]"}, 1), "select_comm_recompute is not implemented yet"));
}

TEST_F(EveryOption, ARunRepeatsItself) {  // or every change would seem to do something
  const Case same{"", "", Seen::metrics};
  const auto once = look(same, {}), again = look(same, {});
  for (const auto& [kind, words] : once) EXPECT_TRUE(words == again.at(kind)) << static_cast<int>(kind);
}

TEST(EveryOptionThereIs, HasACaseOrAReasonToBeExempt) {
  std::set<std::string> known;
  for (const auto& c : cases) known.insert(c.key);
  for (const auto& c : layout_cases) known.insert(c.key);
  for (const auto& [key, reason] : refusing) EXPECT_TRUE(known.insert(key).second) << key << " does more than refuse";
  for (const auto& [key, reason] : exempt)
    EXPECT_TRUE(known.insert(key).second) << key << " has a case and needs no exemption";
  for (const auto& [group, schemas] : all_facts({}))
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        const auto key = group + "." + option.name;
        if (schema.key == "optimizer_type") continue;  // see cases_of_optimizers
        EXPECT_TRUE(option.planned || known.count(key))
            << key << " is not planned: add a case to this file that shows what it changes";
        EXPECT_FALSE(option.planned && known.count(key)) << key << " is planned, but has a case";
      }
}

}  // namespace
}  // namespace tessera::recipe
