#include "framework/cli/transformers_folder.h"

#include <algorithm>
#include <cctype>
#include <iostream>
#include <utility>
#include <vector>

#include "framework/base/json.h"
#include "framework/interop/hugging_face/family.h"
#include "framework/interop/hugging_face/hugging_face_export.h"
#include "framework/interop/hugging_face/model_code.h"
#include "framework/recipe/build.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

/// "500MB" -> 500'000'000
std::uint64_t bytes_of(const std::string& words) {
  const std::vector<std::pair<std::string, double>> units = {
      {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}};
  std::size_t used = 0;
  double count = 0;
  try {
    count = std::stod(words, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  auto unit = words.substr(used);
  for (auto& letter : unit) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  for (const auto& [name, factor] : units)
    if (used > 0 && (unit == name || (unit.empty() && factor == 1)) && count * factor >= 1 && count * factor <= 1e18)
      return static_cast<std::uint64_t>(count * factor);
  throw ConfigError(text("--shard-size ", words,
                         ": a size such as 5GB, 500MB or a number of bytes was expected, or layer, or source"));
}

/// The token fields of config.json, for a model that was not imported with one.
std::string special_tokens(const ModelToWrite& saved) {
  Json json = {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}};
  if (saved.tokenizer) json["bos_token_id"] = json["eos_token_id"] = saved.tokenizer->eod();
  return json.dump();
}

/// The files beside the weights: those imported with the model, else the tokenizer it was trained with.
checkpoint::Blobs files_beside(const ModelToWrite& saved) {
  checkpoint::Blobs files;
  const std::string prefix = hugging_face::carried_prefix;
  for (const auto& [name, content] : saved.blobs)
    if (name.rfind(prefix, 0) == 0) files[name.substr(prefix.size())] = content;
  if (!files.empty()) return files;
  const auto& blobs = saved.blobs;
  const std::string folder = "tokenizer.tokenizer_model/";
  for (const auto& [name, content] : blobs)
    if (name.rfind(folder, 0) == 0 && name != folder + "config.json") files[name.substr(folder.size())] = content;
  if (const auto model = blobs.find("tokenizer.tokenizer_model.model"); model != blobs.end()) {
    files["tokenizer.model"] = model->second;
    if (saved.recipe.tokenizer.type == "Llama2Tokenizer")
      files["tokenizer_config.json"] = "{\"tokenizer_class\": \"LlamaTokenizer\"}\n";
  }
  const auto vocab = blobs.find("tokenizer.vocab_file.json"), merges = blobs.find("tokenizer.merge_file.txt");
  if (vocab == blobs.end() || merges == blobs.end()) return files;
  files["vocab.json"] = vocab->second;
  files["merges.txt"] = merges->second;
  files["tokenizer_config.json"] = "{\"tokenizer_class\": \"GPT2Tokenizer\"}\n";
  return files;
}

/// vocab_size of the config.json that the model was imported with; 0: there is none.
std::int64_t carried_vocabulary(const checkpoint::Blobs& files) {
  const auto carried = files.find("config.json");
  if (carried == files.end()) return 0;
  const auto json = parse_json(carried->second);
  return json.is_object() && json.contains("vocab_size") && json["vocab_size"].is_number_integer()
             ? json["vocab_size"].get<std::int64_t>()
             : 0;
}

/// Rows that hold tokens, and the evidence.
struct Tokens {
  std::int64_t count = 0;
  std::string source;
};

/// The tokenizer knows best: a config.json may count padding. With neither, rows that are a multiple of
/// make_vocab_size_divisible_by may be padded, by less than that number.
Tokens tokens_of(const ModelToWrite& saved, std::int64_t carried, std::int64_t rows) {
  if (saved.tokens > 0) return {saved.tokens, "its tokenizer has that many tokens"};
  if (carried > 0) return {std::min(carried, rows), "the config.json that it was imported with says so"};
  const auto multiple =
      saved.recipe.size.make_vocab_size_divisible_by * saved.recipe.parallel.tensor_model_parallel_size;
  if (saved.recipe.dataset.type == "mock" || rows % multiple != 0)
    return {rows, "no tokenizer has padded the vocabulary"};
  return {std::max<std::int64_t>(1, rows - multiple + 1),
          text("padding to a multiple of ", multiple, " adds fewer than ", multiple, " rows")};
}

/// The given number of rows to write, which must keep all tokens.
std::int64_t given_vocabulary(const FolderFlags& flags, const std::string& in, const Tokens& tokens,
                              std::int64_t rows) {
  const auto advice = text("; give a number from ", tokens.count, " to ", rows, ", or leave --vocab-size out");
  if (flags.vocabulary > rows)
    throw ConfigError(text("--vocab-size is ", flags.vocabulary, ", but the model has ", rows, " rows", advice));
  if (flags.vocabulary < tokens.count)
    throw ConfigError(text("--vocab-size is ", flags.vocabulary, ", which drops tokens of ", in, ": rows 0 to ",
                           tokens.count - 1, " hold tokens (", tokens.source, ")", advice));
  return flags.vocabulary;
}

/// Number of rows that are tokens: as given, else as imported with the model, else the size of the tokenizer that
/// determined the number of rows; else all rows.
std::int64_t true_vocabulary(const FolderFlags& flags, const ModelToWrite& saved, const checkpoint::Blobs& files,
                             std::int64_t rows) {
  const auto carried = carried_vocabulary(files);
  if (flags.vocabulary > 0) return given_vocabulary(flags, saved.in, tokens_of(saved, carried, rows), rows);
  // The model may have been trained on with more tokens than it was imported with.
  if (carried > 0) return std::min(rows, std::max(carried, saved.tokens));
  return !saved.recipe.size.vocab_size && saved.tokens > 0 ? saved.tokens : rows;
}

/// Rows of the vocabulary in the checkpoint. Throws ConfigError if the recipe has other rows, which only --set can do.
std::int64_t rows_of(const ModelToWrite& saved) {
  const auto& weights = saved.weights;
  const auto rows = weights.shape("embedding.word_embeddings.weight")[0];
  const auto given = recipe::vocabulary(saved.recipe, saved.tokenizer);
  if (rows != given)
    throw ConfigError(text(weights.folder().string(), ": the vocabulary has ", rows, " rows, and ", given,
                           " in the recipe with --set; give --vocab-size instead to leave padding out"));
  return rows;
}

std::string family_of(const std::string& config) {
  const auto json = parse_json(config);
  return json.is_object() && json.contains("model_type") && json["model_type"].is_string() ? json["model_type"].string()
                                                                                           : "";
}

}  // namespace

