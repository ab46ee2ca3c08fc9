#include "framework/reporting/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "framework/base/error.h"
#include "framework/base/files.h"

namespace tessera::reporting {
namespace {

constexpr std::string_view last_bytes = "}\n";  // of every line
constexpr std::string_view first_key = "{\"iteration\": ";

// Bytes of an object: numbers of at most 24 letters and their names, also of many validation sets; the names of the
// arrays over layers, and in each array a number and a separator for each layer; the same for the array over ranks.
constexpr std::size_t plain_bytes = std::size_t{1} << 16, routing_bytes = 512, bytes_of_item = 26,
                      arrays_of_routing = 6;

/// One JSON object on one line, assembled in memory of the caller, which is long enough.
class Object {
 public:
  explicit Object(std::vector<char>& memory) : at_(memory.data()), end_(memory.data() + memory.size()), begin_(at_) {}

  void number(std::string_view key, std::int64_t value) {
    name(key);
    add(value);
  }
  void number(std::string_view key, double value) { number(key, "", value); }
  void number(std::string_view key, std::string_view suffix, double value) {
    name(key, suffix);
    add(value);
  }
  /// "validation_rewards/margins-set"
  void number(std::string_view prefix, std::string_view key, std::string_view suffix, double value) {
    name(prefix, key, suffix);
    add(value);
  }
  /// "mtp_2_loss"
  void number(std::string_view key, std::size_t index, std::string_view suffix, double value) {
    char words[64];
    auto end = std::copy(key.begin(), key.end(), words);
    end = std::to_chars(end, end + 24, index).ptr;
    end = std::copy(suffix.begin(), suffix.end(), end);
    number({words, static_cast<std::size_t>(end - words)}, value);
  }
  /// An array with value(layer) for each layer with experts, null for the others.
  template <class Value>
  void array(std::string_view key, std::span<const RoutingRecord> layers, const Value& value) {
    name(key);
    add("[");
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (i > 0) add(", ");
      if (layers[i].has_experts)
        add(value(layers[i]));
      else
        add("null");
    }
    add("]");
  }
  void array(std::string_view key, std::span<const double> values) {
    name(key);
    add("[");
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) add(", ");
      add(values[i]);
    }
    add("]");
  }
  void flag(std::string_view key, bool value) {
    name(key);
    add(value ? "true" : "false");
  }
  void open() { add("{"); }
  /// Continues an object whose closing brace is overwritten.
  void resume() { first_ = false; }
  std::string_view close() {
    add(last_bytes);
    return {begin_, static_cast<std::size_t>(at_ - begin_)};
  }

 private:
  void name(std::string_view key, std::string_view suffix = {}, std::string_view end = {}) {
    if (!first_) add(", ");
    first_ = false;
    add("\"");
    add(key);
    add(suffix);
    add(end);
    add("\": ");
  }
  void add(std::string_view words) {
    must(words.size() <= static_cast<std::size_t>(end_ - at_), "a line of metrics.jsonl fits its memory");
    at_ = std::copy(words.begin(), words.end(), at_);
  }
  void add(std::int64_t value) { at_ = std::to_chars(at_, end_, value).ptr; }
  void add(double value) {
    if (!std::isfinite(value)) return add("null");
    const auto* begin = at_;
    at_ = std::to_chars(at_, end_, value).ptr;
    if (std::string_view(begin, static_cast<std::size_t>(at_ - begin)).find_first_of(".e") == std::string_view::npos)
      add(".0");
  }

  char *at_, *end_;
  const char* begin_;
  bool first_ = true;
};

/// How the routers of all layers distributed the choices.
void add_routing(Object& line, std::span<const RoutingRecord> layers) {
  line.array("least_loaded_expert", layers, [](const auto& layer) { return layer.least; });
  line.array("least_load", layers, [](const auto& layer) { return layer.least_load; });
  line.array("most_loaded_expert", layers, [](const auto& layer) { return layer.most; });
  line.array("most_load", layers, [](const auto& layer) { return layer.most_load; });
  line.array("dropped_share", layers, [](const auto& layer) { return layer.dropped; });
  line.array("smallest_router_gap", layers, [](const auto& layer) { return layer.gap; });
}

