#include "framework/training/saving.h"

#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/links.h"
#include "framework/checkpoint/format.h"
#include "framework/checkpoint/frozen_base.h"
#include "framework/comm/together.h"
#include "framework/nn/weight_parts.h"
#include "framework/tensor/box.h"
#include "framework/training/box_exchange.h"
#include "framework/training/given_checkpoint.h"
#include "framework/training/resume.h"
#include "framework/training/run_checkpoints.h"

namespace tessera::training {
namespace {

/// Weights and optimizer state.
std::vector<checkpoint::TensorRange> all_ranges(ModelState& state, StateScope scope) {
  auto all = state.weight_ranges(scope);
  auto slots = state.optimizer_ranges(scope);
  std::move(slots.begin(), slots.end(), std::back_inserter(all));
  return all;
}

/// What this rank saves, without a copy: for a save that ends before training goes on. Collective.
std::shared_ptr<const checkpoint::StateSnapshot> live_state(const TrainingSetup& setup, ModelState& state,
                                                            const checkpoint::Progress& progress) {
  const auto& o = setup.options;
  std::optional<checkpoint::FrozenBase> base;
  if (!o.save_frozen_parameters.value_or(true) && !setup.model.trained.all())
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
  save.files[checkpoint::progress_blob] = checkpoint::write_progress(progress);  // what theirs has no place for
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
  const auto own = weights_of_this_rank(setup.model);
  checkpoint::save_all_ranks(format, save, {&own, 1}, all_ranges(state, StateScope::held));
}

/// A step of saving that can fail on some ranks: then it throws IoError on all.
void attempt(const comm::Communicator& world, const std::function<void()>& work) {
  try {
    comm::together(world, "saving", work);
  } catch (const comm::PeerFailed& failed) {
    throw IoError(failed.what());
  }
}

/// The tensors that the files of one rank need: those that the rank holds whole, and memory for the others.
class NeededTensors {
 public:
  NeededTensors() = default;
  NeededTensors(const checkpoint::RankWeights& own, const optim::Optimizer& optimizer,
                const std::vector<checkpoint::TensorRange>& all_held) {
    std::multimap<std::string, const checkpoint::TensorRange*> by_name;
    for (const auto& range : all_held) by_name.emplace(range.name, &range);
    for (const auto& chunk : own.chunks)
      for (const auto& part : chunk)
        for (const auto& box : part.boxes) {
          need(part.name, part, box, by_name);
          for (const auto& slot : optimizer.slots()) need(text("optimizer.", slot, ".", part.name), part, box, by_name);
        }
  }

  std::vector<checkpoint::TensorRange> held, wanted;

 private:
  void need(const std::string& name, const WeightPart& part, const Box& box,
            const std::multimap<std::string, const checkpoint::TensorRange*>& by_name) {
    const auto [first, last] = by_name.equal_range(name);
    for (auto found = first; found != last; ++found)
      if (found->second->tensor.dtype() == DType::float32 &&  // that of a frozen weight can be narrower
          intersection(Box::of(found->second->offsets, found->second->tensor.shape()), box) == box)
        return held.push_back(*found->second);
    const Shape extent(box.extent);
    auto& elements = memory_.emplace_back(static_cast<std::size_t>(extent.elements()));
    wanted.push_back({.name = name,
                      .global_shape = part.global_shape,
                      .offsets = box.begin,
                      .tensor = Tensor(std::span(elements), extent),
                      .role = part.role});
  }

  std::deque<std::vector<float>> memory_;
};

/// Gets the tensors that this rank does not hold from the ranks that own them: shards of the optimizer state, and fp32
/// weights of shards. Collective.
std::vector<checkpoint::TensorRange> all_delivered(const comm::Communicator& world, const NeededTensors& needed,
                                                   ModelState& state) {
  const auto filled = deliver_boxes(world, all_ranges(state, StateScope::owned), needed.wanted);
  auto all = needed.held;
  for (std::size_t i = 0; i < filled.size(); ++i) {
    const auto& range = needed.wanted[i];
    if (filled[i] == 0 && checkpoint::is_optimizer_state(range.name)) continue;  // a weight without optimizer state
    must(filled[i] == range.tensor.elements(), "the ranks own every element of a tensor that one of them saves");
    all.push_back(range);
  }
  return all;
}

/// By all ranks. One of those that hold the same weights writes their files; what it does not hold comes in messages.
void save_by_ranks(const checkpoint::CheckpointFormat& format, const checkpoint::ForeignSave& save,
                   const TrainingSetup& setup, ModelState& state, const std::function<void()>& before) {
  const auto& world = setup.model.processes.world;
  const bool writes = place_among_experts(setup.model).data == 0;
  checkpoint::RankWeights own;
  NeededTensors needed;
  try {
    attempt(world, [&] {
      if (world.rank() == 0) before(), format.begin(save);
      if (!writes) return;
      own = weights_of_this_rank(setup.model);
      needed = NeededTensors(own, *setup.optimization.optimizer, all_ranges(state, StateScope::held));
    });
    const auto tensors = all_delivered(world, needed, state);
    attempt(world, [&] {
      if (writes) format.write_rank(save, own, tensors);
    });
    attempt(world, [&] {
      if (world.rank() == 0) format.finish(save);
    });
  } catch (const Error&) {
    if (world.rank() == 0) format.abandon(save);
    throw;
  }
}

/// By all ranks, each what it owns.
void save_owned(const checkpoint::CheckpointFormat& format, const checkpoint::ForeignSave& save,
                const TrainingSetup& setup, ModelState& state, const std::function<void()>& before) {
  const auto& world = setup.model.processes.world;
  try {
    attempt(world, [&] {
      if (world.rank() > 0) return;
      before();
      format.begin(save);
    });
    attempt(world, [&] {
      format.write_owned(save, weights_of_this_rank(setup.model), world.rank(),
                         checkpoint::LiveState(all_ranges(state, StateScope::owned)));
    });
    attempt(world, [&] {
      if (world.rank() == 0) format.finish(save);
    });
  } catch (const Error&) {
    if (world.rank() == 0) format.abandon(save);
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
  if (format->saves_owned()) {
    save_owned(*format, foreign, setup, state, check);
  } else if (setup.model.processes.world.size() > 1) {
    save_by_ranks(*format, foreign, setup, state, check);
  } else {
    check();
    save_alone(*format, foreign, setup, state);
  }
  attempt(setup.model.processes.world, [&] {
    if (setup.model.processes.world.rank() == 0)
      delete_old(setup.options, setup.documents.formats, setup.documents.mappings, progress.run);
  });
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
                              [&setup, run = progress.run] {
                                delete_old(setup.options, setup.documents.formats, setup.documents.mappings, run);
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
