#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "framework/checkpoint/weight_source.h"
#include "framework/interop/hugging_face/peft_names.h"
#include "framework/kernels/threads.h"

namespace tessera::hugging_face {

/// A base with an adapter merged into it: w + s B A, with DoRA (m / n)(w + s B A), n the norms of its rows. Computed in
/// double from the values of the files, row by row, and rounded once to fp32, then to the type of the base. Parameters
/// that the adapter trained whole replace those of the base, or are added to them, as a score head; what the table of
/// `names` does not have, as the output layer beside a score head, is left out. Holds one weight at a time.
class MergedWeights final : public checkpoint::WeightSource {
 public:
  /// The factor s of a layer or a part of one, with its rank.
  using Scale = std::function<double(const std::string& ours, std::int64_t rank)>;
  /// All arguments must outlive this object. Throws ConfigError for a tensor of the adapter that is on no weight of the
  /// base.
  MergedWeights(const checkpoint::WeightSource& base, const checkpoint::WeightSource& adapter, const PeftNames& names,
                Scale scale, kernels::Threads& threads);

  /// The weights that differ from the base's.
  std::vector<std::string> changed() const;

  const std::filesystem::path& folder() const override { return base_.folder(); }
  std::vector<std::string> names() const override { return all_; }
  bool has(const std::string& name) const override;
  Shape shape(const std::string& name) const override { return source_of(name).shape(name); }
  DType dtype(const std::string& name) const override { return source_of(name).dtype(name); }
  void read(const std::string& name, const Tensor& into) const override;

 private:
  const checkpoint::WeightSource& source_of(const std::string& name) const {
    return base_.has(name) ? base_ : adapter_;
  }
  std::vector<std::int64_t> rows_of(const std::string& ours, const WeightRow& row, const Shape& whole) const;
  void add(const std::string& ours, const std::string& weight, std::span<float> w, const Shape& whole) const;

  const checkpoint::WeightSource &base_, &adapter_;
  const PeftNames& names_;
  Scale scale_;
  std::vector<std::string> all_;
  kernels::Threads& threads_;
  std::map<std::string, std::vector<std::string>> adapters_;  ///< our weight -> layers or parts with factors
};

}  // namespace tessera::hugging_face
