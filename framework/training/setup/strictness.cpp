#include "framework/training/setup/strictness.h"

#include <algorithm>
#include <set>

#include "framework/checkpoint/frozen_base.h"

namespace tessera::training {
namespace {

using checkpoint::TensorRange;

/// What the words mean for the two kinds of differences.
struct Allowed {
  bool lacking = false, left_over = false;            ///< is no error
  bool logs_lacking = false, logs_left_over = false;  ///< is told
};

Allowed allowed_by(const TrainingOptions& o) {
  const auto word = o.dist_ckpt_strictness;
  Allowed out;
  out.lacking = o.may_lack_tensors();
  out.left_over = word != Strictness::raise_all;
  out.logs_lacking = word != Strictness::ignore_all;
  out.logs_left_over = word == Strictness::log_all || word == Strictness::return_all;
  return out;
}

std::string first_names(const std::vector<std::string>& names) {
  constexpr std::size_t most = 5;
  std::string out;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) out += text(i == 0 ? "" : ", ", names[i]);
  return names.size() > most ? text(out, " and ", names.size() - most, " more") : out;
}

/// `all` as far as the words of strictness say.
std::vector<TensorRange> as_far_as_strict(const checkpoint::WeightSource& given, std::vector<TensorRange> all,
                                          const TrainingOptions& options, std::vector<std::string>& notes) {
  const auto allowed = allowed_by(options);
  std::set<std::string> known;
  std::vector<std::string> lacking, left_over;
  for (const auto& range : all)
    if (known.insert(range.name).second && !given.has(range.name)) lacking.push_back(range.name);
  if (allowed.lacking && lacking.size() == known.size())
    throw ConfigError(text(given.folder().string(), ": has none of the weights of the model, of which the first is ",
                           first_names(lacking), "; give the checkpoint of this model"));
  leave_out_lacking(given, options, all);
  const auto tell = [&](bool tells, const std::vector<std::string>& names, const char* what) {
    if (tells && !names.empty())
      notes.push_back(text(names.size(), what, given.folder().string(), ": ", first_names(names)));
  };
  tell(allowed.lacking && allowed.logs_lacking, lacking, " tensors keep their initial values, which are not in ");
  if (!allowed.left_over) return all;
  for (const auto& name : given.names())
    if (!known.contains(name)) {
      left_over.push_back(name);
      all.push_back({.name = name, .global_shape = given.shape(name), .offsets = {}, .tensor = {}});
    }
  tell(allowed.logs_left_over, left_over, " tensors are ignored, which the model does not have, in ");
  return all;
}

}  // namespace

void leave_out_lacking(const checkpoint::WeightSource& given, const TrainingOptions& options,
                       std::vector<TensorRange>& ranges) {
  if (options.may_lack_tensors()) std::erase_if(ranges, [&](const auto& range) { return !given.has(range.name); });
}

std::vector<TensorRange> expected_in(const checkpoint::OpenedCheckpoint& given, std::vector<TensorRange> all,
                                     const TrainingSetup& setup, std::vector<std::string>& notes) {
  if (setup.model.upcycles) return all;
  all = checkpoint::with_paddings_of(given, std::move(all), setup.model.tokens);
  if (setup.options.dist_ckpt_strictness == Strictness::raise_all) return all;
  if (checkpoint::base_in(given.blobs()))  // what was left out of it lies in its base
    std::erase_if(all,
                  [&](const auto& range) { return !setup.model.trained.trains(range.name) && !given.has(range.name); });
  return as_far_as_strict(given, std::move(all), setup.options, notes);
}

void draw_lacking(const checkpoint::WeightSource& given, const TrainingOptions& options, FrozenWeights& frozen) {
  if (!options.may_lack_tensors()) return;
  kernels::Threads one(1);  // initial values do not depend on their number
  frozen.initialise(one, static_cast<std::uint64_t>(options.seed), [&](const auto& name) { return given.has(name); });
}

}  // namespace tessera::training
