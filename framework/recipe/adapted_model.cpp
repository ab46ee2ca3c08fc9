#include "framework/recipe/adapted_model.h"

#include <algorithm>
#include <set>
#include <utility>

#include "framework/base/cpu_limit.h"
#include "framework/checkpoint/frozen_base.h"
#include "framework/checkpoint/laid_out_weights.h"
#include "framework/checkpoint/selected_weights.h"
#include "framework/nn/adapter.h"
#include "framework/recipe/build.h"
#include "framework/recipe/merge_record.h"
#include "framework/recipe/peft_adapter.h"
#include "framework/training/setup/given_checkpoint.h"

namespace tessera::recipe {
namespace {

namespace fs = std::filesystem;

/// Gives the adapters of another plan, and keeps their forms.
class RecordedForms final : public nn::AdapterPlan {
 public:
  explicit RecordedForms(std::shared_ptr<const nn::AdapterPlan> plan) : plan_(std::move(plan)) {}
  std::vector<nn::AdapterForm> adapters_of(const std::string& module, std::int64_t in,
                                           std::span<const nn::LinearPart> parts) const override {
    auto forms = plan_ ? plan_->adapters_of(module, in, parts) : std::vector<nn::AdapterForm>();
    for (const auto& form : forms) all[form.part.name.empty() ? module : module + "." + form.part.name] = form;
    return forms;
  }
  mutable std::map<std::string, nn::AdapterForm> all;

