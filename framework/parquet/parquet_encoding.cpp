#include "framework/parquet/parquet_encoding.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>

namespace tessera::parquet {
namespace {

[[noreturn]] void ends_early() { throw ConfigError("a page ends before its last value"); }

// `width` bits, 0 to 64, from bit `at` of the bytes, the lowest first.
std::uint64_t bits(std::span<const std::byte> bytes, std::uint64_t at, unsigned width) {
  if (width == 0) return 0;
  const auto first = static_cast<std::size_t>(at / 8);
  const auto shift = static_cast<unsigned>(at % 8);
  const auto needed = (shift + width + 7) / 8;
  if (first >= bytes.size() || needed > bytes.size() - first) ends_early();
  std::uint64_t low = 0;
  std::memcpy(&low, bytes.data() + first, std::min<std::size_t>(needed, sizeof low));
  low >>= shift;
  if (needed > sizeof low) low |= std::to_integer<std::uint64_t>(bytes[first + 8]) << (64 - shift);
  return width == 64 ? low : low & ((std::uint64_t{1} << width) - 1);
}

std::uint64_t read_varint(std::span<const std::byte> bytes, std::size_t& at) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (at >= bytes.size()) ends_early();
    const auto next = std::to_integer<std::uint64_t>(bytes[at++]);
    value |= (next & 0x7FU) << shift;
    if (next < 0x80) return value;
  }
  throw ConfigError("a page has a number of more than 64 bits");
}

std::int64_t from_zigzag(std::uint64_t value) { return static_cast<std::int64_t>((value >> 1U) ^ (~(value & 1U) + 1)); }

template <class Number>
Number load(std::span<const std::byte> bytes, std::size_t& at) {
  if (sizeof(Number) > bytes.size() - at) ends_early();
  Number value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  at += sizeof value;
  return value;
}

std::string_view take_words(std::span<const std::byte> bytes, std::size_t& at, std::uint64_t size) {
  if (size > bytes.size() - at) ends_early();
  const std::string_view words(reinterpret_cast<const char*>(bytes.data()) + at, static_cast<std::size_t>(size));
  at += static_cast<std::size_t>(size);
  return words;
}

class Plain final : public ParquetValues {
 public:
  Plain(ParquetType type, std::span<const std::byte> bytes) : type_(type), bytes_(bytes) {}

  void next(ParquetValue& value) override {
    switch (type_) {
      case ParquetType::boolean:
        value.integer = static_cast<std::int64_t>(bits(bytes_, at_++, 1));
        return;
      case ParquetType::int32:
        value.integer = load<std::int32_t>(bytes_, at_);
        return;
      case ParquetType::int64:
        value.integer = load<std::int64_t>(bytes_, at_);
        return;
      case ParquetType::float32:
        value.number = static_cast<double>(load<float>(bytes_, at_));
        return;
      case ParquetType::float64:
        value.number = load<double>(bytes_, at_);
        return;
      case ParquetType::bytes:
        value.words = take_words(bytes_, at_, load<std::uint32_t>(bytes_, at_));
        return;
      case ParquetType::int96:
      case ParquetType::fixed_bytes:
        break;
    }
    must(false, "columns of unsupported types are refused before they are read");
  }

 private:
  ParquetType type_;
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;  // in bytes; of booleans in bits
};

class FromDictionary final : public ParquetValues {
 public:
  FromDictionary(std::span<const std::byte> bytes, const std::vector<ParquetValue>& dictionary)
      : dictionary_(dictionary) {
    const auto width = bytes.empty() ? 0 : std::to_integer<int>(bytes[0]);
    if (width > 32) throw ConfigError(text("a page has dictionary indices of ", width, " bits; expected 32 at most"));
    if (!bytes.empty()) indices_ = ParquetRuns(bytes.subspan(1), width);
  }

  void next(ParquetValue& value) override {
    const auto index = indices_.next();
    if (index >= dictionary_.size())
      throw ConfigError(
          text("a page has the dictionary index ", index, ", but the dictionary has ", dictionary_.size(), " values"));
    value = dictionary_[index];
  }

 private:
  const std::vector<ParquetValue>& dictionary_;
  ParquetRuns indices_;
};

