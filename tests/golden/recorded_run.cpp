#include "tests/golden/recorded_run.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <numeric>
#include <regex>

#include "framework/base/files.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/interop/formats/formats.h"
#include "framework/recipe/build.h"
#include "framework/training/loop/trainer.h"
#include "framework/training/saving/resume.h"
#include "framework/training/saving/run_checkpoints.h"
#include "framework/training/step/step.h"
#include "tests/golden/data_cases.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;

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

/// "padded vocab (size: 600)" in the log of a run.
std::optional<std::int64_t> tokens_in_log(const fs::path& folder) {
  if (!fs::exists(folder / "log.rank0.txt")) return std::nullopt;
  const auto log = read_file(folder / "log.rank0.txt");
  std::smatch found;
  if (!std::regex_search(log, found, std::regex("padded vocab \\(size: (\\d+)\\)"))) return std::nullopt;
  return std::stoll(found[1]);
}

/// Whether these are exactly the wanted tensors. The bias of a router is not recorded: it begins with zeros.
bool fits(const RecordedTensors& tensors, std::vector<checkpoint::TensorRange> wanted) {
  std::erase_if(wanted, [](const auto& range) { return range.role == ParameterRole::expert_bias; });
  return tensors.size() == wanted.size() && std::all_of(wanted.begin(), wanted.end(), [&](const auto& range) {
           const auto found = tensors.find(range.name);
           return found != tensors.end() && found->second.shape == range.global_shape;
         });
}

/// Whether two runs without weights of their own in common draw the same. Every stage has a seed of its own. Tensor
/// parallel ranks draw whole weights where the CPU does it, but a gated product's rows stand in another order then.
bool draws_alike(const RunFlags& a, const RunFlags& b, bool gated) {
  return a.agrees(b, {"--seed", "--init-method-std", "--bf16", "--fp16", "--num-layers", "--use-cpu-initialization",
                      "--expert-model-parallel-size", "--pipeline-model-parallel-size",
                      "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank",
                      "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers"}) &&
         ((a.has("--use-cpu-initialization") && !gated) || a.agrees(b, {"--tensor-model-parallel-size"}));
}

/// The recipe of the same run on one process: the same model, with the same rows of the vocabulary, and the same steps.
recipe::Recipe on_one_process(const recipe::Recipe& recipe, std::int64_t replicas) {
  auto alone = recipe;
  alone.size.vocab_size = recipe::vocabulary(recipe, recipe.tokenizer.make().get());
  alone.batch.global_batch_size = recipe.batch_sizes(replicas).global;
  alone.parallel = {};
  alone.parallel.noop_layers = recipe.parallel.noop_layers;
  return alone;
}

/// The last lines of a file, as one.
std::string end_of(const fs::path& file) {
  auto words = read_file(file);
  constexpr std::size_t most = 1500;
  if (words.size() > most) words.erase(0, words.size() - most);
  std::replace(words.begin(), words.end(), '\n', ' ');
  return words;
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

template <class Array>
std::vector<double> as_doubles(const Array& x) {
  return {x.begin(), x.end()};
}

/// Megatron-LM's outputs of attention and MLP lack the bias, which joins with the residual.
void take_bias_away(training::ModelState& state, const std::string& module, std::vector<double>& x) {
  const auto bias = module + (module.ends_with(".mlp") ? ".linear_fc2.bias" : ".linear_proj.bias");
  for (const auto& range : state.weight_ranges()) {
    if (range.name != bias) continue;
    const auto b = doubles_of(range.tensor);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] -= b[i % b.size()];
  }
}

/// x [rows, hidden] times the transposed output layer.
std::vector<double> head_of(training::ModelState& state, const std::vector<double>& x) {
  std::vector<double> out;
  for (const auto& range : state.weight_ranges()) {
    if (range.name != "output_layer.weight") continue;
    const auto w = doubles_of(range.tensor);
    const auto hidden = static_cast<std::size_t>(range.global_shape[1]);
    for (std::size_t row = 0; row < x.size(); row += hidden)
      for (std::size_t token = 0; token < w.size(); token += hidden)
        out.push_back(std::inner_product(w.begin() + static_cast<std::ptrdiff_t>(token),
                                         w.begin() + static_cast<std::ptrdiff_t>(token + hidden),
                                         x.begin() + static_cast<std::ptrdiff_t>(row), 0.0));
  }
  return out;
}

