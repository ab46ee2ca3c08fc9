#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "framework/base/error.h"
#include "framework/tensor/dtype.h"

namespace tessera {

/// What the number of elements of a field in a sample depends on.
enum class FieldExtent {
  sample,  ///< `width` elements
  token,   ///< `width` rows of one element for each token: [width, seq_length]
  pair,    ///< one element for each two tokens: [seq_length, seq_length]
  own,     ///< differs from sample to sample: any number of rows of `width` elements
};

/// A field that a dataset declares: an array with elements for each sample of a batch.
struct BatchField {
  std::string name;
  DType type = DType::int32;
  FieldExtent extent = FieldExtent::token;
  std::int64_t width = 1;
  std::int64_t most_rows = 0;       ///< for `own`: largest number of rows of a sample, besides those of rows_per_token
  std::int64_t rows_per_token = 0;  ///< for `own`: so many more for each token of the sample
  /// For `own`: largest number of rows of a sample of `seq_length` tokens.
  std::int64_t rows(std::int64_t seq_length) const { return most_rows + rows_per_token * seq_length; }
  bool operator==(const BatchField&) const = default;
};
using BatchFields = std::vector<BatchField>;

/// The fields of samples of text, which BatchArrays names; without an attention mask.
const BatchFields& token_fields();
/// Bytes of a batch of `samples` samples of `seq_length` tokens; a field with extents of its own has its most rows. In
/// double: exact for realistic sizes, and without overflow.
double bytes_of(const BatchFields& fields, std::int64_t samples, std::int64_t seq_length);

/// The memory of one field of a batch.
class FieldMemory {
 public:
  explicit FieldMemory(BatchField field) : field_(std::move(field)) {}
  const BatchField& field() const { return field_; }
  /// Gives sample s memory for elements[s] elements; their values are arbitrary. Allocates only what the field never
  /// had before.
  void resize(std::span<const std::int64_t> elements);
  /// The elements of samples [first, first + count). Throws BugError for another type or samples it does not have.
  template <class T>
  std::span<T> elements(std::int64_t first, std::int64_t count) {
    return {static_cast<T*>(at(TypeOf<T>::value, first, count)), size(first, count)};
  }
  /// Sets the elements of a sample to 0.
  void clear(std::int64_t sample);
  template <class T>
  std::span<const T> elements(std::int64_t first, std::int64_t count) const {
    return const_cast<FieldMemory*>(this)->elements<T>(first, count);
  }

 private:
  void* at(DType type, std::int64_t first, std::int64_t count);
  std::size_t size(std::int64_t first, std::int64_t count) const {
    return static_cast<std::size_t>(begins_[static_cast<std::size_t>(first + count)] -
                                    begins_[static_cast<std::size_t>(first)]);
  }

  BatchField field_;
  std::vector<std::int64_t> begins_ = {0};  ///< [samples + 1] index of the first element of each sample
  std::vector<std::uint64_t> memory_;
};

/// A view of a micro-batch of `samples` consecutive token sequences of `seq_length` tokens each, in memory of a Batch
/// or of the caller. The fields that every model of text knows are its members; a field that the dataset does not
/// declare is empty. field() gives any other.
///
/// A sample may hold several documents, and may end with padding: tokens with label -1 and loss mask 0.
template <template <class> class Array>
struct BatchArrays {
  template <class T>
  using Elements = decltype(Array<T>{}.data());

  std::int64_t samples = 0, seq_length = 0;
  Array<std::int32_t> tokens = {};  ///< [samples, seq_length]: input ids
  Array<std::int32_t> labels = {};  ///< [samples, seq_length]: id of the token to predict; -1: none
  Array<float> loss_mask = {};      ///< [samples, seq_length]: weight of the token's loss; 1: counted, 0: ignored
  /// [samples, axes, seq_length], usually of one axis: from 0; restart at documents if positions are reset.
  Array<std::int32_t> positions = {};
  /// [samples, seq_length]: index within the sample of the first token that each token may attend to.
  Array<std::int32_t> document_start = {};
  Array<std::int64_t> sample_ids = {};  ///< [samples]: index of each sample in the whole run; keys its dropout
  /// Attention mask [samples, seq_length, seq_length]: element (query, key) is not 0 if the query token may attend to
  /// the key token. It replaces document boundaries and causality. Empty: causal attention within documents, by
  /// document_start. Slow; for masks that cannot be expressed otherwise.
  Array<std::uint8_t> visible = {};

  using Fields = std::conditional_t<std::is_const_v<std::remove_pointer_t<Elements<float>>>,
                                    const std::vector<FieldMemory>, std::vector<FieldMemory>>;
  Fields* fields = nullptr;       ///< of the batch that has the memory; null: there are no further fields
  std::int64_t first_sample = 0;  ///< index in that batch of sample 0

