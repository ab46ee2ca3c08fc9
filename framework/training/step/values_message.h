#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "framework/tensor/tensor.h"
#include "framework/training/step/stage_channel.h"

namespace tessera::training {

/// What a stage must know of the values of a micro-batch before it can receive them, as a message between stages.
struct ValuesHeader {
  std::int64_t seq_length = 0;  ///< tokens of each sample of the micro-batch
  std::int64_t type = 0, rank = 0;
  std::array<std::int64_t, Shape::most_dims> dims = {};

  static ValuesHeader of(const Tensor& values, std::int64_t seq_length) {
    ValuesHeader header{seq_length, static_cast<std::int64_t>(values.dtype()),
                        static_cast<std::int64_t>(values.shape().rank())};
    for (std::size_t i = 0; i < values.shape().rank(); ++i) header.dims[i] = values.shape()[i];
    return header;
  }
  Shape shape() const { return Shape(std::span(dims).first(static_cast<std::size_t>(rank))); }
  DType dtype() const { return static_cast<DType>(type); }
};

/// Values and, before them, their header: two messages as one.
class ValuesMessage final : public StageMessage {
 public:
  ValuesMessage(std::unique_ptr<StageMessage> header, std::unique_ptr<StageMessage> values)
      : header_(std::move(header)), values_(std::move(values)) {}
  bool done() override {
    const bool header_done = header_->done();
    return values_->done() && header_done;
  }
  void wait() override {
    header_->wait();
    values_->wait();
  }

 private:
  std::unique_ptr<StageMessage> header_, values_;
};

}  // namespace tessera::training
