#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/data/dataset.h"
#include "framework/multimodal/mllm_options.h"
#include "framework/multimodal/packing.h"
#include "framework/multimodal/record_files.h"
#include "framework/multimodal/row_encoder.h"

namespace tessera::multimodal {

/// The fields of a sample of `mllm`: those of text with three axes of positions; `pixel_values` (float32), a row of
/// 3 x temporal_patch_size x patch_size^2 values for each patch, in the order of Transformers; and `grid_thw` (int32),
/// a row of time steps, rows and columns of patches for each image or video, in reading order.
BatchFields mllm_fields(const images::ProcessorOptions& processor);

/// What opening the records found.
struct MllmCounts {
  std::int64_t records = 0;                     ///< read
  std::map<std::string, std::int64_t> dropped;  ///< by reason
  std::string first_dropped;                    ///< place and reason of the first one; empty: none
  std::int64_t unreadable = 0;                  ///< kept although an image cannot be read
  std::int64_t as_written = 0;                  ///< paths that are not in media_dir
};

/// The samples of record files: the records that MindSpeed-MM keeps, without those whose row is cut inside an image;
/// with packing, several of them in each sample.
/// Opening reads and encodes all records once, but of images only the headers; a sample is encoded again, and its
/// images are decoded, when it is read.
class MllmRows {
 public:
  /// `workers`: threads that encode. `skip_unreadable`: a record with an image that cannot be read is dropped; else it
  /// stays, and reading it throws data::BadSampleError; with packing, it is refused. `encoder` cuts rows to the
  /// capacity of `packing`. Throws ConfigError, beginning with file:line, for the first record that cannot be used.
  MllmRows(std::shared_ptr<const RecordFiles> files, std::shared_ptr<const RowEncoder> encoder, std::int64_t workers,
           bool skip_unreadable, const Packing& packing = {});

  std::int64_t samples() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
  /// Whether tokens of a sample attend to other records of it.
  bool attends_across_records() const { return packing_.is_on() && !packing_.attends_within_record; }
  const MllmCounts& counts() const { return counts_; }
  const RowEncoder& encoder() const { return *encoder_; }
  struct Extents {
    std::int64_t tokens = 0, patches = 0, media = 0;
  };
  /// Throws data::BadSampleError if an image of the sample could not be read.
  Extents extents(std::int64_t sample) const;
  /// Throws data::BadSampleError if an image cannot be read.
  EncodedRow read(std::int64_t sample) const;
  /// Each record of the sample, in order.
  std::vector<data::TokenOrigin> origins(std::int64_t sample) const;
  /// Where its record is, or the first one of several.
  std::string place(std::int64_t sample) const { return files_->place(rows_of(sample).front().record); }

 private:
  struct Row {
    std::int64_t record = 0;
    std::int32_t tokens = 0, patches = 0, media = 0;  // tokens 0: unreadable
  };
  struct Found;
  Found look_at(std::int64_t record) const;
  void look_at_all(std::int64_t workers, std::vector<Found>& found) const;
  EncodedRow read_record(std::int64_t record) const;
  void refuse_unreadable(std::int64_t record) const;
  void pack();
  std::span<const Row> rows_of(std::int64_t sample) const {
    const auto at = static_cast<std::size_t>(sample);
    return std::span(rows_).subspan(begins_[at], begins_[at + 1] - begins_[at]);
  }

  std::shared_ptr<const RecordFiles> files_;
  std::shared_ptr<const RowEncoder> encoder_;
  Packing packing_;
  std::vector<Row> rows_;            // those of a sample side by side
  std::vector<std::size_t> begins_;  // [samples + 1] index of the first row of each sample
  MllmCounts counts_;
};

/// Samples [begin, end) of `rows`. Labels are shifted to the next token; padding has the tokenizer's padding token,
/// label -1, loss mask 0 and position 1; with RowOptions::loss_on_padding, the padding token as label and loss mask 1.
/// Lengths are rounded up to a multiple of 8, as MindSpeed-MM pads.
class MllmDataset final : public data::Dataset {
 public:
  MllmDataset(std::shared_ptr<const MllmRows> rows, std::int64_t begin, std::int64_t end, std::int64_t seq_length,
              std::int64_t vocab_size);

  std::int64_t samples() const override { return end_ - begin_; }
  std::int64_t seq_length() const override { return seq_length_; }
  const BatchFields& fields() const override { return fields_; }
  bool extents_vary() const override { return true; }
  std::int64_t extents(std::int64_t index, std::span<std::int64_t> rows) const override;
  /// Allocates memory: it encodes text and decodes images.
  void read(std::int64_t index, const SampleView& out) const override;
  std::vector<data::TokenOrigin> origins(std::int64_t index) const override;
  /// The images and frames of sample `index` as the model sees them, in reading order, each as the bytes of a PNG file.
  std::vector<std::string> png_files(std::int64_t index) const;

 private:
  void write_tokens(const EncodedRow& row, const SampleView& out) const;
  void write_places(const EncodedRow& row, const SampleView& out) const;
  void write_media(const EncodedRow& row, const SampleView& out) const;

  std::shared_ptr<const MllmRows> rows_;
  std::int64_t begin_, end_, seq_length_, vocab_size_;
  BatchFields fields_;
};

/// The data of `options`. `evaluated`: the records are those of an evaluation, and this image processor replaces that
/// of `options`; columns that no record has are then not missed. Throws ConfigError for files that are missing or
/// damaged, or without a tokenizer.
std::unique_ptr<data::DataSplits> open_mllm(const MllmOptions& options, const data::DataParts& parts,
                                            const std::optional<images::ProcessorOptions>& evaluated = {});

}  // namespace tessera::multimodal
