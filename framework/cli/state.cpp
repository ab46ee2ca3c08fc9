#include "framework/cli/state.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <memory>

#include "framework/base/memory_limit.h"
#include "framework/resilience/left_state.h"
#include "framework/worker/job_record.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

std::string line_of(const std::vector<std::string>& words) {
  std::string all;
  for (const auto& word : words) all += (all.empty() ? "" : " ") + word;
  return all;
}

/// Whether the job's tsrun runs; if not, its workers may still be ending.
bool runs(const worker::JobOnHost& job) { return job.guarded && kill(job.record.process, 0) == 0; }

std::string life_of(const worker::JobOnHost& job) {
  if (!job.lives()) return "all its processes have ended";
  if (runs(job)) return text("running as process ", job.record.process);
  return "its tsrun was killed, and its workers end soon";
}

void print(const worker::JobOnHost& job) {
  const auto states = resilience::left_states(job.folder);
  const auto step = resilience::step_of(states);
  std::string ranks;
  for (const auto& state : states) ranks += text(ranks.empty() ? "" : ", ", state.rank);
  const auto& record = job.record;
  std::cout << "job " << record.id << ": " << life_of(job) << "\n"
            << "  command    "
            << (record.command.empty() ? line_of(record.program) : "tsrun " + line_of(record.command)) << "\n"
            << "  in         " << record.folder << "\n"
            << "  ranks      " << (states.empty() ? "none" : ranks) << " of " << record.workers << "\n"
            << "  state      "
            << (step < 0 ? "none that another start can continue with" : text("after iteration ", step)) << ", "
            << in_binary_units(static_cast<double>(job.bytes)) << " in " << job.folder.string() << "\n";
}

void probe() {
  const auto jobs = worker::jobs_of_host();
  for (const auto& job : jobs) print(job);
  if (jobs.empty()) std::cout << "no job of tsrun has state in the memory of this host\n";
}

/// The job with that id. Throws ConfigError, also if it still runs.
worker::JobOnHost ended_job(const std::string& id) {
  const auto jobs = worker::jobs_of_host();
  std::string known;
  for (const auto& job : jobs) {
    known += text(known.empty() ? "" : ", ", job.record.id);
    if (job.record.id != id) continue;
    if (!job.lives()) return job;
    const bool running = runs(job);
    throw ConfigError(text("job ", id, running ? " is still " : " has not ended: ", life_of(job),
                           running ? "; stop it first" : "; give this command again later"));
  }
  throw ConfigError(
      text("no job '", id, "' on this host; ", known.empty() ? "there are no jobs" : "the jobs are ", known));
}

void clean(const std::string& id) {
  const auto job = ended_job(id);
  const char* temporary = std::getenv("TMPDIR");
  fs::remove_all(job.folder);
  fs::remove_all(fs::path(temporary != nullptr ? temporary : "/tmp") / ("tsrun." + id));
  std::cout << "deleted " << job.folder.string() << "\n";
}

/// Replaces this process by the job's tsrun, which starts its workers only for `what`.
void start_for(const std::string& what, const std::string& id) {
  const auto job = ended_job(id);
  if (!job.keeps_state) throw ConfigError(text("job ", id, " has no state in memory; `tessera state clean ", id, "`"));
  if (job.record.command.empty())
    throw ConfigError(text("job ", id, " was led by another host: give this command there"));
  const auto tsrun = (fs::read_symlink("/proc/self/exe").parent_path() / "tsrun").string();
  std::vector<std::string> words = {tsrun, "--left", what};
  words.insert(words.end(), job.record.command.begin(), job.record.command.end());
  std::vector<char*> all;
  for (auto& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  fs::current_path(job.record.folder);
  std::cout.flush();
  execv(tsrun.c_str(), all.data());
  throw Error(text(tsrun, " cannot be started: ", std::strerror(errno)));
}

void add_start(Command& state, const std::string& what, const std::string& doc) {
  auto* command = state.add_subcommand(what, doc);
  const auto id = std::make_shared<std::string>();
  command->add_option("JOB", *id, "Id of the job, as printed by `tessera state probe`")->required();
  command->callback([what, id] { start_for(what, *id); });
}

}  // namespace

void add_state_commands(Command& app, CommandContext&) {
  auto* state =
      app.add_subcommand("state", "List, save or delete the state that jobs of tsrun keep in memory on this host");
  state->require_subcommand();
  state->add_subcommand("probe", "List the jobs: command, iteration, size, whether they run")->callback(probe);
  add_start(*state, "finish", "Complete the interrupted iteration of a job that was killed; its state stays in memory");
  add_start(*state, "save", "Save the state of a job that was killed as a checkpoint");
  auto* command = state->add_subcommand("clean", "Delete the state of a job that was killed");
  const auto id = std::make_shared<std::string>();
  command->add_option("JOB", *id, "Id of the job, as printed by `tessera state probe`")->required();
  command->callback([id] { clean(*id); });
}

}  // namespace tessera::cli
