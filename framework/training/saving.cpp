#include "framework/training/saving.h"

#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/links.h"
#include "framework/checkpoint/format.h"
#include "framework/checkpoint/frozen_base.h"
#include "framework/comm/together.h"
#include "framework/nn/weight_parts.h"
#include "framework/training/given_checkpoint.h"
#include "framework/training/resume.h"
#include "framework/training/run_checkpoints.h"

namespace tessera::training {
namespace {

/// What this rank saves, without a copy: for a save that ends before training goes on. Collective.
std::shared_ptr<const checkpoint::StateSnapshot> live_state(const TrainingSetup& setup, ModelState& state,
                                                            const checkpoint::Progress& progress) {
  const auto& o = setup.options;
  std::optional<checkpoint::FrozenBase> base;
  if (!o.save_frozen_parameters && !setup.model.trained.all())
    base = {std::filesystem::absolute(o.load_checkpoint.value_or("")).string(),
            frozen_digest(setup.model.processes.world, state)};
  auto tensors = base ? state.trained_ranges(StateScope::owned) : state.weight_ranges(StateScope::owned);
  auto slots = state.optimizer_ranges(StateScope::owned);
  std::move(slots.begin(), slots.end(), std::back_inserter(tensors));
  auto blobs = setup.documents.files;
  blobs[checkpoint::progress_blob] = checkpoint::write_progress(progress);
  if (base) blobs[checkpoint::frozen_base_blob] = checkpoint::write_base(*base);
  return std::make_shared<checkpoint::LiveState>(std::move(tensors), std::move(blobs));
}

checkpoint::ForeignSave foreign_save(const TrainingSetup& setup, const checkpoint::Progress& progress) {
  checkpoint::ForeignSave save;
  save.root = setup.options.output_dir;
  save.iteration = progress.iteration;
  save.progress = progress;
  save.recipe = setup.documents.recipe;
  save.type = setup.model.precision.params;
  save.files = setup.documents.files;
  save.mappings = setup.documents.mappings;
  const auto& sizes = setup.model.processes.mesh.sizes();
  save.layout = {.tensor = sizes.tensor,
                 .data = sizes.data,
                 .layers = setup.model.plan.layers_by_chunk(),
                 .distributed_optimizer = setup.optimization.data_parallel.use_distributed_optimizer &&
                                          setup.model.processes.world.size() > 1,
                 .vocabulary = setup.model.first().vocabulary(),
                 .expert = sizes.expert,
                 .expert_tensor = sizes.sharers_of_expert()};
  return save;
}

/// The place of this process among those that share the experts of a layer.
parallel::ExpertPlace place_among_experts(const ModelSetup& model) {
  return model.processes.mesh.expert_place_of(model.processes.world.rank());
}

checkpoint::RankWeights weights_of_this_rank(const ModelSetup& model) {
  const auto place = place_among_experts(model);
  checkpoint::RankWeights own{
      .rank = place.expert * model.processes.mesh.sizes().sharers_of_expert() + place.expert_tensor,
      .stage = model.processes.place.pipeline,
      .chunks = {}};
  for (const auto& chunk : model.chunks) own.chunks.push_back(nn::held_parts(chunk->parameters()));
  return own;
}

/// By a run of one rank, which has every tensor whole.
void save_alone(const checkpoint::CheckpointFormat& format, const checkpoint::ForeignSave& save,
                const TrainingSetup& setup, ModelState& state) {
  auto tensors = state.weight_ranges();
  const auto slots = state.optimizer_ranges();
  tensors.insert(tensors.end(), slots.begin(), slots.end());
  const auto own = weights_of_this_rank(setup.model);
  checkpoint::save_all_ranks(format, save, {&own, 1}, tensors);
}

/// A step of saving that can fail on some ranks: then it throws IoError on all.
void attempt(const comm::Communicator& world, const std::function<void()>& work) {
  try {
    comm::together(world, "saving", work);
  } catch (const comm::PeerFailed& failed) {
    throw IoError(failed.what());
  }
}

/// Through a checkpoint of our own format, which every layout can save and every rank of the other format can read its
/// part from: replicated state, copies of heads and uneven stages need no further code.
void save_through_native(const checkpoint::CheckpointFormat& format, const checkpoint::ForeignSave& save,
                         const TrainingSetup& setup, ModelState& state, const std::function<void()>& before) {
  const auto& world = setup.model.processes.world;
  const auto between = save.root / before_conversion;
  const auto prepare = [&] {
    before();
    delete_all(between);  // what a crash left, or a link
  };
  try {
    const auto folder = SaveJob(world, {.root = between, .prefix = "", .iteration = save.iteration, .before = prepare},
                                live_state(setup, state, save.progress))
                            .finish();
    attempt(world, [&] {
      if (place_among_experts(setup.model).data == 0)
        checkpoint::save_rank(format, save, weights_of_this_rank(setup.model), checkpoint::Checkpoint::open(folder));
    });
    attempt(world, [&] {
      if (world.rank() != 0) return;
      format.finish(save);
      delete_all(between);
    });
  } catch (const Error&) {
    std::error_code ignored;
    if (world.rank() == 0) std::filesystem::remove_all(between, ignored);
    throw;
  }
}

/// Throws IoError when a link would make the save write elsewhere.
void check_links(const std::filesystem::path& folder, const std::vector<std::filesystem::path>& written) {
  try {
    for (const auto& path : written) must_stay_within(folder, path);
  } catch (const ConfigError& error) {
    throw IoError(error.what());
  }
}

}  // namespace

void save(const TrainingSetup& setup, ModelState& state, const checkpoint::Progress& given) {
  const auto progress = with_rates(given, setup);
  const auto* format = saving_format(setup.options, setup.documents.formats);
  if (format == nullptr) {
    begin_save(setup, live_state(setup, state, progress), progress)->finish();
    return;
  }
  const auto foreign = foreign_save(setup, progress);
  const auto folder = checkpoint_path(setup.options, progress.iteration);
  const auto check = [&] {
    auto written = list_folder(folder);
    written.push_back(folder);
    check_links(foreign.root, written);
  };
  if (setup.model.processes.world.size() > 1) return save_through_native(*format, foreign, setup, state, check);
  check();
  save_alone(*format, foreign, setup, state);
}

std::unique_ptr<SaveJob> begin_save(const TrainingSetup& setup,
                                    std::shared_ptr<const checkpoint::StateSnapshot> snapshot,
                                    const checkpoint::Progress& progress) {
  const auto& o = setup.options;
  const SaveTarget target{.root = checkpoint_folder(o),
                          .prefix = o.prefix,
                          .iteration = progress.iteration,
                          .before =
                              [&] {
                                check_links(o.output_dir, {checkpoint_folder(o)});
                                keep_other(checkpoint_path(o, progress.iteration), progress.run);
                              },
                          .after =
                              [&o, run = progress.run] {
                                checkpoint::prune(checkpoint_folder(o), o.prefix,
                                                  static_cast<int>(o.keep_checkpoint_max), belongs_to(run));
                              }};
  return std::make_unique<SaveJob>(setup.model.processes.world, target, std::move(snapshot));
}

std::filesystem::path save_weights(const comm::Communicator& world, const std::filesystem::path& root,
                                   std::int64_t iteration, ModelState& state, const checkpoint::Blobs& blobs) {
  const SaveTarget target{.root = root, .prefix = "", .iteration = iteration};
  return SaveJob(world, target, std::make_shared<checkpoint::LiveState>(state.weight_ranges(StateScope::owned), blobs))
      .finish();
}

}  // namespace tessera::training
