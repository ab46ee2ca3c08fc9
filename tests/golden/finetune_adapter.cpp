#include <unistd.h>

#include <cmath>
#include <map>

#include "framework/base/error.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/merged_weights.h"
#include "framework/interop/hugging_face/peft_adapter.h"
#include "framework/interop/hugging_face/peft_export.h"
#include "framework/interop/hugging_face/peft_rules.h"
#include "tests/golden/finetune_case.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;

/// The names of the weights of a case's model, which may have a score head that its base has not.
hugging_face::WeightTable names_of(const FinetuneCase& one, const hugging_face::HuggingFaceModel& base) {
  if (one.facts.at("group") != "reward") return base.table();
  auto config = base.model_config();
  config.set("score_head", options::Value::of("true", {}));
  const auto family = hugging_face::hugging_face_table(one.mappings, base.family());
  return hugging_face::weight_table(family.find("weights")->scalar, config, one.mappings, one.base.string());
}

hugging_face::WeightShapes shapes_of(const checkpoint::WeightSource& base) {
  hugging_face::WeightShapes shapes;
  for (const auto& name : base.names()) shapes.emplace(name, base.shape(name));
  return shapes;
}

/// A folder for outputs that goes away with this object.
struct FinetuneScratch {
  FinetuneScratch() : path(fs::temp_directory_path() / text("finetune_", ::getpid())) { fs::remove_all(path); }
  FinetuneScratch(const FinetuneScratch&) = delete;
  FinetuneScratch& operator=(const FinetuneScratch&) = delete;
  ~FinetuneScratch() { fs::remove_all(path); }
  fs::path path;
};

/// Tensors of the recorded adapter that are copies of the base.
bool is_copy_of_base(const std::string& name) { return name.ends_with(".base_layer.weight"); }

void compare_adapter_tensors(const fs::path& ours, const fs::path& theirs, Comparison& comparison) {
  const checkpoint::SafetensorsReader written(ours), recorded(theirs);
  for (const auto& name : recorded.names()) {
    if (is_copy_of_base(name)) continue;
    if (!written.has(name)) {
      comparison.wrong(name + " was not written");
      continue;
    }
    const auto a = written.tensor(name), b = recorded.tensor(name);
    if (a.dtype() != b.dtype() || a.shape() != b.shape()) comparison.wrong(name + " has another type or shape");
    comparison.compare(name, doubles_of(a.floats()), doubles_of(b.floats()), 0);
  }
  for (const auto& name : written.names())
    if (!recorded.has(name)) comparison.wrong(name + " was written and is not recorded");
}

/// The adapter as we read it, written for PEFT again: the same tensors, the same adapter_config.json.
std::string judge_adapter_files(const FinetuneCase& one, Comparison& comparison) {
  const hugging_face::HuggingFaceModel base(one.base / "hf", one.mappings);
  const auto table = names_of(one, base);
  auto shapes = shapes_of(base);
  shapes.emplace("score.weight", Shape{1, shapes.at("embedding.word_embeddings.weight")[1]});
  const hugging_face::PeftAdapter adapter(one.folder / "adapter", table, shapes, one.mappings);
  const FinetuneScratch scratch;
  hugging_face::PeftExport how{.lora_config = adapter.config().lora_config};
  how.labels.base = adapter.config().base;
  how.labels.task_type = one.json("adapter/adapter_config.json").at("task_type").get<std::string>();
  hugging_face::write_peft(scratch.path, hugging_face::PeftNames(table), adapter, how, one.mappings);
  compare_adapter_tensors(scratch.path / hugging_face::peft_weights_file,
                          one.folder / "adapter" / hugging_face::peft_weights_file, comparison);
  const auto config = nlohmann::json::parse(read_file(scratch.path / hugging_face::peft_config_file));
  const auto recorded = one.json("adapter/adapter_config.json");
  for (const auto& [key, value] : recorded.items()) {
    const bool same_as_null = (value.is_array() && value.empty()) || key == "layers_pattern";  // null says the same
    if (!config.contains(key))
      comparison.wrong(key + " was not written");
    else if (config.at(key) != value && !(same_as_null && config.at(key).is_null()))
      comparison.wrong(text(key, " is ", config.at(key).dump(), ", recorded ", value.dump()));
  }
  for (const auto& [key, value] : config.items())
    if (!recorded.contains(key)) comparison.wrong(key + " was written and is not recorded");
  return text(comparison.compared(), " tensors and ", recorded.size(), " keys as they came");
}

