#include "framework/cli/convert_checkpoint.h"

#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/files.h"
#include "framework/base/mapped_pages.h"
#include "framework/checkpoint/filled_state.h"
#include "framework/checkpoint/find.h"
#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/room.h"
#include "framework/checkpoint/writer.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/cli/transformers_folder.h"
#include "framework/interop/hugging_face/family.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/peft_reader.h"
#include "framework/interop/megatron/megatron_arguments.h"
#include "framework/interop/mindspeed_mm/mm_checkpoint.h"
#include "framework/interop/mindspeed_mm/mm_convert.h"
#include "framework/interop/mindspeed_mm/mm_transformers.h"
#include "framework/recipe/adapted_model.h"
#include "framework/recipe/build.h"
#include "framework/recipe/imported_recipe.h"
#include "framework/recipe/saved_layout.h"
#include "framework/recipe/saved_model.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

struct ConvertCheckpointFlags {
  std::string from, to, in, out, like, format = "torch", version;
  FolderFlags folder;
  std::vector<std::string> sets, targets, ignored_keys;
  bool quiet = false;  ///< say nothing of what was written
};

/// What is to be saved of another program's checkpoint: weights under Tessera's names, and optimizer state. `tokens`:
/// see checkpoint::differs_in_padding.
std::vector<checkpoint::TensorRange> ranges_of(model::Model& model, const checkpoint::OpenedCheckpoint& source,
                                               std::optional<DType> type, std::int64_t tokens) {
  std::vector<checkpoint::TensorRange> ranges;
  for (const auto* parameter : model.parameters()) {
    const auto own = type.value_or(source.has(parameter->name) ? source.dtype(parameter->name) : DType::float32);
    ranges.push_back(
        checkpoint::whole(parameter->name, Tensor::without_elements(own, parameter->global_shape), parameter->role));
  }
  checkpoint::must_fit(source, checkpoint::with_paddings_of(source, ranges, tokens));
  std::map<std::string, Shape> others;  // of weights with another padding of the vocabulary
  for (const auto& range : ranges)
    if (source.shape(range.name) != range.global_shape) others.emplace(range.name, range.global_shape);
  for (const auto& name : source.optimizer_names()) {
    const auto there = source.shape(name);
    const auto other = others.find(checkpoint::weight_of(name));
    const bool follows = other != others.end() && there == source.shape(other->first);
    ranges.push_back(
        checkpoint::whole(name, Tensor::without_elements(DType::float32, follows ? other->second : there)));
  }
  return ranges;
}

/// Calls `save`, which saves below `out`. If it throws and the folder is new, it is deleted, provided that it is empty.
void save_below(const fs::path& out, const std::function<void()>& save) {
  const bool is_new = !fs::exists(out);
  try {
    save();
  } catch (const Error&) {
    std::error_code ignored;
    if (is_new) fs::remove(out, ignored);
    throw;
  }
}

/// Saves them, one at a time in memory, or some rows of one. Nothing remains if one cannot be read.
void save_one_by_one(const checkpoint::OpenedCheckpoint& source, const std::vector<checkpoint::TensorRange>& ranges,
                     const checkpoint::Blobs& blobs, const fs::path& out) {
  std::vector<std::string> notes;
  const auto read = [&](const checkpoint::TensorRange& into) {
    if (source.shape(into.name) == into.global_shape) {
      source.read_box(into);
    } else {
      auto note = checkpoint::read_other_padding(source, into);
      if (notes.empty() || notes.back() != note) notes.push_back(std::move(note));  // once for all rows of a tensor
    }
    if (into.tensor.dtype() == DType::float16)  // formats check their elements before they convert them
      checkpoint::must_be_finite(into.tensor, text(source.folder().string(), ": tensor '", into.name, "' as float16"),
                                 into.offsets);
  };
  const auto in_rows = [&](const checkpoint::TensorRange& range) { return source.reads_rows(range.name); };
  std::uint64_t bytes = 0;
  for (const auto& range : ranges) bytes += range.tensor.bytes();
  checkpoint::must_have_room(out, bytes);
  save_below(out, [&] {
    checkpoint::save_checkpoint(out, "", source.iteration(), checkpoint::FilledState(ranges, read, in_rows), blobs);
  });
  tell_notes(notes);
}

