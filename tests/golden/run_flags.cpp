#include "tests/golden/run_flags.h"

#include <algorithm>

#include "framework/base/files.h"
#include "framework/interop/flags/flag_table.h"
#include "framework/options/mappings.h"
#include "framework/tokenizers/bpe.h"
#include "tests/golden/data_cases.h"
#include "tests/golden/registries.h"
#include "tests/golden/schedule_flags.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> data_paths = {"--data-path", "--train-data-path", "--valid-data-path",
                                             "--test-data-path"};
const std::vector<std::string> tokenizer_flags = {"--tokenizer-type", "--tokenizer-model", "--vocab-file",
                                                  "--merge-file", "--vocab-size"};
/// Where files lie and in which format: RunPlaces says it here.
const std::vector<std::string> place_flags = {"--save", "--load", "--tensorboard-dir", "--log-interval",
                                              "--data-cache-path"};
/// The format of a checkpoint is of no account in the numbers of a run; one that no run saves in is our own.
std::vector<std::string> format_flags(const RunFlags& flags) {
  const auto format = flags.value("--ckpt-format");
  if (format == "torch" || format == "torch_dist") return {};
  return {"--ckpt-format"};
}

class Tree {
 public:
  explicit Tree(options::Value tree) : tree_(std::move(tree)) {}
  void set(const std::string& path, const std::string& value) { tree_.set(path, options::Value::of(value, origin_)); }
  void set(const std::string& path, options::Value value) { tree_.set(path, std::move(value)); }
  const options::Value& tree() const { return tree_; }

 private:
  options::Origin origin_{"the recorded run", 0, "", 4};
  options::Value tree_;
};

bool is_number(const std::string& word) {
  std::size_t used = 0;
  try {
    std::stod(word, &used);
  } catch (const std::exception&) {
    return false;
  }
  return used == word.size();
}

void set_data(const RunFlags& flags, const fs::path& data, Tree& tree) {
  tree.set("dataset_config.dataset_type", "gpt");
  for (const auto& flag : data_paths) {
    std::string all;
    for (const auto& word : flags.values(flag))
      all += (all.empty() ? "" : " ") + (is_number(word) ? word : (data / word).string());
    auto option = flag.substr(2);
    std::replace(option.begin(), option.end(), '-', '_');
    if (!all.empty()) tree.set("dataset_config." + option, all);
  }
}

/// What a training run needs to know of a tokenizer.
struct RecordedTokens {
  std::int64_t count = 0;
  std::optional<std::int64_t> eod;  ///< nothing: not known
};

/// Of the tokenizer that the flags name, as recorded in tokenizers.json.
RecordedTokens tokens_of(const RunFlags& flags, const RunPlaces& places) {
  if (flags.value("--tokenizer-type") == "NullTokenizer") {
    const auto size = std::stoll(flags.value("--vocab-size"));
    return {size + 1, size};
  }
  const auto file = places.data / "tokenizers.json";
  for (const auto& one : fs::exists(file) ? Json::parse(read_file(file)) : Json::array()) {
    const RunFlags theirs(one.at("flags").get<std::vector<std::string>>());
    if (one.contains("vocab_size") && flags.agrees(theirs, {"--tokenizer-type", "--tokenizer-model"}))
      return {one.at("vocab_size"), one.contains("eod") && one["eod"].is_number_integer()
                                        ? std::optional<std::int64_t>(one["eod"])
                                        : std::nullopt};
  }
  if (places.tokens) return {*places.tokens, std::nullopt};
  throw NotSupported{text("--tokenizer-type ", flags.value("--tokenizer-type"), " ", flags.value("--tokenizer-model"),
                          ": nothing says how many tokens it has")};
}

