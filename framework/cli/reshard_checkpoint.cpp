#include "framework/cli/reshard_checkpoint.h"

#include <iostream>
#include <memory>

#include "framework/base/files.h"
#include "framework/checkpoint/reshard.h"
#include "framework/cli/recipe_arguments.h"
#include "framework/recipe/build.h"
#include "framework/recipe/saved_layout.h"
#include "framework/recipe/saved_model.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

struct ReshardCheckpointFlags {
  std::string in, out;
  std::vector<std::string> sets, targets;
};

void reshard_by(const ReshardCheckpointFlags& flags, const CommandContext& context) {
  const fs::path in = flags.in, out = flags.out;
  refuse_overwriting({&in, 1}, {&out, 1});
  if (fs::exists(flags.out) && (!fs::is_directory(flags.out) || !fs::is_empty(flags.out)))
    throw ConfigError(text(flags.out, ": is there already; give a new or an empty folder"));
  const auto saved = recipe::open_saved(flags.in, context.registries, flags.sets);
  const auto& recipe = saved.recipe;
  checkpoint::Resharding how;
  const auto rows = recipe::vocabulary(recipe, saved.tokenizer.get());
  how.writers = recipe::saved_parts(recipe, rows);
  how.true_vocabulary = saved.tokens;
  how.blobs[checkpoint::recipe_blob] =
      recipe::saved_recipe_text(saved.checkpoint.folder(), context.registries, flags.sets);
  const auto name = saved.checkpoint.folder().filename().string();
  const auto at = name.rfind("iter_");
  const auto prefix = at == std::string::npos ? std::string() : name.substr(0, at);
  checkpoint::reshard(saved.checkpoint, flags.out, prefix, how);
  const auto tensor = recipe.parallel.tensor_model_parallel_size, stages = recipe.layer_plan().stages();
  std::cout << (fs::path(flags.out) / checkpoint::checkpoint_name(prefix, saved.checkpoint.iteration())).string()
            << ": " << tensor << " tensor-parallel rank" << (tensor == 1 ? "" : "s") << " x " << stages << " stage"
            << (stages == 1 ? "" : "s");
  if (recipe.experts() > 0)
    std::cout << ", experts over " << recipe.parallel.expert_model_parallel_size << " x "
              << recipe.parallel.sharers_of_expert() << " ranks (expert x expert tensor)";
  std::cout << ", " << rows << " rows of the vocabulary\n";
}

}  // namespace

void add_reshard_command(Command& group, CommandContext& context) {
  auto* command = group.add_subcommand(
      "reshard",
      "Rewrite a checkpoint for another parallel layout; not needed for loading: every layout loads every checkpoint");
  const auto flags = std::make_shared<ReshardCheckpointFlags>();
  command->add_option("IN", flags->in, "A checkpoint, or a run folder: its newest checkpoint")->required();
  command->add_option("OUT", flags->out, "A new folder")->required();
  add_set_arguments(*command, flags->sets);
  add_target_arguments(*command, flags->targets);
  command->callback([flags, &context] {
    flags->sets.insert(flags->sets.end(), flags->targets.begin(), flags->targets.end());
    reshard_by(*flags, context);
  });
}

}  // namespace tessera::cli
