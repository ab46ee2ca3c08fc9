#include "framework/training/rejected_results.h"

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "framework/base/error.h"
#include "framework/base/system_call.h"

namespace tessera::training {
namespace {

constexpr std::array<const char*, 4> status_words = {"rerun_disabled", "initial_run", "first_rerun_not_reproducible",
                                                     "first_rerun_reproducible"};

std::string moment() {
  std::array<char, 32> out = {};
  const auto now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  std::strftime(out.data(), out.size(), "%Y-%m-%d %H:%M:%S", &local);
  return out.data();
}

std::string upper(std::string word) {
  for (auto& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return word.substr(word.rfind('.') + 1);  // of "RerunValidationStatus.INITIAL_RUN"
}

}  // namespace

void add_rejected(const std::filesystem::path& file, const RejectedResult& result) {
  const char* job = std::getenv("SLURM_JOBID");
  std::ofstream out(file, std::ios::app);
  out << text("ts=", moment(), " node=", host_name(), " device=0 jobID=", job == nullptr ? "N/A" : job,
              " rank=0 iteration=", result.iteration, " status=", status_words[static_cast<std::size_t>(result.status)],
              " result=", result.loss, " message='", result.message, "'\n")
      << std::flush;
  if (!out) throw IoError(text("training_config.result_rejected_tracker_filename: cannot append to ", file.string()));
}

checkpoint::IterationSet iterations_to_skip(const std::string& lines) {
  static const std::regex form(
      "ts=.+ node=.+ device=.+ jobID=(.+) rank=([0-9]{1,9}) iteration=([0-9]{1,15}) status=(\\S+) "
      "result=.+ message=.+");
  using Iteration = std::int64_t;
  std::set<std::pair<Iteration, std::string>> seen;                           // with the rank
  std::map<std::pair<Iteration, std::string>, std::set<std::string>> by_job;  // the ranks
  std::set<Iteration> twice, of_several;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    std::smatch found;
    if (!std::regex_search(line, found, form)) continue;
    const auto status = upper(found[4]);
    if (status != "RERUN_DISABLED" && status != "FIRST_RERUN_REPRODUCIBLE" && status != "SECOND_RERUN_REPRODUCIBLE")
      continue;
    const auto iteration = std::stoll(found[3]);
    if (!seen.emplace(iteration, found[2]).second) twice.insert(iteration);
    auto& ranks = by_job[{iteration, found[1]}];
    ranks.insert(found[2]);
    if (ranks.size() > 1) of_several.insert(iteration);
  }
  checkpoint::IterationSet out;
  for (const auto iteration : twice)
    if (iteration > 0 && of_several.count(iteration) == 0) out.add(iteration - 1, iteration);
  return out;
}

}  // namespace tessera::training
