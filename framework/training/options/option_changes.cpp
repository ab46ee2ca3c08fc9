#include "framework/training/options/option_changes.h"

#include <algorithm>

#include "framework/base/error.h"

namespace tessera::training {
namespace {

using options::Change;

constexpr std::size_t most_named = 8, longest_value = 80;

bool is_refused(const OptionChange& change, const TakenOver& taken) {
  return change.kind == Change::weights || (change.kind == Change::state && taken.optimizer_state);
}

bool is_allowed(const OptionChange& change, const TrainingOptions& o) {
  return std::find(o.allow_changes.begin(), o.allow_changes.end(), change.option) != o.allow_changes.end();
}

bool is_of_model(const OptionChange& change) {
  return change.option.rfind("model_config.", 0) == 0 || change.option.rfind("moe_config.", 0) == 0;
}

/// Whether an accepted change is logged. A new run that starts with the weights has data and optimizer of its own.
bool is_told(const OptionChange& change, const TakenOver& taken) {
  switch (change.kind) {
    case Change::undeclared:
    case Change::told:
      return taken.progress || is_of_model(change);
    case Change::order:
    case Change::state:
      return taken.progress;
    case Change::schedule:
      return taken.progress && (taken.own_schedule || !taken.optimizer_state);
    case Change::weights:
      return true;
    case Change::silent:
    case Change::tensors:
    case Change::file:
      return false;
  }
  return false;
}

std::string shortened(const std::string& value) {
  return value.size() <= longest_value ? value : value.substr(0, longest_value - 3) + "...";
}

/// A line of a file: --set names the option itself.
std::string place_of(const OptionChange& change) { return change.at.line > 0 ? text(change.at, ": ") : ""; }

std::string line_of(const OptionChange& change) {
  return text("\n  ", place_of(change), change.option, ": ", shortened(change.value), " in the recipe, ",
              shortened(change.saved), " in the checkpoint");
}

/// "a, b", for --set 'training_config.allow_changes=[a, b]'.
std::string list_with(const std::vector<OptionChange>& changes, const std::vector<std::string>& others) {
  std::string all;
  for (const auto& name : others) all += (all.empty() ? "" : ", ") + name;
  for (const auto& change : changes) all += (all.empty() ? "" : ", ") + change.option;
  return all;
}

[[noreturn]] void refuse_changes(const std::string& speaker, const std::vector<OptionChange>& refused,
                                 const TrainingOptions& o) {
  const bool is_model =
      std::any_of(refused.begin(), refused.end(), [](const auto& change) { return change.kind == Change::weights; });
  const bool is_state =
      std::any_of(refused.begin(), refused.end(), [](const auto& change) { return change.kind == Change::state; });
  std::string message =
      text(speaker, ": ",
           is_model ? "its weights are of another model, although all tensors have the expected shapes:"
                    : "its optimizer state was made by a run with other options:");
  for (const auto& change : refused) message += line_of(change);
  message += "\ngive the values of the checkpoint";
  if (is_state) message += ", or training_config.no_load_optim: true to start with new optimizer state";
  throw ConfigError(message + "; to load it all the same, give --set 'training_config.allow_changes=[" +
                    list_with(refused, o.allow_changes) + "]'");
}

std::string words_of_change(const OptionChange& change, const TrainingOptions& o) {
  const bool is_kept = change.option == "training_config.seed" && !o.no_load_rng;
  return text(
      change.option, " ", shortened(change.saved), " -> ", shortened(change.value),
      is_kept ? " (dropout keeps the seed of the checkpoint; training_config.no_load_rng: true changes it too)" : "");
}

}  // namespace

std::vector<std::string> accept_changes(const std::string& speaker, const std::vector<OptionChange>& changes,
                                        const TakenOver& taken, const TrainingOptions& o) {
  std::vector<OptionChange> refused;
  std::string line;
  bool reorders = false;
  for (const auto& change : changes) {
    if (is_refused(change, taken) && !is_allowed(change, o)) refused.push_back(change);
    if (!is_told(change, taken)) continue;
    line += (line.empty() ? "" : ", ") + words_of_change(change, o);
    reorders = reorders || change.kind == Change::order;
  }
  if (!refused.empty()) refuse_changes(speaker, refused, o);
  if (line.empty()) return {};
  if (reorders && !o.new_dataset)
    line += "; the order of the training samples can differ from the earlier one: some may be read twice or never";
  return {"changed since the checkpoint: " + line};
}

std::string lines_about_tensors(const std::vector<OptionChange>& changes) {
  std::string lines;
  std::size_t count = 0;
  for (const auto& change : changes) {
    if (change.follows) continue;  // the option that it follows from is named
    if (change.kind != Change::tensors && change.kind != Change::weights && change.kind != Change::state &&
        change.option != "model_config.max_position_embeddings" && change.option != "model_config.seq_length")
      continue;
    if (++count <= most_named) lines += line_of(change);
  }
  if (count > most_named) lines += text("\n  and ", count - most_named, " more");
  return lines;
}

}  // namespace tessera::training