/// Before anything is written.
void check_output(const ConvertCheckpointFlags& flags) {
  const fs::path folder = flags.out, in = flags.in;
  refuse_overwriting({&in, 1}, {&folder, 1});
  if (fs::exists(folder) && (!fs::is_directory(folder) || !fs::is_empty(folder)))
    throw ConfigError(text(folder.string(), ": exists and is not empty; give a new or an empty folder"));
}

/// The recipe of the model that --like names: of that file, or of a folder of Transformers; empty without it.
options::Value model_like(const ConvertCheckpointFlags& flags, const CommandContext& context) {
  if (flags.like.empty() || flags.from != "megatron") return {};
  if (!fs::is_directory(flags.like)) return recipe::read_recipe(flags.like, flags.sets, context.registries).resolved;
  std::vector<std::string> notes;
  if (const auto* format = context.registries.formats.of(flags.like); format != nullptr)
    if (auto described = format->model_config(flags.like, context.mappings(), notes)) return *std::move(described);
  throw ConfigError(text("--like ", flags.like,
                         ": is neither a recipe nor a folder of Hugging Face Transformers with a config.json"));
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
  const auto source = format.open_described(*in, context.mappings(), model_like(flags, context));
  if (auto* described = dynamic_cast<mindspeed_mm::MmCheckpoint*>(source.get()); described && !flags.like.empty())
    described->describe_by(flags.like, context.mappings());
  tell_notes(source->notes());
  if (*in != fs::path(flags.in) && fs::exists(in->parent_path() / checkpoint::tracker_name("")))
    if (const auto note = checkpoint::about_tracker(
            in->parent_path(), format.list(in->parent_path()),
            {.folder = *in, .iteration = source->iteration(), .format = &format, .unfinished = {}});
        !note.empty())
      tell_notes({note});
  const auto saved = recipe::saved_recipe(*source, context.registries, flags.sets);
  const auto progress = source->progress();
  const auto model = recipe::build_model(saved.recipe, progress ? saved.tokenizer.get() : nullptr);
  // A checkpoint that a run can resume from has its weights in fp32, the type of the master weights.
  const auto type = progress ? wanted_type(flags.folder).value_or(DType::float32) : wanted_type(flags.folder);
  const auto ranges = ranges_of(*model, *source, type, saved.tokenizer ? saved.tokenizer->vocab_size() : 0);
  auto blobs = source->blobs();
  const bool saved_by_us = blobs.count(checkpoint::recipe_blob) != 0;
  blobs[checkpoint::recipe_blob] = saved_by_us
                                       ? recipe::saved_recipe_text(source->folder(), context.registries, flags.sets)
                                       : recipe::resolved_yaml(saved.recipe);
  if (saved.tokenizer && !saved_by_us) blobs.merge(recipe::tokenizer_blobs(*saved.tokenizer));
  if (progress) blobs[checkpoint::progress_blob] = checkpoint::write_progress(*progress);
  const auto iteration = source->iteration();
  save_one_by_one(*source, ranges, blobs, flags.out);
  if (flags.quiet) return;
  if (!saved.tokenizer)
    std::cout << "note: no tokenizer is saved with it, so generate takes --prompt-tokens: " << saved.no_tokenizer
              << "\n";
  std::cout << (fs::path(flags.out) / checkpoint::checkpoint_name("", iteration)).string() << ": "
            << source->description() << ", " << (progress ? text("iteration ", iteration, ", ") : "") << ranges.size()
            << " tensors\n";
}