class RunsOfBooleans final : public ParquetValues {
 public:
  explicit RunsOfBooleans(std::span<const std::byte> bytes) {
    std::size_t at = 0;
    const auto size = load<std::uint32_t>(bytes, at);
    if (size > bytes.size() - at) ends_early();
    runs_ = ParquetRuns(bytes.subspan(at, size), 1);
  }
  void next(ParquetValue& value) override { value.integer = runs_.next(); }

 private:
  ParquetRuns runs_;
};

class DeltaIntegers final : public ParquetValues {
 public:
  DeltaIntegers(std::span<const std::byte> bytes, std::int64_t most, bool narrow)
      : deltas_(bytes, most), narrow_(narrow) {}
  void next(ParquetValue& value) override {
    const auto wide = deltas_.next();
    value.integer = narrow_ ? static_cast<std::int32_t>(wide) : wide;
  }

 private:
  ParquetDeltas deltas_;
  bool narrow_;  // differences of 32-bit integers wrap at 32 bits
};

/// Lengths first, then all bytes. The lengths are gone through twice instead of kept, so memory stays that of the page.
class DeltaLengths final : public ParquetValues {
 public:
  DeltaLengths(std::span<const std::byte> bytes, std::int64_t most) : lengths_(bytes, most) {
    auto ahead = lengths_;
    for (auto left = ahead.count(); left > 0; --left) (void)ahead.next();
    bytes_ = ahead.rest();
  }
  void next(ParquetValue& value) override {
    const auto size = lengths_.next();
    if (size < 0) throw ConfigError(text("a page has a value of ", size, " bytes"));
    value.words = take_words(bytes_, at_, static_cast<std::uint64_t>(size));
  }

 private:
  ParquetDeltas lengths_;
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
};

/// Each value as the length of what it shares with the last one, and the rest.
class DeltaWords final : public ParquetValues {
 public:
  DeltaWords(std::span<const std::byte> bytes, std::int64_t most)
      : shared_(bytes, most), rests_(behind(shared_), most) {}
  void next(ParquetValue& value) override {
    const auto shared = shared_.next();
    if (shared < 0 || shared > static_cast<std::int64_t>(words_.size()))
      throw ConfigError(
          text("a page has a value that shares ", shared, " bytes with the last one, which has ", words_.size()));
    rests_.next(value);
    words_.resize(static_cast<std::size_t>(shared));
    words_ += value.words;
    value.words = words_;
  }

 private:
  static std::span<const std::byte> behind(ParquetDeltas deltas) {
    for (auto left = deltas.count(); left > 0; --left) (void)deltas.next();
    return deltas.rest();
  }

  ParquetDeltas shared_;
  DeltaLengths rests_;
  std::string words_;
};

}  // namespace

ParquetRuns::ParquetRuns(std::span<const std::byte> bytes, int width) : bytes_(bytes), width_(width) {}

void ParquetRuns::begin_run() {
  const auto header = read_varint(bytes_, at_);
  left_ = header >> 1U;
  packed_ = (header & 1U) != 0;
  if (packed_) {  // groups of 8; what a writer left out of the last one is noticed when it is needed
    bit_ = static_cast<std::uint64_t>(at_) * 8;
    const auto groups = std::min<std::uint64_t>(left_, bytes_.size());
    if (left_ > (std::uint64_t{1} << 40U)) throw ConfigError("a page has a run of too many values");
    at_ += static_cast<std::size_t>(
        std::min<std::uint64_t>(width_ == 0 ? 0 : groups * static_cast<unsigned>(width_), bytes_.size() - at_));
    left_ *= 8;
  } else {
    const auto bytes = static_cast<std::size_t>((width_ + 7) / 8);
    if (bytes > bytes_.size() - at_) ends_early();
    value_ = 0;
    std::memcpy(&value_, bytes_.data() + at_, bytes);
    at_ += bytes;
  }
}

std::uint32_t ParquetRuns::next() {
  while (left_ == 0) {
    if (width_ == 0 && at_ >= bytes_.size()) return 0;  // some writers leave out what has no bits
    begin_run();
  }
  --left_;
  if (!packed_) return value_;
  const auto value = static_cast<std::uint32_t>(bits(bytes_, bit_, static_cast<unsigned>(width_)));
  bit_ += static_cast<unsigned>(width_);
  return value;
}

