#include "framework/multimodal/mllm_dataset.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/data/bad_sample.h"

namespace tessera::multimodal {
namespace {

constexpr std::int64_t length_multiple_of_mm = 8;
constexpr const char *pixel_field = "pixel_values", *grid_field = "grid_thw";

std::vector<std::int32_t> next_labels(const EncodedRow& row) {
  std::vector<std::int32_t> labels(row.labels.size(), -1);
  for (std::size_t i = 0; i + 1 < labels.size(); ++i)
    if (row.labels[i + 1] != instructions::ignored_label) labels[i] = row.labels[i + 1];
  return labels;
}

}  // namespace

BatchFields mllm_fields(const images::ProcessorOptions& processor) {
  auto fields = token_fields();
  for (auto& field : fields)
    if (field.name == "positions") field.width = 3;
  const auto merge = std::int64_t{processor.merge_size};
  fields.push_back({.name = pixel_field,
                    .type = DType::float32,
                    .extent = FieldExtent::own,
                    .width = processor.patch_width(),
                    .rows_per_token = merge * merge});
  fields.push_back({.name = grid_field, .extent = FieldExtent::own, .width = 3, .rows_per_token = 1});
  return fields;
}

MllmDataset::MllmDataset(std::shared_ptr<const MllmRows> rows, std::int64_t begin, std::int64_t end,
                         std::int64_t seq_length, std::int64_t vocab_size)
    : rows_(std::move(rows)),
      begin_(begin),
      end_(end),
      seq_length_(seq_length),
      vocab_size_(vocab_size),
      fields_(mllm_fields(rows_->encoder().media().processor())) {}

std::int64_t MllmDataset::extents(std::int64_t index, std::span<std::int64_t> rows) const {
  const auto extents = rows_->extents(begin_ + index);
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].name == pixel_field) rows[i] = extents.patches;
    if (fields_[i].name == grid_field) rows[i] = extents.media;
  }
  const auto padded = (extents.tokens + length_multiple_of_mm - 1) / length_multiple_of_mm * length_multiple_of_mm;
  return std::min(padded, seq_length_);
}

void MllmDataset::read(std::int64_t index, const SampleView& out) const {
  const auto row = rows_->read(begin_ + index);
  for (const auto id : row.input_ids)
    if (vocab_size_ > 0 && id >= vocab_size_)
      throw ConfigError(text(rows_->place(begin_ + index), ": token ", id, " is not below vocab_size ", vocab_size_,
                             "; take the tokenizer of the model, or make vocab_size larger"));
  write_tokens(row, out);
  try {
    write_media(row, out);
  } catch (const data::BadSampleError& error) {
    throw data::BadSampleError(text(rows_->place(begin_ + index), ": ", error.what()));
  }
}

void MllmDataset::write_tokens(const EncodedRow& row, const SampleView& out) const {
  const auto length = row.input_ids.size();
  must(length <= out.tokens.size(), "a sample has place for its tokens");
  const auto fill = [&](auto array, const auto& values, auto padding) {
    std::fill(std::copy(values.begin(), values.end(), array.begin()), array.end(), padding);
  };
  fill(out.tokens, row.input_ids, rows_->encoder().pad());
  fill(out.labels, next_labels(row), -1);
  if (rows_->encoder().loss_on_padding() && length > 0)
    std::fill(out.labels.begin() + static_cast<std::ptrdiff_t>(length) - 1, out.labels.end() - 1,
              rows_->encoder().pad());
  std::transform(out.labels.begin(), out.labels.end(), out.loss_mask.begin(),
                 [](std::int32_t label) { return label == -1 ? 0.0F : 1.0F; });
  write_places(row, out);
}

// Positions of each record begin at 0, as if it were alone.
void MllmDataset::write_places(const EncodedRow& row, const SampleView& out) const {
  const auto width = out.tokens.size(), length = row.input_ids.size();
  std::fill(out.positions.begin(), out.positions.end(), 1);  // of padding
  std::fill(out.document_start.begin(), out.document_start.end(), 0);
  std::vector<std::int32_t> own;
  for (std::size_t i = 0; i < row.starts.size(); ++i) {
    const auto begin = row.starts[i];
    const auto end = i + 1 < row.starts.size() ? row.starts[i + 1] : EncodedRow::Start{length, row.grids.size()};
    const auto count = end.token - begin.token;
    own.resize(3 * count);
    data::write_visual_positions({std::span<const std::int32_t>(row.input_ids).subspan(begin.token, count),
                                  {},
                                  std::span(row.grids).subspan(begin.medium, end.medium - begin.medium)},
                                 rows_->encoder().visual(), own);
    for (std::size_t axis = 0; axis < 3; ++axis)
      std::copy_n(own.begin() + static_cast<std::ptrdiff_t>(axis * count), count,
                  out.positions.begin() + static_cast<std::ptrdiff_t>(axis * width + begin.token));
    if (!rows_->attends_across_records())
      std::fill(out.document_start.begin() + static_cast<std::ptrdiff_t>(begin.token), out.document_start.end(),
                static_cast<std::int32_t>(begin.token));
  }
}

void MllmDataset::write_media(const EncodedRow& row, const SampleView& out) const {
  const auto grids = out.field<std::int32_t>(grid_field);
  auto patches = out.field<float>(pixel_field);
  const auto width = static_cast<std::size_t>(rows_->encoder().media().processor().patch_width());
  if (grids.size() != 3 * row.grids.size() || patches.size() != static_cast<std::size_t>(row.patches()) * width)
    throw data::BadSampleError("its images have other sizes than when the run began; restart the run");
  for (std::size_t i = 0; i < row.grids.size(); ++i) {
    const auto& grid = row.grids[i];
    grids[3 * i] = grid.t, grids[3 * i + 1] = grid.h, grids[3 * i + 2] = grid.w;
    const auto own = static_cast<std::size_t>(grid.patches()) * width;
    rows_->encoder().media().write_patches(row.media[i], grid, patches.first(own));
    patches = patches.subspan(own);
  }
}

std::vector<data::TokenOrigin> MllmDataset::origins(std::int64_t index) const { return rows_->origins(begin_ + index); }

std::vector<std::string> MllmDataset::png_files(std::int64_t index) const {
  std::vector<std::string> all;
  for (const auto& medium : rows_->read(begin_ + index).media)
    for (auto& file : rows_->encoder().media().png_files(medium)) all.push_back(std::move(file));
  return all;
}

}  // namespace tessera::multimodal
