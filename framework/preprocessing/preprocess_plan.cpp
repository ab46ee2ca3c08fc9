#include "framework/preprocessing/preprocess_plan.h"

#include <algorithm>

#include "framework/base/crc32c.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/parquet/parquet_lines.h"

namespace tessera::preprocessing {
namespace {

namespace fs = std::filesystem;

// <name><mark><extension>, as os.path.splitext has it.
std::string beside(const std::string& input, const std::string& mark) {
  const fs::path path(input);
  return (path.parent_path() / (path.stem().string() + mark + path.extension().string())).string();
}

std::int64_t lines_of(const TextInput& input) {
  std::int64_t lines = 0;
  ChunkReader reader({input}, std::size_t{1} << 20U, false);
  for (TextChunk chunk; reader.next(chunk);) lines += count_lines(chunk.bytes);
  return lines;
}

std::string checksum_of(const std::string& path) {
  std::uint32_t sum = 0;
  if (!fs::is_directory(path)) return crc_text(crc32c(read_file(path)));
  for (const auto& file : list_folder(path))
    if (fs::is_regular_file(file)) sum = crc32c(read_file(file), sum);
  return crc_text(sum);
}

}  // namespace

PreprocessPlan::PreprocessPlan(const tokenizers::Tokenizer& tokenizer, const PreprocessRequest& request) {
  must(request.partitions >= 1 && request.workers >= 1, "there are a partition and a worker at least");
  if (request.inputs.empty()) throw ConfigError("preprocess: --input names no file");
  encoding.append_eod = request.append_eod;
  encoding.skip_bad = request.skip_bad;
  encoding.lists_only = request.split_sentences;
  encoding.dealing.partitions = request.partitions;
  choose_inputs(request);
  choose_formats(request);
  for (auto& input : inputs) {
    input.may_be_cut = tokenizer.may_be_cut_at_lines();
    constexpr std::int64_t divided = 8192;  // bytes of a text that is otherwise several sequences
    if (input.format == files::TextFormat::whole_file && !input.may_be_cut &&
        files::size_of_input(input.name) > divided)
      notes.push_back(text("'", input.name, "' becomes one sequence, because this tokenizer may give parts of a text ",
                           "other ids; --format blank-lines makes a document of each paragraph"));
  }
  if (request.partitions > 1 && encoding.dealing.rule == Dealing::Rule::one) deal(request);
  choose_outputs(tokenizer, request);
}

void PreprocessPlan::choose_inputs(const PreprocessRequest& request) {
  if (request.inputs.size() == 1 && request.inputs[0] != "-") {
    if (request.split_sentences && use_existing(request.inputs[0], "_ss", request)) {
      encoding.lists_only = false;
      return;
    }
    if (request.partitions > 1 && use_existing(request.inputs[0], "", request)) return;
  }
  for (auto& name : files::expand_patterns(request.inputs)) inputs.push_back({std::move(name), {}, {}});
}

// Megatron-LM's tool leaves its partitions, and its lists of sentences, beside the input and reads them the next time.
bool PreprocessPlan::use_existing(const std::string& input, const std::string& mark, const PreprocessRequest& request) {
  std::vector<std::string> names;
  if (request.partitions == 1) names.push_back(beside(input, mark));
  for (int i = 0; request.partitions > 1 && i < request.partitions; ++i)
    names.push_back(beside(input, text(mark, "_", i)));
  if (!std::all_of(names.begin(), names.end(), [](const std::string& name) { return fs::exists(name); })) return false;
  for (const auto& name : names) inputs.push_back({name, {}, {}});
  if (request.partitions > 1) encoding.dealing.rule = Dealing::Rule::inputs;
  notes.push_back(text("reads '", names[0], "'", names.size() > 1 ? text(" and ", names.size() - 1, " more") : "",
                       " instead of '", input, "', as Megatron-LM's tool does; remove ",
                       names.size() > 1 ? "them" : "it", " to read the input"));
  return true;
}

void PreprocessPlan::choose_formats(const PreprocessRequest& request) {
  std::size_t json = 0;
  for (auto& input : inputs) {
    if (parquet::is_parquet(input.name)) {
      if (request.format.value_or(files::TextFormat::json_lines) != files::TextFormat::json_lines)
        throw ConfigError(text("preprocess: '", input.name,
                               "' is a Parquet file, whose rows are read as JSON lines; "
                               "leave --format out"));
      input.columns = request.json_keys;
      parquet::open_parquet_lines(input.name,
                                  input.columns);  // a missing column is known before the first file is read
      input.format = files::TextFormat::json_lines;
    } else {
      files::check_input(input.name);  // a missing file is known before the first is read
      input.format = request.format.value_or(files::format_by_name(files::without_compression_suffix(input.name)));
    }
    json += input.format == files::TextFormat::json_lines ? 1 : 0;
    encoding.formats.push_back(input.format);
  }
  if (json != 0 && json != inputs.size())
    throw ConfigError(
        "preprocess: by their names some inputs are JSON lines and some plain text; say with --format what all are");
  for (const auto& key : json != 0 ? request.json_keys : std::vector<std::string>{})
    if (!is_part_of_file_name(key))
      throw ConfigError(text("preprocess: --json-keys '", key,
                             "': the key becomes part of the names of the output files, so it must have no slash, no "
                             "control character, and at most 128 bytes; rename the key in the input"));
  encoding.keys = json != 0 ? request.json_keys : std::vector<std::string>{""};  // plain text has no keys
  if (json != 0) return;
  if (request.partitions > 1)
    throw ConfigError("preprocess: --partitions deals JSON lines, and the input is plain text; leave it out");
  if (request.split_sentences)
    throw ConfigError(
        "preprocess: --split-sentences takes JSON lines with lists of sentences, and the input is plain text; the "
        "model that splits it (NLTK's punkt) is not available, split it with another program");
}

void PreprocessPlan::deal(const PreprocessRequest& request) {
  auto& dealing = encoding.dealing;
  dealing.rule = request.keep_sequential_samples ? Dealing::Rule::blocks : Dealing::Rule::turns;
  if (!request.keep_sequential_samples) return;
  std::int64_t all = 0, lines = 0;
  for (const auto& input : inputs) {
    files::refuse_read_once(input.name,
                            "preprocess: --partitions with --keep-sequential-samples counts the lines first");
    const auto own = lines_of(input);
    lines = own > 0 ? own : lines;  // Megatron-LM's tool counts an empty file as the one before
    all += lines;
  }
  dealing.block = std::max<std::int64_t>(1, (all + request.partitions - 1) / request.partitions);
}

void PreprocessPlan::choose_outputs(const tokenizers::Tokenizer& tokenizer, const PreprocessRequest& request) {
  const std::string level = request.split_sentences ? "sentence" : "document";
  const auto name = [&](const std::string& prefix, const std::string& key) {
    return key.empty() && encoding.formats.front() != files::TextFormat::json_lines
               ? prefix
               : text(prefix, "_", key, "_", level);
  };
  const auto& prefix = request.output_prefix;
  for (int i = 0; i < request.partitions; ++i)
    for (const auto& key : encoding.keys)
      prefixes.push_back(name(request.partitions == 1 ? prefix : text(prefix, "_", i), key));
  if (request.partitions > 1)
    for (const auto& key : encoding.keys) merged.push_back(name(prefix, key));
  state_file = prefix + ".unfinished.json";

  std::vector<fs::path> read, written = {state_file};
  for (const auto& input : inputs)
    if (input.name != "-") read.emplace_back(input.name);
  for (const auto& file : tokenizer.files()) read.emplace_back(file.path);
  for (const auto* list : {&prefixes, &merged})
    for (const auto& one : *list)
      for (const auto& file : indexed::IndexedDatasetBuilder::files(one)) written.push_back(file);
  refuse_overwriting(read, written);
}

Json PreprocessPlan::identity(const tokenizers::Tokenizer& tokenizer) const {
  Json files = Json::array(), model = Json::array();
  for (const auto& input : inputs) {
    std::error_code none;
    const auto time = fs::last_write_time(input.name, none);
    files.push_back({{"name", input.name},
                     {"bytes", files::size_of_input(input.name)},
                     {"time", none || files::is_read_once(input.name) ? 0 : time.time_since_epoch().count()},
                     {"format", static_cast<int>(input.format)}});
  }
  for (const auto& file : tokenizer.files()) model.push_back({file.option, checksum_of(file.path)});
  const auto own = tokenizer.identity();
  return {{"--input", files},
          {"tokenizer",
           {own.class_name, own.options, model, tokenizer.vocab_size(), encoding.append_eod ? tokenizer.eod() : -1}},
          {"--json-keys", encoding.keys},
          {"--append-eod", encoding.append_eod},
          {"--split-sentences", encoding.lists_only},
          {"--partitions", encoding.dealing.partitions},
          {"--keep-sequential-samples", {static_cast<int>(encoding.dealing.rule), encoding.dealing.block}},
          {"--output-prefix", prefixes}};
}

}  // namespace tessera::preprocessing
