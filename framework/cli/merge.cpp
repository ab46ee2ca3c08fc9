#include "framework/cli/merge.h"

#include <algorithm>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/files.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/cli/threads_argument.h"
#include "framework/cli/transformers_folder.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/merge_check.h"
#include "framework/interop/hugging_face/peft_reader.h"
#include "framework/recipe/merge_record.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

const std::string dequantised = "dequantised";

struct MergeFlags {
  std::string in, out, base, into;
  FolderFlags folder;
  ThreadsArgument threads;
  std::vector<std::string> ignored_keys;
};

void check_merge_output(const MergeFlags& flags) {
  std::vector<fs::path> inputs = {flags.in};
  for (const auto& folder : {flags.base, flags.into})
    if (!folder.empty() && folder != dequantised) inputs.emplace_back(folder);
  const fs::path out = flags.out;
  refuse_overwriting(inputs, {&out, 1});
  if (fs::exists(out) && (!fs::is_directory(out) || !fs::is_empty(out)))
    throw ConfigError(text(out.string(), ": exists and is not empty; give a new or an empty folder"));
}

bool has_packed_weights(const checkpoint::OpenedCheckpoint& base) {
  const auto* theirs = dynamic_cast<const hugging_face::HuggingFaceModel*>(&base);
  return theirs != nullptr && theirs->is_packed();
}

/// The values of a base in 4 bits, or the weights that they were made from: the two differ, so the user says which.
void choose_base(recipe::AdaptedModel& adapted, const MergeFlags& flags, const recipe::Registries& registries) {
  const auto of_base = text("the base of ", adapted.folder.string(), ", ", adapted.base->folder().string(), ",");
  if (!has_packed_weights(*adapted.base)) {
    if (flags.into.empty()) return;
    throw ConfigError(text("--into ", flags.into, ": is for a base with weights in 4 bits, but ", of_base,
                           " has none; leave it out, or give --base to merge into another base"));
  }
  if (flags.into.empty())
    throw ConfigError(text(of_base,
                           " has weights in 4 bits, and merged weights are not: say into which to merge, with "
                           "--into dequantised, the values that the adapter was trained on, or --into FOLDER, "
                           "the 16-bit model that the base was made from"));
  if (flags.into == dequantised) return;
  adapted.base = recipe::open_newest(flags.into, registries);
  adapted.base_digest.reset();
  recipe::refuse_merged(*adapted.trained, *adapted.base);
}

/// The digest of the base is that of its values in the types of the run.
void computes_in_fp32(recipe::AdaptedModel& adapted) {
  const auto precision = model::precision(adapted.recipe.half, adapted.recipe.precision);
  if (adapted.base_digest && precision.params != DType::float32) {
    (void)recipe::load_adapted(adapted);
    adapted.base_digest.reset();
  }
  hugging_face::compute_in_fp32(adapted.recipe);
}

/// How far a merged model is from the model with adapters beside its weights.
void require_near(double away, const std::string& what) {
  if (away <= hugging_face::most_of_merge) return;
  throw Error(text("merge: the logits of ", what, " differ from those of the model with adapters by ", away,
                   " of the largest; at most ", hugging_face::most_of_merge,
                   " is rounding in fp32. Do not use the folder that was written"));
}

bool is_all_fp32(const checkpoint::WeightSource& weights, const FolderFlags& folder) {
  if (const auto type = wanted_type(folder)) return *type == DType::float32;
  const auto names = weights.names();
  return std::all_of(names.begin(), names.end(),
                     [&](const auto& name) { return weights.dtype(name) == DType::float32; });
}

/// Reloads what was written. In 16 bits it differs by the rounding of its weights, so before that the unrounded ones
/// are compared.
void check_merged(const MergeFlags& flags, const recipe::AdaptedModel& adapted,
                  const hugging_face::MergedWeights& merged, kernels::Threads& threads,
                  const recipe::Registries& registries) {
  using hugging_face::difference;
  const auto live = hugging_face::fixed_logits(recipe::load_adapted(adapted), threads);
  const bool exact = is_all_fp32(merged, flags.folder);
  if (!exact) {
    const auto unrounded = hugging_face::fixed_logits(hugging_face::load_merged(adapted.recipe, merged), threads);
    require_near(difference(live, unrounded), "the merged weights before they are rounded");
  }
  const auto written =
      difference(live, hugging_face::fixed_logits(recipe::load_trained(flags.out, registries), threads));
  if (exact) require_near(written, flags.out);
  std::cout << "  logits differ from the model with adapters by " << std::setprecision(2) << written
            << " of the largest" << (exact ? "" : ", which is the rounding of the weights") << "\n";
}

void merge(const MergeFlags& flags, const CommandContext& context) {
  const auto& registries = context.registries;
  check_merge_output(flags);
  auto adapted = recipe::open_adapted(flags.in, flags.base.empty() ? std::nullopt : std::optional<fs::path>(flags.base),
                                      registries);
  log_notes(adapted.notes, {}, true);
  recipe::must_fit_trained(adapted);
  hugging_face::refuse_tied_table(adapted);
  choose_base(adapted, flags, registries);
  computes_in_fp32(adapted);
  kernels::Threads threads(flags.threads.count());
  const hugging_face::PeftNames names(hugging_face::names_of_run(adapted.recipe, *adapted.base));
  const auto base = adapted.base_weights();
  const hugging_face::MergedWeights merged(*base, *adapted.trained, names, hugging_face::scale_of(adapted.recipe),
                                           threads);
  auto files = adapted.base->blobs();
  files[std::string(hugging_face::carried_prefix) + recipe::merged_record] =
      recipe::record_with(files, *adapted.trained);
  const auto tokenizer = adapted.recipe.tokenizer.make();
  const auto family = write_transformers_folder(
      flags.out, {flags.in, adapted.recipe, merged, files, tokenizer.get(), tokenizer ? tokenizer->vocab_size() : 0},
      flags.folder, registries);
  std::cout << flags.out << ": " << family << ", " << adapted.folder.string() << " merged into "
            << adapted.base->folder().string() << ", " << merged.changed().size() << " weights differ from it\n";
  check_merged(flags, adapted, merged, threads, registries);
}

}  // namespace

void add_merge_commands(Command& app, CommandContext& context) {
  auto* command = app.add_subcommand("merge", "Merge adapters into the weights of their base");
  const auto flags = std::make_shared<MergeFlags>();
  command
      ->add_option("FOLDER", flags->in,
                   "An adapter folder of PEFT, or a checkpoint or run folder of a run with adapters (lora_config)")
      ->required();
  command->add_option("OUT", flags->out, "Folder of Hugging Face Transformers to write, new or empty")->required();
  command->add_option("--base", flags->base, "Folder of the base; default: the one that FOLDER names")
      ->type_name("FOLDER");
  command
      ->add_option("--into", flags->into,
                   "For a base with weights in 4 bits: dequantised, or the folder of the 16-bit model that it was made "
                   "from")
      ->suggest({dequantised});
  command->add_option("--dtype", flags->folder.dtype, "Element type of the weights; default: as in the base")
      ->one_of({"float32", "bfloat16", "float16"});
  command->add_option("--shard-size", flags->folder.shard_size, shard_size_text)->show_default();
  flags->threads.add_to(*command);
  add_ignore_key_argument(*command, flags->ignored_keys);
  command->callback([flags, &context] {
    context.ignore_keys(flags->ignored_keys);
    merge(*flags, context);
  });
}

}  // namespace tessera::cli