/// Throws ConfigError for a checkpoint that has no whole weights of a model without adapters.
void must_have_plain_weights(const recipe::SavedModel& saved) {
  const auto folder = saved.checkpoint.folder().string();
  if (saved.recipe.lora.use_lora)
    throw ConfigError(text(folder,
                           ": has adapters (lora_config.use_lora); `tessera merge` writes the model with them merged "
                           "into its weights, --to peft the adapters alone"));
  if (const auto left_out = saved.checkpoint.about_left_out(); !left_out.empty())
    throw ConfigError(text(folder, ": ", left_out,
                           "; convert a checkpoint that has all weights, of a run with "
                           "training_config.save_frozen_parameters: true"));
}

void export_hugging_face(const ConvertCheckpointFlags& flags, const CommandContext& context) {
  check_output(flags);
  const auto saved = recipe::open_saved(flags.in, context.registries, flags.sets);
  must_have_plain_weights(saved);
  const checkpoint::CheckpointWeights weights(saved.checkpoint);
  const auto family = write_transformers_folder(
      flags.out, {flags.in, saved.recipe, weights, saved.checkpoint.blobs(), saved.tokenizer.get(), saved.tokens},
      flags.folder, context.registries);
  std::cout << flags.out << ": " << family << ", iteration " << saved.checkpoint.iteration() << "\n";
}

/// The adapters of a run alone, for PEFT.
void export_peft(const ConvertCheckpointFlags& flags, const CommandContext& context) {
  check_output(flags);
  const auto adapted = recipe::open_adapted(flags.in, std::nullopt, context.registries);
  const auto how = hugging_face::export_of(adapted);
  const hugging_face::PeftNames names(hugging_face::names_of_run(adapted.recipe, *adapted.base));
  hugging_face::write_peft(flags.out, names, *adapted.trained, how, context.mappings());
  if (!fs::exists(fs::path(how.labels.base) / "config.json"))
    std::cout << "note: its base, " << (how.labels.base.empty() ? "which has no name" : how.labels.base)
              << ", is no folder of Transformers; name one to PEFT, as from `tessera checkpoint convert --to hf`\n";
  std::cout << flags.out << ": adapter of " << adapted.folder.string() << ", " << adapted.trained->names().size()
            << " tensors of ours\n";
}

/// 17 of "core_v0.17" or "core_v0.17.2"; 0 of no text. Throws ConfigError.
int minor_version(const std::string& version) {
  if (version.empty()) return 0;
  int minor = 0;
  char behind = 0;
  if (std::sscanf(version.c_str(), "core_v0.%d%c", &minor, &behind) < 1 || minor < 1 || (behind != 0 && behind != '.'))
    throw ConfigError(text("--for is '", version, "'; give a version of Megatron-LM, as core_v0.12.1 or core_v0.17"));
  return minor;
}

