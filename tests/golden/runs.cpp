#include "tests/golden/runs.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <sstream>

#include "framework/base/files.h"
#include "framework/interop/megatron/megatron.h"
#include "tests/golden/comparison.h"
#include "tests/golden/data_cases.h"
#include "tests/golden/initialisation.h"
#include "tests/golden/recorded_run.h"
#include "tests/golden/run_tensors.h"
#include "tests/golden/run_weights.h"

namespace tessera {
namespace golden {
namespace {

namespace fs = std::filesystem;

/// How near numbers of a run must be; those of steps relative to themselves.
struct Tolerance {
  TensorTolerance tensors;
  double loss, norm;
};

/// As golden/megatron/README.md says: fp32 sums in another order, which grow tenfold over the iterations; gradients of
/// 16-bit values. Its losses in 16 bits are up to 1.5e-4 from the same run in fp32: four times that.
Tolerance tolerance_of(const RunFlags& flags) {
  if (flags.has("--bf16") || flags.has("--fp16")) return {{2e-2, 1e-6, true}, 6e-4, 2e-2};
  return {{1e-5, 1e-6, false}, 1e-4, 1e-4};
}

/// Gradients that cancel to exactly 0 are a matter of rounding, and more of them do where sums are rounded to 16 bits:
/// the recorded runs have up to 4 in a step in fp32, up to 10 in 16 bits. What is zero for a reason (tokens that do not
/// occur, without a tied head) comes in rows.
double chance_zeros(const RunFlags& flags) { return flags.has("--bf16") || flags.has("--fp16") ? 24 : 8; }

/// Whether the recorded run counted zeros. Without the flag that asks for it, Megatron-LM counts those of optimizers
/// that share one group of ranks, which dense layers and experts of expert parallelism do not, and prints 0.
bool counts_zeros(const RunFlags& flags) {
  const auto ranks = flags.value("--expert-model-parallel-size");
  return flags.has("--log-num-zeros-in-grad") || ranks.empty() || ranks == "1";
}

/// One run while it is judged.
class RunJudge {
 public:
  RunJudge(const fs::path& folder, const fs::path& scratch, const Programs& programs)
      : folder_(folder), scratch_(scratch), run_(folder, scratch, programs), tolerance_(tolerance_of(run_.flags())) {
    if (fs::exists(folder / "trace.json")) trace_ = Json::parse(read_file(folder / "trace.json"));
    // Steps and validation are printed by the last rank.
    if (const auto log = folder / text("log.rank", run_.ranks().world - 1, ".txt"); fs::exists(log))
      log_ = read_file(log);
  }

  std::string judge() {
    if (trace_.empty()) comparison_.wrong("the recorded run did not train; this one would");
    compare_initialisation(folder_, run_.initial_weights(), comparison_);
    compare_batches();
    compare_rates();
    if (run_.knows_weights()) {
      compare_first_iteration();
      compare_training();
    } else {
      comparison_.not_compared("activations, gradients, steps (no weights are recorded)");
    }
    if (!comparison_.good()) return comparison_.summary();
    summary_ =
        text(trace_.size(), " iterations, ", comparison_.compared(), " comparisons",
             auxiliary_ > 0 ? text(" (", auxiliary_, " of them losses of routers or of multi-token prediction)") : "",
             run_.ranks().world > 1 ? text(" on ", run_.ranks().world, " processes") : "",
             run_.knows_weights() && run_.weights_from() != folder_.filename() ? ", from " + run_.weights_from() : "",
             "; ", comparison_.summary());
    return "";
  }
  const std::string& summary() const { return summary_; }