Values activations(const training::TrainingSetup& setup, training::ModelState& state, autograd::Tape& tape,
                   const Batch& batch) {
  Values out;
  const nn::Tap tap = [&](std::string_view at, const Tensor& value) {
    std::string name(at);
    if (name.ends_with(".router")) return;  // recorded are the weights of the choices
    if (const std::string weights = ".weights"; name.ends_with(weights)) name.resize(name.size() - weights.size());
    auto x = sequence_first(doubles_of(value), batch.samples, batch.seq_length);
    if (name.ends_with(".self_attention") || name.ends_with(".mlp")) take_bias_away(state, name, x);
    out[name] = std::move(x);
  };
  model::ForwardMode mode;
  mode.tap = &tap;
  mode.training =
      true;  // the recorded runs have no dropout; Sinkhorn and multi-token prediction work in training alone
  (void)setup.model.first().loss(tape, batch.view(), mode);
  tape.clear();
  mode.tap = nullptr;
  const auto logits = doubles_of(setup.model.first().logits(tape, batch.view(), mode).value());
  out["logits"] = sequence_first(logits, batch.samples, batch.seq_length);
  tape.clear();
  // With multi-token prediction Megatron-LM's output layer is first called for the first prediction.
  if (const auto first = out.find("mtp.layers.0"); first != out.end()) out["logits"] = head_of(state, first->second);
  return out;
}

/// What the parameters of this run have in the step that follows.
Rates rates_of(const training::TrainingSetup& setup) {
  const auto& schedule = *setup.optimization.schedule;
  const auto& own = setup.optimization.groups;
  Rates rates;
  for (const auto* parameter : setup.model.first().parameters()) {
    if (parameter->role == ParameterRole::expert_bias) continue;  // no parameter there
    const auto group = optim::group_of(own, parameter->role, parameter->name);
    const auto lowest = own.decoupled_min_lr.value_or(schedule.rate_shape().lowest);
    const auto rate = group.decoupled ? schedule.learning_rate(*own.decoupled_lr, lowest) : schedule.learning_rate();
    rates.emplace(rate * group.lr_mult, schedule.weight_decay() * group.wd_mult);
  }
  return rates;
}

}  // namespace

std::vector<double> doubles_of(const Tensor& tensor) {
  std::vector<double> out(static_cast<std::size_t>(tensor.elements()));
  checkpoint::copy_converted(tensor, Tensor(std::span(out), tensor.shape()));
  return out;
}

RecordedRun::RecordedRun(const fs::path& folder, const fs::path& scratch, const Programs& programs)
    : folder_(fs::absolute(folder)),
      scratch_(scratch),
      programs_(programs),
      flags_(RunFlags::of(folder)),
      ranks_(flags_, world_of(folder)) {
  places_.data = folder_.parent_path().parent_path() / "data";
  places_.output = scratch_ / folder_.filename();
  places_.tokens = tokens_in_log(folder_);
  if (ranks_.world > 1) places_.threads = 1;
  recipe_ = std::make_unique<recipe::Recipe>(recipe_of_run(flags_, places_));
  options::Report report;
  recipe::check_ranks(*recipe_, ranks_.world, report);
  if (!report.good()) throw NotSupported{report.problems().front()};
  make_folder(places_.output.string());
  if (const auto saved = flags_.value("--load"); !saved.empty())
    begin_after(saved);
  else
    begin_with_weights();
}

training::TrainingSetup RecordedRun::setup() const try {
  return recipe::build(ranks_.world == 1 ? *recipe_ : on_one_process(*recipe_, ranks_.replicas));
} catch (const ConfigError& error) {
  throw NotSupported{error.what()};
}

schedule::BatchPlan RecordedRun::batch_plan() const { return {recipe_->ramp, recipe_->batch_sizes(ranks_.replicas)}; }

fs::path RecordedRun::run_that_saves(const std::string& path) const {
  for (const auto& beside : list_folder(folder_.parent_path()))
    if (fs::exists(beside / "arguments.json") && beside != folder_ && RunFlags::of(beside).value("--save") == path)
      return beside;
  throw NotSupported{text("--load ", path, ": no run beside this one saves there")};
}

