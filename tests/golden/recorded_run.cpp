#include "tests/golden/recorded_run.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <regex>

#include "framework/base/files.h"
#include "framework/checkpoint/convert.h"
#include "framework/checkpoint/megatron.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/recipe/build.h"
#include "framework/training/resume.h"
#include "framework/training/step.h"
#include "framework/training/trainer.h"
#include "tests/golden/data_cases.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;

constexpr const char* initial_file = "initial.rank0.safetensors";

/// Standard output goes to a file while this lives: what a run tells is no line of the judge.
class QuietOutput {
 public:
  explicit QuietOutput(const fs::path& file) : before_(dup(STDOUT_FILENO)) {
    std::cout.flush();
    const int to = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    must(before_ >= 0 && to >= 0 && dup2(to, STDOUT_FILENO) >= 0, "standard output can be sent to a file");
    close(to);
  }
  ~QuietOutput() {
    dup2(before_, STDOUT_FILENO);
    close(before_);
  }
  QuietOutput(const QuietOutput&) = delete;
  QuietOutput& operator=(const QuietOutput&) = delete;

 private:
  int before_;
};

std::int64_t ranks_of(const fs::path& folder) {
  return Json::parse(read_file(folder / "arguments.json")).at("world_size");
}

/// "padded vocab (size: 600)" in the log of a run.
std::optional<std::int64_t> tokens_in_log(const fs::path& folder) {
  if (!fs::exists(folder / "log.rank0.txt")) return std::nullopt;
  const auto log = read_file(folder / "log.rank0.txt");
  std::smatch found;
  if (!std::regex_search(log, found, std::regex("padded vocab \\(size: (\\d+)\\)"))) return std::nullopt;
  return std::stoll(found[1]);
}

/// Our names of the tensors in a file of Megatron-LM's.
std::map<std::string, std::string> names_in(const SafetensorsReader& file) {
  const auto table = Mappings().table("weights/megatron.yaml");
  std::map<std::string, std::string> theirs;
  for (const auto& name : file.names())
    if (const auto ours = our_name_of_megatron(name, table); !ours.empty()) theirs[ours] = name;
  return theirs;
}

/// Whether the file holds exactly these tensors.
bool fits(const SafetensorsReader& file, const std::map<std::string, std::string>& names,
          const std::vector<TensorRange>& wanted) {
  return names.size() == wanted.size() && std::all_of(wanted.begin(), wanted.end(), [&](const auto& range) {
           const auto theirs = names.find(range.name);
           return theirs != names.end() && file.shape(theirs->second) == range.global_shape;
         });
}

/// Whether two runs without weights of their own in common draw the same.
bool draws_alike(const RunFlags& a, const RunFlags& b) {
  return a.agrees(b, {"--seed", "--init-method-std", "--bf16", "--fp16", "--num-layers", "--use-cpu-initialization"});
}

/// [b, s, ...] -> [s, b, ...]
std::vector<double> sequence_first(const std::vector<double>& x, std::int64_t samples, std::int64_t length) {
  std::vector<double> out(x.size());
  const auto width = x.size() / static_cast<std::size_t>(samples * length);
  for (std::int64_t b = 0; b < samples; ++b)
    for (std::int64_t t = 0; t < length; ++t)
      std::copy_n(x.begin() + (b * length + t) * static_cast<std::int64_t>(width), width,
                  out.begin() + (t * samples + b) * static_cast<std::int64_t>(width));
  return out;
}

template <class T>
std::vector<double> as_doubles(const std::vector<T>& x) {
  return {x.begin(), x.end()};
}

TokenBatch view(const Batch& b) {
  return {b.samples, b.seq_length, b.tokens, b.labels, b.positions, b.document_start, b.loss_mask, b.sample_ids};
}

/// Megatron-LM's outputs of attention and MLP lack the bias, which joins with the residual.
void take_bias_away(const ModelState& state, const std::string& module, std::vector<double>& x) {
  const auto bias = module + (module.ends_with(".mlp") ? ".linear_fc2.bias" : ".linear_proj.bias");
  for (const auto& range : state.weight_ranges()) {
    if (range.name != bias) continue;
    const auto b = doubles_of(range.tensor);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] -= b[i % b.size()];
  }
}