/// A vocabulary with as many tokens and the same end of a document, in files that every program can read. Tokens are
/// recorded as ids, so their spelling is of no account.
void set_tokenizer(const RunFlags& flags, const RunPlaces& places, Tree& tree) {
  const auto tokens = tokens_of(flags, places);
  for (const auto* flag : {"--reset-position-ids", "--reset-attention-mask", "--eod-mask-loss"})
    if (flags.has(flag) && !tokens.eod) throw NotSupported{text(flag, ": nothing says which token ends a document")};
  Json vocabulary;
  for (std::int64_t id = 0; id < tokens.count; ++id)
    vocabulary[id == tokens.eod.value_or(tokens.count - 1) ? "<|endoftext|>" : text("token", id)] = id;
  const auto folder = places.output.parent_path() / "tokenizer";
  make_folder(folder);
  write_file_atomic(folder / "vocab.json", vocabulary.dump());
  write_file_atomic(folder / "merges.txt", std::string(tokenizers::merges_header) + "\n");
  tree.set("dataset_config.tokenizer_type", "GPT2BPETokenizer");
  tree.set("dataset_config.vocab_file", (folder / "vocab.json").string());
  tree.set("dataset_config.merge_file", (folder / "merges.txt").string());
}

void set_places(const RunPlaces& places, Tree& tree) {
  tree.set("training_config.output_dir", places.output.string());
  tree.set("dataset_config.data_cache_path", (places.output.parent_path() / "cache").string());
  if (!places.load.empty()) tree.set("training_config.load_checkpoint", places.load.string());
  if (places.weights_alone) tree.set("training_config.resume_training", "false");
  tree.set("training_config.log_interval", "1");
  tree.set("training_config.log_num_zeros_in_grad", "true");
  tree.set("training_config.tensorboard", "false");
  tree.set("training_config.num_threads", std::to_string(places.threads));
}

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void must_be_built(const options::Report& report) {
  if (!report.good()) throw NotSupported{report.problems().front()};
}

}  // namespace

RunFlags::RunFlags(const std::vector<std::string>& argv) {
  for (const auto& word : argv)
    if (word.rfind("--", 0) == 0)
      given_.push_back({word, {}});
    else if (!given_.empty())
      given_.back().values.push_back(word);
}

RunFlags RunFlags::of(const fs::path& folder) {
  return RunFlags(Json::parse(read_file(folder / "arguments.json")).at("flags").get<std::vector<std::string>>());
}

const RunFlags::Given* RunFlags::find(const std::string& flag) const {
  const auto at = std::find_if(given_.rbegin(), given_.rend(), [&](const auto& one) { return one.flag == flag; });
  return at == given_.rend() ? nullptr : &*at;
}

std::vector<std::string> RunFlags::values(const std::string& flag) const {
  const auto* given = find(flag);
  return given ? given->values : std::vector<std::string>{};
}

std::string RunFlags::value(const std::string& flag) const {
  const auto all = values(flag);
  return all.empty() ? "" : all.front();
}

std::vector<std::string> RunFlags::without(const std::vector<std::string>& flags) const {
  std::vector<std::string> argv;
  for (const auto& [flag, values] : given_) {
    if (std::find(flags.begin(), flags.end(), flag) != flags.end()) continue;
    argv.push_back(flag);
    argv.insert(argv.end(), values.begin(), values.end());
  }
  return argv;
}

bool RunFlags::agrees(const RunFlags& other, const std::vector<std::string>& flags) const {
  return std::all_of(flags.begin(), flags.end(), [&](const auto& flag) {
    return has(flag) == other.has(flag) && values(flag) == other.values(flag);
  });
}

recipe::Recipe recipe_of_run(const RunFlags& flags, const RunPlaces& places) {
  const auto elsewhere = joined(joined(data_paths, tokenizer_flags), joined(place_flags, format_flags(flags)));
  const auto argv = flags.without(elsewhere);
  const auto map = flags::FlagTable::from("megatron.yaml", options::Mappings());
  must_know(argv, map);
  const auto registries = all_registries();
  options::Report report;
  Tree tree(map.convert(argv, recipe::all_facts(registries), report));
  must_be_built(report);
  set_data(flags, places.data, tree);
  set_tokenizer(flags, places, tree);
  set_places(places, tree);
  auto recipe = recipe::read_recipe(tree.tree(), registries, report);
  must_be_built(report);
  return recipe;
}

}  // namespace tessera::golden