/// What --load names: the checkpoint that the recorded run left; if it was not kept, that of our own run of it, to its
/// end.
void RecordedRun::begin_after(const std::string& saved) {
  const auto before = run_that_saves(saved);
  checkpoint::CheckpointFormats formats;
  formats::add_all_formats(formats);
  if (const auto kept = before / "checkpoint"; formats.of(kept) != nullptr) {
    knows_weights_ = true;
    weights_from_ = text("the checkpoint of ", before.filename().string());
    places_.load = kept;
    recipe_ = std::make_unique<recipe::Recipe>(recipe_of_run(flags_, places_));
    return;
  }
  RecordedRun first(before, scratch_ / "before", programs_);
  knows_weights_ = first.knows_weights();
  weights_from_ = text("our own run of ", before.filename().string());
  first.train();
  places_.load = first.places_.output;
  recipe_ = std::make_unique<recipe::Recipe>(recipe_of_run(flags_, places_));
}

/// The recorded initial weights of a run beside this one, or of this.
std::optional<RecordedTensors> RecordedRun::initial_of(const fs::path& beside) const {
  if (!fs::exists(beside / "initial.rank0.safetensors")) return std::nullopt;
  if (beside == folder_) return whole_tensors(folder_, "initial", ranks_, *recipe_);
  auto places = places_;
  places.output = scratch_ / "beside" / beside.filename();
  places.tokens = tokens_in_log(beside);
  try {
    const auto flags = RunFlags::of(beside);
    return whole_tensors(beside, "initial", RunRanks(flags, world_of(beside)), recipe_of_run(flags, places));
  } catch (const NotSupported&) {
    return std::nullopt;
  }
}

/// The recorded initial weights become a checkpoint of ours, and the run begins with it.
void RecordedRun::begin_with_weights() {
  const auto made = setup();
  training::ModelState state(made.model.first(), nullptr);
  auto ranges = state.weight_ranges();
  std::vector<fs::path> candidates = {folder_};
  for (const auto& beside : list_folder(folder_.parent_path()))
    if (fs::exists(beside / "arguments.json") && draws_alike(flags_, RunFlags::of(beside), has_gate(*recipe_)))
      candidates.push_back(beside);
  for (const auto& from : candidates) {
    const auto initial = initial_of(from);
    if (!initial) continue;
    if (!fits(*initial, ranges)) {
      if (from == folder_) throw ConfigError(text(from.string(), ": initial.*: holds other tensors than the model"));
      continue;
    }
    for (const auto& range : ranges) {
      if (range.role == ParameterRole::expert_bias) {
        std::fill(range.tensor.floats().begin(), range.tensor.floats().end(), 0.0F);
        continue;
      }
      auto elements = initial->at(range.name).elements;
      checkpoint::copy_converted(Tensor(std::span(elements), range.global_shape), range.tensor);
    }
    checkpoint::save_checkpoint(scratch_ / "initial", recipe_->training.prefix, 0, ranges, {});
    places_.load = scratch_ / "initial";
    places_.weights_alone = true;
    recipe_ = std::make_unique<recipe::Recipe>(recipe_of_run(flags_, places_));
    knows_weights_ = true;
    weights_from_ = from.filename().string();
    return;
  }
}

Values RecordedRun::initial_weights() {
  auto made = setup();
  kernels::Threads threads(2);
  training::ModelState state(made.model.first(), nullptr);
  state.initialise(threads, static_cast<std::uint64_t>(made.options.seed));
  Values out;
  for (const auto& range : state.weight_ranges()) out[range.name] = doubles_of(range.tensor);
  return out;
}

std::vector<Batch> RecordedRun::batches(const training::TrainingSetup& made, std::int64_t consumed,
                                        std::int64_t replica) const {
  const auto& data = *made.data.splits->train;
  const auto replicas = static_cast<int>(ranks_.replicas);
  const auto order = recipe_->sampler.make({data.samples(), recipe_->batch.batch_size, replicas});
  std::vector<Batch> all;
  for (std::int64_t i = 0; i < batch_plan().at(consumed).micro_batches; ++i) {
    auto& batch = all.emplace_back(recipe_->batch.batch_size, data.seq_length());
    data::read_batch(data, *order, consumed + i * batch.samples * replicas, static_cast<int>(replica), replicas, batch);
  }
  return all;
}

Values RecordedRun::first_batches(std::int64_t replica) {
  auto made = setup();
  kernels::Threads threads(2);
  training::ModelState state(made.model.first(), made.optimization.optimizer.get());
  const auto from = training::restore(made, state, threads).progress;
  Values out;
  std::int64_t i = 0;
  for (const auto& batch : batches(made, from.consumed_samples, replica)) {
    const auto which = text(".", i++);
    out["tokens" + which] = as_doubles(batch.tokens);
    out["labels" + which] = as_doubles(batch.labels);
    out["loss_mask" + which] = as_doubles(batch.loss_mask);
    out["position_ids" + which] = as_doubles(batch.positions);
  }
  return out;
}

