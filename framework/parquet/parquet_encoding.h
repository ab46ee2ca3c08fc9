#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "framework/parquet/parquet_footer.h"

namespace tessera::parquet {

/// Decodes Parquet's encoding RLE: numbers of a fixed bit width, as runs of repeated values or packed bits. `next`
/// throws ConfigError if the bytes end too early.
class ParquetRuns {
 public:
  ParquetRuns() = default;
  /// `width`: bits of a number, 0 to 32. The memory of `bytes` must outlive this object.
  ParquetRuns(std::span<const std::byte> bytes, int width);
  std::uint32_t next();

 private:
  void begin_run();

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;      // first byte after the run
  std::uint64_t left_ = 0;  // numbers left in the run
  std::uint64_t bit_ = 0;   // position of the next packed number, in bits from the beginning of `bytes_`
  int width_ = 0;
  bool packed_ = false;
  std::uint32_t value_ = 0;  // the repeated value
};

/// Decodes Parquet's encoding DELTA_BINARY_PACKED: integers as differences in packed blocks.
class ParquetDeltas {
 public:
  ParquetDeltas() = default;
  /// Throws ConfigError if the header is damaged or announces more than `most` values; `next` throws it if the rest is
  /// damaged.
  ParquetDeltas(std::span<const std::byte> bytes, std::int64_t most);
  std::int64_t next();
  /// Total number of values.
  std::uint64_t count() const { return count_; }
  /// The bytes after the last number. All numbers must have been read.
  std::span<const std::byte> rest() const { return bytes_.subspan(at_); }

 private:
  std::uint64_t varint();
  void begin_block();

  std::span<const std::byte> bytes_, widths_;
  std::size_t at_ = 0;
  std::uint64_t values_of_part_ = 0, parts_ = 0, part_ = 0, left_in_part_ = 0, count_ = 0, taken_ = 0, bit_ = 0;
  std::uint64_t value_ = 0, least_ = 0;
  unsigned width_ = 0;
};

/// One value of a column; the column's type determines which member is used.
struct ParquetValue {
  std::int64_t integer = 0;  ///< booleans 0 and 1; unsigned integers as their two's complement
  double number = 0;
  std::string_view words;  ///< valid until the next value is read
};

/// Decodes the values of one page.
class ParquetValues {
 public:
  virtual ~ParquetValues() = default;
  /// Reads the next value. Throws ConfigError if there is none.
  virtual void next(ParquetValue& value) = 0;
};

/// Decodes the `count` values of a dictionary page in encoding PLAIN. The values refer to `bytes`.
std::vector<ParquetValue> parquet_dictionary(ParquetType type, std::span<const std::byte> bytes, std::int64_t count);

/// Makes a decoder for a data page with the format's Encoding `encoding`. The memory of `bytes` and `dictionary` (null:
/// none) must outlive the result. `most`: number of values in the page, including nulls. Throws ConfigError, naming the
/// encoding, if it is not supported for the type.
std::unique_ptr<ParquetValues> parquet_values(int encoding, ParquetType type, std::span<const std::byte> bytes,
                                              std::int64_t most, const std::vector<ParquetValue>* dictionary);

}  // namespace tessera::parquet