Values activations(const Parts& parts, const ModelState& state, Tape& tape, const Batch& batch) {
  Values out;
  const Tap tap = [&](std::string_view at, const Tensor& value) {
    const std::string name(at);
    auto x = sequence_first(doubles_of(value), batch.samples, batch.seq_length);
    if (name.ends_with(".self_attention") || name.ends_with(".mlp")) take_bias_away(state, name, x);
    out[name] = std::move(x);
  };
  ForwardMode mode;
  mode.tap = &tap;
  const auto logits = doubles_of(parts.model().logits(tape, view(batch), mode).value());
  out["logits"] = sequence_first(logits, batch.samples, batch.seq_length);
  tape.clear();
  return out;
}

/// What the parameters of this run have in the step that follows.
Rates rates_of(const Parts& parts) {
  const auto& schedule = *parts.schedule;
  const auto& own = parts.groups;
  Rates rates;
  for (const auto* parameter : parts.model().parameters()) {
    const auto group = group_of(own, parameter->name, parameter->global_shape.rank());
    const auto lowest = own.decoupled_min_lr.value_or(schedule.rate_shape().lowest);
    const auto rate = group.decoupled ? schedule.learning_rate(*own.decoupled_lr, lowest) : schedule.learning_rate();
    rates.emplace(rate * group.lr_mult, schedule.weight_decay() * group.wd_mult);
  }
  return rates;
}

}  // namespace

std::vector<double> doubles_of(const Tensor& tensor) {
  std::vector<double> out(static_cast<std::size_t>(tensor.elements()));
  copy_converted(tensor, Tensor(std::span(out), tensor.shape()));
  return out;
}

RecordedRun::RecordedRun(const fs::path& folder, const fs::path& scratch, const std::vector<std::string>& left_out)
    : folder_(fs::absolute(folder)), scratch_(scratch), flags_(RunFlags::of(folder).without(left_out)) {
  const auto ranks = ranks_of(folder_);
  if (ranks != 1) throw NotSupported{text("world size ", ranks)};
  places_.data = folder_.parent_path().parent_path() / "data";
  places_.output = scratch_ / folder_.filename();
  places_.tokens = tokens_in_log(folder_);
  recipe_ = std::make_unique<Recipe>(recipe_of_run(flags_, places_));
  make_folder(places_.output.string());
  if (const auto saved = flags_.value("--load"); !saved.empty())
    begin_after(saved);
  else
    begin_with_weights();
}

Parts RecordedRun::parts() const try { return build(*recipe_); } catch (const ConfigError& error) {
  throw NotSupported{error.what()};
}

fs::path RecordedRun::run_that_saves(const std::string& path) const {
  for (const auto& beside : list_folder(folder_.parent_path()))
    if (fs::exists(beside / "arguments.json") && beside != folder_ && RunFlags::of(beside).value("--save") == path)
      return beside;
  throw NotSupported{text("--load ", path, ": no run beside this one saves there")};
}

/// Our own run of what --load names, to its end.
void RecordedRun::begin_after(const std::string& saved) {
  const auto before = run_that_saves(saved);
  RecordedRun first(before, scratch_ / "before");
  knows_weights_ = first.knows_weights();
  weights_from_ = text("our own run of ", before.filename().string());
  first.train();
  places_.load = first.places_.output;
  recipe_ = std::make_unique<Recipe>(recipe_of_run(flags_, places_));
}

/// The recorded initial weights become a checkpoint of ours, and the run begins with it.
void RecordedRun::begin_with_weights() {
  const auto made = parts();
  const ModelState state(made.model(), nullptr);
  auto ranges = state.weight_ranges();
  std::vector<fs::path> candidates = {folder_};
  for (const auto& beside : list_folder(folder_.parent_path()))
    if (fs::exists(beside / "arguments.json") && ranks_of(beside) == 1 && draws_alike(flags_, RunFlags::of(beside)))
      candidates.push_back(beside);
  for (const auto& from : candidates) {
    if (!fs::exists(from / initial_file)) continue;
    const SafetensorsReader file(from / initial_file);
    const auto names = names_in(file);
    if (!fits(file, names, ranges)) {
      if (from == folder_)
        throw ConfigError(text((from / initial_file).string(), ": holds other tensors than the model"));
      continue;
    }
    for (const auto& range : ranges) copy_converted(file.tensor(names.at(range.name)), range.tensor);
    save_checkpoint(scratch_ / "initial", recipe_->training.prefix, 0, ranges, {});
    places_.load = scratch_ / "initial";
    places_.weights_alone = true;
    recipe_ = std::make_unique<Recipe>(recipe_of_run(flags_, places_));
    knows_weights_ = true;
    weights_from_ = from.filename().string();
    return;
  }
}