std::optional<DType> wanted_type(const FolderFlags& flags) {
  if (flags.dtype.empty()) return std::nullopt;
  return dtype_named(flags.dtype);
}

void tell_notes(const std::vector<std::string>& notes) {
  for (const auto& note : notes) std::cout << "note: " << note << "\n";
}

std::string write_transformers_folder(const fs::path& out, const ModelToWrite& model, const FolderFlags& flags,
                                      const recipe::Registries& registries) {
  const auto& mappings = registries.mappings;
  auto files = files_beside(model);
  hugging_face::HuggingFaceExport how;
  how.vocabulary = true_vocabulary(flags, model, files, rows_of(model));
  how.dtype = wanted_type(flags);
  if (flags.shard_size == "layer")
    how.shards = hugging_face::Shards::layer;
  else if (flags.shard_size == "source")
    how.shards = hugging_face::Shards::source;
  else
    how.shard_bytes = bytes_of(flags.shard_size);
  if (const auto index = model.blobs.find(hugging_face::carried_index); index != model.blobs.end())
    how.index = index->second;
  auto candidates = hugging_face::families_to_choose_from(mappings);
  if (!flags.family.empty())
    candidates = {flags.family};
  else if (const auto own = family_of(files["config.json"]); !own.empty())
    candidates.insert(candidates.begin(), own);
  how.family = hugging_face::family_that_fits(model.recipe, how.vocabulary, candidates, registries, mappings);
  const auto config = hugging_face::whole_model_config(model.recipe, how.vocabulary);
  const auto type = how.dtype.value_or(model.weights.dtype("embedding.word_embeddings.weight"));
  const auto carried = files["config.json"].empty() ? special_tokens(model) : files["config.json"];
  files["config.json"] = hugging_face::write_hugging_face_config(config, how.family, type, carried, mappings);
  tell_notes(hugging_face::drop_absent_code(files));
  how.files = std::move(files);
  tell_notes(hugging_face::write_hugging_face(out, config, model.weights, how, mappings));
  return how.family;
}

}  // namespace tessera::cli
