#include <algorithm>
#include <optional>

#include "framework/checkpoint/copy_converted.h"
#include "framework/checkpoint/layout.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/torch/tensor_folder.h"

// Optimizer state that torch.distributed.checkpoint has saved beside a model. Source: torch 2.15,
// torch/distributed/checkpoint/state_dict.py (get_optimizer_state_dict): "state.<parameter>.<word>".

namespace tessera::hugging_face {
namespace {

constexpr const char* step_word = "step";
const std::string state_begin = "optimizer.";

/// The steps that all parameters have made. Throws ConfigError if they differ.
std::int64_t steps_in(const checkpoint::NamedTensors& steps, const std::string& speaker) {
  std::optional<double> all;
  for (const auto& name : steps.names()) {
    if (steps.shape(name).elements() != 1)
      throw ConfigError(
          text(speaker, ": the ", step_word, " of '", name, "' is ", steps.shape(name), "; one number was expected"));
    double one = 0;
    checkpoint::copy_converted(steps.whole(name).tensor.reshaped({1}), Tensor(std::span(&one, 1), Shape{1}));
    if (all && *all != one)
      throw ConfigError(text(speaker, ": the ", step_word, " of '", name, "' is ", one, ", of another parameter ", *all,
                             "; all parameters must have made the same steps"));
    all = one;
  }
  if (!all || !(*all >= 0 && *all < 1e15)) throw ConfigError(text(speaker, ": no ", step_word, " of the optimizer"));
  return static_cast<std::int64_t>(*all);
}

}  // namespace

void HuggingFaceModel::take_states() {
  const auto* saved = dynamic_cast<const torch::DcpTensors*>(files_.get());
  const auto words = saved == nullptr ? std::vector<std::string>() : saved->state_words();
  if (words.empty()) return;
  try {
    if (std::ranges::find(words, step_word) == words.end())
      throw ConfigError(text(folder_.string(), ": no ", step_word, " of the optimizer"));
    steps_ = steps_in(*saved->state(step_word), folder_.string());
    for (const auto& word : words)
      if (word != step_word)
        states_.emplace(word, std::unique_ptr<const HuggingFaceModel>(new HuggingFaceModel(*this, saved->state(word))));
  } catch (const ConfigError& error) {
    states_.clear();
    no_states_ = error.what();
  }
}

std::pair<const HuggingFaceModel*, std::string> HuggingFaceModel::state_of(const std::string& name) const {
  if (states_.empty() || !checkpoint::is_optimizer_state(name)) return {};
  const auto weight = checkpoint::weight_of(name);
  const auto state =
      states_.find(name.substr(state_begin.size(), name.size() - state_begin.size() - weight.size() - 1));
  if (state == states_.end() || !state->second->has(weight)) return {};
  return {state->second.get(), weight};
}

std::vector<std::string> HuggingFaceModel::optimizer_names() const {
  std::vector<std::string> names;
  for (const auto& [word, state] : states_)
    for (const auto& weight : state->names()) names.push_back(state_begin + word + "." + weight);
  return names;
}

std::optional<checkpoint::Progress> HuggingFaceModel::progress() const {
  if (states_.empty()) return std::nullopt;
  checkpoint::Progress progress;
  progress.iteration = progress.updates = steps_;
  progress.consumed_valid_samples = -1;
  progress.has_seed = false;
  return progress;
}

std::vector<std::string> HuggingFaceModel::notes_of_files() const {
  auto notes = files_->notes();
  if (!no_states_.empty())
    notes.push_back(text(folder_.string(), ": its optimizer state is not read, only its weights are: ", no_states_));
  if (states_.empty()) return notes;
  std::string words;
  for (const auto& [word, state] : states_) words += (words.empty() ? "" : ", ") + word;
  notes.push_back(text(folder_.string(), ": has optimizer state (", words, ") after ", steps_,
                       " steps; a run continues with it if training_config.resume_training is true, else it begins "
                       "with the weights alone. The samples that were consumed are not known: data and schedule begin "
                       "at the first; training_config.override_ckpt_iteration: ",
                       steps_, " lets the data begin at that iteration"));
  return notes;
}

}  // namespace tessera::hugging_face