Values RecordedRun::initial_weights() {
  auto made = parts();
  Threads threads(2);
  const ModelState state(made.model(), nullptr);
  state.initialise(threads, static_cast<std::uint64_t>(made.options.seed));
  Values out;
  for (const auto& range : state.weight_ranges()) out[range.name] = doubles_of(range.tensor);
  return out;
}

RecordedRun::FirstIteration RecordedRun::first_iteration() {
  auto made = parts();
  Threads threads(2);
  ModelState state(made.model(), made.optimizer.get());
  const auto from = restore(made, state, threads).progress;
  Arena arena;
  Tape looking(arena, threads, false);
  Batch batch(made.batch.batch_size, made.data->train->seq_length());
  FirstIteration out;
  const auto micro_batches = made.batch_plan.at(from.consumed_samples).micro_batches;
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    read_batch(*made.data->train, *made.train_order, from.consumed_samples + i * batch.samples, 0, 1, batch);
    const auto which = text(".", i);
    out.batch["tokens" + which] = as_doubles(batch.tokens);
    out.batch["labels" + which] = as_doubles(batch.labels);
    out.batch["loss_mask" + which] = as_doubles(batch.loss_mask);
    out.batch["position_ids" + which] = as_doubles(batch.positions);
    if (i == 0) out.activations = activations(made, state, looking, batch);
    out.activations["per_token_loss" + which] =
        doubles_of(made.model().loss(looking, view(batch), {}).token_loss.value());
    looking.clear();
  }
  TrainingStep step(made, state, threads, from.seed);
  const auto outcome = step.backward(from.consumed_samples);
  for (const auto& run : state.layout().runs()) {
    auto& gradient = out.gradients[run.parameter->name];
    gradient = doubles_of(FlatParameters::view(run, state.gradients()));
    for (auto& g : gradient) g *= outcome.gradient_factor;
  }
  return out;
}

std::map<std::int64_t, Rates> RecordedRun::rates(const Json& trace) const {
  std::map<std::int64_t, Rates> all;
  std::map<std::int64_t, bool> skipped;
  for (const auto& step : trace) skipped[step.at("iteration")] = step.at("skipped").get<int>() != 0;
  auto made = parts();
  Threads threads(1);
  ModelState state(made.model(), made.optimizer.get());
  auto progress = restore(made, state, threads).progress;
  while (!skipped.empty() && progress.iteration < skipped.rbegin()->first) {
    const auto samples = made.batch_plan.at(progress.consumed_samples).samples;
    progress.consumed_samples += samples;
    const auto at = skipped.find(++progress.iteration);
    if (at == skipped.end()) continue;  // passed over
    all[at->first] = rates_of(made);
    if (!at->second) made.schedule->advance(samples);
  }
  return all;
}

std::map<std::int64_t, Json> RecordedRun::train() {
  auto made = parts();
  {
    const QuietOutput quiet(scratch_ / "log.txt");
    const StopSignal stop;
    tessera::train(std::move(made), stop);
  }
  std::map<std::int64_t, Json> lines;
  std::ifstream file(places_.output / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto one = Json::parse(line);
    lines[one.at("iteration").get<std::int64_t>()].update(one);
  }
  return lines;
}

Values RecordedRun::saved_weights(std::int64_t iteration) const {
  const auto read_all = [](const WeightSource& source) {
    Values out;
    for (const auto& name : source.names()) {
      std::vector<double> x(static_cast<std::size_t>(source.shape(name).elements()));
      source.read(name, Tensor(std::span(x), source.shape(name)));
      out[name] = std::move(x);
    }
    return out;
  };
  const Mappings mappings;
  const auto& run = recipe_->training;
  if (const auto theirs = places_.output / checkpoint_name("", iteration); is_megatron_folder(theirs))
    return read_all(MegatronCheckpoint(theirs, mappings));
  const auto folder = checkpoint_folder(run) / checkpoint_name(run.prefix, iteration);
  if (!fs::exists(folder)) return {};
  const auto checkpoint = Checkpoint::open(folder);
  return read_all(CheckpointWeights(checkpoint));
}

}  // namespace tessera::golden
