#include "framework/reporting/progress_file.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/error.h"

namespace tessera::reporting {
namespace {

constexpr const char *time_form = "%Y-%m-%d %H:%M:%S", *start_words = "Starting job", *saved_words = "Saved checkpoint";

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  for (std::size_t from = 0; from <= line.size();) {
    const auto end = std::min(line.find('\t', from), line.size());
    fields.push_back(line.substr(from, end - from));
    from = end + 1;
  }
  return fields;
}

/// The number behind `name` and ": "; nothing if the field is another one.
std::optional<double> number_in(const std::string& field, std::string_view name) {
  if (field.compare(0, name.size(), name) != 0 || field.compare(name.size(), 2, ": ") != 0) return std::nullopt;
  const char* begin = field.c_str() + name.size() + 2;
  char* end = nullptr;
  const double number = std::strtod(begin, &end);
  if (end == begin) return std::nullopt;
  return number;
}

std::optional<std::time_t> time_in(const std::string& field) {
  std::tm parts{};
  const char* end = strptime(field.c_str(), time_form, &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  parts.tm_isdst = -1;
  return std::mktime(&parts);
}

template <class... Values>
std::string printed(const char* form, Values... values) {
  std::array<char, 256> out{};
  std::snprintf(out.data(), out.size(), form, values...);
  return out.data();
}

}  // namespace

ProgressFile::ProgressFile(Options options)
    : options_(std::move(options)), started_(options_.now()), first_started_(started_) {
  read();
  append(start_words);
}

/// What a later start needs of the earlier ones: when the first with as many processes began, and the floating-point
/// operations up to the checkpoint that it resumes from.
void ProgressFile::read() {
  std::ifstream in(options_.path);
  constexpr std::time_t none = -1;
  auto first = none;
  double latest = 0, at_first = 0;
  for (std::string line; std::getline(in, line);) {
    const auto fields = fields_of(line);
    if (fields.size() < 4) continue;
    const auto processes = number_in(fields[2], "# GPUs");
    if (!processes) continue;
    if (fields[3] == saved_words && fields.size() > 7) {
      const auto iteration = number_in(fields[4], "Iteration"),
                 flops = number_in(fields[7], "Floating-point operations");
      if (!iteration || !flops) continue;
      latest = *flops;
      if (*iteration == static_cast<double>(options_.resume_iteration)) at_start_ = *flops;
    }
    if (*processes != options_.processes) {
      first = none;
    } else if (fields[3] == start_words && first == none) {
      first = time_in(fields[0]).value_or(none);
      at_first = latest;
    }
  }
  if (options_.resume_iteration == 0) at_start_ = 0;
  flops_ = at_start_;
  if (first != none) first_started_ = first;
  at_first_start_ = first != none ? std::min(at_first, at_start_) : at_start_;
}

double ProgressFile::tera_flops(double flops, std::time_t since) const {
  const auto seconds = std::max(1.0, std::difftime(options_.now(), since));
  return flops / (seconds * 1e12 * options_.processes);
}

void ProgressFile::saved(std::int64_t iteration, double tokens) const {
  append(
      printed("%s\tIteration: %lld\tJob throughput: %.1f TFLOP/s/GPU\tCumulative throughput: %.1f TFLOP/s/GPU\t"
              "Floating-point operations: %.2e\tTokens (in billions): %.2f",
              saved_words, static_cast<long long>(iteration), tera_flops(flops_ - at_start_, started_),
              tera_flops(flops_ - at_first_start_, first_started_), flops_, tokens / 1e9));
}

void ProgressFile::append(const std::string& message) const {
  const auto now = options_.now();
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> moment{};
  std::strftime(moment.data(), moment.size(), time_form, &local);
  std::ofstream out(options_.path, std::ios::app);
  out << text(moment.data(), "\tJob ID: ", options_.job, "\t# GPUs: ", options_.processes, "\t", message, "\n")
      << std::flush;
  if (!out) throw IoError(text("training_config.log_progress: cannot append to ", options_.path.string()));
}

}  // namespace tessera::reporting