 private:
  std::shared_ptr<const nn::AdapterPlan> plan_;
};

/// The folder with the weights that the model of `given` was trained on. `follows`: the base of a base too, where only
/// its frozen parameters are needed.
std::unique_ptr<checkpoint::OpenedCheckpoint> open_base(const fs::path& place, const std::string& given,
                                                        const Registries& registries, bool follows) {
  try {
    auto base = follows ? open_with_frozen(place, registries) : open_newest(place, registries);
    const auto left_out = base->about_left_out();
    if (left_out.empty()) return base;
    throw ConfigError(text(base->folder().string(), ": ", left_out));
  } catch (const ConfigError& error) {
    throw ConfigError(text(given, ", and that cannot be read: ", error.what()));
  }
}

options::Value tree_of(const AdapterDescription& description) {
  options::Value tree;
  tree.kind = options::Value::Kind::group;
  tree.fields.push_back({"lora_config", description.group()});
  return tree;
}

/// Of an adapter folder: the given one, else the one that it names.
fs::path base_of(const fs::path& folder, const std::optional<fs::path>& given, const std::string& named) {
  if (given) return *given;
  if (!named.empty() && fs::is_directory(named)) return named;
  throw ConfigError(text(folder.string(), ": is an adapter for ",
                         named.empty() ? "a base that it does not name" : named,
                         ", which is no folder here; give the folder of that model as its base"));
}

AdaptedModel open_foreign(const fs::path& folder, const std::optional<fs::path>& given, const Registries& registries) {
  const auto& reader = peft_reader(registries);
  const auto description = reader.describe(folder, registries.mappings);
  AdaptedModel out;
  out.folder = folder;
  out.base_name = description.base;
  out.base = open_base(base_of(folder, given, description.base), text(folder.string(), ": its base is needed"),
                       registries, false);
  if (saved_recipe(*out.base, registries).recipe.lora.use_lora)
    throw ConfigError(text(out.base->folder().string(),
                           ": has adapters itself, so it cannot be the base of another; write a folder with its "
                           "adapters merged, by `tessera merge`"));
  out.recipe = saved_recipe(*out.base, registries, description.sets, tree_of(description)).recipe;
  auto opened = reader.open(folder, out.recipe, *out.base);
  out.notes = std::move(opened.description.notes);
  if (auto note = note_of_other_base(folder, description.base, out.base->folder().string()); !note.empty())
    out.notes.push_back(std::move(note));
  out.trained = std::move(opened.weights);
  return out;
}

AdaptedModel open_native(const fs::path& folder, const std::optional<fs::path>& given, const Registries& registries) {
  AdaptedModel out;
  const std::shared_ptr<const checkpoint::OpenedCheckpoint> own = open_newest(folder, registries);
  out.folder = own->folder();
  out.recipe = saved_recipe(*own, registries).recipe;
  if (!out.recipe.lora.use_lora && own->about_left_out().empty())
    throw ConfigError(text(own->folder().string(),
                           ": has no adapters: expected an adapter folder of PEFT, or a checkpoint of a run with "
                           "lora_config.use_lora"));
  const auto names = trained_names(out.recipe);
  out.trained =
      std::make_shared<checkpoint::SelectedWeights>(own, [names](const auto& name) { return names.trains(name); });
  const auto needed = checkpoint::base_in(own->blobs());
  out.base = own;
  if (!needed) {
    if (given)
      throw ConfigError(text(own->folder().string(), ": has the weights of its base, so that none is to be given"));
    return out;
  }
  out.base_digest = needed->digest;
  out.base_name = needed->name;
  out.base = open_base(given.value_or(needed->name), text(own->folder().string(), ": ", own->about_left_out()),
                       registries, true);
  return out;
}

/// Without the weights that `source` lacks.
std::vector<checkpoint::TensorRange> in_source(const checkpoint::WeightSource& source,
                                               std::vector<checkpoint::TensorRange> all) {
  std::erase_if(all, [&](const auto& range) { return !source.has(range.name); });
  return all;
}

void read_ranges(const checkpoint::WeightSource& source, const std::vector<checkpoint::TensorRange>& ranges) {
  for (const auto& range : ranges) {
    if (source.shape(range.name) == range.global_shape)
      source.read_box(range);
    else
      checkpoint::read_padded(source, range);
  }
}

/// Maps the matrices that the run of a checkpoint has written once in our layout: training maps the same. Nothing is
/// written for a model that is only read.
void map_laid_out(const AdaptedModel& from, training::FrozenWeights& frozen,
                  std::vector<checkpoint::TensorRange>& ranges, std::vector<std::string>& notes) {
  const auto names = trained_names(from.recipe);
  const auto wanted = [&](const auto& name) { return !names.trains(name); };
  const auto root = from.folder.parent_path();
  for (const auto& run : {root.parent_path(), root}) {  // RUN/checkpoints/NAME or RUN/NAME
    const auto found = checkpoint::find_laid_out(*from.base, wanted, checkpoint::laid_out_in(run));
    if (!found) continue;
    const auto mapped = frozen.map(*found);
    std::erase_if(ranges, [&](const auto& range) { return mapped.contains(range.name); });
    notes.push_back(text(mapped.size(), " of them are mapped from ", found->folder().string()));
    return;
  }
}

/// Frozen parameters, which are mapped as training maps them, and the parameters trained whole as they began.
void fill_base(const AdaptedModel& from, training::ModelState& state, std::vector<std::string>& notes) {
  const auto base = from.base_weights();
  auto frozen = state.frozen().ranges(training::StateScope::held);
  // A language model has an output layer where the model has a score head.
  auto all = in_source(*base, training::without_score_head(*base, state.weight_ranges(), true));
  all.insert(all.end(), frozen.begin(), frozen.end());
  from.base->must_fit_weights(frozen, all);
  std::vector<std::string> unsaid;
  training::map_frozen(*base, state, frozen, unsaid);
  map_laid_out(from, state.frozen(), frozen, notes);
  read_ranges(*base, frozen);
  state.frozen().must_be_finite(base->folder());
  if (from.base_digest) {
    kernels::Threads threads(usable_core_count());
    if (state.frozen().digest(threads) != *from.base_digest)
      throw ConfigError(text(from.folder.string(), ": was trained on the frozen parameters of ", from.base_name,
                             ", but the weights there are others now, or another base was given; give that folder the "
                             "weights with which the run began"));
  }
  read_ranges(*base, in_source(*base, state.trained_ranges()));
}

}  // namespace

std::unique_ptr<checkpoint::WeightSource> AdaptedModel::base_weights() const {
  return std::make_unique<checkpoint::SelectedWeights>(base, [](const auto& name) { return !nn::is_of_adapter(name); });
}

std::map<std::string, nn::AdapterForm> adapters_of(const Recipe& recipe) {
  const auto recorder = std::make_shared<RecordedForms>(recipe.adapters);
  auto parts = whole_model(recipe, 1);  // the vocabulary's size changes no adapters of layers
  parts.adapters = recorder;
  (void)recipe.architecture->build(parts);
  return recorder->all;
}

bool is_adapter_folder(const fs::path& folder, const Registries& registries) {
  return registries.adapters != nullptr && registries.adapters->is_adapter(folder);
}

void refuse_merged(const checkpoint::WeightSource& adapter, const checkpoint::OpenedCheckpoint& base) {
  if (const auto line = merged_before(base.blobs(), adapter))
    throw ConfigError(text(adapter.folder().string(), ": this adapter is merged into the weights of ",
                           base.folder().string(), " already, as its ", merged_record, " says (", *line,
                           "); use that folder as it is, or give the model without it"));
}

AdaptedModel open_adapted(const fs::path& folder, const std::optional<fs::path>& base, const Registries& registries) {
  auto opened = is_adapter_folder(folder, registries) ? open_foreign(folder, base, registries)
                                                      : open_native(folder, base, registries);
  refuse_merged(*opened.trained, *opened.base);
  return opened;
}

void must_fit_trained(const AdaptedModel& from) {
  const auto trains = trained_names(from.recipe);
  const auto model = from.recipe.architecture->build(whole_model(from.recipe, 1));  // any vocabulary has these names
  std::set<std::string> expected;
  std::string problems;
  for (const auto* parameter : model->parameters()) {
    const auto& name = parameter->name;
    if (trains.trains(name)) expected.insert(name);
    if (nn::is_of_adapter(name) && !from.trained->has(name)) problems += text("\n  ", name, ": is not in the folder");
  }
  for (const auto& name : from.trained->names())
    if (!expected.contains(name)) problems += text("\n  ", name, ": is not trained by the options of the adapter");
  if (!problems.empty())
    throw ConfigError(text(from.trained->folder().string(), ": the tensors are not those of its options:", problems));
}

TrainedModel load_adapted(const AdaptedModel& from) {
  auto out = without_weights(from.folder, from.recipe, from.recipe.tokenizer.make(), from.base.get());
  out.notes = from.notes;
  out.notes.push_back(text("the frozen parameters are those of ", from.base->folder().string()));
  fill_base(from, *out.weights, out.notes);
  must_fit_trained(from);
  const auto ranges = out.weights->trained_ranges();
  read_ranges(*from.trained, in_source(*from.trained, ranges));
  out.weights->weights_changed();
  out.base = from.base->folder();
  return out;
}

}  // namespace tessera::recipe
