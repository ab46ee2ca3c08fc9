#include "framework/parquet/parquet_column.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "framework/parquet/parquet_codec.h"
#include "framework/parquet/parquet_thrift.h"

namespace tessera::parquet {
namespace {

using Field = ThriftReader::Field;

constexpr std::size_t first_header_bytes = 512, most_header_bytes = std::size_t{16} << 20U;
constexpr int rle = 3;

int bits_for(int highest) { return static_cast<int>(std::bit_width(static_cast<unsigned>(highest))); }

}  // namespace

/// A page header, and where the page is.
struct ParquetColumn::Header {
  enum Type { data = 0, index = 1, dictionary = 2, data_v2 = 3 };
  static constexpr std::int64_t most = INT32_MAX;

  std::int64_t type = -1, plain_bytes = 0, stored_bytes = 0;
  std::optional<std::uint32_t> checksum;
  std::int64_t values = -1, encoding = -1, definition_encoding = rle, repetition_encoding = rle;
  std::int64_t definition_bytes = 0, repetition_bytes = 0;
  bool compressed = true;

  explicit Header(ThriftReader& in) {
    in.structure([&](const Field& field) {
      switch (field.id) {
        case 1:
          type = in.integer(field);
          return true;
        case 2:
          plain_bytes = in.integer(field, 0, most);
          return true;
        case 3:
          stored_bytes = in.integer(field, 0, most);
          return true;
        case 4:
          checksum = static_cast<std::uint32_t>(in.integer(field));
          return true;
        case 5:
        case 7:
          read_page(in, field);
          return true;
        case 8:
          read_page_v2(in, field);
          return true;
        default:
          return false;
      }
    });
  }

 private:
  void read_page(ThriftReader& in, const Field& whole) {
    in.structure(whole, [&](const Field& field) {
      if (field.id < 1 || field.id > 4 || (whole.id == 7 && field.id > 2)) return false;
      auto& into = field.id == 1   ? values
                   : field.id == 2 ? encoding
                   : field.id == 3 ? definition_encoding
                                   : repetition_encoding;
      into = in.integer(field, 0, most);
      return true;
    });
  }
  void read_page_v2(ThriftReader& in, const Field& whole) {
    in.structure(whole, [&](const Field& field) {
      switch (field.id) {
        case 1:
          values = in.integer(field, 0, most);
          return true;
        case 4:
          encoding = in.integer(field, 0, most);
          return true;
        case 5:
          definition_bytes = in.integer(field, 0, most);
          return true;
        case 6:
          repetition_bytes = in.integer(field, 0, most);
          return true;
        case 7:
          compressed = in.boolean(field);
          return true;
        default:
          return false;
      }
    });
  }
};

ParquetColumn::ParquetColumn(const File& file, const ParquetNode& leaf, const ParquetLimits& limits)
    : file_(file), leaf_(leaf), limits_(limits) {}

void ParquetColumn::refuse(const std::string& message) const {
  throw ConfigError(text(file_.path().string(), ": row group ", group_, ", column '", leaf_.path, "': ", message));
}

void ParquetColumn::begin(const ParquetChunk& chunk, std::int64_t number) {
  chunk_ = chunk;
  group_ = number;
  if (!chunk.refused.empty()) refuse(chunk.refused);
  if (chunk.type && *chunk.type != leaf_.type) refuse("is damaged: it has another type than the schema says");
  try {
    check_parquet_codec(chunk.codec);
  } catch (const ConfigError& error) {
    refuse(error.what());
  }
  at_ = chunk.begin;
  end_ = chunk.begin + chunk.bytes;
  left_ = chunk.values;
  left_in_page_ = 0;
  has_dictionary_ = false;
  values_.reset();
  dictionary_.clear();
  ended_ = false;
  advance();
}

void ParquetColumn::advance() {
  if (left_ == 0) {
    ended_ = true;
    repetition_ = definition_ = 0;
    return;
  }
  try {
    while (left_in_page_ == 0) next_page();
    take();
  } catch (const ConfigError& error) {
    refuse(error.what());
  }
}

void ParquetColumn::take() {
  --left_;
  --left_in_page_;
  repetition_ = leaf_.highest_repetition == 0 ? 0 : static_cast<int>(repetitions_.next());
  definition_ = leaf_.highest_definition == 0 ? 0 : static_cast<int>(definitions_.next());
  if (repetition_ > leaf_.highest_repetition || definition_ > leaf_.highest_definition)
    throw ConfigError(text("a page is damaged: levels ", repetition_, " and ", definition_, " are above ",
                           leaf_.highest_repetition, " and ", leaf_.highest_definition));
  if (definition_ == leaf_.highest_definition) values_->next(value_);
}

ParquetColumn::Header ParquetColumn::read_header() {
  for (auto wanted = first_header_bytes;; wanted *= 8) {
    const auto have = static_cast<std::size_t>(std::min<std::uint64_t>(wanted, end_ - at_));
    head_.resize(have);
    file_.read_at(at_, head_);
    try {
      ThriftReader in(head_);
      Header out(in);
      at_ += in.position();
      return out;
    } catch (const ThriftEnd&) {
      if (have == end_ - at_ || wanted >= most_header_bytes) throw;
    }
  }
}

void ParquetColumn::next_page() {
  if (at_ >= end_) throw ConfigError(text("is damaged: its pages end ", left_, " values too early"));
  const auto header = read_header();
  if (static_cast<std::uint64_t>(header.stored_bytes) > end_ - at_)
    throw ConfigError(text("is damaged or cut off: a page has ", header.stored_bytes, " bytes, but the column has ",
                           end_ - at_, " left"));
  if (header.type == Header::index) {
    at_ += static_cast<std::uint64_t>(header.stored_bytes);
    return;
  }
  if (header.type < 0 || header.type > Header::data_v2)
    throw ConfigError(text("a page has the type ", header.type, ", which is not supported"));
  if (header.values < 0) throw ConfigError("is damaged: a page does not say how many values it has");
  if (header.values > limits_.page_values || header.plain_bytes > limits_.page_bytes)
    throw ConfigError(text("a page has ", header.values, " values in ", header.plain_bytes,
                           " bytes, which is more than the supported ", limits_.page_values, " and ",
                           limits_.page_bytes, "; write the file with smaller pages"));
  stored_.resize(static_cast<std::size_t>(header.stored_bytes));
  file_.read_at(at_, stored_);
  at_ += stored_.size();
  if (header.checksum) {
    const auto sum = crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(stored_.data()), stored_.size());
    if (sum != *header.checksum)
      throw ConfigError(text("is damaged: a page has the checksum ", sum, ", but ", *header.checksum, " is noted"));
  }
  header.type == Header::dictionary ? read_dictionary(header) : read_page(header);
}

