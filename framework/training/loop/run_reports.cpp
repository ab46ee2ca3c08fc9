#include "framework/training/loop/run_reports.h"

#include <algorithm>

#include "framework/base/clock.h"
#include "framework/base/cpu_limit.h"
#include "framework/base/memory_limit.h"
#include "framework/base/sha256.h"
#include "framework/base/system_call.h"
#include "framework/comm/together.h"
#include "framework/kernels/cpu.h"
#include "framework/kernels/machine_limits.h"
#include "framework/kernels/scratch.h"
#include "framework/log/log.h"
#include "framework/options/json_schema.h"

namespace tessera::training {

namespace {

const log::Logger profile_logger("profile");

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

RunReports::RunReports(Run& run)
    : run_(run),
      o_(run.options),
      auxiliary_(run.work.auxiliary().extents(), run.setup.optimization.objective->metrics()),
      stragglers_(run.setup.resilience.straggler_ratio, run.world.size(), run.setup.model.processes.place.pipeline,
                  host_name()),
      measured_memory_(run.world.size()) {}

void RunReports::tell(const std::string& line, std::string_view event, const Json& facts) {
  if (!log_) return;
  log_->note(line);
  log_->event(event, run_.progress.iteration, facts);
}

void RunReports::note_of_rank(const std::vector<std::string>& lines) {
  for (const auto& line : lines)
    if (log_)
      note(line);
    else
      profile_logger.info(line);
}

void RunReports::event(std::string_view kind, std::int64_t iteration, const Json& facts) {
  if (log_) log_->event(kind, iteration, facts);
}

void RunReports::tell_start() {
  if (!log_) return;
  const auto& facts = run_.setup.documents.facts;
  Json event = {{"run", run_.progress.run}, {"start", worker::start_of_job() + 1}, {"ranks", run_.world.size()}};
  for (const char* name : {"hosts", "version", "command"})
    if (const auto* fact = facts.find(name)) event.put(name, name == std::string_view("hosts") ? fact->size() : *fact);
  if (run_.keeper.found())
    event.put("resumed_from", "memory");
  else if (run_.restored.continues)
    event.put("resumed_from", run_.restored.folder.string());
  log_->event("start", run_.progress.iteration, event);
}

Json RunReports::facts() {
  auto& facts = run_.setup.documents.facts;
  const auto& model = run_.setup.model;
  facts.put("hosts", hosts_of(run_.world));
  if (run_.world.rank() > 0) return facts;
  measure_products();
  facts.update({{"started", wall_time()},
                {"cpu", kernels::processor_name()},
                {"instruction_set", kernels::name_of(kernels::chosen_isa())},
                {"ranks", run_.world.size()},
                {"threads", run_.threads.count()},
                {"layout", layout_of(model.processes.mesh.sizes(), model.plan.chunks())},
                {"recipe_hash", sha256(run_.setup.documents.resolved_recipe)},
                {"training_iters", o_.training_iters},
                {"parameters", model.parameters},
                {"trained_parameters", model.trained_parameters},
                {"gemm_flops_per_second", run_.numbers.product_rate}});
  return facts;
}

/// Of all ranks, as the operations of a step are.
void RunReports::measure_products() {
  auto& rate = run_.numbers.product_rate;
  if (rate == 0)
    rate = kernels::product_rate(run_.threads, run_.setup.model.precision.compute, 0.02) * run_.world.size();
}

void RunReports::measure(reporting::StepRecord& record, const StepIntent& intent, std::optional<double> waited) {
  if (intent.changes_weights() && o_.log_num_zeros_in_grad)
    record.num_zeros = static_cast<double>(run_.work.zeros_in_gradients());
  if (o_.log_params_norm) record.params_norm = run_.work.weight_norm();
  if (o_.log_tps) record.tokens_per_sample = run_.work.mean_row_length();
  auxiliary_.add_to(record, run_.work.auxiliary());
  record.memory = memory();
  if (is_logged(record)) add_speed(record, waited);
}

void RunReports::watch_stragglers(double seconds, double waited) {
  if (!stragglers_.add(seconds, waited)) return;
  const auto& own = stragglers_.window(rank_memory());
  const auto all = stragglers_.all_windows();
  run_.world.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(all), "times and memory of ranks");
  note(stragglers_.close());
  bool grew = false;
  for (std::size_t rank = 0; rank < all.size(); ++rank) grew = measured_memory_.add(rank, all[rank].memory) || grew;
  if (grew) write_measured_memory();
}

/// The part of a logged record that tells how fast the step was, and what it waited for.
void RunReports::add_speed(reporting::StepRecord& record, std::optional<double> waited) {
  const auto& data = *run_.setup.data.splits->train;
  record.consumed_tokens = record.consumed_samples * data.rows_per_sample() * data.seq_length();
  if (run_.numbers.product_rate > 0 && record.flops > 0 && record.step_seconds > 0)
    record.flops_utilization = record.flops / record.step_seconds / run_.numbers.product_rate;
  if (run_.world.size() == 1) return;
  record.exposed_communication_seconds = waited;
  record.rank_times = stragglers_.take_rank_times();
}

void RunReports::tell_end(std::string_view event, const std::string& words) {
  if (!log_) return;
  Json facts = Json::object();
  if (!words.empty()) facts.put(event == "failed" ? "message" : "reason", words);
  log_->event(event, run_.progress.iteration, facts);
}

void RunReports::open() {
  comm::together(run_.world, "the reports", [&] {
    log::set_log_level_from_recipe(o_.log_level);
    if (run_.world.rank() > 0) return;
    log_ = std::make_unique<reporting::RunLog>(log_options());
    if (o_.log_progress) open_progress_file();
    if (const auto missing = run_.profiler.missing_ranks(); !missing.empty()) profile_logger.warning(missing);
  });
}

void RunReports::went_back() {
  log_.reset();
  open();
}

void RunReports::open_progress_file() {
  reporting::ProgressFile::Options options{.path = std::filesystem::path(o_.output_dir) / reporting::progress_file_name,
                                           .job = {},
                                           .processes = run_.world.size(),
                                           .resume_iteration = run_.progress.iteration};
  const std::string slurm = "slurm ";
  for (const auto& [job, start] : worker::job_starts())
    if (job.rfind(slurm, 0) == 0) options.job = job.substr(slurm.size());
  progress_file_ = std::make_unique<reporting::ProgressFile>(std::move(options));
}

void RunReports::saved(std::int64_t iteration) {
  if (!progress_file_) return;
  const auto& data = *run_.setup.data.splits->train;
  try {
    progress_file_->saved(
        iteration, static_cast<double>(run_.progress.consumed_samples * data.rows_per_sample() * data.seq_length()));
  } catch (const IoError& error) {
    note(error.what());
    progress_file_.reset();
  }
}

reporting::RunLogOptions RunReports::log_options() {
  const auto& from = run_.progress;
  reporting::RunLogOptions options;
  options.folder = o_.output_dir;
  options.training_iters = o_.training_iters;
  options.log_interval = o_.log_interval;
  options.log_style = o_.log_style;
  options.tensorboard = o_.tensorboard;
  options.routed_layers = auxiliary_.routed_layers();
  options.ranks = static_cast<std::size_t>(run_.world.size());
  options.events_per_layer = run_.work.auxiliary().extents().per_layer;
  options.name = name_of_folder(o_.output_dir);
  options.prometheus_file = o_.prometheus_file;
  options.wandb_folder = o_.wandb_save_dir;
  if (!o_.wandb_project.empty())
    options.wandb = {.id = from.run,
                     .project = o_.wandb_project,
                     .name = o_.wandb_exp_name.empty() ? options.name : o_.wandb_exp_name,
                     .host = host_name(),
                     .config = config_of(run_.setup.documents.recipe)};
  options.resume_iteration = from.iteration;
  options.resume_consumed_samples = from.consumed_samples;
  measure_products();
  options.gemm_flops_per_second = run_.numbers.product_rate;
  options.resume_evaluated = run_.numbers.evaluated;
  options.resume_at_end = run_.numbers.stepped && run_.is_complete();
  options.interval = run_.numbers.interval;
  return options;
}

void RunReports::completed(const reporting::StepRecord& record) {
  if (log_) log_->step(record);
  if (progress_file_) progress_file_->add(record.flops);
  run_.numbers.interval.add(record);
  if (is_logged(record)) run_.numbers.interval.clear();
}

void RunReports::stop(bool) {
  note_of_rank(run_.profiler.after_step(run_.progress.iteration, true));
  if (const auto line = bubble_.line(run_.setup); !line.empty()) note(line);
  if (run_.numbers.stepped) report_memory();
}

reporting::MemoryRecord RunReports::memory() const {
  const auto state = run_.state.bytes();
  return {.weights = state.weights + state.mapped,  // a restarted process may read what another one maps
          .gradients = state.gradients,
          .optimizer = state.optimizer,
          .activations = static_cast<std::int64_t>(run_.work.arena().high_water()),
          .workspace = static_cast<std::int64_t>(kernels::workspace_bytes()),
          .messages = static_cast<std::int64_t>(run_.world.message_bytes())};
}

RankMemory RunReports::rank_memory() const { return {.used = memory(), .process_peak = peak_resident_bytes()}; }

/// Into run.json. That it cannot be written costs the record of the run, not the run.
void RunReports::write_measured_memory() {
  if (run_.world.rank() > 0 || told_of_run_record_) return;
  try {
    run_.folder.add_fact("measured_memory", measured_memory_.json());
  } catch (const IoError& error) {
    told_of_run_record_ = true;
    note(text(error.what(), "; run.json does not tell the memory of the ranks"));
  }
}

/// Tells what the memory of this rank was used for, and with several stages of the first rank of each.
void RunReports::report_memory() {
  const auto own = rank_memory();
  std::vector<RankMemory> ranks(static_cast<std::size_t>(run_.world.size()));
  run_.world.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(ranks)),
                        "memory of the ranks");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) measured_memory_.add(rank, ranks[rank]);
  write_measured_memory();
  const auto& mesh = run_.setup.model.processes.mesh;
  const auto all = run_.world.all_gather(memory_line(), "the memory of the ranks");
  if (mesh.sizes().pipeline == 1) return note("memory of this rank: " + all[0]);
  for (int stage = 0; stage < mesh.sizes().pipeline; ++stage) {
    const auto rank = mesh.rank_of({.pipeline = stage});
    note(text("memory of rank ", rank, ", stage ", stage, ": ", all[static_cast<std::size_t>(rank)]));
  }
}

/// Peak: what the operating system measured, with code and data.
std::string RunReports::memory_line() const {
  const auto words = [](std::int64_t bytes) { return in_binary_units(static_cast<double>(bytes)); };
  const auto all = memory();
  const auto state = run_.state.bytes();
  const auto& reference = run_.setup.model.reference;
  const auto of_reference = reference ? reference->in_files() : 0;
  return text("weights ", words(state.weights), ", gradients ", words(all.gradients), ", optimizer state ",
              words(all.optimizer), ", activations ", words(all.activations), ", workspace ", words(all.workspace),
              all.messages > 0 ? text(", messages ", words(all.messages)) : "",
              state.in_files > 0 ? text("; mapped from files ", words(state.in_files)) : "",
              of_reference > 0 ? text("; mapped by the reference model ", words(of_reference)) : "",
              "; the process without pages of files ", words(private_resident_bytes()), "; peak of the process ",
              words(peak_resident_bytes()));
}

}  // namespace tessera::training
