#include "framework/training/saving/saving.h"

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
#include "framework/checkpoint/opened_state.h"
#include "framework/comm/together.h"
#include "framework/nn/weight_parts.h"
#include "framework/tensor/box.h"
#include "framework/training/saving/box_exchange.h"
#include "framework/training/saving/divided_checkpoints.h"
#include "framework/training/saving/rates.h"
#include "framework/training/saving/resume.h"
#include "framework/training/saving/run_checkpoints.h"
#include "framework/training/saving/run_hosts.h"
#include "framework/training/setup/given_checkpoint.h"

namespace tessera::training {
namespace {

void add_optimizer_state(const TrainingOptions& o, ModelState& state, StateScope scope,
                         std::vector<checkpoint::TensorRange>& all) {
  if (o.no_save_optim) return;
  auto slots = state.optimizer_ranges(scope);
  std::move(slots.begin(), slots.end(), std::back_inserter(all));
}

/// Weights and, as far as it is saved, optimizer state.
std::vector<checkpoint::TensorRange> all_ranges(const TrainingSetup& setup, ModelState& state, StateScope scope) {
  auto all = state.weight_ranges(scope);
  add_optimizer_state(setup.options, state, scope, all);
  return all;
}

/// The format of another program in which a checkpoint is saved; null: Tessera's.
const checkpoint::CheckpointFormat* format_of(const TrainingSetup& setup, SaveKind kind) {
  return kind == SaveKind::non_persistent ? nullptr : saving_format(setup.options, setup.documents.formats);
}

/// What this rank saves.
struct Saved {
  std::vector<checkpoint::TensorRange> tensors;
  checkpoint::Blobs blobs = {};
};

/// In our own format. Collective.
Saved saved_by_us(const TrainingSetup& setup, ModelState& state, kernels::Threads& threads,
                  const checkpoint::Progress& progress) {
  const auto& o = setup.options;
  std::optional<checkpoint::FrozenBase> base;
  if (!o.save_frozen_parameters.value_or(true) && !setup.model.trained.all()) {
    const auto& origin = state.frozen().origin();
    base = {(origin.empty() ? std::filesystem::absolute(o.load_checkpoint.value_or("")) : origin).string(),
            frozen_digest(setup.model.processes.world, state, threads)};
  }
  Saved saved{base ? state.trained_ranges(StateScope::saved) : state.weight_ranges(StateScope::saved)};
  add_optimizer_state(o, state, StateScope::saved, saved.tensors);
  saved.blobs = setup.documents.files;
  saved.blobs[checkpoint::progress_blob] = checkpoint::write_progress(progress);
  if (base) saved.blobs[checkpoint::frozen_base_blob] = checkpoint::write_base(*base);
  return saved;
}

checkpoint::Progress as_saved(const checkpoint::Progress& given, const TrainingSetup& setup) {
  auto progress = with_rates(given, setup);
  progress.has_seed = !setup.options.no_save_rng;
  return progress;
}

checkpoint::ForeignSave foreign_save(const TrainingSetup& setup, const checkpoint::Progress& progress) {
  checkpoint::ForeignSave save;
  save.root = setup.options.output_dir;
  save.iteration = progress.iteration;
  save.progress = progress;
  save.recipe = setup.documents.recipe;
  save.type = setup.model.precision.params;
  save.without_optimizer = setup.options.no_save_optim;
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
  checkpoint::save_all_ranks(format, save, {&own, 1}, all_ranges(setup, state, StateScope::held));
}

/// A step of saving that can fail on some ranks: then it throws IoError on all.
void attempt(const comm::Communicator& world, const std::function<void()>& work) {
  try {
    comm::together(world, "saving", [&] { with_io_errors(work); });
  } catch (const comm::PeerFailed& failed) {
    throw IoError(failed.what());
  }
}

/// The tensors that the files of one rank need: those that the rank holds whole, and memory for the others.
class NeededTensors {
 public:
  NeededTensors() = default;
  /// `slots`: names of the optimizer state that is saved.
  NeededTensors(const checkpoint::RankWeights& own, const std::vector<std::string>& slots,
                const std::vector<checkpoint::TensorRange>& all_held) {
    std::multimap<std::string, const checkpoint::TensorRange*> by_name;
    for (const auto& range : all_held) by_name.emplace(range.name, &range);
    for (const auto& chunk : own.chunks)
      for (const auto& part : chunk)
        for (const auto& box : part.boxes) {
          need(part.name, part, box, by_name);
          for (const auto& slot : slots) need(text("optimizer.", slot, ".", part.name), part, box, by_name);
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
std::vector<checkpoint::TensorRange> all_delivered(const TrainingSetup& setup, const NeededTensors& needed,
                                                   ModelState& state) {
  const auto filled =
      deliver_boxes(setup.model.processes.world, all_ranges(setup, state, StateScope::owned), needed.wanted);
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
      const auto slots = save.without_optimizer ? std::vector<std::string>() : setup.optimization.optimizer->slots();
      needed = NeededTensors(own, slots, all_ranges(setup, state, StateScope::held));
    });
    const auto tensors = all_delivered(setup, needed, state);
    attempt(world, [&] {
      if (writes) format.write_rank(save, own, checkpoint::LiveState(tensors));
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

/// Before a save in another program's format. Throws IoError when a link in the checkpoint's folder leads elsewhere.
void prepare_foreign_folder(const TrainingSetup& setup, const checkpoint::Progress& progress) {
  const auto folder = checkpoint_path(setup.options, progress.iteration);
  auto written = list_folder(folder);
  written.push_back(folder);
  check_links(setup.options.output_dir, written);
  keep_other_of_format(setup.options, setup.documents.formats, progress.iteration, progress.run);
}

/// In a format of another program that every rank writes from what it owns.
class ForeignFiles final : public CheckpointFiles {
 public:
  ForeignFiles(const checkpoint::CheckpointFormat& format, checkpoint::ForeignSave save,
               checkpoint::RankWeights weights)
      : format_(format), save_(std::move(save)), weights_(std::move(weights)) {}
  std::filesystem::path folder() const override {
    return save_.root / checkpoint::checkpoint_name("", save_.iteration);
  }
  void begin() override { format_.begin(save_); }
  checkpoint::WrittenPart write(int rank, const checkpoint::StateSnapshot& state) override {
    format_.write_owned(save_, weights_, rank, state);
    return {.writer = rank};
  }
  void commit(std::span<const checkpoint::WrittenPart>, const checkpoint::Blobs&) override { format_.finish(save_); }
  void abandon() noexcept override { format_.abandon(save_); }

 private:
  const checkpoint::CheckpointFormat& format_;
  checkpoint::ForeignSave save_;
  checkpoint::RankWeights weights_;
};

/// To be called when a save has ended. `setup` must outlive it.
std::function<void()> deletion_of_old(const TrainingSetup& setup, const checkpoint::Progress& progress) {
  return [&setup, run = progress.run] {
    if (setup.model.processes.world.rank() > 0) return delete_old_of_host(setup.options, setup.documents.mappings, run);
    delete_old(setup.options, setup.documents.formats, setup.documents.mappings, run);
  };
}

SaveTarget our_target(const TrainingSetup& setup, const checkpoint::Progress& progress, SaveKind kind) {
  const auto& o = setup.options;
  const auto root = kind == SaveKind::persistent ? checkpoint_folder(o) : non_persistent_folder(o);
  return {.root = root,
          .prefix = o.prefix,
          .iteration = progress.iteration,
          .before =
              [&o, root, run = progress.run, iteration = progress.iteration] {
                if (is_in_run_folder(o, root)) check_links(o.output_dir, {root});
                keep_other(root / checkpoint::checkpoint_name(o.prefix, iteration), run);
              },
          .after = deletion_of_old(setup, progress)};
}

SaveTarget foreign_target(const checkpoint::CheckpointFormat& format, const TrainingSetup& setup,
                          const checkpoint::Progress& progress) {
  return {.root = {},
          .prefix = {},
          .iteration = progress.iteration,
          .before = [&setup, progress] { prepare_foreign_folder(setup, progress); },
          .after = deletion_of_old(setup, progress),
          .files =
              std::make_unique<ForeignFiles>(format, foreign_save(setup, progress), weights_of_this_rank(setup.model))};
}

std::unique_ptr<SaveJob> begin_save(const TrainingSetup& setup, SaveTarget target,
                                    std::shared_ptr<const checkpoint::StateSnapshot> snapshot) {
  return std::make_unique<SaveJob>(setup.model.processes.world, std::move(target), std::move(snapshot));
}

/// By ranks that write their files from what they hold and from what others send.
void save_held(const checkpoint::CheckpointFormat& format, const TrainingSetup& setup, ModelState& state,
               const checkpoint::Progress& progress) {
  const auto foreign = foreign_save(setup, progress);
  const auto prepare = [&] { prepare_foreign_folder(setup, progress); };
  const auto& world = setup.model.processes.world;
  if (world.size() > 1) {
    save_by_ranks(format, foreign, setup, state, prepare);
  } else {
    with_io_errors([&] {
      prepare();
      save_alone(format, foreign, setup, state);
    });
  }
  if (world.rank() == 0)
    after_saving(checkpoint_path(setup.options, progress.iteration), deletion_of_old(setup, progress));
}

}  // namespace

void save(const TrainingSetup& setup, ModelState& state, kernels::Threads& threads, const checkpoint::Progress& given,
          SaveKind kind) {
  const auto progress = as_saved(given, setup);
  const auto* format = format_of(setup, kind);
  if (format == nullptr) {
    auto saved = saved_by_us(setup, state, threads, progress);
    auto snapshot = std::make_shared<checkpoint::LiveState>(std::move(saved.tensors), std::move(saved.blobs));
    begin_save(setup, our_target(setup, progress, kind), std::move(snapshot))->finish();
  } else if (format->saves_owned()) {
    begin_save(setup, foreign_target(*format, setup, progress),
               std::make_shared<checkpoint::LiveState>(all_ranges(setup, state, StateScope::saved)))
        ->finish();
  } else {
    save_held(*format, setup, state, progress);
  }
}

bool saves_while_training(const TrainingSetup& setup, SaveKind kind) {
  if (!setup.options.async_save) return false;
  const auto* format = format_of(setup, kind);
  return format == nullptr || format->saves_owned();
}

std::unique_ptr<SaveJob> open_save(const TrainingSetup& setup, ModelState& state, kernels::Threads& threads,
                                   const checkpoint::Progress& given, SaveKind kind) {
  using Reading = checkpoint::OpenedState::Reading;
  const auto progress = as_saved(given, setup);
  const auto* format = format_of(setup, kind);
  state.weights_needed();  // what other ranks send changes the state without an update of this rank
  auto saved = format == nullptr ? saved_by_us(setup, state, threads, progress)
                                 : Saved{all_ranges(setup, state, StateScope::saved)};
  std::shared_ptr<checkpoint::OpenedState> snapshot;
  attempt(setup.model.processes.world, [&] {
    try {
      // Other formats store a weight twice, rounded and as fp32.
      snapshot = std::make_shared<checkpoint::OpenedState>(std::move(saved.tensors), std::move(saved.blobs),
                                                           format == nullptr ? Reading::once : Reading::any,
                                                           state.copy_memory());
    } catch (const BugError&) {
      throw;
    } catch (const Error& error) {  // no memory
      throw IoError(error.what());
    }
  });
  auto target = format == nullptr ? our_target(setup, progress, kind) : foreign_target(*format, setup, progress);
  target.background = true;
  target.needs_approval = true;
  auto job = begin_save(setup, std::move(target), snapshot);
  state.watch(snapshot);
  return job;
}

void delete_unfinished(const TrainingSetup& setup) {
  const auto& world = setup.model.processes.world;
  const auto hosts = hosts_of(world);
  const auto& o = setup.options;
  try {
    if (hosts.several()) {
      complete_divided(world, hosts, checkpoint_folder(o), o.prefix);
      if (o.saves_non_persistent()) complete_divided(world, hosts, non_persistent_folder(o), o.prefix);
    }
    if (!hosts.is_first(world.rank())) return;
    if (saves_in_foreign_format(o))
      checkpoint::delete_unfinished(o.output_dir, "");
    else
      checkpoint::delete_unfinished(checkpoint_folder(o), o.prefix);
    if (o.saves_non_persistent()) checkpoint::delete_unfinished(non_persistent_folder(o), o.prefix);
  } catch (const Error&) {  // the next save deletes them
  }
}

std::filesystem::path save_weights(const comm::Communicator& world, const std::filesystem::path& root,
                                   std::int64_t iteration, ModelState& state, const checkpoint::Blobs& blobs) {
  return SaveJob(world, {.root = root, .prefix = "", .iteration = iteration},
                 std::make_shared<checkpoint::LiveState>(state.weight_ranges(StateScope::saved), blobs))
      .finish();
}

}  // namespace tessera::training
