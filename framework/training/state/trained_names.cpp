#include "framework/training/state/trained_names.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace tessera::training {
namespace {

constexpr std::int64_t most_rows = std::int64_t{1} << 32;

bool any_matches(const std::vector<NamePattern>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) { return pattern.matches(name); });
}

std::vector<NamePattern> compiled(const std::vector<std::string>& patterns) {
  return {patterns.begin(), patterns.end()};
}

/// What stands before and behind the number of an expert in the name of its weight.
std::pair<std::string, std::string> around_number(const std::string& name) {
  const std::string list = ".local_experts.";
  const auto found = name.find(list);
  must(found != std::string::npos, "an expert's weight is named after MixtureOfExperts");
  const auto at = found + list.size();
  return {name.substr(0, at), name.substr(name.find('.', at))};
}

/// The elements of `rows` of the unsharded tensor that this rank has, by their places in its part.
std::vector<nn::ElementRange> held_here(const nn::Parameter& parameter, const std::vector<nn::ElementRange>& rows) {
  std::vector<nn::ElementRange> here;
  if (rows.empty()) return here;
  const auto width = parameter.global_shape.elements() / parameter.global_shape[0];
  std::int64_t first = 0;  // of the range, in this rank's part
  for (const auto& range : nn::global_ranges_of(parameter)) {
    for (const auto& row : rows) {
      const auto begin = std::max(row.first * width, range.first);
      const auto end = std::min((row.first + row.count) * width, range.first + range.count);
      if (begin < end) here.push_back({first + begin - range.first, end - begin});
    }
    first += range.count;
  }
  return here;
}

}  // namespace

NamePattern::NamePattern(const std::string& pattern) : whole_(pattern) {  // an error quotes what was given
  whole_ = unicode::Regex("\\A(?:" + pattern + ")\\z");
}

bool NamePattern::matches(const std::string& name) const {
  return unicode::Regex::Finder(whole_, name).next().has_value();
}

TrainedNames::TrainedNames(const std::vector<std::string>& frozen, const std::vector<std::string>& trainable,
                           Tuned tuned, FrozenRows frozen_rows, Tuned kept)
    : frozen_(compiled(frozen)),
      trainable_(compiled(trainable)),
      tuned_(std::move(tuned)),
      frozen_rows_(std::move(frozen_rows)),
      kept_(std::move(kept)) {}

std::vector<nn::ElementRange> TrainedNames::frozen_rows(const std::string& name) const {
  if (any_matches(frozen_, name)) return {{0, most_rows}};
  if (!frozen_rows_ || any_matches(trainable_, name)) return {};
  return frozen_rows_(name);
}

bool TrainedNames::trains(const std::string& name) const {
  if (any_matches(frozen_, name)) return kept_ && kept_(name);
  if (tuned_ && tuned_(name)) return true;
  return any_matches(trainable_, name) || (trainable_.empty() && !tuned_);
}

bool TrainedNames::changes(const std::string& name) const { return trains(name) && !any_matches(frozen_, name); }

void freeze(std::span<nn::Parameter* const> parameters, const TrainedNames& names, std::int64_t experts) {
  if (names.all()) return;
  std::map<std::pair<std::string, std::string>, bool> layers;  // whether some expert of the layer is trained
  for (auto* parameter : parameters) {
    parameter->trained = names.trains(parameter->name);
    if (parameter->trained) parameter->frozen_elements = held_here(*parameter, names.frozen_rows(parameter->name));
    if (!is_of_expert(parameter->role)) continue;
    const auto around = around_number(parameter->name);
    const auto [layer, is_new] = layers.emplace(around, false);
    for (std::int64_t e = 0; is_new && e < experts && !layer->second; ++e)
      layer->second = names.trains(text(around.first, e, around.second));
    parameter->leaf.trained_elsewhere = layer->second && !parameter->trained;
  }
}

std::vector<nn::Parameter*> select(std::span<nn::Parameter* const> parameters, bool trained) {
  std::vector<nn::Parameter*> all;
  std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(all),
               [&](const auto* parameter) { return parameter->trained == trained; });
  return all;
}

std::int64_t trained_elements(const nn::Parameter& parameter) {
  if (!parameter.trained) return 0;
  auto count = parameter.elements();
  for (const auto& range : parameter.frozen_elements) count -= range.count;
  return count;
}

}  // namespace tessera::training
