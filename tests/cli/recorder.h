#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "framework/cli/data_show.h"
#include "framework/indexed/indexed_dataset.h"
#include "framework/model/model.h"
#include "framework/nn/key_value_cache.h"

namespace tessera::cli {

using Json = nlohmann::json;

/// What show prints of a sample and the model sees of it too.
inline Json sample_json(const TokenBatch& batch) {
  const auto list = [](auto span) { return Json(std::vector(span.begin(), span.end())); };
  return {{"sample", batch.sample_ids[0]},      {"tokens", list(batch.tokens)},
          {"labels", list(batch.labels)},       {"loss_mask", list(batch.loss_mask)},
          {"positions", list(batch.positions)}, {"document_start", list(batch.document_start)}};
}

/// A model that writes down every batch of training and evaluation before it is used.
class Recorder final : public model::Model {
 public:
  Recorder(std::unique_ptr<model::Model> model, std::vector<Json>& trained, std::vector<Json>& evaluated)
      : model::Model(""), model_(std::move(model)), trained_(trained), evaluated_(evaluated) {
    contains(*model_);
  }
  model::ChunkResult forward(autograd::Tape& tape, const autograd::Var& x, const TokenBatch& batch,
                             const model::ForwardMode& mode) const override {
    for (std::int64_t row = 0; row < batch.samples; ++row)
      (mode.training ? trained_ : evaluated_).push_back(sample_json(samples_of<TokenBatch>(batch, row, 1)));
    return model_->forward(tape, x, batch, mode);
  }
  Boundaries boundary(const TokenBatch& batch) const override { return model_->boundary(batch); }
  autograd::Var logits(autograd::Tape& tape, const TokenBatch& batch, const model::ForwardMode& mode) const override {
    return model_->logits(tape, batch, mode);
  }
  nn::KeyValueCache make_cache(std::int64_t samples, std::int64_t capacity) const override {
    return model_->make_cache(samples, capacity);
  }
  autograd::Var next_logits(autograd::Tape& tape, std::span<const std::int32_t> tokens, std::int64_t count,
                            nn::KeyValueCache& cache, const TokenBatch* given) const override {
    return model_->next_logits(tape, tokens, count, cache, given);
  }
  std::int64_t vocabulary() const override { return model_->vocabulary(); }
  std::int64_t most_positions() const override { return model_->most_positions(); }
  double flops(std::int64_t samples, std::int64_t length) const override { return model_->flops(samples, length); }

 private:
  std::unique_ptr<model::Model> model_;
  std::vector<Json>&trained_, &evaluated_;
};

/// Only what sample_json has.
inline Json seen_by_model(const Json& shown) {
  Json out;
  for (const auto* key : {"sample", "tokens", "labels", "loss_mask", "positions", "document_start"})
    out[key] = shown.at(key);
  return out;
}

/// What `tessera data show --json` prints, a line each.
inline std::vector<Json> shown_samples(const recipe::Recipe& recipe, DataShowRequest request) {
  request.json = true;
  std::ostringstream out;
  show_data(recipe, request, out);
  std::istringstream lines(out.str());
  std::vector<Json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
  return all;
}

/// Sixty documents of 4 to 20 tokens; each ends with token 63.
inline void plant_short_documents(const std::string& prefix) {
  indexed::IndexedDatasetBuilder data(prefix, indexed::TokenType::uint16);
  for (std::int32_t i = 0; i < 60; ++i) {
    std::vector<std::int32_t> document;
    for (std::int32_t k = 0; k < 3 + i % 17; ++k) document.push_back((k * k + i) % 63);
    document.push_back(63);
    data.add_sequence(document);
    data.end_document();
  }
  data.finish();
}

}  // namespace tessera::cli