/// A base, or its weights rounded to bfloat16.
class RoundedBase final : public checkpoint::WeightSource {
 public:
  RoundedBase(const checkpoint::WeightSource& base, bool rounds) : base_(base), rounds_(rounds) {}
  const fs::path& folder() const override { return base_.folder(); }
  std::vector<std::string> names() const override { return base_.names(); }
  bool has(const std::string& name) const override { return base_.has(name); }
  Shape shape(const std::string& name) const override { return base_.shape(name); }
  DType dtype(const std::string& name) const override { return base_.dtype(name); }
  void read(const std::string& name, const Tensor& into) const override {
    base_.read(name, into);
    if (!rounds_) return;
    for (auto& x : into.floats()) x = static_cast<float>(bfloat16(x));
  }

 private:
  const checkpoint::WeightSource& base_;
  bool rounds_;
};

/// One unit in the last place of the largest element: what an order of sums may change.
double last_place(double largest, DType type) {
  return largest * (type == DType::bfloat16 ? std::ldexp(1.0, -7) : std::ldexp(1.0, -22));
}

/// The factor of B A of a module with this rank: alpha / rank, or with use_rslora alpha / sqrt(rank).
double peft_scale(const options::Value& lora_config, const std::string& module, std::int64_t rank) {
  const auto alpha = hugging_face::peft_number(lora_config.find("alpha_pattern"), module,
                                               hugging_face::peft_integer(lora_config, "lora_alpha", 8));
  const auto* root = lora_config.find("use_rslora");
  const auto r = static_cast<double>(rank);
  return static_cast<double>(alpha) / (root != nullptr && root->scalar == "true" ? std::sqrt(r) : r);
}

/// The name by which PEFT's patterns know a layer of ours, or a part of one: that of its first module, or of the
/// parameter that Transformers 5 has for it.
std::string peft_pattern_name(const hugging_face::PeftNames& names, const std::string& ours) {
  for (const auto& experts : names.experts())
    if (ours.rfind(experts.layer, 0) == 0 && (ours.ends_with(".linear_fc1") || ours.ends_with(".linear_fc2")))
      return experts.name + (ours.ends_with(".linear_fc1") ? ".gate_up_proj" : ".down_proj");
  const auto modules = names.of_ours(ours);
  if (modules.empty()) return ours;
  return modules.front()->name + (ours.ends_with(".mlp.router") ? ".weight" : "");
}

/// The merged model where it differs from the base.
std::string judge_merged(const FinetuneCase& one, Comparison& comparison) {
  const hugging_face::HuggingFaceModel base(one.base / "hf", one.mappings);
  const hugging_face::PeftNames names(base.table());
  const hugging_face::PeftAdapter adapter(one.folder / "adapter", base.table(), shapes_of(base), one.mappings);
  const auto scale = [&](const std::string& ours, std::int64_t rank) {
    return peft_scale(adapter.config().lora_config, peft_pattern_name(names, ours), rank);
  };
  kernels::Threads threads(2);
  const RoundedBase rounded(base, one.facts.at("base_dtype") == "bfloat16");
  const hugging_face::MergedWeights merged(rounded, adapter, names, scale, threads);
  Values ours;
  for (const auto& name : merged.changed()) {
    std::vector<float> w(static_cast<std::size_t>(merged.shape(name).elements()));
    merged.read(name, Tensor(std::span(w), merged.shape(name)));
    for (auto& part : base.theirs(name, w)) ours[part.name] = doubles_of(part.elements);
  }
  const auto recorded = one.tensors("merged.safetensors");
  for (const auto& name : recorded.names()) {
    const auto tensor = recorded.tensor(name);
    std::vector<float> expected(static_cast<std::size_t>(tensor.elements()));
    checkpoint::copy_converted(tensor, Tensor(std::span(expected), tensor.shape()));
    if (tensor.dtype() == DType::bfloat16)
      for (auto& x : ours[name]) x = static_cast<double>(static_cast<float>(bfloat16(static_cast<float>(x))));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto x = static_cast<double>(expected[i]);
      if (i >= ours[name].size() || std::abs(ours[name][i] - x) > last_place(std::abs(x), tensor.dtype()))
        return comparison.wrong(text(name, " differs in element ", i)), "";
    }
    comparison.compare(name, ours[name], doubles_of(expected), last_place(4, tensor.dtype()));
  }
  return text(comparison.compared(), " merged tensors within one unit in the last place");
}

}  // namespace

std::vector<Judgement> judgements_of_adapter(const FinetuneCase& one) {
  std::vector<Judgement> all = {{"adapter", [&one](auto& comparison) { return judge_adapter_files(one, comparison); }}};
  if (one.has("merged.safetensors"))
    all.emplace_back("merged", [&one](auto& comparison) { return judge_merged(one, comparison); });
  return all;
}

}  // namespace tessera::golden