/// The options in which the model that Megatron-LM's arguments describe differs from that of the recipe.
std::vector<std::string> what_arguments_leave_out(const recipe::Recipe& recipe, std::int64_t vocabulary,
                                                  const checkpoint::ForeignSave& save,
                                                  const recipe::Registries& registries) {
  const auto whole = hugging_face::whole_model_config(recipe, vocabulary);
  try {
    const auto tree = megatron::recipe_of_arguments(megatron::megatron_arguments(save), "args", save.mappings);
    const auto theirs = recipe::imported_recipe(tree, {}, registries);
    return hugging_face::model_differences(whole, hugging_face::whole_model_config(theirs, vocabulary), save.mappings);
  } catch (const ConfigError& error) {
    return {error.what()};
  }
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
  checkpoint::ForeignSave save;
  save.root = flags.out;
  save.iteration = checkpoint.iteration();
  save.recipe = saved.recipe.resolved;
  save.type = wanted_type(flags.folder).value_or(model::precision(saved.recipe.half, saved.recipe.precision).params);
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
  save.version = minor_version(flags.version);
  const auto& format = context.registries.formats.named(flags.format);
  const auto ranks = recipe::rank_weights(saved.recipe, rows);
  save.tokens = saved.tokens;
  std::vector<std::string> notes;
  const checkpoint::CheckpointWeights weights(checkpoint);
  for (const auto& [name, shape] : checkpoint::other_paddings(ranks, weights, save.tokens))
    notes.push_back(text(name, ": has ", weights.shape(name)[0], " rows, and ", shape[0],
                         " in the model that is saved; rows of padding are ",
                         shape[0] > weights.shape(name)[0] ? "added" : "left out"));
  tell_notes(notes);
  fs::path folder;
  save_below(flags.out, [&] {
    folder = format.saves_owned() ? checkpoint::save_owned_ranks(format, save, ranks,
                                                                 recipe::saved_parts(saved.recipe, rows), checkpoint)
                                  : checkpoint::save_all_ranks(format, save, ranks, checkpoint);
  });
  const auto differs = what_arguments_leave_out(saved.recipe, rows, save, context.registries);
  std::cout << folder.string() << ": " << name_of(save.type)
            << (format.saves_owned() || !differs.empty() ? "" : "; Megatron-LM takes it with --no-load-rng") << "\n";
  if (!differs.empty())
    std::cout << "note: Megatron-LM would compute another model from the arguments in it; Tessera reads the recipe "
                 "beside them:\n  "
              << joined(differs, "\n  ") << "\n";
}

/// The layers of each tower on the stages of a recipe, [chunk][stage].
mindspeed_mm::MmLayout mindspeed_mm_layout(const recipe::Recipe& recipe) {
  const auto plan = recipe.layer_plan();
  const auto chunks = static_cast<std::size_t>(plan.chunks()), stages = static_cast<std::size_t>(plan.stages());
  mindspeed_mm::MmLayout layout{recipe.parallel.tensor_model_parallel_size, {}};
  layout.towers.resize(plan.towers().all().size());
  for (auto& tower : layout.towers) tower.chunks.assign(chunks, std::vector<std::int64_t>(stages, 0));
  for (std::int64_t stage = 0; stage < plan.stages(); ++stage)
    for (std::int64_t chunk = 0; chunk < plan.chunks(); ++chunk)
      for (const auto& part : plan.towers().parts(plan.at(stage, chunk)))
        layout.towers[part.tower].chunks[static_cast<std::size_t>(chunk)][static_cast<std::size_t>(stage)] =
            part.layers;
  return layout;
}

void export_mindspeed_mm(const ConvertCheckpointFlags& flags, const CommandContext& context) {
  check_output(flags);
  const auto saved = recipe::open_saved(flags.in, context.registries, flags.sets);
  must_have_plain_weights(saved);
  const checkpoint::CheckpointWeights weights(saved.checkpoint);
  const auto rows = weights.shape("embedding.word_embeddings.weight")[0];
  hugging_face::family_that_fits(saved.recipe, rows, {mindspeed_mm::family_name}, context.registries,
                                 context.mappings());
  const auto type = wanted_type(flags.folder);
  mindspeed_mm::write_mindspeed_mm(flags.out, weights, hugging_face::whole_model_config(saved.recipe, rows),
                                   mindspeed_mm_layout(saved.recipe), type, context.mappings());
  std::cout << flags.out << ": " << name_of(type.value_or(weights.dtype("embedding.word_embeddings.weight")))
            << ", iteration " << saved.checkpoint.iteration() << "\n";
}

void refuse_options_of_megatron(const ConvertCheckpointFlags& flags) {
  if (flags.to != "megatron" && flags.format != ConvertCheckpointFlags().format)
    throw ConfigError(text("--ckpt-format is for --to megatron, not --to ", flags.to, "; leave it out"));
  if (!flags.version.empty() && (flags.to != "megatron" || flags.format != "torch_dist"))
    throw ConfigError("--for is for --to megatron --ckpt-format torch_dist; leave it out");
}