/// The iteration of a complete line; -1 if the line has another format.
std::int64_t iteration_of(std::string_view line) {
  if (line.substr(0, first_key.size()) != first_key || line.back() != last_bytes.front()) return -1;
  std::int64_t iteration = -1;
  std::from_chars(line.data() + first_key.size(), line.data() + line.size(), iteration);
  return iteration;
}

const char* key_of(EvaluationRecord::Set set) {
  switch (set) {
    case EvaluationRecord::Set::validation:
      return "validation_loss";
    case EvaluationRecord::Set::final_validation:
      return "final_validation_loss";
    case EvaluationRecord::Set::test:
      return "test_loss";
  }
  return "";
}

/// The lines that remain when a run resumes, and the content of the last of them.
struct KeptLines {
  std::string lines;
  std::int64_t last_iteration = -1;
  std::array<std::int64_t, 3> evaluated = {};  ///< of each Set
};

std::array<std::int64_t, 3> evaluations_in(std::string_view line) {
  using Set = EvaluationRecord::Set;
  std::array<std::int64_t, 3> found = {};
  for (const auto set : {Set::validation, Set::final_validation, Set::test}) {
    const auto key = text('"', key_of(set));  // a suffix may follow
    for (auto at = line.find(key); at != std::string_view::npos; at = line.find(key, at + key.size()))
      ++found[static_cast<std::size_t>(set)];
  }
  return found;
}

/// A line without the evaluations that will be repeated; empty if it has nothing else. They are at the end of a line,
/// in the order of time.
std::string without_repeated(std::string_view line, const MetricsFile::Kept& keep) {
  using Set = EvaluationRecord::Set;
  auto end = std::string_view::npos;
  const auto cut = [&](Set set) { end = std::min(end, line.find(text(", \"", key_of(set)))); };
  if (!keep.validation) cut(Set::validation);
  if (!keep.final_evaluations) cut(Set::final_validation), cut(Set::test);
  if (end == std::string_view::npos) return std::string(line);
  const bool has_step = line.find("\"loss\"") < end;
  return has_step || evaluations_in(line.substr(0, end))[0] > 0 ? text(line.substr(0, end), "}") : "";
}

KeptLines kept_lines(std::string_view content, const MetricsFile::Kept& keep) {
  KeptLines kept;
  for (auto end = content.find('\n'); end != std::string_view::npos; end = content.find('\n')) {
    std::string line(content.substr(0, end));
    content.remove_prefix(end + 1);
    const auto iteration = iteration_of(line);
    if (iteration < 1 || iteration > keep.iteration) continue;
    if (iteration == keep.iteration) line = without_repeated(line, keep);
    if (line.empty()) continue;
    kept.lines.append(line).append("\n");
    kept.last_iteration = iteration;
    kept.evaluated = evaluations_in(line);
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path, const Kept& keep, std::size_t routed_layers, std::size_t ranks)
    : line_(plain_bytes + (routed_layers > 0 ? routing_bytes : 0) +
            (arrays_of_routing * routed_layers + ranks) * bytes_of_item) {
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file_ < 0) throw IoError(text("cannot write ", path, ": ", std::strerror(errno)));
  const auto content = read_file(path);
  const auto kept = kept_lines(content, keep);
  end_ = static_cast<std::int64_t>(kept.lines.size());
  last_iteration_ = kept.last_iteration;
  evaluated_ = kept.evaluated;
  const bool begins_with_them = content.compare(0, kept.lines.size(), kept.lines) == 0;
  if (begins_with_them ? ftruncate(file_, end_) == 0 : replace(path, kept.lines)) return;
  const auto reason = errno;
  ::close(file_);
  throw IoError(text("cannot shorten ", path, ": ", std::strerror(reason)));
}

MetricsFile::~MetricsFile() { ::close(file_); }

/// Replaces the content of the file atomically, and continues in the new file.
bool MetricsFile::replace(const std::string& path, const std::string& content) {
  write_file_atomic(path, content);
  const int fresh = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (fresh < 0) return false;
  ::close(file_);
  file_ = fresh;
  return true;
}

