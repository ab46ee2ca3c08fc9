#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/model/model.h"
#include "framework/model/vision_options.h"
#include "framework/options/registry.h"
#include "framework/parallel/layer_plan.h"
#include "framework/parallel/parallel_options.h"

namespace tessera::model {

/// What an architecture reads of the options that all architectures share.
struct ModelSettings {
  std::int64_t seq_length = 0;  ///< in tokens
  MoeOptions moe = {};
  VisionOptions vision = {};
};

/// The attention heads of the layers of a tower, as tables of weight names need them.
struct HeadLayout {
  std::int64_t heads = 0, groups = 0, channels = 0;  ///< query heads, key/value heads, dimensions of each head
  /// Rows of a fused query, key and value projection.
  std::int64_t rows() const { return (heads + 2 * groups) * channels; }
};

/// What determines the names and layouts of a model's weights: with it, a table of names is expanded.
struct WeightLayout {
  parallel::Towers towers;
  std::vector<HeadLayout> heads = {};  ///< of each tower
  std::int64_t experts = 0;            ///< experts of each layer that has experts
  std::int64_t predictions = 0;        ///< layers of multi-token prediction
  /// Whether layer `index` of the whole model has experts; a layer of multi-token prediction is like the last other
  /// layer. Empty function: every layer has experts if there are any.
  std::function<bool(std::int64_t index)> has_experts = {};
};

/// A rule that does not hold.
struct BrokenRule {
  options::Finding finding;             ///< with the full name of its option, "model_config.num_experts"
  std::vector<std::string> about = {};  ///< full names of the other options that the rule reads
};

/// A model type with its options: the only object through which recipes and other programs' formats ask about a model.
/// It is made from the options of the registered type; making it checks nothing, and options may violate limits and
/// rules. Only build() needs options without mistakes.
class Architecture {
 public:
  virtual ~Architecture() = default;

  /// Makes the model, or the part of it that `parts` describes, without memory for weights. Throws ConfigError for
  /// options that do not fit together or cannot be divided that way.
  virtual std::unique_ptr<Model> build(const ModelParts& parts) const = 0;

  /// The towers of layers, over which a pipeline is cut. Without any, the model is always one chunk, and only data
  /// parallelism is supported: the sizes below are then not read.
  virtual std::optional<parallel::Towers> towers() const { return std::nullopt; }
  /// Full names of the options that the sizes below are computed from. If there is a mistake in one of them, no rule
  /// about the parallel layout is checked.
  virtual std::vector<std::string> size_options() const { return {}; }
  /// Whether there is a mistake in an option, by its full name.
  using IsWrong = std::function<bool(const std::string& option)>;
  /// The sizes that tensor and context parallelism divide, without vocabulary and seq_length. Leaves out sizes that
  /// cannot be computed from wrong options.
  virtual parallel::CutExtents cut_extents(const IsWrong&) const { return {}; }
  /// Number of experts of each mixture-of-experts layer; 0: the model has none.
  virtual std::int64_t experts() const { return 0; }
  /// Index in the whole model of the layer behind the token embedding, and whether the output layer has its weights.
  virtual std::int64_t embedding_layer() const { return 0; }
  virtual bool ties_embedding() const { return false; }
  /// The options of the vision tower in front of the text model; null: the model has none.
  virtual const VisionOptions* vision() const { return nullptr; }
  virtual std::int64_t predictions() const { return 0; }  ///< layers of multi-token prediction
  /// Bytes of tables that each chunk of the model makes beside its parameters, such as those of rotary embedding.
  virtual std::int64_t table_bytes() const { return 0; }

  /// Which rules between its options and the settings do not hold; rules within the struct of its options are declared
  /// in describe(). Rules that calculate with wrong options are not checked.
  virtual std::vector<BrokenRule> broken_rules(const IsWrong&) const { return {}; }
  /// The default of an option that is null, if it depends on more than the options of its group. `option` is the full
  /// name, "moe_config.moe_ffn_hidden_size". Nothing: not such an option.
  virtual std::optional<options::Value> default_of(const std::string&) const { return std::nullopt; }

  virtual std::optional<WeightLayout> weight_layout() const { return std::nullopt; }
  /// model_config in a form in which two models that compute the same are equal: derived values are given, options
  /// without effect are left out, moe_config is a nested group if the model has experts. `resolved` has all options of
  /// the recipe, `vocabulary` the rows of the embedding. Nothing: no other program has such a model.
  virtual std::optional<options::Value> canonical_options(const options::Value& resolved,
                                                          std::int64_t vocabulary) const {
    (void)resolved, (void)vocabulary;
    return std::nullopt;
  }
};

using ModelRegistry = options::Registry<Architecture, ModelSettings>;

/// The registry with all built-in architectures.
ModelRegistry models();

}  // namespace tessera::model
