#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "framework/data/parquet/parquet_footer.h"

namespace tessera::data {

/// Numbers of a fixed width in Parquet's mixture of repeated values and packed bits (encoding RLE). `next` throws
/// ConfigError if the bytes end too early.
class ParquetRuns {
 public:
  ParquetRuns() = default;
  /// `width`: bits of a number, 0 to 32. `bytes` must outlive the object.
  ParquetRuns(std::span<const std::byte> bytes, int width);
  std::uint32_t next();

 private:
  void begin_run();

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;      // first byte behind the run
  std::uint64_t left_ = 0;  // numbers left in it
  std::uint64_t bit_ = 0;   // of the next packed number, from the beginning of `bytes_`
  int width_ = 0;
  bool packed_ = false;
  std::uint32_t value_ = 0;  // that is repeated
};

/// Integers as differences in packed blocks (encoding DELTA_BINARY_PACKED).
class ParquetDeltas {
 public:
  ParquetDeltas() = default;
  /// Throws ConfigError if the header of the encoding is damaged or says more than `most` values, as `next` does for
  /// the rest.
  ParquetDeltas(std::span<const std::byte> bytes, std::int64_t most);
  std::int64_t next();
  /// How many there are in all.
  std::uint64_t count() const { return count_; }
  /// The bytes behind the last number. All numbers must have been taken.
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

/// One value of a column; which member counts follows from the type.
struct ParquetValue {
  std::int64_t integer = 0;  ///< booleans 0 and 1; unsigned integers as their two's complement
  double number = 0;
  std::string_view words;  ///< valid until the next value is read
};

/// The values of one page.
class ParquetValues {
 public:
  virtual ~ParquetValues() = default;
  /// Throws ConfigError if there is no further value.
  virtual void next(ParquetValue& value) = 0;
};

/// The values of a dictionary page, `count` of them in encoding PLAIN.
std::vector<ParquetValue> parquet_dictionary(ParquetType type, std::span<const std::byte> bytes, std::int64_t count);

/// The values of a data page in the Encoding `encoding` of the format. `bytes` and `dictionary` must outlive the
/// result; null: there is no dictionary. `most`: number of values in the page, with nulls. Throws ConfigError, naming
/// the encoding, if it is not supported for the type.
std::unique_ptr<ParquetValues> parquet_values(int encoding, ParquetType type, std::span<const std::byte> bytes,
                                              std::int64_t most, const std::vector<ParquetValue>* dictionary);

}  // namespace tessera::data
