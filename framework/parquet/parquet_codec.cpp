#include "framework/parquet/parquet_codec.h"

#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <iterator>
#include <memory>

namespace tessera::parquet {
namespace {

enum Codec { uncompressed = 0, snappy_codec = 1, gzip = 2, zstandard = 6 };

[[noreturn]] void refuse(const char* codec, const std::string& why) {
  throw ConfigError(text("its ", codec, " data is damaged: ", why));
}

[[noreturn]] void refuse_size(const char* codec, std::size_t expected) {
  refuse(codec, text("it does not hold the ", expected, " bytes that the page header says"));
}

// Makes room behind `used` bytes; doubles, up to one byte more than expected, so that more is noticed.
std::span<std::byte> grow(std::vector<std::byte>& out, std::size_t used, std::size_t expected) {
  if (used == out.size()) out.resize(std::min(std::max<std::size_t>(used * 2, std::size_t{1} << 16U), expected + 1));
  return std::span(out).subspan(used);
}

void take_snappy(std::span<const std::byte> in, std::size_t expected, std::vector<std::byte>& out) {
  const auto* from = reinterpret_cast<const char*>(in.data());
  std::size_t bytes = 0;
  // 3 bytes copy 64 at most, so a length that is far larger is a lie.
  if (!snappy::GetUncompressedLength(from, in.size(), &bytes) || bytes != expected || expected / 64 > in.size())
    refuse_size("Snappy", expected);
  out.resize(expected);
  if (!snappy::RawUncompress(from, in.size(), reinterpret_cast<char*>(out.data())))
    refuse("Snappy", "it cannot be decompressed");
}

void take_gzip(std::span<const std::byte> in, std::size_t expected, std::vector<std::byte>& out) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 32) != Z_OK) throw std::bad_alloc();  // 32: gzip or zlib, by its header
  const std::unique_ptr<z_stream, int (*)(z_stream*)> ends(&stream, inflateEnd);
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data()));
  stream.avail_in = static_cast<uInt>(in.size());
  std::size_t used = 0;
  for (;;) {
    const auto space = grow(out, used, expected);
    if (space.empty()) refuse_size("gzip", expected);
    stream.next_out = reinterpret_cast<Bytef*>(space.data());
    stream.avail_out = static_cast<uInt>(std::min<std::size_t>(space.size(), 1U << 30U));
    const auto before = stream.avail_out;
    const auto status = inflate(&stream, Z_NO_FLUSH);
    used += before - stream.avail_out;
    if (status == Z_STREAM_END) {
      if (stream.avail_in == 0) break;
      inflateReset(&stream);  // Hadoop writes several streams in sequence
    } else if (status != Z_OK) {
      refuse("gzip", stream.msg != nullptr ? stream.msg : "it ends too early");
    }
  }
  if (used != expected) refuse_size("gzip", expected);
  out.resize(used);
}

void take_zstandard(std::span<const std::byte> in, std::size_t expected, std::vector<std::byte>& out) {
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (!context) throw std::bad_alloc();
  ZSTD_inBuffer from{in.data(), in.size(), 0};
  std::size_t used = 0, left = 1;
  while (left != 0 || from.pos < from.size) {
    const auto space = grow(out, used, expected);
    if (space.empty()) refuse_size("Zstandard", expected);
    ZSTD_outBuffer to{space.data(), space.size(), 0};
    const auto before = from.pos;
    left = ZSTD_decompressStream(context.get(), &to, &from);
    if (ZSTD_isError(left) != 0) refuse("Zstandard", ZSTD_getErrorName(left));
    if (left != 0 && to.pos == 0 && from.pos == before) refuse("Zstandard", "it ends too early");
    used += to.pos;
  }
  if (used != expected) refuse_size("Zstandard", expected);
  out.resize(used);
}

}  // namespace

void check_parquet_codec(int codec) {
  static constexpr const char* names[] = {"none", "Snappy", "gzip", "LZO", "Brotli", "LZ4", "Zstandard", "LZ4_RAW"};
  if (codec == uncompressed || codec == snappy_codec || codec == gzip || codec == zstandard) return;
  const bool known = codec > 0 && codec < static_cast<int>(std::size(names));
  throw ConfigError(text("it is compressed with ", known ? names[codec] : text("the unknown codec ", codec),
                         ", which is not supported; write the file with Snappy, gzip, Zstandard or no compression"));
}

void decompress_parquet(int codec, std::span<const std::byte> in, std::size_t bytes, std::vector<std::byte>& out) {
  out.clear();
  if (codec == snappy_codec) return take_snappy(in, bytes, out);
  if (codec == gzip) return take_gzip(in, bytes, out);
  if (codec == zstandard) return take_zstandard(in, bytes, out);
  if (in.size() != bytes) throw ConfigError(text("a page of ", in.size(), " bytes says that it has ", bytes));
  out.assign(in.begin(), in.end());
}

}  // namespace tessera::parquet
