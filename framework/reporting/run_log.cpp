#include "framework/reporting/run_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "framework/base/clock.h"
#include "framework/base/error.h"
#include "framework/base/number_text.h"
#include "framework/log/log.h"
#include "framework/reporting/log_lines.h"
#include "framework/reporting/progress_bar.h"
#include "framework/reporting/prometheus.h"
#include "framework/reporting/tensorboard.h"

namespace tessera::reporting {
namespace {

/// A few points of one step; as many as Megatron-LM has tags, with room to spare.
class Points {
 public:
  void add(std::string_view tag, double value) {
    must(count_ < most, "the curves of a step have room");
    points_[count_++] = {tag, value};
  }
  std::span<const Scalar> all() const { return {points_, count_}; }

 private:
  static constexpr std::size_t most = 64;
  Scalar points_[most];
  std::size_t count_ = 0;
};

/// Megatron-LM's name of the curve of a layer of multi-token prediction.
const char* prediction_tag(std::size_t index) {
  static constexpr std::array<const char*, options::most_predictions> tags = {
      "mtp_1 loss", "mtp_2 loss", "mtp_3 loss", "mtp_4 loss", "mtp_5 loss", "mtp_6 loss", "mtp_7 loss", "mtp_8 loss"};
  return tags[index];
}

/// Megatron-LM's name of a curve of evaluations. Allocates nothing.
class ValidationTag {
 public:
  ValidationTag(std::string_view suffix, std::string_view end) {
    for (const auto words : {std::string_view("lm loss validation"), suffix, end}) add(words);
    over_steps_ = used_;
    add(vs_samples);
  }
  std::string_view over_steps() const { return {bytes_, over_steps_}; }
  std::string_view over_samples() const { return {bytes_, used_}; }

 private:
  void add(std::string_view words) { used_ += words.copy(bytes_ + used_, sizeof bytes_ - used_); }
  char bytes_[160];
  std::size_t used_ = 0, over_steps_ = 0;
};

/// Megatron-LM's name of a curve of one layer: "moe/z_loss_layer_7". Allocates nothing.
class LayerTag {
 public:
  std::string_view of(std::string_view name, std::size_t layer) {
    auto* end = bytes_;
    for (const auto words : {std::string_view("moe/"), name, std::string_view("_layer_")})
      end = std::copy(words.begin(), words.end(), end);
    end = std::to_chars(end, bytes_ + sizeof bytes_, layer).ptr;
    return {bytes_, static_cast<std::size_t>(end - bytes_)};
  }

 private:
  char bytes_[64];
};

}  // namespace

struct RunLog::Outputs {
  RunLogOptions o;
  MetricsFile metrics;
  std::optional<EventFile> events;
  std::optional<WandbFile> wandb;
  std::optional<PrometheusFile> prometheus;
  std::optional<ProgressBar> bar;
  log::LineLog lines;
  Interval interval = o.interval;
  LogLine line;
  bool metrics_complained = false, events_complained = false, wandb_complained = false, prometheus_complained = false,
       happenings_complained = false;

  explicit Outputs(const RunLogOptions& options)
      : o(options),
        metrics(options.folder + "/metrics.jsonl", kept(options), options.routed_layers, options.ranks),
        lines(options.console) {
    const auto folder = o.folder + "/tensorboard";
    cut_event_files(folder, o.resume_iteration, o.resume_consumed_samples);
    log::set_log_file(o.folder + "/" + log_file_name);
    if (o.tensorboard) events.emplace(folder);
    if (o.wandb) wandb.emplace(o.wandb_folder.empty() ? o.folder : o.wandb_folder, *o.wandb, kept(o), wall_time());
    if (!o.prometheus_file.empty()) prometheus.emplace(o.prometheus_file, o.name);
    if (o.progress_bar && log::StatusLine::suits(o.console))
      bar.emplace(ProgressBar::Options{o.console, o.training_iters, o.gemm_flops_per_second});
  }

  static MetricsFile::Kept kept(const RunLogOptions& o) {
    return {o.resume_iteration, o.resume_evaluated, !o.resume_at_end};
  }

  /// The row that was added to metrics.jsonl goes to the files of other programs.
  void add_row(std::int64_t iteration, std::int64_t consumed_samples) {
    if (!wandb && !prometheus) return;
    const double now = wall_time();
    if (wandb) wandb->add(iteration, consumed_samples, metrics.row(), now);
    if (prometheus) prometheus->add(metrics.row(), now);
  }

  void complain() {
    complain_once(metrics.complaint(), metrics_complained);
    if (events) complain_once(events->complaint(), events_complained);
    if (wandb) complain_once(wandb->complaint(), wandb_complained);
    if (prometheus) complain_once(prometheus->complaint(), prometheus_complained);
  }

  /// The line in the making goes to the console, above the bar, and to the log file. `console` false: only to the file.
  void print(bool console = true) {
    lines.write(line.text(), console);
    line.clear();
  }

  void complain_once(std::string_view words, bool& done) {
    if (done || words.empty()) return;
    done = true;
    line.put("{}\n", words);
    print();
  }

  void print_step(const StepRecord& step) {
    if (o.log_style == LogStyle::core_ms) {
      add_core_ms_line(line, step);
    } else {
      LineContext context{o.training_iters, std::time(nullptr)};
      add_megatron_line(line, step, interval, context);
    }
    print(!bar);
  }