void MetricsFile::step(const StepRecord& r) {
  Object line(line_);
  line.open();
  line.number("iteration", r.iteration);
  line.number("consumed_samples", r.consumed_samples);
  line.number("loss", r.loss);
  if (r.load_balancing_loss) line.number("load_balancing_loss", *r.load_balancing_loss);
  if (r.z_loss) line.number("z_loss", *r.z_loss);
  for (std::size_t k = 0; k < r.prediction_losses.size(); ++k)
    line.number("mtp_", k + 1, "_loss", r.prediction_losses[k]);
  for (const auto& metric : r.metrics) line.number(metric.name, metric.value);
  if (!r.routing.empty()) add_routing(line, r.routing);
  line.number("grad_norm", r.grad_norm);
  line.number("learning_rate", r.learning_rate);
  line.number("weight_decay", r.weight_decay);
  line.number("loss_scale", r.loss_scale);
  line.flag("skipped", r.skipped);
  line.number("sample_chain", static_cast<std::int64_t>(r.sample_chain));
  line.number("step_seconds", r.step_seconds);
  line.number("tokens_per_second", r.tokens_per_second);
  if (r.consumed_tokens > 0) line.number("consumed_tokens", r.consumed_tokens);
  if (r.flops_utilization) line.number("model_flops_utilization", *r.flops_utilization);
  line.number("data_wait_seconds", r.data_wait_seconds);
  if (r.exposed_communication_seconds) line.number("exposed_communication_seconds", *r.exposed_communication_seconds);
  if (r.rank_times) {
    line.number("fastest_rank_seconds", r.rank_times->fastest_seconds);
    line.number("slowest_rank_seconds", r.rank_times->slowest_seconds);
    line.number("slowest_rank", r.rank_times->slowest);
    line.array("rank_seconds", r.rank_times->seconds);
  }
  line.number("memory_bytes", r.memory.all());
  line.number("weight_bytes", r.memory.weights);
  line.number("gradient_bytes", r.memory.gradients);
  line.number("optimizer_bytes", r.memory.optimizer);
  line.number("activation_bytes", r.memory.activations);
  line.number("workspace_bytes", r.memory.workspace);
  line.number("message_bytes", r.memory.messages);
  if (r.num_zeros) line.number("num_zeros", *r.num_zeros);
  if (r.params_norm) line.number("params_norm", *r.params_norm);
  if (r.tokens_per_sample) line.number("tokens_per_sample", *r.tokens_per_sample);
  row_ = line.close();
  if (!write(row_, end_)) return;
  last_iteration_ = r.iteration;
  evaluated_ = {};
}

void MetricsFile::evaluation(const EvaluationRecord& r) {
  auto& of_set = evaluated_[static_cast<std::size_t>(r.set)];
  const bool joins = r.iteration == last_iteration_ && r.number >= of_set;
  Object line(line_);
  if (joins) {
    line.resume();
  } else {
    line.open();
    line.number("iteration", r.iteration);
    line.number("consumed_samples", r.consumed_samples);
  }
  const std::string_view loss_key = key_of(r.set), loss_word = "loss";
  line.number(loss_key, r.suffix, r.loss);
  const auto prefix = loss_key.substr(0, loss_key.size() - loss_word.size());
  for (const auto& metric : r.metrics) line.number(prefix, metric.name, r.suffix, metric.value);
  row_ = line.close();
  if (!write(row_, joins ? end_ - static_cast<std::int64_t>(last_bytes.size()) : end_)) return;
  if (!joins) evaluated_ = {};
  of_set = r.number + 1;
  last_iteration_ = r.iteration;
}

/// Writes all of `bytes` at `at`; if the system refuses, leaves the file as it was.
bool MetricsFile::write(std::string_view bytes, std::int64_t at) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto count = pwrite(file_, bytes.data() + done, bytes.size() - done, at + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  if (done == bytes.size()) {
    end_ = at + static_cast<std::int64_t>(done);
    return true;
  }
  if (complaint_[0] == 0)
    std::snprintf(complaint_, sizeof complaint_, "metrics.jsonl: a line could not be written (%s); training continues",
                  std::strerror(errno));
  const bool mended =
      (at == end_ || pwrite(file_, last_bytes.data(), last_bytes.size(), at) > 0) && ftruncate(file_, end_) == 0;
  static_cast<void>(mended);  // the next start removes incomplete lines
  return false;
}

}  // namespace tessera::reporting
