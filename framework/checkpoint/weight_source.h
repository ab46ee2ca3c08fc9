#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"

namespace tessera::checkpoint {

/// The weights of a model under our names and in our layouts, whatever program saved them.
class WeightSource {
 public:
  WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;
  virtual ~WeightSource() = default;

  virtual const std::filesystem::path& folder() const = 0;  ///< for messages
  virtual std::vector<std::string> names() const = 0;       ///< ours, in the model's order where there is one
  virtual bool has(const std::string& name) const = 0;
  virtual Shape shape(const std::string& name) const = 0;  ///< global. Throws ConfigError for a name that is not there.
  virtual DType dtype(const std::string& name) const = 0;  ///< as it is kept
  /// Fill `into`, which has the tensor's shape, converted to its element type. Throws ConfigError naming the tensor for
  /// an element that is not finite.
  virtual void read(const std::string& name, const Tensor& into) const = 0;
  /// The same for a part of a tensor; by itself it reads all of it.
  virtual void read_box(const TensorRange& into) const;
};

/// The weights of a checkpoint of our own: all tensors that are not the optimizer's. The checkpoint must outlive it.
class CheckpointWeights final : public WeightSource {
 public:
  explicit CheckpointWeights(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}
  const std::filesystem::path& folder() const override { return checkpoint_.folder(); }
  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override { return checkpoint_.has(name); }
  Shape shape(const std::string& name) const override { return checkpoint_.shape(name); }
  DType dtype(const std::string& name) const override { return checkpoint_.dtype(name); }
  void read(const std::string& name, const Tensor& into) const override;
  void read_box(const TensorRange& into) const override;

 private:
  const Checkpoint& checkpoint_;
};

/// The names of a checkpoint's optimizer state, by the weight that it belongs to.
std::map<std::string, std::vector<std::string>> states_by_weight(const Checkpoint& checkpoint);

/// Fill every one of `wanted` (tensors or parts of them) from `source`, and say what was not taken over as it is. Rows
/// of the vocabulary that `wanted` has beyond the source's are its padding: each becomes the mean of the source's rows,
/// so that their logits are unremarkable. Throws ConfigError, naming the first, for tensors that are missing, of
/// another shape, or more than `all` (empty: than `wanted`), and for a vocabulary that is larger than the wanted one.
std::vector<std::string> load_all(const WeightSource& source, std::span<const TensorRange> wanted,
                                  std::span<const TensorRange> all = {});

/// One of those with rows beyond the source's, or a part of it. Returns what was done, to be told.
std::string read_padded(const WeightSource& source, const TensorRange& range);

/// Whether the source's tensor differs from that of `range`, a weight or optimizer state of one, in the padding of the
/// vocabulary alone: it has fewer rows, or more but not fewer than the model's are `tokens` (0: nobody knows).
bool differs_in_padding(const WeightSource& source, const TensorRange& range, std::int64_t tokens);
/// Fill such a range: rows that the source has not are the mean of those it has, of optimizer state zero. Returns what
/// was done, to be told.
std::string read_other_padding(const WeightSource& source, const TensorRange& range);

/// Whether the source has these tensors in these shapes, as load_all would find it. Throws as it does; reads nothing.
void must_fit(const WeightSource& source, std::span<const TensorRange> wanted);

/// Throws ConfigError, "<speaker>: element [3, 5] is NaN; ...", for the first element that is not finite. `tensor` may
/// lie at any address; integers are always finite.
void must_be_finite(const Tensor& tensor, const std::string& speaker);

}  // namespace tessera::checkpoint
