#include "framework/training/trainer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <thread>

#include "framework/base/clock.h"
#include "framework/base/files.h"
#include "framework/comm/together.h"
#include "framework/kernels/machine_limits.h"
#include "framework/log/log.h"
#include "framework/options/limits.h"
#include "framework/training/resume.h"
#include "framework/training/run_checkpoints.h"
#include "framework/training/run_log.h"
#include "framework/training/run_notes.h"
#include "framework/training/saving.h"
#include "framework/training/step.h"
#include "framework/worker/launch_link.h"

namespace tessera::training {
namespace {

constexpr int nothing_could_be_saved = 22;

class Trainer {
 public:
  Trainer(TrainingSetup setup, const StopSignal& stop);
  RunEnd run();

 private:
  RunLogOptions log_options(const checkpoint::Progress& from);
  void open_log();
  void note(const std::string& line) {
    if (log_) log_->note(line);
  }
  void report_position();
  void report_how_to_resume() const;
  void agree_on_stopping();
  std::string last_checkpoint() const { return last_.empty() ? "none" : last_.string(); }
  void report_bubble();
  void step();
  void evaluate(const data::Dataset* data, const data::Sampler* order, EvaluationRecord record, std::int64_t consumed);
  std::int64_t evaluation_steps(const data::Dataset* data, EvaluationRecord::Set set) const;
  void evaluate_validation(EvaluationRecord::Set set);
  void evaluate_if_due();
  void evaluate_at_end();
  bool save_now();
  bool stop_asked() const { return stop_signal_ != 0; }
  bool time_to_exit(std::string& why) const;
  [[noreturn]] void stop_at(const StepOutcome& outcome);
  void count_epoch(StepRecord& record) const;
  void add_auxiliary(StepRecord& record);
  void add_routing(StepRecord& record);
  bool skip_iteration();
  void save_before_growth();
  std::int64_t samples_per_step() const { return setup_.data.batch_plan.full().samples; }  ///< when it is fully grown