 private:
  void compare_first_iteration();
  void compare_activations(const RecordedRun::FirstIteration& first);
  void compare_gradients(const RecordedRun::FirstIteration& first);
  void compare_batches();
  void compare_rates();
  void compare_training();
  void compare_near(const std::string& name, const Json& ours, const Json& recorded, double relative,
                    double absolute = 0);
  void compare_zeros(const std::string& at, const Json& ours, const Json& recorded);
  void compare_step(const Json& recorded, const Json& ours, double scale_before);
  void compare_auxiliary(const std::string& line, const std::string& at, const Json& ours);
  void compare_log(const std::map<std::int64_t, Json>& ours);
  fs::path folder_with_batches() const;
  fs::path folder_, scratch_;
  RecordedRun run_;
  Tolerance tolerance_;
  Json trace_ = Json::array();
  std::string log_, summary_;
  int auxiliary_ = 0;  ///< losses beside that of the step that were compared
  Comparison comparison_;
};

/// The folder whose recorded batches are those of this run: its own, or one beside it with the same data.
fs::path RunJudge::folder_with_batches() const {
  const char* file = "batch.rank0.safetensors";
  if (fs::exists(folder_ / file) || run_.flags().has("--load")) return folder_;
  for (const auto& beside : list_folder(folder_.parent_path()))
    if (fs::exists(beside / file) && fs::exists(beside / "arguments.json") &&
        RunRanks(RunFlags::of(beside), world_of(beside)).replicas == run_.ranks().replicas &&
        run_.flags().agrees(RunFlags::of(beside),
                            {"--data-path", "--split", "--seed", "--seq-length", "--micro-batch-size",
                             "--global-batch-size", "--train-iters", "--train-samples", "--rampup-batch-size",
                             "--reset-position-ids", "--reset-attention-mask", "--eod-mask-loss", "--dataloader-type",
                             "--tokenizer-type", "--tokenizer-model"}))
      return beside;
  return folder_;
}

void RunJudge::compare_batches() {
  const auto folder = folder_with_batches();
  const auto name = [](const std::string& theirs) {
    return theirs.rfind("chunk", 0) == 0 ? theirs.substr(theirs.find('.') + 1) : theirs;
  };
  const RunRanks ranks(RunFlags::of(folder), world_of(folder));
  for (std::int64_t rank = 0; rank < ranks.world; ++rank)
    if (const auto file = folder / text("batch.rank", rank, ".safetensors"); fs::exists(file))
      compare_tensors(run_.first_batches(ranks.replica_of(rank)), file, name, {}, 1, comparison_);
}

/// Of rank 0, which has whole tensors but for its columns of the logits: so where it has all layers, and all of the
/// sequence.
void RunJudge::compare_activations(const RecordedRun::FirstIteration& first) {
  const auto& ranks = run_.ranks();
  const auto file = folder_ / "activations.rank0.safetensors";
  if (!fs::exists(file)) return;
  if (ranks.stages > 1) return comparison_.not_compared("activations (rank 0 has the layers of one stage)");
  if (run_.flags().has("--sequence-parallel"))
    return comparison_.not_compared("activations (rank 0 has part of the sequence)");
  auto ours = first.activations;
  auto& logits = ours.at("logits");
  const auto columns = logits.size() / ours.at("per_token_loss.0").size(), share = columns / ranks.tensor;
  std::vector<double> own;
  for (std::size_t row = 0; row < logits.size(); row += columns)
    own.insert(own.end(), logits.begin() + static_cast<std::ptrdiff_t>(row),
               logits.begin() + static_cast<std::ptrdiff_t>(row + share));
  logits = std::move(own);
  const auto without_micro_batch = [](const std::string& theirs) {
    return theirs.rfind("per_token_loss", 0) == 0 ? theirs : theirs.substr(0, theirs.rfind('.'));
  };
  compare_tensors(ours, file, without_micro_batch, tolerance_.tensors, 1, comparison_);
}

/// Put together. Ranks that share the optimizer's state have their shares of the sum alone, and samples in a random
/// order are others on other numbers of replicas: then there is nothing to compare one process with.
void RunJudge::compare_gradients(const RecordedRun::FirstIteration& first) {
  const auto& ranks = run_.ranks();
  if (!fs::exists(folder_ / "gradients.rank0.safetensors")) return;
  const auto skip = [&](const char* why) { comparison_.not_compared(text("gradients (", why, ")")); };
  if (ranks.replicas > 1 && run_.recipe().data_parallel.use_distributed_optimizer)
    return skip("each replica has a shard of the sum");
  if (ranks.replicas > 1 && run_.recipe().sampler.type != "single")
    return skip("their random order of samples depends on the number of replicas");
  const auto recorded = whole_tensors(folder_, "gradients", ranks, run_.recipe());
  if (!recorded) return skip("a rank's file is missing");
  const auto factor = trace_.empty() ? 1 : gradient_factor(*recorded, trace_.front());
  if (factor == 0) return skip("they overflowed");
  auto tolerance = tolerance_.tensors;
  // A gradient that nearly cancels keeps the roundings of its terms, which are as large as other gradients.
  for (const auto& [name, gradient] : first.gradients)
    if (tolerance.sixteen_bits) tolerance.absolute = std::max(tolerance.absolute, 2e-3 * largest(gradient));
  compare_tensors(first.gradients, *recorded, tolerance, factor, comparison_);
}

void RunJudge::compare_first_iteration() {
  const auto first = run_.first_iteration();
  compare_activations(first);
  compare_gradients(first);
}

/// The recorded rates of the groups, each pair once.
Rates recorded_rates(const Json& step) {
  Rates rates;
  for (std::size_t k = 0; k < step.at("lr").size(); ++k) rates.emplace(step["lr"][k], step.at("weight_decay")[k]);
  return rates;
}

/// Of `ours`, those that come nearest to one of `theirs` each.
void keep_nearest(Rates& ours, const Rates& theirs) {
  Rates kept;
  for (const auto& [rate, decay] : theirs)
    kept.insert(*std::min_element(ours.begin(), ours.end(), [rate = rate, decay = decay](const auto& a, const auto& b) {
      const auto off = [&](const auto& one) { return std::abs(one.first - rate) + std::abs(one.second - decay); };
      return off(a) < off(b);
    }));
  ours = std::move(kept);
}

/// Rates of every group in every step: functions of the samples before it, so nothing is rounded but the last digits.
/// A stage may have some of the groups alone.
void RunJudge::compare_rates() {
  const auto all = run_.rates(trace_);
  for (const auto& step : trace_) {
    const std::int64_t iteration = step.at("iteration");
    const auto theirs = recorded_rates(step);
    auto ours = all.at(iteration);
    if (run_.ranks().stages > 1) keep_nearest(ours, theirs);
    if (ours.size() != theirs.size()) {
      comparison_.wrong(
          text("iteration ", iteration, ": ", ours.size(), " kinds of parameters; ", theirs.size(), " are recorded"));
      continue;
    }
    for (auto a = ours.begin(), b = theirs.begin(); a != ours.end(); ++a, ++b) {
      comparison_.compare(text("learning rate of iteration ", iteration), a->first, b->first,
                          1e-12 * std::max(b->first, 1e-6));
      comparison_.compare(text("weight decay of iteration ", iteration), a->second, b->second,
                          1e-12 * std::max(b->second, 1e-6));
    }
  }
}

void RunJudge::compare_near(const std::string& name, const Json& ours, const Json& recorded, double relative,
                            double absolute) {
  if (ours.is_null() != recorded.is_null())
    return comparison_.wrong(text(name, " is ", ours.dump(), " instead of ", recorded.dump()));
  if (recorded.is_null()) return;
  const double expected = recorded;
  comparison_.compare(name, ours.get<double>(), expected, std::max(relative * std::abs(expected), absolute));
}

void RunJudge::compare_zeros(const std::string& at, const Json& ours, const Json& recorded) {
  if (!counts_zeros(run_.flags()))
    return comparison_.not_compared("zeros of gradients (Megatron-LM did not count them)");
  if (ours.is_null() != recorded.is_null() ||
      (!ours.is_null() && std::abs(ours.get<double>() - recorded.get<double>()) > chance_zeros(run_.flags())))
    comparison_.wrong(text("num_zeros", at, " is ", ours.dump(), " instead of ", recorded.dump()));
}

void RunJudge::compare_step(const Json& recorded, const Json& ours, double scale_before) {
  const auto at = text(" of iteration ", recorded.at("iteration").dump());
  const bool skipped = recorded.at("skipped").get<int>() != 0;
  if (ours.at("skipped") != skipped) comparison_.wrong(text("skipped", at, " is ", ours.at("skipped").dump()));
  compare_near("loss" + at, ours.at("loss"), recorded.at("losses").at("lm loss"), tolerance_.loss);
  compare_near("grad_norm" + at, ours.at("grad_norm"), recorded.at("grad_norm"), tolerance_.norm);
  compare_zeros(at, ours.value("num_zeros", Json()), recorded.at("num_zeros"));
  compare_near("loss scale before" + at, scale_before, recorded.at("loss_scale_before"), 0);
  compare_near("loss scale after" + at, ours.at("loss_scale"), recorded.at("loss_scale_after"), 0);
  const auto rates = recorded.at("lr").get<std::vector<double>>();
  if (std::none_of(rates.begin(), rates.end(), [&](double rate) {
        return std::abs(rate - ours.at("learning_rate").get<double>()) <= 1e-12 * rate;
      }))
    comparison_.wrong(text("learning_rate", at, " is ", ours.at("learning_rate").dump(), ", which no group has"));
}

/// The losses of routers and of multi-token prediction in the line of a step, where one rank has all of them: each rank
/// of the recorded run prints those of its own samples.
void RunJudge::compare_auxiliary(const std::string& line, const std::string& at, const Json& ours) {
  if (run_.ranks().replicas > 1) return;
  static const std::regex loss("\\| (load_balancing_loss|z_loss|mtp_\\d+ loss): (\\S+)");
  for (std::sregex_iterator found(line.begin(), line.end(), loss); found != std::sregex_iterator(); ++found) {
    std::string key = (*found)[1];
    std::replace(key.begin(), key.end(), ' ', '_');
    compare_near(key + at, ours.value(key, Json()), std::stod((*found)[2]), tolerance_.loss);
    ++auxiliary_;
  }
}

/// The lines that the run printed: samples, norms of the weights, losses beside that of the step, validation losses; as
/// many digits as there are.
void RunJudge::compare_log(const std::map<std::int64_t, Json>& ours) {
  const std::regex step(" iteration +(\\d+)/[^\n]*consumed samples: +(\\d+)"), norm("params norm: ([0-9.]+)"),
      valid("validation loss at iteration (\\d+)( on (validation|test) set)? \\| lm loss value: (\\S+)");
  std::istringstream lines(log_);
  for (std::string line; std::getline(lines, line);) {
    std::smatch found, more;
    const auto of = [&](const char* key) {
      const auto known = ours.find(std::stoll(found[1]));
      return known == ours.end() ? Json() : known->second.value(key, Json());
    };
    if (std::regex_search(line, found, step)) {
      const auto at = text(" of iteration ", found[1].str());
      compare_near("consumed samples" + at, of("consumed_samples"), std::stod(found[2]), 0);
      if (std::regex_search(line, more, norm)) {
        if (run_.recipe().training.log_params_norm)
          compare_near("params norm" + at, of("params_norm"), std::stod(more[1]), tolerance_.loss, 5e-4);
        else
          comparison_.not_compared("norm of the weights (the recipe does not log it)");
      }
      if (const auto known = ours.find(std::stoll(found[1])); known != ours.end())
        compare_auxiliary(line, at, known->second);
    } else if (std::regex_search(line, found, valid)) {
      const auto set = found[3].str();
      const auto* key = set.empty() ? "validation_loss" : set == "test" ? "test_loss" : "final_validation_loss";
      compare_near(text(key, " of iteration ", found[1].str()), of(key), std::stod(found[4]), tolerance_.loss);
    }
  }
}

void RunJudge::compare_training() {
  const auto ours = run_.train();
  double scale = 0;
  for (const auto& recorded : trace_) {
    const auto found = ours.find(recorded.at("iteration"));
    if (found == ours.end() || !found->second.contains("loss")) {
      comparison_.wrong(text("iteration ", recorded.at("iteration").dump(), " was not trained"));
      continue;
    }
    if (scale == 0) scale = recorded.at("loss_scale_before");
    compare_step(recorded, found->second, scale);
    scale = found->second.at("loss_scale");
  }
  if (!trace_.empty() && !ours.empty() && ours.rbegin()->first != trace_.back().at("iteration"))
    comparison_.wrong(text("training ended after iteration ", ours.rbegin()->first));
  compare_log(ours);
  // Weights move by sums of steps: as near as the gradients of all of them.
  compare_weights(folder_, run_, trace_, {tolerance_.norm, tolerance_.tensors.relative, tolerance_.tensors.absolute},
                  comparison_);
}

std::string judge_run(const fs::path& folder, const fs::path& scratch, const Programs& programs, std::string& summary) {
  RunJudge judge(folder, scratch, programs);
  auto wrong = judge.judge();
  summary = judge.summary();
  return wrong;
}

}  // namespace
}  // namespace golden

bool is_training_run(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  return fs::exists(folder / "arguments.json") && !fs::exists(folder / "case.json") &&
         (fs::exists(folder / "trace.json") || fs::exists(folder / "log.rank0.txt"));
}

std::vector<CaseResult> run_training_case(const std::filesystem::path& folder, const golden::Programs& programs) {
  golden::DataFolder data(folder);
  std::string summary;
  data.run("", [&] { return golden::judge_run(folder, data.scratch(), programs, summary); });
  auto& result = data.results.front();
  if (result.verdict == CaseResult::Verdict::passed) result.summary = summary;
  std::replace(result.summary.begin(), result.summary.end(), '\n', ' ');
  return std::move(data.results);
}

bool is_training_folder(const std::filesystem::path& folder) { return std::filesystem::exists(folder / "runs.json"); }

std::vector<CaseResult> run_training_cases(const std::filesystem::path& folder, const golden::Programs& programs) {
  std::vector<CaseResult> all;
  for (const auto& one : list_folder(folder)) {
    if (!is_training_run(one)) continue;
    for (auto& result : run_training_case(one, programs)) {
      result.name = one.filename().string();
      all.push_back(std::move(result));
    }
  }
  return all;
}

}  // namespace tessera
