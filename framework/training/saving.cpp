#include "framework/training/saving.h"

#include <functional>

#include "framework/base/files.h"
#include "framework/base/links.h"
#include "framework/checkpoint/format.h"
#include "framework/checkpoint/writer.h"
#include "framework/comm/together.h"
#include "framework/nn/weight_parts.h"
#include "framework/training/resume.h"
#include "framework/training/run_checkpoints.h"

namespace tessera::training {
namespace {

/// Executes `work`, one step of saving. If it fails on any rank, all ranks throw, and rank 0 deletes what was written.
void attempt(const comm::Communicator& world, const checkpoint::CheckpointWriter& writer,
             const std::function<void()>& work) {
  try {
    comm::together(world, "saving", work);
  } catch (const comm::PeerFailed& failed) {
    if (world.rank() == 0) writer.abandon();
    throw IoError(failed.what());
  } catch (const IoError&) {
    if (world.rank() == 0) writer.abandon();
    throw;
  }
}

/// One checkpoint by all processes, of what `tensors` and `blobs` give. Returns its folder.
std::filesystem::path save_together(const comm::Communicator& world, const checkpoint::CheckpointWriter& writer,
                                    const std::function<std::vector<checkpoint::TensorRange>()>& tensors,
                                    const std::function<checkpoint::Blobs()>& blobs) {
  const bool first = world.rank() == 0;
  attempt(world, writer, [&] {
    if (first) writer.begin();
  });
  std::string part;
  attempt(world, writer, [&] { part = writer.write(world.rank(), tensors()); });
  const auto written = world.all_gather(part, "saving");
  attempt(world, writer, [&] {
    if (first) writer.commit(written, blobs());
  });
  return writer.folder();
}

/// A checkpoint of our own format by all ranks. Returns its folder.
std::filesystem::path save_native(const TrainingSetup& setup, ModelState& state, const checkpoint::Progress& progress,
                                  const checkpoint::CheckpointWriter& writer) {
  const auto tensors = [&] {
    auto all = state.weight_ranges(StateScope::owned);
    const auto slots = state.optimizer_ranges(StateScope::owned);
    all.insert(all.end(), slots.begin(), slots.end());
    return all;
  };
  return save_together(setup.model.processes.world, writer, tensors, [&] {
    auto blobs = setup.documents.files;
    blobs[checkpoint::progress_blob] = checkpoint::write_progress(progress);
    return blobs;
  });
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

/// Through a checkpoint of our own format, which every layout can save and every rank of the other format can read its
/// part from: replicated state, copies of heads and uneven stages need no further code.
void save_through_native(const checkpoint::CheckpointFormat& format, const checkpoint::ForeignSave& save,
                         const TrainingSetup& setup, ModelState& state) {
  const auto& world = setup.model.processes.world;
  const auto between = save.root / before_conversion;
  const checkpoint::CheckpointWriter writer(between, "", save.iteration);
  const auto work = [&] {
    attempt(world, writer, [&] {
      if (world.rank() == 0) delete_all(between);  // what a crash left, or a link
    });
    const auto folder = save_native(setup, state, save.progress, writer);
    attempt(world, writer, [&] {
      if (place_among_experts(setup.model).data == 0)
        checkpoint::save_rank(format, save, weights_of_this_rank(setup.model), checkpoint::Checkpoint::open(folder));
    });
    attempt(world, writer, [&] {
      if (world.rank() != 0) return;
      format.finish(save);
      delete_all(between);
    });
  };
  try {
    work();
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
  const auto& world = setup.model.processes.world;
  const auto& o = setup.options;
  const auto progress = with_rates(given, setup);
  const auto* format = saving_format(o, setup.documents.formats);
  const auto root = format != nullptr ? std::filesystem::path(o.output_dir) : checkpoint_folder(o);
  const checkpoint::CheckpointWriter writer(root, format != nullptr ? "" : o.prefix, progress.iteration);
  attempt(world, writer, [&] {
    if (world.rank() > 0) return;
    auto written = format != nullptr ? list_folder(writer.folder()) : std::vector<std::filesystem::path>();
    written.push_back(format != nullptr ? writer.folder() : root);
    check_links(o.output_dir, written);
    if (format == nullptr) keep_other(writer.folder(), progress.run);
  });
  if (format != nullptr && world.size() > 1)
    return save_through_native(*format, foreign_save(setup, progress), setup, state);
  if (format != nullptr) return save_alone(*format, foreign_save(setup, progress), setup, state);
  save_native(setup, state, progress, writer);
  attempt(world, writer, [&] {
    if (world.rank() == 0)
      checkpoint::prune(root, o.prefix, static_cast<int>(o.keep_checkpoint_max), belongs_to(progress.run));
  });
}

std::filesystem::path save_weights(const comm::Communicator& world, const std::filesystem::path& root,
                                   std::int64_t iteration, ModelState& state, const checkpoint::Blobs& blobs) {
  return save_together(
      world, checkpoint::CheckpointWriter(root, "", iteration), [&] { return state.weight_ranges(StateScope::owned); },
      [&] { return blobs; });
}

}  // namespace tessera::training
