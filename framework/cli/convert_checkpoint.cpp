#include "framework/cli/convert_checkpoint.h"

#include <cmath>
#include <iostream>
#include <memory>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/memory_limit.h"
#include "framework/checkpoint/find.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/interop/hugging_face/family.h"
#include "framework/interop/hugging_face/hugging_face_export.h"
#include "framework/recipe/build.h"
#include "framework/recipe/saved_layout.h"
#include "framework/recipe/saved_model.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

struct ConvertCheckpointFlags {
  std::string from, to, in, out, dtype, family, shard_size = "5GB";
  std::int64_t vocabulary = 0;
  std::vector<std::string> sets, ignored_keys;
};

std::optional<DType> wanted_type(const ConvertCheckpointFlags& flags) {
  if (flags.dtype.empty()) return std::nullopt;
  return dtype_named(flags.dtype);
}

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
  throw ConfigError(text("--shard-size ", words, ": a size such as 5GB, 500MB or a number of bytes was expected"));
}

void tell(const std::vector<std::string>& notes) {
  for (const auto& note : notes) std::cout << "note: " << note << "\n";
}

/// The weights to be saved, under Tessera's names, and their memory.
struct Weights {
  std::vector<std::vector<std::byte>> memory;
  std::vector<checkpoint::TensorRange> ranges;
};

Weights room_for(model::Model& model, const checkpoint::WeightSource& source, std::optional<DType> type) {
  Weights out;
  require_memory("the model", recipe::weight_bytes(model));
  for (const auto* parameter : model.parameters()) {
    const auto own = type.value_or(source.has(parameter->name) ? source.dtype(parameter->name) : DType::float32);
    auto& memory = out.memory.emplace_back(static_cast<std::size_t>(parameter->elements()) * size_of(own));
    out.ranges.push_back(
        checkpoint::whole(parameter->name, Tensor{std::span(memory), own, parameter->global_shape}, parameter->role));
  }
  return out;
}

/// Before anything is written.
void check_output(const ConvertCheckpointFlags& flags) {
  const fs::path folder = flags.out, in = flags.in;
  refuse_overwriting({&in, 1}, {&folder, 1});
  if (fs::exists(folder) && (!fs::is_directory(folder) || !fs::is_empty(folder)))
    throw ConfigError(text(folder.string(), ": exists and is not empty; give a new or an empty folder"));
}

/// From another program: weights, optimizer state and progress where there are any, the recipe, and what is carried
/// along.
void import_checkpoint(const checkpoint::CheckpointFormat& format, const ConvertCheckpointFlags& flags,
                       const CommandContext& context) {
  check_output(flags);
  const auto in = format.find(flags.in);
  if (!in)
    throw ConfigError(text(flags.in, ": has no checkpoint in the format of --from ", flags.from,
                           "; give the folder of one, or another --from"));
  const auto source = format.open(*in, context.mappings());
  tell(source->notes());
  const auto saved = recipe::saved_recipe(*source, context.registries, flags.sets);
  const auto progress = source->progress();
  const auto model = recipe::build_model(saved.recipe, progress ? saved.tokenizer.get() : nullptr);
  // A checkpoint that a run can resume from has its weights in fp32, the type of the master weights.
  auto all = room_for(*model, *source, progress ? wanted_type(flags).value_or(DType::float32) : wanted_type(flags));
  tell(checkpoint::load_all(*source, all.ranges));
  for (const auto& name : source->optimizer_names()) {
    const auto shape = source->shape(name);
    auto& memory = all.memory.emplace_back(static_cast<std::size_t>(shape.elements()) * sizeof(float));
    all.ranges.push_back(checkpoint::whole(name, Tensor{std::span(memory), DType::float32, shape}));
    source->read(name, all.ranges.back().tensor);
  }
  auto blobs = source->blobs();
  const bool saved_by_us = blobs.count(checkpoint::recipe_blob) != 0;
  blobs[checkpoint::recipe_blob] = saved_by_us
                                       ? recipe::saved_recipe_text(source->folder(), context.registries, flags.sets)
                                       : recipe::resolved_yaml(saved.recipe);
  if (saved.tokenizer && !saved_by_us) blobs.merge(recipe::tokenizer_blobs(*saved.tokenizer));
  if (progress) blobs[checkpoint::progress_blob] = checkpoint::write_progress(*progress);
  const auto iteration = source->iteration();
  checkpoint::save_checkpoint(flags.out, "", iteration, all.ranges, blobs);
  if (!saved.tokenizer)
    std::cout << "note: no tokenizer is saved with it, so generate takes --prompt-tokens: " << saved.no_tokenizer
              << "\n";
  std::cout << (fs::path(flags.out) / checkpoint::checkpoint_name("", iteration)).string() << ": "
            << source->description() << ", " << (progress ? text("iteration ", iteration, ", ") : "")
            << all.ranges.size() << " tensors\n";
}

