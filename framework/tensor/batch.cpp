#include "framework/tensor/batch.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

/// Elements of a sample; `rows`: of a field with extents of its own.
std::int64_t elements_of(const BatchField& field, std::int64_t seq_length, std::int64_t rows) {
  switch (field.extent) {
    case FieldExtent::sample:
      return field.width;
    case FieldExtent::token:
      return field.width * seq_length;
    case FieldExtent::pair:
      return seq_length * seq_length;
    case FieldExtent::own:
      return field.width * rows;
  }
  throw BugError("a field has an extent");
}

}  // namespace

const BatchFields& token_fields() {
  static const BatchFields fields = {{.name = "tokens"},
                                     {.name = "labels"},
                                     {.name = "loss_mask", .type = DType::float32},
                                     {.name = "positions"},
                                     {.name = "document_start"},
                                     {.name = "sample_ids", .type = DType::int64, .extent = FieldExtent::sample}};
  return fields;
}

double bytes_of(const BatchFields& fields, std::int64_t samples, std::int64_t seq_length) {
  double sum = 0;
  for (const auto& field : fields) {
    const auto length = static_cast<double>(seq_length), width = static_cast<double>(field.width);
    const auto own_rows = static_cast<double>(field.most_rows) + static_cast<double>(field.rows_per_token) * length;
    const auto each = field.extent == FieldExtent::token  ? width * length
                      : field.extent == FieldExtent::pair ? length * length
                      : field.extent == FieldExtent::own  ? width * own_rows
                                                          : width;
    sum += each * static_cast<double>(size_of(field.type)) * static_cast<double>(samples);
  }
  return sum;
}

void FieldMemory::resize(std::span<const std::int64_t> elements) {
  begins_.resize(elements.size() + 1);
  for (std::size_t s = 0; s < elements.size(); ++s) begins_[s + 1] = begins_[s] + elements[s];
  const auto words = (static_cast<std::size_t>(begins_.back()) * size_of(field_.type) + 7) / 8;
  if (words > memory_.size()) memory_.resize(words);
}

void* FieldMemory::at(DType type, std::int64_t first, std::int64_t count) {
  if (type != field_.type) throw BugError(text("field ", field_.name, " is read as another type than it has"));
  must(first >= 0 && count >= 0 && first + count < static_cast<std::int64_t>(begins_.size()),
       "a field has the samples asked for");
  return reinterpret_cast<std::byte*>(memory_.data()) +
         static_cast<std::size_t>(begins_[static_cast<std::size_t>(first)]) * size_of(type);
}

void FieldMemory::clear(std::int64_t sample) {
  auto* begin = static_cast<std::byte*>(at(field_.type, sample, 1));
  std::fill_n(begin, size(sample, 1) * size_of(field_.type), std::byte{0});
}

Batch::Batch(const BatchFields& declared, std::int64_t sample_count, std::int64_t length)
    : capacity_(length), elements_(static_cast<std::size_t>(sample_count)) {
  samples = sample_count;
  for (const auto& field : declared) own_.emplace_back(field);
  rows_.resize(static_cast<std::size_t>(sample_count) * own_.size());
  resize(length);
}

Batch::Batch(const Batch& other)
    : SampleView(other), own_(other.own_), capacity_(other.capacity_), rows_(other.rows_), elements_(other.elements_) {
  refer();
}
Batch& Batch::operator=(const Batch& other) {
  if (this != &other) *this = Batch(other);
  return *this;
}
Batch::Batch(Batch&& other) noexcept
    : SampleView(other),
      own_(std::move(other.own_)),
      capacity_(other.capacity_),
      rows_(std::move(other.rows_)),
      elements_(std::move(other.elements_)) {
  fields = &own_;
}
Batch& Batch::operator=(Batch&& other) noexcept {
  SampleView::operator=(other);
  own_ = std::move(other.own_);
  capacity_ = other.capacity_;
  rows_ = std::move(other.rows_);
  elements_ = std::move(other.elements_);
  fields = &own_;
  return *this;
}

bool Batch::has(const BatchFields& declared) const {
  return std::equal(own_.begin(), own_.end(), declared.begin(), declared.end(),
                    [](const FieldMemory& one, const BatchField& field) { return one.field() == field; });
}

std::span<std::int64_t> Batch::own_rows(std::int64_t row, std::int64_t count) {
  must(row >= 0 && count >= 0 && count <= samples - row, "a batch has the samples asked for");
  return std::span(rows_).subspan(static_cast<std::size_t>(row) * own_.size(),
                                  static_cast<std::size_t>(count) * own_.size());
}

void Batch::resize(std::int64_t length) {
  must(length > 0 && length <= capacity_, "samples of a batch fit into it");
  seq_length = length;
  for (std::size_t f = 0; f < own_.size(); ++f) {
    for (std::size_t s = 0; s < elements_.size(); ++s)
      elements_[s] = elements_of(own_[f].field(), length, rows_[s * own_.size() + f]);
    own_[f].resize(elements_);
  }
  refer();
}

void Batch::clear_sample(std::int64_t row) {
  for (auto& one : own_) one.clear(row);
}

/// Sets the named members.
void Batch::refer() {
  fields = &own_;
  const auto set = [&]<class T>(std::span<T>& array, std::string_view name) {
    array = {};
    for (auto& one : own_)
      if (one.field().name == name) array = one.elements<T>(0, samples);
  };
  set(tokens, "tokens");
  set(labels, "labels");
  set(loss_mask, "loss_mask");
  set(positions, "positions");
  set(document_start, "document_start");
  set(sample_ids, "sample_ids");
  set(visible, "visible");
}

}  // namespace tessera