void refuse_like_elsewhere(const ConvertCheckpointFlags& flags) {
  if (!flags.like.empty() && flags.from != "mindspeed-mm" && flags.from != "megatron")
    throw ConfigError(text("--like is for --from mindspeed-mm or megatron, not --from ", flags.from, "; leave it out"));
}

/// Options that would have no effect.
void refuse_options_of_hf(const ConvertCheckpointFlags& flags) {
  if (flags.to == "hf") return;
  const std::pair<const char*, bool> given[] = {{"--vocab-size", flags.folder.vocabulary > 0},
                                                {"--model-type", !flags.folder.family.empty()},
                                                {"--shard-size", flags.folder.shard_size != FolderFlags().shard_size}};
  for (const auto& [name, is_given] : given)
    if (is_given)
      throw ConfigError(text(name, " is for --to hf, not --to ", flags.to, "; leave it out",
                             name == given[0].first ? ", or set model_config.vocab_size with --set" : ""));
}

/// Of the program's formats the one that --in has; the first one if it has none, which then says what is wrong; null:
/// the program has no format.
const checkpoint::CheckpointFormat* format_of(const checkpoint::CheckpointFormats& formats,
                                              const ConvertCheckpointFlags& flags) {
  if (fs::is_directory(flags.in))
    for (const auto& found : checkpoint::find_any(flags.in, formats))
      if (found.format != nullptr && found.format->program() == flags.from) return found.format;
  for (const auto& format : formats.all())
    if (format->program() == flags.from) return format.get();
  return nullptr;
}

void convert(const ConvertCheckpointFlags& flags, const CommandContext& context);

/// A folder that is deleted at the end.
struct Temporary {
  fs::path folder;
  explicit Temporary(fs::path path) : folder(std::move(path)) {}
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
};

/// From one other program's format to another, or to another layout of the same: through a checkpoint of ours beside
/// OUT, which has all that they have.
void convert_through_ours(const ConvertCheckpointFlags& flags, const CommandContext& context) {
  check_output(flags);
  auto place = fs::path(flags.out).lexically_normal();
  if (place.filename().empty()) place = place.parent_path();
  place += ".between";
  if (fs::exists(place))
    throw ConfigError(text(place.string(), ": is there already, and is needed for the conversion; move or delete it"));
  const Temporary between(place);
  auto first = flags, second = flags;
  first.to = "tessera", first.out = place.string(), first.quiet = true;
  first.folder = {};
  std::erase_if(first.sets, [](const auto& set) { return set.rfind("parallel_config.", 0) == 0; });
  first.format = ConvertCheckpointFlags().format, first.version.clear();
  second.from = "tessera", second.in = place.string();
  second.like.clear();
  convert(first, context);
  convert(second, context);
}

void convert(const ConvertCheckpointFlags& flags, const CommandContext& context) {
  const SparesMappedPages sparing;
  refuse_options_of_hf(flags);
  refuse_like_elsewhere(flags);
  refuse_options_of_megatron(flags);
  if (!flags.targets.empty() && flags.to != "megatron" && !flags.quiet)
    throw ConfigError(text("--target-... is for --to megatron, not --to ", flags.to,
                           ", whose files do not depend on the layout of ranks; leave it out, as --num-layer-list, "
                           "--num-layers-per-virtual-pipeline-stage and --make-vocab-size-divisible-by"));
  if (flags.to == "tessera")
    if (const auto* format = format_of(context.registries.formats, flags))
      return import_checkpoint(*format, flags, context);
  if (flags.from == "tessera" && flags.to == "hf") return export_hugging_face(flags, context);
  if (flags.to == "peft" && (!flags.folder.dtype.empty() || !flags.sets.empty()))
    throw ConfigError(text(flags.folder.dtype.empty() ? "--set" : "--dtype",
                           " is not for --to peft, which writes adapters as they were trained; leave it out"));
  if (flags.from == "tessera" && flags.to == "peft") return export_peft(flags, context);
  if (flags.from == "tessera" && flags.to == "megatron") return export_megatron(flags, context);
  if (flags.from == "tessera" && flags.to == "mindspeed-mm") return export_mindspeed_mm(flags, context);
  if (flags.from != "tessera" && flags.to != "peft" && (flags.from != flags.to || flags.to == "megatron"))
    return convert_through_ours(flags, context);
  if (flags.from == flags.to)
    throw ConfigError(text("--from ", flags.from, " --to ", flags.to,
                           ": the formats are the same, so there is nothing to convert; copy the folder, or cut it for "
                           "other ranks with `tessera checkpoint reshard`"));
  throw ConfigError(text("--from ", flags.from, " --to ", flags.to,
                         ": adapters are written from a run of Tessera; give its folder, and --from tessera"));
}

}  // namespace

