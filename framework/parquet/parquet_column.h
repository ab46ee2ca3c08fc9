#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/parquet/parquet_encoding.h"
#include "framework/parquet/parquet_schema.h"

namespace tessera::parquet {

/// Limits above which a reader rejects a file as damaged or too large for memory.
struct ParquetLimits {
  std::int64_t page_values = std::int64_t{1} << 30;  ///< values in one page
  std::int64_t page_bytes = std::int64_t{1} << 30;   ///< bytes of one page, decompressed
  std::int64_t row_bytes = std::int64_t{1} << 30;    ///< bytes of the values of one row
};

/// Reads the values of one leaf column in order, page by page. Holds one page and the dictionary of the row group in
/// memory. Every member throws ConfigError, naming file, row group and column, if a page is damaged or not supported.
class ParquetColumn {
 public:
  /// `file` must outlive the object.
  ParquetColumn(const File& file, const ParquetNode& leaf, const ParquetLimits& limits);

  /// Begins row group `number`, in which this column's data is `chunk`.
  void begin(const ParquetChunk& chunk, std::int64_t number);

  /// Whether all entries of the row group were read. Then both levels are 0.
  bool ended() const { return ended_; }
  /// Repetition and definition level of the current entry.
  int repetition() const { return repetition_; }
  int definition() const { return definition_; }
  /// The current value; its definition level must be the maximum. Valid until `advance`.
  const ParquetValue& value() const { return value_; }
  /// Goes to the next entry.
  void advance();

  /// Throws ConfigError with file, row group and column before `message`.
  [[noreturn]] void refuse(const std::string& message) const;

 private:
  struct Header;

  void take();
  void next_page();
  Header read_header();
  void read_dictionary(const Header& header);
  void read_page(const Header& header);
  std::span<const std::byte> body(const Header& header, std::size_t plain, std::vector<std::byte>& out);
  static void cut_levels(std::span<const std::byte>& bytes, int highest, ParquetRuns& levels);

  const File& file_;
  const ParquetNode& leaf_;
  ParquetLimits limits_;
  ParquetChunk chunk_;
  std::int64_t group_ = 0;

  std::uint64_t at_ = 0, end_ = 0;            // bytes of the file
  std::int64_t left_ = 0, left_in_page_ = 0;  // remaining entries, without the current one
  std::vector<std::byte> stored_, page_, dictionary_page_, head_;
  std::vector<ParquetValue> dictionary_;
  bool has_dictionary_ = false;
  ParquetRuns repetitions_, definitions_;
  std::unique_ptr<ParquetValues> values_;

  bool ended_ = true;
  int repetition_ = 0, definition_ = 0;
  ParquetValue value_;
};

}  // namespace tessera::parquet