ParquetDeltas::ParquetDeltas(std::span<const std::byte> bytes, std::int64_t most) : bytes_(bytes) {
  const auto values_of_block = varint();
  parts_ = varint();
  count_ = varint();
  value_ = static_cast<std::uint64_t>(from_zigzag(varint()));
  if (values_of_block == 0 || values_of_block > (1U << 24U) || parts_ == 0 || parts_ > values_of_block ||
      values_of_block % parts_ != 0 || (values_of_block / parts_) % 8 != 0)
    throw ConfigError(text("a page has difference blocks of ", values_of_block, " values in ", parts_,
                           " parts, which the format does not allow"));
  if (count_ > static_cast<std::uint64_t>(most))
    throw ConfigError(text("a page has ", count_, " differences, but ", most, " values"));
  values_of_part_ = values_of_block / parts_;
  part_ = parts_;
}

std::uint64_t ParquetDeltas::varint() { return read_varint(bytes_, at_); }

void ParquetDeltas::begin_block() {
  least_ = static_cast<std::uint64_t>(from_zigzag(varint()));
  if (parts_ > bytes_.size() - at_) ends_early();
  widths_ = bytes_.subspan(at_, static_cast<std::size_t>(parts_));
  at_ += widths_.size();
  part_ = 0;
}

std::int64_t ParquetDeltas::next() {
  if (taken_ >= count_) ends_early();
  if (taken_++ == 0) return static_cast<std::int64_t>(value_);
  if (left_in_part_ == 0) {
    if (part_ >= parts_) begin_block();
    width_ = std::to_integer<unsigned>(widths_[static_cast<std::size_t>(part_++)]);
    if (width_ > 64) throw ConfigError(text("a page has differences of ", width_, " bits; expected 64 at most"));
    const auto bytes = values_of_part_ / 8 * width_;
    if (bytes > bytes_.size() - at_) ends_early();
    bit_ = static_cast<std::uint64_t>(at_) * 8;
    at_ += static_cast<std::size_t>(bytes);
    left_in_part_ = values_of_part_;
  }
  --left_in_part_;
  value_ += least_ + bits(bytes_, bit_, width_);  // wraps, as the format says
  bit_ += width_;
  return static_cast<std::int64_t>(value_);
}

std::vector<ParquetValue> parquet_dictionary(ParquetType type, std::span<const std::byte> bytes, std::int64_t count) {
  if (type == ParquetType::boolean) throw ConfigError("it has a dictionary of booleans, which is not supported");
  if (count < 0 || static_cast<std::uint64_t>(count) > bytes.size() / 4) ends_early();  // each has 4 bytes or more
  std::vector<ParquetValue> out(static_cast<std::size_t>(count));
  Plain values(type, bytes);
  for (auto& value : out) values.next(value);
  return out;
}

std::unique_ptr<ParquetValues> parquet_values(int encoding, ParquetType type, std::span<const std::byte> bytes,
                                              std::int64_t most, const std::vector<ParquetValue>* dictionary) {
  static constexpr const char* names[] = {
      "PLAIN",          "GROUP_VAR_INT",       "PLAIN_DICTIONARY",        "RLE",
      "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
      "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};
  const bool known = encoding >= 0 && encoding < static_cast<int>(std::size(names));
  const std::string_view name = known ? names[encoding] : "";
  if (name == "PLAIN") return std::make_unique<Plain>(type, bytes);
  if (name == "PLAIN_DICTIONARY" || name == "RLE_DICTIONARY") {
    if (dictionary == nullptr) throw ConfigError("a page needs a dictionary, but the column has none");
    return std::make_unique<FromDictionary>(bytes, *dictionary);
  }
  if (name == "RLE" && type == ParquetType::boolean) return std::make_unique<RunsOfBooleans>(bytes);
  if (name == "DELTA_BINARY_PACKED" && (type == ParquetType::int32 || type == ParquetType::int64))
    return std::make_unique<DeltaIntegers>(bytes, most, type == ParquetType::int32);
  if (name == "DELTA_LENGTH_BYTE_ARRAY" && type == ParquetType::bytes)
    return std::make_unique<DeltaLengths>(bytes, most);
  if (name == "DELTA_BYTE_ARRAY" && type == ParquetType::bytes) return std::make_unique<DeltaWords>(bytes, most);
  throw ConfigError(text("a page has the encoding ", known ? names[encoding] : text(encoding),
                         ", which is not supported for this type; write the file with PLAIN or dictionary encoding"));
}

}  // namespace tessera::parquet
