#include "framework/base/clock.h"
#include "framework/base/memory_limit.h"
#include "framework/base/system_call.h"
#include "framework/kernels/machine_limits.h"
#include "framework/kernels/scratch.h"
#include "framework/log/log.h"
#include "framework/options/json_schema.h"
#include "framework/training/trainer_class.h"

namespace tessera::training {

namespace {

/// The groups of a recipe, as JSON.
std::vector<std::pair<std::string, std::string>> config_of(const options::Value& recipe) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [group, value] : recipe.fields) all.emplace_back(group, options::json_text(value));
  return all;
}

}  // namespace

void Trainer::open_log() {
  log::set_log_level_from_recipe(o_.log_level);
  if (world_.rank() > 0) return;
  log_ = std::make_unique<reporting::RunLog>(log_options(progress_));
  if (o_.log_progress) open_progress_file();
}

void Trainer::open_progress_file() {
  reporting::ProgressFile::Options options{.path = std::filesystem::path(o_.output_dir) / reporting::progress_file_name,
                                           .job = {},
                                           .processes = world_.size(),
                                           .resume_iteration = progress_.iteration};
  const std::string slurm = "slurm ";
  for (const auto& [job, start] : worker::job_starts())
    if (job.rfind(slurm, 0) == 0) options.job = job.substr(slurm.size());
  progress_file_ = std::make_unique<reporting::ProgressFile>(std::move(options));
}

void Trainer::report_saved(std::int64_t iteration) {
  if (!progress_file_) return;
  const auto& data = *setup_.data.splits->train;
  try {
    progress_file_->saved(iteration,
                          static_cast<double>(progress_.consumed_samples * data.rows_per_sample() * data.seq_length()));
  } catch (const IoError& error) {
    note(error.what());
    progress_file_.reset();
  }
}

reporting::RunLogOptions Trainer::log_options(const checkpoint::Progress& from) {
  reporting::RunLogOptions options;
  options.folder = o_.output_dir;
  options.training_iters = o_.training_iters;
  options.log_interval = o_.log_interval;
  options.log_style = o_.log_style;
  options.tensorboard = o_.tensorboard;
  options.routed_layers = auxiliary_.routed_layers();
  options.events_per_layer = work_.auxiliary().extents().per_layer;
  options.name = std::filesystem::path(o_.output_dir).lexically_normal().filename().string();
  options.prometheus_file = o_.prometheus_file;
  options.wandb_folder = o_.wandb_save_dir;
  if (!o_.wandb_project.empty())
    options.wandb = {.id = from.run,
                     .project = o_.wandb_project,
                     .name = o_.wandb_exp_name.empty() ? options.name : o_.wandb_exp_name,
                     .host = host_name(),
                     .config = config_of(setup_.documents.recipe)};
  options.resume_iteration = from.iteration;
  options.resume_consumed_samples = from.consumed_samples;
  // Of all ranks, as the operations of a step are.
  if (product_rate_ == 0)
    product_rate_ = kernels::product_rate(threads_, setup_.model.precision.compute, 0.05) * world_.size();
  options.gemm_flops_per_second = product_rate_;
  if (const auto& found = keeper_.found()) {
    options.resume_evaluated = found->position.evaluated;
    options.resume_at_end = found->position.stepped && from.iteration >= o_.training_iters;
    options.interval = found->position.interval;
  }
  return options;
}

/// The launcher prints it if the run is ended from outside.
void Trainer::report_how_to_resume() const {
  if (world_.rank() == 0) launcher_.how_to_resume(how_to_resume(o_, saved_at_ >= 0 || has_non_persistent_));
}

/// The launcher names this rank's position if it fails.
void Trainer::report_position() {
  if (!launcher_.present()) return;
  const auto& place = setup_.model.processes.place;
  launcher_.report(text("tp ", place.tensor,
                        setup_.model.processes.context.size() > 1 ? text(" cp ", place.context) : "", " dp ",
                        place.data, " pp ", place.pipeline, ", iteration ", progress_.iteration + 1));
}

/// `last`: no step follows.
void Trainer::report_profile(bool last) {
  for (const auto& line : profiler_.after_step(progress_.iteration, last)) note(line);
}

reporting::MemoryRecord Trainer::memory() const {
  const auto state = state_.bytes();
  return {.weights = state.weights + state.mapped,  // a restarted process may read what another one maps
          .gradients = state.gradients,
          .optimizer = state.optimizer,
          .activations = static_cast<std::int64_t>(work_.arena().high_water()),
          .workspace = static_cast<std::int64_t>(kernels::workspace_bytes()),
          .messages = static_cast<std::int64_t>(world_.message_bytes())};
}

/// Collective: tells what the memory of this rank was used for, and with several stages of the first rank of each.
void Trainer::report_memory() {
  const auto& mesh = setup_.model.processes.mesh;
  const auto all = world_.all_gather(memory_line(), "the memory of the ranks");
  if (mesh.sizes().pipeline == 1) return note("memory of this rank: " + all[0]);
  for (int stage = 0; stage < mesh.sizes().pipeline; ++stage) {
    const auto rank = mesh.rank_of({.pipeline = stage});
    note(text("memory of rank ", rank, ", stage ", stage, ": ", all[static_cast<std::size_t>(rank)]));
  }
}

/// Peak: what the operating system measured, with code and data.
std::string Trainer::memory_line() const {
  const auto words = [](std::int64_t bytes) { return in_binary_units(static_cast<double>(bytes)); };
  const auto all = memory();
  const auto state = state_.bytes();
  return text("weights ", words(state.weights), ", gradients ", words(all.gradients), ", optimizer state ",
              words(all.optimizer), ", activations ", words(all.activations), ", workspace ", words(all.workspace),
              all.messages > 0 ? text(", messages ", words(all.messages)) : "",
              state.in_files > 0 ? text("; mapped from files ", words(state.in_files),
                                        ", the process without pages of files ", words(private_resident_bytes()))
                                 : "",
              "; peak of the process ", words(peak_resident_bytes()));
}

}  // namespace tessera::training