/// The token fields of config.json, for a model that was not imported with one.
std::string special_tokens(const recipe::SavedModel& saved) {
  Json json = {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}};
  if (saved.tokenizer) json["bos_token_id"] = json["eos_token_id"] = saved.tokenizer->eod();
  return json.dump();
}

/// The files beside the weights: those imported with the model, else the tokenizer it was trained with.
checkpoint::Blobs files_beside(const recipe::SavedModel& saved) {
  checkpoint::Blobs files;
  const std::string prefix = hugging_face::carried_prefix;
  for (const auto& [name, content] : saved.checkpoint.blobs())
    if (name.rfind(prefix, 0) == 0) files[name.substr(prefix.size())] = content;
  if (!files.empty()) return files;
  const auto& blobs = saved.checkpoint.blobs();
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
Tokens tokens_of(const recipe::SavedModel& saved, std::int64_t carried, std::int64_t rows) {
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
std::int64_t given_vocabulary(const ConvertCheckpointFlags& flags, const Tokens& tokens, std::int64_t rows) {
  const auto advice = text("; give a number from ", tokens.count, " to ", rows, ", or leave --vocab-size out");
  if (flags.vocabulary > rows)
    throw ConfigError(text("--vocab-size is ", flags.vocabulary, ", but the model has ", rows, " rows", advice));
  if (flags.vocabulary < tokens.count)
    throw ConfigError(text("--vocab-size is ", flags.vocabulary, ", which drops tokens of ", flags.in, ": rows 0 to ",
                           tokens.count - 1, " hold tokens (", tokens.source, ")", advice));
  return flags.vocabulary;
}

/// Number of rows that are tokens: as given, else as imported with the model, else the size of the tokenizer that
/// determined the number of rows; else all rows.
std::int64_t true_vocabulary(const ConvertCheckpointFlags& flags, const recipe::SavedModel& saved,
                             const checkpoint::Blobs& files, std::int64_t rows) {
  const auto carried = carried_vocabulary(files);
  if (flags.vocabulary > 0) return given_vocabulary(flags, tokens_of(saved, carried, rows), rows);
  // The model may have been trained on with more tokens than it was imported with.
  if (carried > 0) return std::min(rows, std::max(carried, saved.tokens));
  return !saved.recipe.size.vocab_size && saved.tokens > 0 ? saved.tokens : rows;
}

/// Rows of the vocabulary in the checkpoint. Throws ConfigError if the recipe has other rows, which only --set can do.
std::int64_t rows_of(const checkpoint::WeightSource& weights, const recipe::SavedModel& saved) {
  const auto rows = weights.shape("embedding.word_embeddings.weight")[0];
  const auto given = recipe::vocabulary(saved.recipe, saved.tokenizer.get());
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

/// Throws ConfigError for a checkpoint that has no whole weights of a model without adapters.
void must_have_plain_weights(const recipe::SavedModel& saved) {
  const auto folder = saved.checkpoint.folder().string();
  if (saved.recipe.lora.use_lora)
    throw ConfigError(text(folder,
                           ": has adapters (lora_config.use_lora), and merging them into the weights is not "
                           "supported yet; `tessera generate` and `tessera eval` read the run as it is"));
  if (const auto left_out = saved.checkpoint.about_left_out(); !left_out.empty())
    throw ConfigError(text(folder, ": ", left_out,
                           "; convert a checkpoint that has all weights, of a run with "
                           "training_config.save_frozen_parameters: true"));
}

void export_hugging_face(const ConvertCheckpointFlags& flags, const CommandContext& context) {
  check_output(flags);
  const auto mappings = context.mappings();
  const auto saved = recipe::open_saved(flags.in, context.registries, flags.sets);
  must_have_plain_weights(saved);
  const checkpoint::CheckpointWeights weights(saved.checkpoint);
  auto files = files_beside(saved);
  const auto rows = rows_of(weights, saved);
  hugging_face::HuggingFaceExport how;
  how.vocabulary = true_vocabulary(flags, saved, files, rows);
  how.dtype = wanted_type(flags);
  how.shard_bytes = bytes_of(flags.shard_size);
  auto candidates = hugging_face::hugging_face_families(mappings);
  if (!flags.family.empty())
    candidates = {flags.family};
  else if (const auto own = family_of(files["config.json"]); !own.empty())
    candidates.insert(candidates.begin(), own);
  how.family = hugging_face::family_that_fits(saved.recipe, how.vocabulary, candidates, context.registries, mappings);
  const auto config = hugging_face::whole_model_config(saved.recipe, how.vocabulary);
  const auto type = how.dtype.value_or(weights.dtype("embedding.word_embeddings.weight"));
  const auto carried = files["config.json"].empty() ? special_tokens(saved) : files["config.json"];
  files["config.json"] = hugging_face::write_hugging_face_config(config, how.family, type, carried, mappings);
  how.files = std::move(files);
  tell(hugging_face::write_hugging_face(flags.out, config, weights, how, mappings));
  std::cout << flags.out << ": " << how.family << ", iteration " << saved.checkpoint.iteration() << "\n";
}

void export_megatron(const ConvertCheckpointFlags& flags, const CommandContext& context) {
  check_output(flags);
  const auto saved = recipe::open_saved(flags.in, context.registries, flags.sets);
  must_have_plain_weights(saved);
  if (!saved.recipe.parallel.noop_layers.ids.empty())
    throw ConfigError(
        "parallel_config.noop_layers: Megatron-LM's checkpoint format has no no-op layers; if they are the last "
        "layers, add --set parallel_config.noop_layers=null and --set model_config.num_layers=N, the number of the "
        "other layers");
  const auto& checkpoint = saved.checkpoint;
  Weights all;
  for (const auto& name : checkpoint.names()) {
    const auto& shape = checkpoint.shape(name);
    auto& memory = all.memory.emplace_back(static_cast<std::size_t>(shape.elements()) * sizeof(float));
    all.ranges.push_back(checkpoint::whole(name, Tensor{std::span(memory), DType::float32, shape}));
    checkpoint.read(all.ranges.back(), {true, true});
  }
  checkpoint::ForeignSave save;
  save.root = flags.out;
  save.iteration = checkpoint.iteration();
  save.recipe = saved.recipe.resolved;
  save.type = wanted_type(flags).value_or(model::precision(saved.recipe.half, saved.recipe.precision).params);
  const auto rows = recipe::vocabulary(saved.recipe, saved.tokenizer.get());
  save.layout = recipe::saved_layout(saved.recipe, rows, saved.recipe.parallel.data_parallel_size.value_or(1));
  save.files = checkpoint.blobs();
  save.files[checkpoint::recipe_blob] = recipe::saved_recipe_text(checkpoint.folder(), context.registries, flags.sets);
  save.mappings = context.mappings();
  if (const auto progress = save.files.find(checkpoint::progress_blob); progress != save.files.end()) {
    save.progress =
        checkpoint::read_progress(progress->second, (checkpoint.folder() / checkpoint::progress_blob).string());
    save.files.erase(progress);  // it is in the ranks' files
  }
  const auto folder = checkpoint::save_all_ranks(context.registries.formats.named("torch"), save,
                                                 recipe::rank_weights(saved.recipe, rows), all.ranges);
  std::cout << folder.string() << ": " << name_of(save.type) << "; Megatron-LM takes it with --no-load-rng\n";
}

/// Options that would have no effect.
void refuse_options_of_hf(const ConvertCheckpointFlags& flags) {
  if (flags.to == "hf") return;
  const std::pair<const char*, bool> given[] = {
      {"--vocab-size", flags.vocabulary > 0},
      {"--model-type", !flags.family.empty()},
      {"--shard-size", flags.shard_size != ConvertCheckpointFlags().shard_size}};
  for (const auto& [name, is_given] : given)
    if (is_given)
      throw ConfigError(text(name, " is for --to hf, not --to ", flags.to, "; leave it out",
                             name == given[0].first ? ", or set model_config.vocab_size with --set" : ""));
}

void convert(const ConvertCheckpointFlags& flags, const CommandContext& context) {
  refuse_options_of_hf(flags);
  if (flags.to == "tessera")
    for (const auto& format : context.registries.formats.all())
      if (format->program() == flags.from) return import_checkpoint(*format, flags, context);
  if (flags.from == "tessera" && flags.to == "hf") return export_hugging_face(flags, context);
  if (flags.from == "tessera" && flags.to == "megatron") return export_megatron(flags, context);
  if (flags.from == flags.to)
    throw ConfigError(text("--from ", flags.from, " --to ", flags.to,
                           ": the formats are the same, so there is nothing to convert; copy the folder, or cut it for "
                           "other ranks with `tessera checkpoint reshard`"));
  throw ConfigError(text("--from ", flags.from, " --to ", flags.to,
                         ": one of the two must be tessera; convert to tessera first, then to the other format"));
}

}  // namespace

void add_convert_checkpoint_command(Command& group, CommandContext& context) {
  auto* command = group.add_subcommand("convert", "Convert a model from or to another program's format");
  const auto flags = std::make_shared<ConvertCheckpointFlags>();
  const std::vector<std::string> programs = {"hf", "megatron", "tessera"};
  command
      ->add_option(
          "--from", flags->from,
          "Format of IN: hf (a folder of Hugging Face Transformers), megatron (--ckpt-format torch) or tessera")
      ->required()
      ->one_of(programs);
  command->add_option("--to", flags->to, "Format of OUT")->required()->one_of(programs);
  command
      ->add_option("IN", flags->in,
                   "Folder to read; for tessera a checkpoint, or a run folder, whose newest checkpoint is read")
      ->required();
  command->add_option("OUT", flags->out, "Folder to write, new or empty")->required();
  command->add_option("--dtype", flags->dtype, "Element type of the weights; default: as stored")
      ->one_of({"float32", "bfloat16", "float16"});
  command->add_option("--shard-size", flags->shard_size, "Maximum size of one file, for hf")->show_default();
  command
      ->add_option("--model-type", flags->family,
                   "model_type to write, for hf; default: the one that IN was converted from, or the first that fits")
      ->suggest(hugging_face::hugging_face_families(context.mappings()));
  command
      ->add_option("--vocab-size", flags->vocabulary,
                   "Number of vocabulary rows to write, for hf; must keep all tokens. Default: as in IN, else that of "
                   "the tokenizer")
      ->positive();
  add_set_arguments(*command, flags->sets);
  add_ignore_key_argument(*command, flags->ignored_keys);
  command->callback([flags, &context] {
    context.ignore_keys(flags->ignored_keys);
    convert(*flags, context);
  });
}

}  // namespace tessera::cli
