#include "tests/golden/run_weights.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "framework/base/files.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/interop/formats/formats.h"
#include "framework/interop/torch/dcp_folder.h"
#include "tests/golden/data_cases.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;

const std::string squares_of = "optimizer.exp_avg_sq.";

/// The weights in the folder of an iteration, and what there is of squares of gradients. Nothing: it holds none.
RecordedTensors read(const fs::path& folder) {
  checkpoint::CheckpointFormats formats;
  formats::add_all_formats(formats);
  const auto* format = formats.of(folder);
  if (format == nullptr) return {};
  const auto checkpoint = format->open(folder, options::Mappings());
  RecordedTensors all;
  auto names = checkpoint->names();
  for (const auto& weight : checkpoint->names())
    if (checkpoint->has(squares_of + weight)) names.push_back(squares_of + weight);
  for (const auto& name : names) {
    auto& tensor = all[name];
    tensor.shape = checkpoint->shape(name);
    tensor.elements.resize(static_cast<std::size_t>(tensor.shape.elements()));
    checkpoint->read(name, Tensor(std::span(tensor.elements), tensor.shape));
  }
  return all;
}

/// The tensors of a distributed checkpoint, put together from their chunks, against those that its own program's reader
/// gave, to the bit. Both by its keys; flattened ones stay flat.
void compare_whole(const fs::path& kept, const fs::path& recorded, Comparison& comparison) {
  if (!fs::exists(recorded)) return;
  const checkpoint::SafetensorsReader whole(recorded);
  const torch::DcpFolder folder(kept);
  const auto& index = folder.index();
  std::set<std::string> missing;
  for (const auto& name : whole.names()) missing.insert(name);
  for (const auto& tensor : index.tensors) {
    std::vector<std::byte> ours(static_cast<std::size_t>(tensor.size.elements()) * size_of(tensor.type));
    const Tensor into{std::span(ours), tensor.type, tensor.size};
    for (const auto& chunk : index.chunks_of(tensor)) {
      const auto offsets = index.offsets(tensor, chunk);
      const auto box = Box::of({offsets.begin(), offsets.end()}, Shape(index.extents(tensor, chunk)));
      checkpoint::copy_box(box, folder.elements(tensor, chunk), box, into, Box::whole(tensor.size));
    }
    if (missing.erase(tensor.key) == 0) {
      comparison.wrong(tensor.key + " is in the checkpoint, but not among the recorded whole tensors");
      continue;
    }
    const auto expected = whole.tensor(tensor.key);
    if (expected.shape() != tensor.size || expected.dtype() != tensor.type ||
        !std::equal(ours.begin(), ours.end(), expected.raw().begin(), expected.raw().end()))
      comparison.wrong(tensor.key + " is another whole tensor than the recorded one");
  }
  for (const auto& name : missing) comparison.wrong(name + " is recorded whole, but not in the checkpoint");
}

/// What the steps up to an iteration could do at most.
struct Steps {
  double rates = 0;    ///< sum of the learning rates
  double updates = 0;  ///< steps that changed weights
};

Steps steps_until(const Json& trace, std::int64_t iteration) {
  Steps steps;
  for (const auto& one : trace) {
    if (one.at("iteration") > iteration || one.at("skipped") != 0) continue;
    const auto rates = one.at("lr").get<std::vector<double>>();
    steps.rates += *std::max_element(rates.begin(), rates.end());
    steps.updates += 1;
  }
  return steps;
}

/// The share of Adam's step that is not determined: it divides the gradient by its own size, so an element whose
/// gradients (the root of exp_avg_sq) are as small as their allowed deviation, such as a bias of keys, goes anywhere.
std::vector<double> undetermined(const std::vector<double>& squares, double updates, double beta,
                                 const WeightTolerance& tolerance) {
  std::vector<double> sizes(squares.size());
  for (std::size_t i = 0; i < squares.size(); ++i) sizes[i] = std::sqrt(squares[i] / (1 - std::pow(beta, updates)));
  const auto deviation = std::max(tolerance.gradients * largest(sizes), tolerance.gradients_absolute);
  for (auto& size : sizes) size = size > deviation ? deviation / size : 2;  // there and back again
  return sizes;
}

void compare_checkpoint(const RecordedTensors& recorded, const Values& ours, const Steps& steps, double beta,
                        const WeightTolerance& tolerance, Comparison& comparison) {
  for (const auto& [name, weight] : recorded) {
    if (name.rfind("optimizer.", 0) == 0) continue;
    const auto found = ours.find(name);
    if (found == ours.end()) {
      comparison.wrong(name + " is in the recorded checkpoint, but not in ours");
      continue;
    }
    const auto& expected = weight.elements;
    // In parts of the tolerance of each element.
    std::vector<double> x(expected.size()), y = x;
    std::vector<double> loose(expected.size(), 0.0);
    if (const auto slot = recorded.find(squares_of + name); slot != recorded.end())
      loose = undetermined(slot->second.elements, steps.updates, beta, tolerance);
    for (std::size_t i = 0; i < x.size() && found->second.size() == x.size(); ++i) {
      const auto allowed = tolerance.weights * largest(expected) + steps.rates * loose[i];
      x[i] = found->second[i] / allowed;
      y[i] = expected[i] / allowed;
    }
    comparison.compare("weight " + name, x, y, 1);
  }
}

}  // namespace

int compare_weights(const fs::path& folder, const RecordedRun& ours, const Json& trace,
                    const WeightTolerance& tolerance, Comparison& comparison) {
  int checkpoints = 0;
  if (!fs::is_directory(folder / "checkpoint")) return 0;
  const auto beta = ours.flags().has("--adam-beta2") ? std::stod(ours.flags().value("--adam-beta2")) : 0.999;
  for (const auto& kept : list_folder(folder / "checkpoint")) {
    const auto name = kept.filename().string();
    if (name.rfind("iter_", 0) != 0) continue;
    compare_whole(kept, folder / ("whole." + name + ".safetensors"), comparison);
    const auto recorded = read(kept);
    if (recorded.empty()) {
      comparison.not_compared("checkpoint/" + name + " (neither torch nor torch_dist)");
      continue;
    }
    const auto iteration = std::stoll(name.substr(5));
    const auto saved = ours.saved_weights(iteration);
    if (saved.empty())
      comparison.wrong(text("no checkpoint of iteration ", iteration, " was saved"));
    else
      compare_checkpoint(recorded, saved, steps_until(trace, iteration), beta, tolerance, comparison);
    ++checkpoints;
  }
  return checkpoints;
}

}  // namespace tessera::golden
