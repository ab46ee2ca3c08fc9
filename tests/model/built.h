#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/model/architecture.h"
#include "framework/model/feature_cache.h"
#include "framework/model/gpt_options.h"
#include "framework/nn/bound_parameters.h"
#include "framework/nn/flat_parameters.h"
#include "framework/nn/key_value_cache.h"

namespace tessera::model {

/// A small model from words of a recipe, "key:value key[0]:value ...", with weights of its own. Keys that begin with
/// moe_ are of moe_config, those that begin with "vision." of vision_config, the others of model_config.
struct Built {
  explicit Built(const std::string& words, std::int64_t seq_length = 12, std::int64_t vocabulary = 29,
                 const Precision& precision = {}, std::shared_ptr<FeatureCache> features = {}) {
    options::Value tree;
    const auto set = [&](const std::string& key, const std::string& value) {
      const auto name = key.starts_with("vision.") ? "vision_config." + key.substr(7)
                        : key.starts_with("moe_")  ? "moe_config." + key
                                                   : "model_config." + key;
      tree.set(name, options::Value::of(value, {"test", 1, "", 1}));
    };
    set("num_layers", "2");
    set("hidden_size", "16");
    set("num_attention_heads", "4");
    for (std::size_t at = 0; at < words.size();) {
      const auto end = std::min(words.find(' ', at), words.size()), colon = words.find(':', at);
      set(words.substr(at, colon - at), words.substr(colon + 1, end - colon - 1));
      at = end + 1;
    }
    options::Report report;
    options::Group group(tree, "model_config", report);
    options::Group experts(tree, "moe_config", report);
    options::Group visual(tree, "vision_config", report);
    const auto moe = options::read_own<MoeOptions>(experts);
    const auto vision = options::read_own<VisionOptions>(visual);
    architecture = models().read(group).make({seq_length, moe, vision});
    model = architecture->build({.vocabulary = vocabulary, .precision = precision, .features = std::move(features)});
    group.finish();
    experts.finish();
    visual.finish();
    report.must_be_good();
    layout = std::make_unique<nn::FlatParameters>(model->parameters());
    values.resize(static_cast<std::size_t>(layout->elements()));
    grads.resize(values.size());
    if (layout->has_16_bit()) rounded.resize(2 * values.size());
    bind_parameters(*layout, values, grads, rounded);
    initialise_parameters(*layout, threads, 7, values);
  }
  kernels::Threads threads{2};
  Arena arena;
  std::unique_ptr<Architecture> architecture;
  std::unique_ptr<Model> model;
  std::unique_ptr<nn::FlatParameters> layout;
  std::vector<float> values, grads;
  std::vector<std::byte> rounded;
};

/// Two samples of twelve tokens, the second made of two documents.
struct Tokens {
  Tokens() : tokens(24), labels(24), positions(24), starts(24, 0), mask(24, 1), ids{5, 9} {
    for (int i = 0; i < 24; ++i) {
      tokens[static_cast<std::size_t>(i)] = (i * 7 + 3) % 29;
      labels[static_cast<std::size_t>(i)] = (i * 7 + 10) % 29;
      positions[static_cast<std::size_t>(i)] = i % 12;
    }
    for (std::size_t i = 17; i < 24; ++i) starts[i] = 5;
    mask[3] = 0;
  }
  TokenBatch batch() const {
    return {.samples = 2,
            .seq_length = 12,
            .tokens = tokens,
            .labels = labels,
            .loss_mask = mask,
            .positions = positions,
            .document_start = starts,
            .sample_ids = ids};
  }
  /// `count` samples of `length` tokens from place `first` on, each one document.
  TokenBatch part(std::size_t first, std::int64_t count, std::int64_t length) {
    const auto n = static_cast<std::size_t>(count * length);
    places.resize(n);
    zeros.assign(n, 0);
    for (std::size_t i = 0; i < n; ++i) places[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % length);
    const auto of = [&](const auto& all) { return std::span(all).subspan(first, n); };
    return {.samples = count,
            .seq_length = length,
            .tokens = of(tokens),
            .labels = of(labels),
            .loss_mask = of(mask),
            .positions = places,
            .document_start = zeros,
            .sample_ids = std::span(ids).subspan(first / 12, static_cast<std::size_t>(count))};
  }
  std::vector<std::int32_t> tokens, labels, positions, starts;
  std::vector<float> mask;
  std::vector<std::int64_t> ids;
  std::vector<std::int32_t> places, zeros;
};

/// The logits of all tokens of a batch, without a cache.
inline std::vector<float> logits_of(Built& b, const TokenBatch& batch) {
  autograd::Tape tape(b.arena, b.threads, false);
  const auto logits = b.model->logits(tape, batch, {});
  return {logits.floats().begin(), logits.floats().end()};
}

}  // namespace tessera::model