  /// The elements of all samples in the field `name`, or of sample `row`. Throws BugError if the batch has no such
  /// field, or one of another type.
  template <class T>
  Array<T> field(std::string_view name) const {
    return memory(name).template elements<T>(first_sample, samples);
  }
  template <class T>
  Array<T> field(std::string_view name, std::int64_t row) const {
    must(row >= 0 && row < samples, "a view has the sample asked for");
    return memory(name).template elements<T>(first_sample + row, 1);
  }
  bool has_field(std::string_view name) const {
    if (fields)
      for (auto& one : *fields)
        if (one.field().name == name) return true;
    return false;
  }
  /// Rows of positions of each sample.
  std::int64_t position_axes() const {
    return positions.empty() ? 1 : static_cast<std::int64_t>(positions.size()) / (samples * seq_length);
  }

 private:
  auto& memory(std::string_view name) const {
    if (fields)
      for (auto& one : *fields)
        if (one.field().name == name) return one;
    throw BugError(text("this batch has no field ", name));
  }
};

template <class T>
using WritableArray = std::span<T>;
template <class T>
using ReadableArray = std::span<const T>;

/// Samples in memory of the caller, to be written by a dataset; usually a single sample.
using SampleView = BatchArrays<WritableArray>;
/// Samples in memory of the caller, the input of a model. They must stay unchanged until the backward pass is done.
using TokenBatch = BatchArrays<ReadableArray>;

/// Samples [first, first + count) of `all` as a SampleView or TokenBatch that refers to the memory of `all`. An array
/// that is empty in `all` is empty in the view. Throws BugError for samples that `all` does not have.
template <class View, class Arrays>
View samples_of(Arrays& all, std::int64_t first, std::int64_t count) {
  must(first >= 0 && count >= 0 && count <= all.samples - first, "a batch has the samples asked for");
  const auto part = [&](auto& array) {
    const std::span whole(array);
    const auto each = whole.empty() ? 0 : whole.size() / static_cast<std::size_t>(all.samples);
    return whole.subspan(static_cast<std::size_t>(first) * each, static_cast<std::size_t>(count) * each);
  };
  return {.samples = count,
          .seq_length = all.seq_length,
          .tokens = part(all.tokens),
          .labels = part(all.labels),
          .loss_mask = part(all.loss_mask),
          .positions = part(all.positions),
          .document_start = part(all.document_start),
          .sample_ids = part(all.sample_ids),
          .visible = part(all.visible),
          .fields = all.fields,
          .first_sample = all.first_sample + first};
}

/// A micro-batch that owns its memory and is reused from step to step: the list of fields that a dataset declares. It
/// is itself a view of all of its samples.
class Batch : public SampleView {
 public:
  /// Fields of their own extent are empty until resize().
  Batch(const BatchFields& declared, std::int64_t sample_count, std::int64_t length);
  /// Of token_fields().
  Batch(std::int64_t sample_count, std::int64_t length) : Batch(token_fields(), sample_count, length) {}
  Batch(const Batch& other);
  Batch& operator=(const Batch& other);
  Batch(Batch&& other) noexcept;
  Batch& operator=(Batch&& other) noexcept;
  ~Batch() = default;

  /// Whether these are the fields that it was made with.
  bool has(const BatchFields& declared) const;
  /// The largest seq_length: that of the constructor.
  std::int64_t capacity() const { return capacity_; }
  /// The rows of the samples [row, row + count) in the fields of their own extent, [count, fields]: to be set before
  /// resize().
  std::span<std::int64_t> own_rows(std::int64_t row, std::int64_t count = 1);
  /// Gives all samples `length` tokens and their own_rows(). The values are arbitrary, but those of fields with an
  /// extent `sample` stay. Throws BugError for a length of 0 or above the capacity.
  void resize(std::int64_t length);
  /// Sets all elements of a sample to 0.
  void clear_sample(std::int64_t row);

  /// Sample `row`, to be written. Throws BugError for a row that the batch does not have.
  SampleView sample(std::int64_t row) { return samples_of<SampleView>(*this, row, 1); }
  /// All samples, or the first `count`. Throws BugError if the batch has fewer than `count`.
  TokenBatch view() const { return view(samples); }
  TokenBatch view(std::int64_t count) const { return samples_of<TokenBatch>(*this, 0, count); }

 private:
  void refer();

  std::vector<FieldMemory> own_;
  std::int64_t capacity_ = 0;
  std::vector<std::int64_t> rows_;      ///< [samples, fields]
  std::vector<std::int64_t> elements_;  ///< of each sample, while a field gets its memory
};

}  // namespace tessera