void add_convert_checkpoint_command(Command& group, CommandContext& context) {
  auto* command = group.add_subcommand("convert", "Convert a model from or to another program's format");
  const auto flags = std::make_shared<ConvertCheckpointFlags>();
  const std::vector<std::string> programs = {"hf", "megatron", "mindspeed-mm", "tessera"};
  command
      ->add_option(
          "--from", flags->from,
          "Format of IN: hf (a folder of Hugging Face Transformers), megatron (--ckpt-format torch), mindspeed-mm "
          "(Qwen2-VL of MindSpeed-MM) or tessera")
      ->required()
      ->one_of(programs);
  command
      ->add_option("--to", flags->to,
                   "Format of OUT; peft: only the adapters that were trained (lora_config), as PEFT reads them")
      ->required()
      ->one_of({"hf", "megatron", "mindspeed-mm", "peft", "tessera"});
  command
      ->add_option("IN", flags->in,
                   "Folder to read; for tessera a checkpoint, or a run folder, whose newest checkpoint is read")
      ->required();
  command->add_option("OUT", flags->out, "Folder to write, new or empty")->required();
  command->add_option("--dtype", flags->folder.dtype, "Element type of the weights; default: as stored")
      ->one_of({"float32", "bfloat16", "float16"});
  command->add_option("--shard-size", flags->folder.shard_size, shard_size_text)->show_default();
  command
      ->add_option("--model-type", flags->folder.family,
                   "model_type to write, for hf; default: the one that IN was converted from, or the first that fits")
      ->suggest(hugging_face::hugging_face_families(context.mappings()));
  command
      ->add_option("--vocab-size", flags->folder.vocabulary,
                   "Number of vocabulary rows to write, for hf; must keep all tokens. Default: as in IN, else that of "
                   "the tokenizer")
      ->positive();
  command->add_option("--like", flags->like,
                      "Folder of Hugging Face Transformers with the config.json of the model, for --from mindspeed-mm, "
                      "whose checkpoints do not describe their model; for --from megatron also a recipe, of a model "
                      "whose files have no args");
  command
      ->add_option("--ckpt-format", flags->format,
                   "Megatron-LM's checkpoint format to write, for --to megatron: torch, or torch_dist, its distributed "
                   "format")
      ->show_default()
      ->one_of({"torch", "torch_dist"});
  command->add_option(
      "--for", flags->version,
      "Version of Megatron-LM that will read it, core_v0.17, for --ckpt-format torch_dist. The state of "
      "the distributed optimizer is flattened before core_v0.15; default: core_v0.12");
  add_set_arguments(*command, flags->sets);
  add_target_arguments(*command, flags->targets);
  add_ignore_key_argument(*command, flags->ignored_keys);
  command->callback([flags, &context] {
    context.ignore_keys(flags->ignored_keys);
    flags->sets.insert(flags->sets.end(), flags->targets.begin(), flags->targets.end());
    convert(*flags, context);
  });
}

}  // namespace tessera::cli
