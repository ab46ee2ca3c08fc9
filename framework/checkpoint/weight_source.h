#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/checkpoint/checkpoint.h"

namespace tessera::checkpoint {

/// The weights of a model under Tessera's names and in its layouts, independent of the program that saved them.
class WeightSource {
 public:
  WeightSource() = default;
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;
  virtual ~WeightSource() = default;

  virtual const std::filesystem::path& folder() const = 0;  ///< for messages
  /// Tessera's names, in the order of the model if the format has one.
  virtual std::vector<std::string> names() const = 0;
  virtual bool has(const std::string& name) const = 0;
  virtual Shape shape(const std::string& name) const = 0;  ///< global. Throws ConfigError if there is no tensor `name`.
  virtual DType dtype(const std::string& name) const = 0;  ///< as stored
  /// Reads the tensor `name` into `into`, which has its shape, and converts to the element type of `into`. Throws
  /// ConfigError naming the tensor if an element is not finite.
  virtual void read(const std::string& name, const Tensor& into) const = 0;
  /// Reads one box of a tensor. The default implementation reads the whole tensor and copies the box.
  virtual void read_box(const TensorRange& into) const;
  /// Whether read_box() of some rows of `name` reads no others: it needs no memory beside theirs.
  virtual bool reads_rows(const std::string& /*name*/) const { return false; }
  /// The elements of the box `range` in a mapped file, if a file has them one after the other, in the type and order of
  /// `range` and aligned to the size of an element; else nothing. `range` is not written; the elements may be any
  /// numbers. Throws as Checkpoint::map.
  virtual std::optional<MappedTensor> map(const TensorRange& range) const;
  /// The same box of a matrix where its rows lie in mapped files in blocks, in any type; else nothing. Elements are
  /// those that reading gives, before they are rounded to the type of `range`.
  virtual std::optional<StoredMatrix> stored(const TensorRange& range) const;
  /// The storage type of a tensor, or of a part of it, that is stored in none of ours ("nf4", see PackedArray); empty:
  /// its elements are stored as `dtype`.
  virtual std::string_view storage_type(const std::string&) const { return {}; }
  /// A sentence about weights that were left out when the source was saved; empty: none were.
  virtual std::string about_left_out() const { return ""; }
};

/// The weights of a checkpoint in our own format: all tensors that are not optimizer state. `checkpoint` must outlive
/// this object. Reading verifies checksums.
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
  bool reads_rows(const std::string&) const override { return true; }
  std::optional<MappedTensor> map(const TensorRange& range) const override { return checkpoint_.map(range, true); }
  std::optional<StoredMatrix> stored(const TensorRange& range) const override {
    return checkpoint_.stored(range, true);
  }
  std::string about_left_out() const override { return checkpoint_.about_left_out(); }

 private:
  const Checkpoint& checkpoint_;
};

/// The names of a checkpoint's optimizer state tensors, by the name of the weight they belong to.
std::map<std::string, std::vector<std::string>> states_by_weight(const Checkpoint& checkpoint);

/// Reads all `wanted` tensors or boxes of tensors from `source`. Returns notes about what differs from the source.
/// Vocabulary rows beyond the source's rows are padding: each is set to the mean of the source's rows, so that their
/// logits are unremarkable. Throws ConfigError, naming the first problems, if a tensor is missing or has another shape,
/// if the source has a tensor that is not in `all` (empty: `wanted`), or if its vocabulary is larger than that in
/// `all`; see with_paddings_of().
std::vector<std::string> load_all(const WeightSource& source, std::span<const TensorRange> wanted,
                                  std::span<const TensorRange> all = {});

/// Reads a tensor with more vocabulary rows than the source, or a box of it, as load_all does. Returns a note that says
/// what was done.
std::string read_padded(const WeightSource& source, const TensorRange& range);

/// Whether the source's tensor differs from `range`, a weight or its optimizer state, only in vocabulary padding: it
/// has fewer rows, or more rows while the model's rows include all `tokens` tokens (0: number unknown, then more rows
/// do not count as padding).
bool differs_in_padding(const WeightSource& source, const TensorRange& range, std::int64_t tokens);
/// `all` with the shapes of the source where differs_in_padding(): names and shapes that must_fit() accepts.
std::vector<TensorRange> with_paddings_of(const WeightSource& source, std::vector<TensorRange> all,
                                          std::int64_t tokens);
/// Reads a range for which differs_in_padding() is true: rows missing in the source are the mean of its rows, and zero
/// in optimizer state. Returns a note that says what was done.
std::string read_other_padding(const WeightSource& source, const TensorRange& range);

/// Throws ConfigError as load_all does if the source does not have the `wanted` tensors in their shapes. Reads no
/// elements.
void must_fit(const WeightSource& source, std::span<const TensorRange> wanted);

/// Throws ConfigError, "<speaker>: element [3, 5] is NaN; ...", for the first element that is not finite. `tensor` may
/// be at any address (unaligned); integers are always finite. `offsets`: of its first element in the tensor that
/// `speaker` names.
void must_be_finite(const Tensor& tensor, const std::string& speaker, std::span<const std::int64_t> offsets = {});
bool is_finite(const Tensor& tensor);  ///< all elements are

}  // namespace tessera::checkpoint