// The page behind its first `plain` bytes, which are never compressed.
std::span<const std::byte> ParquetColumn::body(const Header& header, std::size_t plain, std::vector<std::byte>& out) {
  const auto stored = std::span<const std::byte>(stored_).subspan(plain);
  const auto bytes = static_cast<std::size_t>(header.plain_bytes) - plain;
  if (!header.compressed || (bytes == 0 && stored.empty())) {
    if (stored.size() != bytes)
      throw ConfigError(text("is damaged: a page of ", stored.size(), " bytes says that it has ", bytes));
    out.assign(stored.begin(), stored.end());
  } else {
    decompress_parquet(chunk_.codec, stored, bytes, out);
  }
  return out;
}

void ParquetColumn::read_dictionary(const Header& header) {
  if (has_dictionary_) throw ConfigError("is damaged: it has two dictionaries");
  if (header.encoding != 0 && header.encoding != 2)
    throw ConfigError(text("its dictionary has the encoding ", header.encoding, ", which is not supported"));
  dictionary_ = parquet_dictionary(leaf_.type, body(header, 0, dictionary_page_), header.values);
  has_dictionary_ = true;
}

// Cuts the levels, with their length before them, off the beginning of the page.
void ParquetColumn::cut_levels(std::span<const std::byte>& bytes, int highest, ParquetRuns& levels) {
  if (highest == 0) return;
  std::uint32_t size = 0;
  if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  if (bytes.size() < sizeof size || size > bytes.size() - sizeof size)
    throw ConfigError("is damaged: a page ends inside its levels");
  levels = ParquetRuns(bytes.subspan(sizeof size, size), bits_for(highest));
  bytes = bytes.subspan(sizeof size + size);
}

void ParquetColumn::read_page(const Header& header) {
  if (header.values > left_)
    throw ConfigError(text("is damaged: a page has ", header.values, " values, but ", left_, " are left"));
  values_.reset();
  std::span<const std::byte> bytes;
  if (header.type == Header::data) {
    const auto usual = [&](int highest, std::int64_t encoding) { return highest == 0 || encoding == rle; };
    if (!usual(leaf_.highest_repetition, header.repetition_encoding) ||
        !usual(leaf_.highest_definition, header.definition_encoding))
      throw ConfigError("its levels have another encoding than RLE, which is not supported");
    bytes = body(header, 0, page_);
    cut_levels(bytes, leaf_.highest_repetition, repetitions_);
    cut_levels(bytes, leaf_.highest_definition, definitions_);
  } else {
    const auto levels = header.repetition_bytes + header.definition_bytes;
    if (levels > header.stored_bytes || levels > header.plain_bytes)
      throw ConfigError("is damaged: a page ends inside its levels");
    const auto repetition_bytes = static_cast<std::size_t>(header.repetition_bytes);
    const auto stored = std::span<const std::byte>(stored_);
    bytes = body(header, static_cast<std::size_t>(levels), page_);
    repetitions_ = ParquetRuns(stored.first(repetition_bytes), bits_for(leaf_.highest_repetition));
    definitions_ = ParquetRuns(stored.subspan(repetition_bytes, static_cast<std::size_t>(header.definition_bytes)),
                               bits_for(leaf_.highest_definition));
  }
  values_ = parquet_values(static_cast<int>(header.encoding), leaf_.type, bytes, header.values,
                           has_dictionary_ ? &dictionary_ : nullptr);
  left_in_page_ = header.values;
}

}  // namespace tessera::parquet
