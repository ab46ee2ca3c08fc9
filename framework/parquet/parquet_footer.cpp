#include "framework/parquet/parquet_footer.h"

#include <array>
#include <cstring>
#include <fstream>
#include <limits>

#include "framework/base/memory_limit.h"
#include "framework/parquet/parquet_thrift.h"

namespace tessera::parquet {
namespace {

using Field = ThriftReader::Field;
using Type = ThriftReader::Type;

constexpr auto most = std::numeric_limits<std::int64_t>::max();
constexpr std::string_view magic = "PAR1", encrypted_magic = "PARE";

ParquetType type_of(ThriftReader& in, const Field& field) { return static_cast<ParquetType>(in.integer(field, 0, 7)); }

void read_logical(ThriftReader& in, const Field& field, ParquetElement& out) {
  in.structure(field, [&](const Field& kind) {
    out.logical = kind.id;
    if (kind.id != 10) return false;
    in.structure(kind, [&](const Field& part) {
      if (part.id != 2) return false;
      out.is_signed = in.boolean(part);
      return true;
    });
    return true;
  });
}

ParquetElement read_element(ThriftReader& in) {
  ParquetElement out;
  in.structure([&](const Field& field) {
    switch (field.id) {
      case 1:
        out.type = type_of(in, field);
        return true;
      case 3:
        out.repetition = static_cast<ParquetElement::Repetition>(in.integer(field, 0, 2));
        return true;
      case 4:
        out.name = in.binary(field);
        return true;
      case 5:
        out.children = in.integer(field, 0, most);
        return true;
      case 6:
        out.converted = static_cast<int>(in.integer(field, 0, 1000));
        return true;
      case 10:
        read_logical(in, field, out);
        return true;
      default:
        return false;
    }
  });
  if (out.children > 0) out.type.reset();  // some writers give groups a type too
  return out;
}

void read_chunk_data(ThriftReader& in, const Field& whole, ParquetChunk& out) {
  std::int64_t data = 0, dictionary = 0, bytes = 0;
  in.structure(whole, [&](const Field& field) {
    switch (field.id) {
      case 1:
        out.type = type_of(in, field);
        return true;
      case 4:
        out.codec = static_cast<int>(in.integer(field, 0, 1000));
        return true;
      case 5:
        out.values = in.integer(field, 0, most);
        return true;
      case 7:
        bytes = in.integer(field, 0, most);
        return true;
      case 9:
        data = in.integer(field, 0, most);
        return true;
      case 11:
        dictionary = in.integer(field);
        return true;
      default:
        return false;
    }
  });
  out.begin = static_cast<std::uint64_t>(dictionary > 0 && dictionary < data ? dictionary : data);
  out.bytes = static_cast<std::uint64_t>(bytes);
}

ParquetChunk read_chunk(ThriftReader& in) {
  ParquetChunk out;
  bool has_data = false;
  in.structure([&](const Field& field) {
    switch (field.id) {
      case 1:
        out.refused = text("its data is in another file, '", in.binary(field), "', which is not supported");
        return true;
      case 3:
        read_chunk_data(in, field, out);
        return has_data = true;
      case 8:
      case 9:
        out.refused = "it is encrypted, which is not supported";
        return false;
      default:
        return false;
    }
  });
  if (!has_data && out.refused.empty()) throw ConfigError("a column has no metadata");
  return out;
}

ParquetRowGroup read_group(ThriftReader& in) {
  ParquetRowGroup out;
  in.structure([&](const Field& field) {
    if (field.id == 1) {
      in.list(field, Type::structure, [&] { out.chunks.push_back(read_chunk(in)); });
      return true;
    }
    if (field.id == 3) out.rows = in.integer(field, 0, most);
    return field.id == 3;
  });
  return out;
}

ParquetFooter parse(std::span<const std::byte> bytes) {
  ParquetFooter out;
  ThriftReader in(bytes);
  in.structure([&](const Field& field) {
    switch (field.id) {
      case 2:
        in.list(field, Type::structure, [&] { out.elements.push_back(read_element(in)); });
        return true;
      case 3:
        out.rows = in.integer(field, 0, most);
        return true;
      case 4:
        in.list(field, Type::structure, [&] { out.groups.push_back(read_group(in)); });
        return true;
      case 8:
        throw ConfigError("it is encrypted, which is not supported");
      default:
        return false;
    }
  });
  return out;
}

void check(const ParquetFooter& footer, std::uint64_t data_end) {
  std::size_t leaves = 0;
  for (const auto& element : footer.elements) leaves += element.type ? 1 : 0;
  std::int64_t rows = 0;
  for (std::size_t g = 0; g < footer.groups.size(); ++g) {
    const auto& group = footer.groups[g];
    if (group.rows > footer.rows - rows)
      throw ConfigError(text("its row groups have more than the ", footer.rows, " rows of the file"));
    rows += group.rows;
    if (group.chunks.size() != leaves)
      throw ConfigError(text("row group ", g, " has ", group.chunks.size(), " columns, but the schema has ", leaves));
    for (const auto& chunk : group.chunks)
      if (chunk.refused.empty() && (chunk.begin > data_end || chunk.bytes > data_end - chunk.begin))
        throw ConfigError(text("a column of row group ", g, " has ", chunk.bytes, " bytes from byte ", chunk.begin,
                               ", but the data ends at byte ", data_end));
  }
  if (rows != footer.rows)
    throw ConfigError(text("its row groups have ", rows, " rows, but the file has ", footer.rows));
}

}  // namespace

bool is_parquet(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return false;  // reading a pipe would take its bytes away
  const auto is_mark = [](const std::array<char, 4>& bytes) {
    const std::string_view have(bytes.data(), bytes.size());
    return have == magic || have == encrypted_magic;
  };
  std::array<char, 4> begin{}, end{};
  std::ifstream in(file, std::ios::binary);
  if (!in.read(begin.data(), begin.size()) || !is_mark(begin)) return false;
  if (std::filesystem::path(file).extension() == ".parquet") return true;  // perhaps cut off
  return in.seekg(-4, std::ios::end) && in.read(end.data(), end.size()) && is_mark(end);
}

namespace {

ParquetFooter read_footer(const File& file) {
  const auto refuse = [&](const auto&... message) -> ParquetFooter {
    throw ConfigError(text(file.path().string(), ": ", message...));
  };
  const auto size = file.size();
  std::array<char, 8> end{};
  if (size >= 12) file.read_at(size - end.size(), std::as_writable_bytes(std::span(end)));
  const std::string_view mark(end.data() + 4, 4);
  if (mark == encrypted_magic) return refuse("is an encrypted Parquet file, which is not supported");
  if (mark != magic)
    return refuse("is not a Parquet file or is cut off: it has ", size, " bytes and does not end with PAR1");
  std::uint32_t bytes = 0;  // the host is little-endian, as the file
  std::memcpy(&bytes, end.data(), sizeof bytes);
  if (bytes > size - 12)
    return refuse("is a damaged Parquet file: a footer of ", bytes, " bytes does not fit into ", size, " bytes");
  std::vector<std::byte> footer(bytes);
  file.read_at(size - 8 - bytes, footer);
  try {
    auto out = parse(footer);
    check(out, size - 8 - bytes);
    return out;
  } catch (const ConfigError& error) {
    return refuse("the Parquet footer cannot be read: ", error.what());
  }
}

}  // namespace

ParquetFooter read_parquet_footer(const File& file) {
  return within_memory(file.path().string(), [&] { return read_footer(file); });
}

}  // namespace tessera::parquet
