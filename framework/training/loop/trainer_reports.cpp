#include <algorithm>

#include "framework/base/clock.h"
#include "framework/base/cpu_limit.h"
#include "framework/base/memory_limit.h"
#include "framework/base/sha256.h"
#include "framework/base/system_call.h"
#include "framework/kernels/cpu.h"
#include "framework/kernels/machine_limits.h"
#include "framework/kernels/scratch.h"
#include "framework/log/log.h"
#include "framework/options/json_schema.h"
#include "framework/training/loop/trainer_class.h"

namespace tessera::training {

namespace {

/// The groups of a recipe, as JSON.
std::vector<std::pair<std::string, std::string>> config_of(const options::Value& recipe) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [group, value] : recipe.fields) all.emplace_back(group, options::json_text(value));
  return all;
}

/// Of each host of the run, in the order of its first rank.
Json hosts_of(const comm::Communicator& world) {
  const Json own = {{"name", host_name()}, {"cores", usable_core_count()}, {"memory_bytes", host_memory_limit().bytes}};
  Json hosts = Json::array();
  for (const auto& words : world.all_gather(own.dump(), "the hosts of the run")) {
    auto host = parse_json(words);
    const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const Json& one) {
      return one.at("name").string() == host.at("name").string();
    });
    if (known == hosts.end()) {
      host.put("ranks", 1);
      hosts.push_back(std::move(host));
    } else {
      known->put("ranks", known->at("ranks").get<std::int64_t>() + 1);
    }
  }
  return hosts;
}

Json layout_of(const parallel::MeshSizes& mesh, std::int64_t chunks) {
  return {{"data_parallel", mesh.data},
          {"tensor_parallel", mesh.tensor},
          {"context_parallel", mesh.context},
          {"pipeline_parallel", mesh.pipeline},
          {"virtual_pipeline", chunks},
          {"expert_parallel", mesh.expert},
          {"expert_tensor_parallel", mesh.sharers_of_expert()}};
}

}  // namespace

/// A line on the console and in the log, and an event of the run.
void Trainer::tell(const std::string& line, std::string_view event, const Json& facts) {
  if (!log_) return;
  log_->note(line);
  log_->event(event, progress_.iteration, facts);
}

void Trainer::tell_start() {
  if (!log_) return;
  const auto& facts = setup_.documents.facts;
  Json event = {{"run", progress_.run}, {"start", worker::start_of_job() + 1}, {"ranks", world_.size()}};
  for (const char* name : {"hosts", "version", "command"})
    if (const auto* fact = facts.find(name)) event.put(name, name == std::string_view("hosts") ? fact->size() : *fact);
  if (keeper_.found())
    event.put("resumed_from", "memory");
  else if (restored_.continues)
    event.put("resumed_from", restored_.folder.string());
  log_->event("start", progress_.iteration, event);
}

/// RunRecord::facts. Collective.
Json Trainer::run_facts() {
  auto& facts = setup_.documents.facts;
  const auto& model = setup_.model;
  facts.put("hosts", hosts_of(world_));
  if (world_.rank() > 0) return facts;
  if (const auto& found = keeper_.found()) product_rate_ = found->position.product_rate;
  measure_products();
  facts.update({{"started", wall_time()},
                {"cpu", kernels::processor_name()},
                {"instruction_set", kernels::name_of(kernels::chosen_isa())},
                {"ranks", world_.size()},
                {"threads", threads_.count()},
                {"layout", layout_of(model.processes.mesh.sizes(), model.plan.chunks())},
                {"recipe_hash", sha256(setup_.documents.resolved_recipe)},
                {"parameters", model.parameters},
                {"trained_parameters", model.trained_parameters},
                {"gemm_flops_per_second", product_rate_}});
  return facts;
}

/// Of all ranks, as the operations of a step are.
void Trainer::measure_products() {
  if (product_rate_ == 0)
    product_rate_ = kernels::product_rate(threads_, setup_.model.precision.compute, 0.05) * world_.size();
}

/// The part of a logged record that tells how fast the step was, and what it waited for.
void Trainer::add_speed(reporting::StepRecord& record, std::optional<double> waited) {
  const auto& data = *setup_.data.splits->train;
  record.consumed_tokens = record.consumed_samples * data.rows_per_sample() * data.seq_length();
  if (product_rate_ > 0 && record.flops > 0 && record.step_seconds > 0)
    record.flops_utilization = record.flops / record.step_seconds / product_rate_;
  if (world_.size() == 1) return;
  record.exposed_communication_seconds = waited;
  record.rank_times = stragglers_.take_rank_times();
}

/// The last event of this start: "finished", "stopped" or "failed".
void Trainer::tell_end(std::string_view event, const std::string& words) {
  if (!log_) return;
  Json facts = Json::object();
  if (!words.empty()) facts.put(event == "failed" ? "message" : "reason", words);
  log_->event(event, progress_.iteration, facts);
}

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
  options.ranks = static_cast<std::size_t>(world_.size());
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
  measure_products();
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

RankMemory Trainer::rank_memory() const { return {.used = memory(), .process_peak = peak_resident_bytes()}; }

/// Into run.json. That it cannot be written costs the record of the run, not the run.
void Trainer::write_measured_memory() {
  if (world_.rank() > 0 || told_of_run_record_) return;
  try {
    folder_.add_fact("measured_memory", measured_memory_.json());
  } catch (const IoError& error) {
    told_of_run_record_ = true;
    note(text(error.what(), "; run.json does not tell the memory of the ranks"));
  }
}

/// Collective: tells what the memory of this rank was used for, and with several stages of the first rank of each.
void Trainer::report_memory() {
  const auto own = rank_memory();
  std::vector<RankMemory> ranks(static_cast<std::size_t>(world_.size()));
  world_.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(ranks)), "memory of the ranks");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) measured_memory_.add(rank, ranks[rank]);
  write_measured_memory();
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
              state.in_files > 0 ? text("; mapped from files ", words(state.in_files)) : "",
              "; the process without pages of files ", words(private_resident_bytes()), "; peak of the process ",
              words(peak_resident_bytes()));
}

}  // namespace tessera::training