RecordedRun::FirstIteration RecordedRun::first_iteration() {
  auto made = setup();
  kernels::Threads threads(2);
  training::ModelState state(made.model.first(), made.optimization.optimizer.get());
  const auto from = training::restore(made, state, threads).progress;
  Arena arena;
  autograd::Tape looking(arena, threads, false);
  FirstIteration out;
  std::int64_t i = 0;
  for (const auto& batch : batches(made, from.consumed_samples, 0)) {
    if (i == 0) out.activations = activations(made, state, looking, batch);
    out.activations[text("per_token_loss.", i++)] =
        doubles_of(made.model.first().loss(looking, batch.view(), {.training = true}).token_loss.value());
    looking.clear();
  }
  training::TrainingStep step(made.model, made.optimization, made.data, state, threads, from.seed);
  const auto outcome = step.backward(from.consumed_samples);
  for (const auto& run : state.layout().parameters().ranges()) {
    auto& gradient = out.gradients[run.parameter->name];
    gradient = doubles_of(nn::FlatParameters::view(run, state.gradients()));
    for (auto& g : gradient) g *= outcome.gradient_factor;
  }
  return out;
}

std::map<std::int64_t, Rates> RecordedRun::rates(const Json& trace) const {
  std::map<std::int64_t, Rates> all;
  std::map<std::int64_t, bool> skipped;
  for (const auto& step : trace) skipped[step.at("iteration")] = step.at("skipped").get<int>() != 0;
  auto made = setup();
  kernels::Threads threads(1);
  training::ModelState state(made.model.first(), made.optimization.optimizer.get());
  auto progress = training::restore(made, state, threads).progress;
  while (!skipped.empty() && progress.iteration < skipped.rbegin()->first) {
    const auto samples = batch_plan().at(progress.consumed_samples).samples;
    progress.consumed_samples += samples;
    const auto at = skipped.find(++progress.iteration);
    if (at == skipped.end()) continue;  // passed over
    all[at->first] = rates_of(made);
    if (!at->second) made.optimization.schedule->advance(samples);
  }
  return all;
}

void RecordedRun::train_here() {
  const QuietOutput quiet(scratch_ / "log.txt");
  const training::StopSignal stop;
  tessera::training::train(recipe::build(*recipe_), stop);
}

void RecordedRun::train_on_ranks() {
  const auto recipe = scratch_ / (folder_.filename().string() + ".yaml"), log = scratch_ / "tsrun.txt";
  write_file_atomic(recipe, recipe::resolved_yaml(*recipe_));
  const std::vector<std::string> words = {
      programs_.tsrun.string(), "--nproc_per_node", std::to_string(ranks_.world), programs_.tessera.string(), "train",
      recipe.string()};
  const auto code = run_program(words, log);
  if (code != 0) throw ConfigError(text(words.front(), " ended with exit code ", code, ": ", end_of(log)));
}

std::map<std::int64_t, Json> RecordedRun::train() {
  if (ranks_.world == 1)
    train_here();
  else
    train_on_ranks();
  std::map<std::int64_t, Json> lines;
  std::ifstream file(places_.output / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto one = Json::parse(line);
    lines[one.at("iteration").get<std::int64_t>()].update(one);
  }
  return lines;
}

Values RecordedRun::saved_weights(std::int64_t iteration) const {
  const auto read_all = [](const checkpoint::WeightSource& source) {
    Values out;
    for (const auto& name : source.names()) {
      std::vector<double> x(static_cast<std::size_t>(source.shape(name).elements()));
      source.read(name, Tensor(std::span(x), source.shape(name)));
      out[name] = std::move(x);
    }
    return out;
  };
  const options::Mappings mappings;
  const auto& run = recipe_->training;
  checkpoint::CheckpointFormats formats;
  formats::add_all_formats(formats);
  if (const auto theirs = places_.output / checkpoint::checkpoint_name("", iteration); fs::exists(theirs))
    if (const auto* format = formats.of(theirs)) return read_all(*format->open(theirs, mappings));
  const auto folder = training::checkpoint_folder(run) / checkpoint::checkpoint_name(run.prefix, iteration);
  if (!fs::exists(folder)) return {};
  const auto checkpoint = checkpoint::Checkpoint::open(folder);
  return read_all(checkpoint::CheckpointWeights(checkpoint));
}

}  // namespace tessera::golden