  /// Megatron-LM's curves, once over iterations and once over samples.
  void add_events(const StepRecord& step, bool logged) {
    Points over_steps, over_samples;
    const auto both = [&](std::string_view tag, std::string_view tag_over_samples, double value) {
      over_steps.add(tag, value);
      over_samples.add(tag_over_samples, value);
    };
    both("learning-rate", "learning-rate vs samples", step.next_learning_rate);
    both("batch-size", "batch-size vs samples", static_cast<double>(step.global_batch_size));
    if (!step.skipped) both("lm loss", "lm loss vs samples", step.loss);
    both("loss-scale", "loss-scale vs samples", step.loss_scale);
    if (!step.skipped) both("grad-norm", "grad-norm vs samples", step.grad_norm);
    if (step.num_zeros) both("num-zeros", "num-zeros vs samples", *step.num_zeros);
    if (step.params_norm) both("params-norm", "params-norm vs samples", *step.params_norm);
    if (step.load_balancing_loss) over_steps.add("load_balancing_loss", *step.load_balancing_loss);
    if (step.z_loss) over_steps.add("z_loss", *step.z_loss);
    for (std::size_t k = 0; k < step.prediction_losses.size(); ++k)
      over_steps.add(prediction_tag(k), step.prediction_losses[k]);
    for (const auto& metric : step.metrics) over_steps.add(metric.name, metric.value);
    if (logged) both("iteration-time", "iteration-time vs samples", interval.seconds_per_step());
    events->add(step.iteration, over_steps.all());
    events->add(step.consumed_samples, over_samples.all());
    if (!o.events_per_layer) return;
    if (step.load_balancing_loss)
      add_layer_events(step, "load_balancing_loss", [](const auto& layer) { return layer.load_balancing_loss; });
    if (step.z_loss) add_layer_events(step, "z_loss", [](const auto& layer) { return layer.z_loss; });
  }

  /// A curve for each layer, as Megatron-LM names them; 0 for layers without experts.
  template <class Value>
  void add_layer_events(const StepRecord& step, std::string_view name, const Value& value) {
    constexpr std::size_t at_once = 16;
    for (std::size_t first = 0; first < step.routing.size(); first += at_once) {
      const auto layers = step.routing.subspan(first, std::min(at_once, step.routing.size() - first));
      std::array<LayerTag, at_once> tags;
      Points points;
      for (std::size_t i = 0; i < layers.size(); ++i)
        points.add(tags[i].of(name, first + i), layers[i].has_experts ? value(layers[i]) : 0);
      events->add(step.iteration, points.all());
    }
  }
};

RunLog::RunLog(const RunLogOptions& options) : outputs_(std::make_unique<Outputs>(options)) {}
const Interval& RunLog::interval() const { return outputs_->interval; }
RunLog::~RunLog() { log::set_log_file(""); }

void RunLog::step(const StepRecord& step) {
  auto& p = *outputs_;
  p.interval.add(step);
  const bool logged = step.iteration % p.o.log_interval == 0;
  if (p.events) p.add_events(step, logged);
  if (logged) {
    p.metrics.step(step);
    p.add_row(step.iteration, step.consumed_samples);
  }
  if (p.bar) p.bar->step(step);
  if (logged) p.print_step(step);
  if (logged) p.interval.clear();
  p.complain();
}

void RunLog::evaluation_begins(EvaluationRecord::Set set, std::int64_t iterations, double expected_seconds) {
  auto& p = *outputs_;
  const char* what = set == EvaluationRecord::Set::test ? "test split" : "validation split";
  if (p.bar) return p.bar->begin_evaluation(what, iterations, expected_seconds);
  if (expected_seconds > 0 && expected_seconds < long_work_seconds) return;
  p.line.put("evaluating the {}: {} iterations", what, iterations);
  if (expected_seconds > 0) p.line.put(", about {}", duration_text(expected_seconds));
  p.line.add("\n");
  p.print();
}

void RunLog::evaluation_progress(std::int64_t iterations_done) {
  if (outputs_->bar) outputs_->bar->evaluation(iterations_done);
}

void RunLog::evaluation(const EvaluationRecord& evaluation) {
  auto& p = *outputs_;
  if (p.bar) p.bar->end_evaluation();
  p.metrics.evaluation(evaluation);
  p.add_row(evaluation.iteration, evaluation.consumed_samples);
  if (p.events) {
    const double ppl = perplexity(evaluation.loss);
    const ValidationTag tag(evaluation.suffix, ""), ppl_tag(evaluation.suffix, " ppl");
    const Scalar over_steps[] = {{tag.over_steps(), evaluation.loss}, {ppl_tag.over_steps(), ppl}};
    const Scalar over_samples[] = {{tag.over_samples(), evaluation.loss}, {ppl_tag.over_samples(), ppl}};
    p.events->add(evaluation.iteration, over_steps);
    p.events->add(evaluation.consumed_samples, over_samples);
  }
  add_validation_lines(p.line, evaluation);
  p.print();
}

void RunLog::note(std::string_view text) {
  std::string line(text);
  if (line.empty() || line.back() != '\n') line += '\n';
  outputs_->lines.write(line);
}

void RunLog::event(std::string_view kind, std::int64_t iteration, const Json& facts) {
  auto& p = *outputs_;
  p.complain_once(append_event(p.o.folder, kind, iteration, facts), p.happenings_complained);
}

}  // namespace tessera::reporting
