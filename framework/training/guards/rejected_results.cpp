#include "framework/training/guards/rejected_results.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

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

/// What the rule reads of a line.
struct RejectedLine {
  std::string job, rank, status;
  std::int64_t iteration = 0;
};

/// Removes `key` and the characters behind it that are `allowed`, at most `most`, from the beginning of `rest`, and
/// returns these characters. Empty: `rest` does not begin so.
template <class Allowed>
std::string_view take(std::string_view& rest, std::string_view key, std::size_t most, const Allowed& allowed) {
  if (rest.substr(0, key.size()) != key) return {};
  std::size_t end = key.size();
  while (end < rest.size() && end - key.size() < most && allowed(static_cast<unsigned char>(rest[end]))) ++end;
  const auto word = rest.substr(key.size(), end - key.size());
  rest.remove_prefix(end);
  return word;
}

/// Where the last `key` in `line` begins that at least one character follows before `end`.
std::size_t last_field(std::string_view line, std::string_view key, std::size_t end) {
  return end < key.size() + 1 ? std::string_view::npos : line.rfind(key, end - key.size() - 1);
}

/// " rank=0 iteration=7 status=word result=" at the beginning of `rest`, of which it is removed.
std::optional<RejectedLine> take_numbers(std::string_view& rest) {
  const auto is_digit = [](unsigned char c) { return c >= '0' && c <= '9'; };
  const auto is_dark = [](unsigned char c) { return c > ' ' || c < '\t' || (c > '\r' && c < ' '); };
  RejectedLine made;
  made.rank = take(rest, " rank=", 9, is_digit);
  const std::string iteration(take(rest, " iteration=", 15, is_digit));
  made.status = take(rest, " status=", std::string_view::npos, is_dark);
  constexpr std::string_view result = " result=";
  if (made.rank.empty() || iteration.empty() || made.status.empty() || rest.substr(0, result.size()) != result)
    return std::nullopt;
  made.iteration = std::stoll(iteration);
  rest.remove_prefix(result.size());
  return made;
}

/// A value may have any characters, also those of another field: of several divisions the rightmost counts, as in
/// Megatron-LM's regular expression. Takes time proportional to the line.
std::optional<RejectedLine> read_line(std::string_view line) {
  const auto message = last_field(line, " message=", line.size());
  if (message == std::string_view::npos) return std::nullopt;
  for (auto at = line.rfind(" rank=", message); at != std::string_view::npos && at > 0;
       at = line.rfind(" rank=", at - 1)) {
    auto rest = line.substr(at);
    auto made = take_numbers(rest);
    if (!made || line.size() - rest.size() >= message) continue;
    const auto job = last_field(line, " jobID=", at), device = last_field(line, " device=", std::min(job, at)),
               node = last_field(line, " node=", std::min(device, at)),
               time = last_field(line, "ts=", std::min(node, at));
    if (std::max({job, device, node, time}) == std::string_view::npos) return std::nullopt;
    made->job = line.substr(job + 7, at - job - 7);
    return made;
  }
  return std::nullopt;
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
  using Iteration = std::int64_t;
  std::set<std::pair<Iteration, std::string>> seen;                           // with the rank
  std::map<std::pair<Iteration, std::string>, std::set<std::string>> by_job;  // the ranks
  std::set<Iteration> twice, of_several;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const auto found = read_line(line);
    if (!found) continue;
    const auto status = upper(found->status);
    if (status != "RERUN_DISABLED" && status != "FIRST_RERUN_REPRODUCIBLE" && status != "SECOND_RERUN_REPRODUCIBLE")
      continue;
    const auto iteration = found->iteration;
    if (!seen.emplace(iteration, found->rank).second) twice.insert(iteration);
    auto& ranks = by_job[{iteration, found->job}];
    ranks.insert(found->rank);
    if (ranks.size() > 1) of_several.insert(iteration);
  }
  checkpoint::IterationSet out;
  for (const auto iteration : twice)
    if (iteration > 0 && of_several.count(iteration) == 0) out.add(iteration - 1, iteration);
  return out;
}

}  // namespace tessera::training