  TrainingSetup setup_;
  const TrainingOptions& o_;
  const StopSignal& stop_;
  const comm::Communicator& world_;
  RunFolder folder_;
  kernels::Threads threads_;
  ModelState state_;
  Restored restored_;
  checkpoint::Progress progress_;
  TrainingStep work_;
  std::unique_ptr<RunLog> log_;  ///< of the first process
  worker::LaunchLink launcher_;
  Stopwatch running_;
  std::array<double, options::most_predictions> prediction_losses_ = {};  ///< of the last step
  std::vector<RoutingRecord> routing_;                                    ///< of each layer in the last step
  int stop_signal_ = 0;  ///< that some rank received; the same on all ranks
  bool time_is_up_ = false;
  bool evaluated_ = false;
  double evaluated_step_seconds_ = 0;                  ///< of one iteration of an evaluation: measured, or expected
  bool warm_ = false;                                  ///< a step was completed
  double stage_seconds_ = 0, stage_wait_seconds_ = 0;  ///< of all ranks, without the first step
  std::int64_t saved_at_ = -1;
  std::string save_problem_;        ///< why the last attempt to save failed
  std::filesystem::path last_;      ///< the checkpoint that was saved last, or that the run resumed from
  std::int64_t micro_batches_ = 0;  ///< of the last step; 0: there was none
};

int thread_count(const TrainingSetup& setup) {
  const auto cores = setup.model.processes.cores;
  const auto all = cores > 0 ? static_cast<unsigned>(cores) : std::max(1U, std::thread::hardware_concurrency());
  return static_cast<int>(setup.options.num_threads.value_or(all));
}

/// How data-parallel ranks share this rank's state.
StateSharing sharing(const TrainingSetup& setup, const comm::Communicator& data) {
  const auto& o = setup.optimization.data_parallel;
  return {.rank = data.rank(),
          .ranks = data.size(),
          .distributed_optimizer = o.use_distributed_optimizer,
          .bucket_elements = o.bucket_elements(data.size())};
}

/// The state of this rank, in new memory.
ModelState make_state(const TrainingSetup& setup) {
  std::vector<model::Model*> chunks;
  for (const auto& chunk : setup.model.chunks) chunks.push_back(chunk.get());
  const auto* optimizer = setup.optimization.optimizer.get();
  const auto& processes = setup.model.processes;
  std::vector<std::unique_ptr<SharedState>> parts;
  for (auto& group : groups_of_parameters(parameters_of(chunks), processes.mesh.sizes())) {
    const auto& sharers = group.experts ? processes.expert_data : processes.data;
    StateLayout layout(std::move(group.parameters), optimizer, sharing(setup, sharers));
    StateMemory memory(layout.segment(), sharers);
    parts.push_back(std::make_unique<SharedState>(std::move(layout), std::move(memory), optimizer,
                                                  setup.optimization.parameter_gather.overlap_param_gather));
  }
  return ModelState(std::move(parts));
}

Trainer::Trainer(TrainingSetup setup, const StopSignal& stop)
    : setup_(std::move(setup)),
      o_(setup_.options),
      stop_(stop),
      world_(setup_.model.processes.world),
      folder_(world_, o_, setup_.documents.formats),
      threads_(thread_count(setup_)),
      state_(make_state(setup_)),
      restored_(restore(setup_, state_, threads_, &folder_)),
      progress_(restored_.progress),
      work_(setup_.model, setup_.optimization, setup_.data, state_, threads_, progress_.seed) {
  progress_.run =
      folder_.begin(restored_.continues, progress_.run,
                    with_notes(setup_.documents.resolved_recipe, setup_.documents.notes), setup_.documents.same_recipe);
  if (const auto& extents = work_.auxiliary().extents(); extents.experts > 0)
    routing_.resize(static_cast<std::size_t>(extents.layers));
  comm::together(world_, "the reports", [&] { open_log(); });
  if (restored_.is_saved) saved_at_ = progress_.iteration;
  last_ = restored_.folder;
  if (o_.new_dataset) progress_.data_start = progress_.consumed_samples;
  if (progress_.data_start > 0)
    setup_.data.train_order = data::starting_at(std::move(setup_.data.train_order), progress_.data_start);
  if (progress_.consumed_valid_samples < 0)  // a checkpoint of the first version
    progress_.consumed_valid_samples =
        o_.eval_interval < 1 ? 0 : progress_.iteration / o_.eval_interval * o_.eval_iters * samples_per_step();
  for (const auto& line : folder_.notes()) note(line);
  for (const auto& line : restored_.notes) note(line);
  report_how_to_resume();
}

void Trainer::open_log() {
  log::set_log_level_from_recipe(o_.log_level);
  if (world_.rank() > 0) return;
  log_ = std::make_unique<RunLog>(log_options(progress_));
}

/// The launcher prints it if the run is ended from outside.
void Trainer::report_how_to_resume() const {
  if (world_.rank() == 0) launcher_.how_to_resume(how_to_resume(o_, saved_at_ >= 0));
}

/// The launcher names this rank's position if it fails.
void Trainer::report_position() {
  if (!launcher_.present()) return;
  const auto& place = setup_.model.processes.place;
  launcher_.report(text("tp ", place.tensor,
                        setup_.model.processes.context.size() > 1 ? text(" cp ", place.context) : "", " dp ",
                        place.data, " pp ", place.pipeline, ", iteration ", progress_.iteration + 1));
}

/// A signal may reach only some ranks, and clocks differ: all ranks act on what any of them saw.
void Trainer::agree_on_stopping() {
  const bool late = o_.exit_duration_in_mins.value_or(0) > 0 &&
                    running_.seconds() >= 60.0 * static_cast<double>(*o_.exit_duration_in_mins);
  std::array<float, 2> seen = {static_cast<float>(stop_.signal()), late ? 1.0F : 0.0F};
  world_.all_reduce_max(std::span(seen), "whether to stop");
  stop_signal_ = static_cast<int>(seen[0]);
  time_is_up_ = seen[1] != 0;
}

RunLogOptions Trainer::log_options(const checkpoint::Progress& from) {
  RunLogOptions options;
  options.folder = o_.output_dir;
  options.training_iters = o_.training_iters;
  options.log_interval = o_.log_interval;
  options.log_style = o_.log_style;
  options.tensorboard = o_.tensorboard;
  options.routed_layers = routing_.size();
  options.events_per_layer = work_.auxiliary().extents().per_layer;
  options.resume_iteration = from.iteration;
  options.resume_consumed_samples = from.consumed_samples;
  options.flops_per_step = setup_.model.first().flops(samples_per_step(), setup_.data.splits->train->seq_length());
  // Of all ranks, as flops_per_step is.
  options.gemm_flops_per_second = kernels::product_rate(threads_, setup_.model.precision.compute, 0.05) * world_.size();
  return options;
}

/// Ends the run with an error that names the first value that is not finite.
void Trainer::stop_at(const StepOutcome& outcome) {
  throw Error(text("training: iteration ", progress_.iteration + 1, ": loss ", outcome.loss, ", gradient norm ",
                   outcome.grad_norm, ": ", work_.first_not_finite(progress_.consumed_samples),
                   ". No weight was changed; the last checkpoint is ", last_checkpoint(),
                   ". Try a lower learning_rate or a longer warm-up"));
}

void Trainer::step() {
  const Stopwatch watch;
  const auto size = setup_.data.batch_plan.at(progress_.consumed_samples);
  const auto outcome = work_.backward(progress_.consumed_samples);
  if (warm_) stage_seconds_ += outcome.stage_seconds, stage_wait_seconds_ += outcome.stage_wait_seconds;
  warm_ = true;
  auto& scaler = setup_.optimization.loss_scaler;
  auto& schedule = *setup_.optimization.schedule;
  if (o_.check_for_nan_in_grad && !scaler.dynamic() && !outcome.finite()) stop_at(outcome);

  StepRecord record;
  record.skipped = scaler.skips() && !std::isfinite(outcome.grad_norm);
  record.learning_rate = schedule.learning_rate();
  record.weight_decay = schedule.weight_decay();
  scaler.update(record.skipped);
  if (!record.skipped) {
    work_.update(++progress_.updates, outcome);
    schedule.advance(size.samples);
    if (o_.log_num_zeros_in_grad) record.num_zeros = static_cast<double>(work_.zeros_in_gradients());
  }
  if (o_.log_params_norm) record.params_norm = work_.weight_norm();
  count_epoch(record);
  add_auxiliary(record);
  add_routing(record);
  progress_.iteration += 1;
  progress_.consumed_samples += size.samples;

  record.iteration = progress_.iteration;
  record.consumed_samples = progress_.consumed_samples;
  record.skipped_samples = progress_.skipped_samples;
  record.global_batch_size = size.samples;
  record.loss = outcome.loss;
  record.loss_scale = static_cast<double>(scaler.scale());
  record.grad_norm = outcome.grad_norm;
  record.next_learning_rate = schedule.learning_rate();
  if (const auto& own = setup_.optimization.groups; own.decoupled_lr)
    record.decoupled_learning_rate =
        schedule.learning_rate(*own.decoupled_lr, own.decoupled_min_lr.value_or(schedule.rate_shape().lowest));
  record.step_seconds = watch.seconds();
  record.tokens_per_second =
      static_cast<double>(size.samples * setup_.data.splits->train->seq_length()) / record.step_seconds;
  record.data_wait_seconds = outcome.data_wait_seconds;
  record.memory_bytes = state_.bytes().all() + static_cast<std::int64_t>(work_.arena().slabs() * Arena::slab_bytes);
  // Until an evaluation has been measured: its forward passes, of a full batch, take about a third of a step.
  if (!evaluated_)
    evaluated_step_seconds_ =
        record.step_seconds / 3 * static_cast<double>(samples_per_step()) / static_cast<double>(size.samples);
  if (log_) log_->step(record);
}

RoutingRecord routing_of(const nn::AuxiliaryLog::Layer& layer) {
  RoutingRecord record;
  if (layer.reports == 0) return record;
  record.has_experts = true;
  const auto least = std::min_element(layer.chosen.begin(), layer.chosen.end()),
             most = std::max_element(layer.chosen.begin(), layer.chosen.end());
  const auto all = std::accumulate(layer.chosen.begin(), layer.chosen.end(), 0.0),
             kept = std::accumulate(layer.kept.begin(), layer.kept.end(), 0.0);
  const auto mean = all / static_cast<double>(layer.chosen.size());
  record.least = least - layer.chosen.begin();
  record.most = most - layer.chosen.begin();
  if (all > 0) {
    record.least_load = *least / mean;
    record.most_load = *most / mean;
    record.dropped = (all - kept) / all;
  }
  record.gap = layer.gap;
  record.load_balancing_loss = layer.aux_loss / layer.reports;
  record.z_loss = layer.z_loss / layer.reports;
  return record;
}

/// Losses of routers and prediction layers, where the model has some.
void Trainer::add_auxiliary(StepRecord& record) {
  const auto& log = work_.auxiliary();
  if (log.extents().balances) record.load_balancing_loss = log.aux_loss();
  if (log.extents().has_z_loss) record.z_loss = log.z_loss();
  for (std::int64_t k = 0; k < log.extents().predictions; ++k)
    prediction_losses_[static_cast<std::size_t>(k)] = log.prediction_loss(k);
  record.prediction_losses = std::span(prediction_losses_).first(static_cast<std::size_t>(log.extents().predictions));
}

/// How the routers of all layers distributed the choices of the step. The gaps are those of all ranks in steps that are
/// logged.
void Trainer::add_routing(StepRecord& record) {
  const auto& log = work_.auxiliary();
  if (log.extents().experts == 0) return;
  if ((progress_.iteration + 1) % o_.log_interval == 0) work_.share_router_gaps();
  for (std::size_t i = 0; i < routing_.size(); ++i) routing_[i] = routing_of(log.layer(static_cast<std::int64_t>(i)));
  record.routing = routing_;
}

/// The epoch of the step, and the number of the step in it.
void Trainer::count_epoch(StepRecord& record) const {
  if (setup_.data.epoch_samples == 0) return;
  record.epoch = progress_.consumed_samples / setup_.data.epoch_samples;
  record.step_in_epoch = progress_.consumed_samples % setup_.data.epoch_samples / samples_per_step() + 1;
}

/// If iterations_to_skip names the next iteration, consumes its samples without training. As in Megatron-LM nothing is
/// evaluated, logged or saved after it.
bool Trainer::skip_iteration() {
  const auto& list = o_.iterations_to_skip;
  if (std::find(list.begin(), list.end(), progress_.iteration) == list.end()) return false;
  const auto samples = setup_.data.batch_plan.at(progress_.consumed_samples).samples;
  progress_.iteration += 1;
  progress_.consumed_samples += samples;
  progress_.skipped_samples += samples;
  return true;
}

/// Megatron-LM saves before the batch grows.
void Trainer::save_before_growth() {
  const auto micro_batches = setup_.data.batch_plan.at(progress_.consumed_samples).micro_batches;
  if (o_.save_interval && micro_batches_ > 0 && micro_batches != micro_batches_) save_now();
  micro_batches_ = micro_batches;
}

/// Global batches of one evaluation on `data`.
std::int64_t Trainer::evaluation_steps(const data::Dataset* data, EvaluationRecord::Set set) const {
  if (!data || !o_.full_validation || set == EvaluationRecord::Set::test) return o_.eval_iters;
  return (data->samples() + samples_per_step() - 1) / samples_per_step();
}

void Trainer::evaluate(const data::Dataset* data, const data::Sampler* order, EvaluationRecord record,
                       std::int64_t consumed) {
  const auto set = record.set;
  const auto steps = evaluation_steps(data, set);
  if (!data || !order || steps < 1) return;
  if (o_.full_validation && set != EvaluationRecord::Set::test) consumed = 0;
  record.iteration = progress_.iteration;
  record.consumed_samples = progress_.consumed_samples;
  if (log_) log_->evaluation_begins(set, steps, static_cast<double>(steps) * evaluated_step_seconds_);
  const Stopwatch watch;
  record.loss = work_.evaluate(*data, *order, consumed, steps, [&](std::int64_t done) {
    if (log_) log_->evaluation_progress(done);
  });
  evaluated_step_seconds_ = watch.seconds() / static_cast<double>(steps);
  evaluated_ = true;
  if (log_) log_->evaluation(record);
}

/// On the validation split or on each validation set.
void Trainer::evaluate_validation(EvaluationRecord::Set set) {
  const auto consumed = progress_.consumed_valid_samples;
  EvaluationRecord record;
  record.set = set;
  evaluate(setup_.data.splits->valid.get(), setup_.data.valid_order.get(), record, consumed);
  for (std::size_t i = 0; i < setup_.data.splits->valid_sets.size(); ++i) {
    const auto& one = setup_.data.splits->valid_sets[i];
    const auto suffix = "-" + one.name;
    record.suffix = suffix;
    record.number = static_cast<std::int64_t>(i);
    evaluate(one.data.get(), setup_.data.valid_set_orders[i].get(), record, consumed);
  }
}

void Trainer::evaluate_if_due() {
  if (o_.eval_interval < 1 || progress_.iteration % o_.eval_interval != 0) return;
  // As in Megatron-LM, an evaluation continues with the validation samples that follow those of the previous one.
  evaluate_validation(EvaluationRecord::Set::validation);
  if (!o_.full_validation) progress_.consumed_valid_samples += o_.eval_iters * samples_per_step();
}

void Trainer::evaluate_at_end() {
  if (o_.eval_interval < 1) return;
  evaluate_validation(EvaluationRecord::Set::final_validation);
  EvaluationRecord test;
  test.set = EvaluationRecord::Set::test;
  evaluate(setup_.data.splits->test.get(), setup_.data.test_order.get(), test, 0);
}

bool Trainer::save_now() {
  if (saved_at_ == progress_.iteration) return true;
  try {
    save(setup_, state_, progress_);
    saved_at_ = progress_.iteration;
    last_ = checkpoint_path(o_, saved_at_);
    report_how_to_resume();
    note(text("saved ", last_checkpoint()));
    return true;
  } catch (const IoError& error) {
    save_problem_ = error.what();
    note(text("could not save iteration ", progress_.iteration, ": ", error.what(), ". The last good checkpoint is ",
              last_checkpoint(), "; training continues"));
    return false;
  }
}

bool Trainer::time_to_exit(std::string& why) const {
  if (stop_asked())
    why = text("stopped by ", StopSignal::name_of(stop_signal_));
  else if (o_.exit_interval.value_or(0) > 0 && progress_.iteration % *o_.exit_interval == 0)
    why = text("stopped by exit_interval ", *o_.exit_interval);
  else if (time_is_up_)
    why = text("stopped by exit_duration_in_mins ", *o_.exit_duration_in_mins);
  return !why.empty();
}

/// The measured bubble, and that of equal stages.
void Trainer::report_bubble() {
  if (setup_.model.plan.stages() == 1 || stage_seconds_ <= 0) return;
  const parallel::PipelineShape shape{setup_.model.plan.stages(), setup_.model.plan.chunks(),
                                      setup_.data.batch_plan.full().micro_batches, 0};
  note(parallel::bubble_line(stage_wait_seconds_ / stage_seconds_, shape));
}

RunEnd Trainer::run() {
  std::string why;
  const bool done_before = progress_.iteration >= o_.training_iters;
  agree_on_stopping();
  while (progress_.iteration < o_.training_iters && why.empty()) {
    if (stop_asked()) break;
    report_position();
    save_before_growth();
    if (skip_iteration()) continue;
    step();
    evaluate_if_due();
    // The last step is saved below, after its evaluations: a run that is killed in between repeats them.
    if (o_.save_interval.value_or(0) > 0 && progress_.iteration % *o_.save_interval == 0 &&
        progress_.iteration < o_.training_iters)
      save_now();
    agree_on_stopping();
    if (time_to_exit(why)) break;
  }
  if (why.empty() && stop_asked()) why = text("stopped by ", StopSignal::name_of(stop_signal_));
  const bool done = progress_.iteration >= o_.training_iters;
  report_bubble();
  if (done && !done_before) evaluate_at_end();
  const bool saved = save_now();
  const auto folder = last_checkpoint();
  if (!saved)
    return {nothing_could_be_saved, text("iteration ", progress_.iteration, " could not be saved: ", save_problem_,
                                         "; ", last_.empty() ? "there is no checkpoint" : "the last is " + folder)};
  if (done) return {0, text("done: ", progress_.iteration, " iterations, ", folder)};
  return {0, text(why, " after iteration ", progress_.iteration, " of ", o_.training_iters, ", saved ", folder, "; ",
                  how_to_resume(o_, true))};
}

}  // namespace

RunEnd train(TrainingSetup setup, const StopSignal& stop) { return Trainer(std::move(setup), stop).run(); }

}  // namespace tessera::training
