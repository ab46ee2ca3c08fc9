#include "framework/images/picture.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/visible_text.h"
#include "framework/images/codecs.h"
#include "framework/images/picture_path.h"

namespace tessera::images {
namespace {

/// How files of a format begin: `sign` at byte `at`.
struct Signature {
  std::size_t at;
  std::string_view sign;
  const char* name;
};

bool has_signature(Bytes bytes, const Signature& one) {
  return bytes.size() >= one.at + one.sign.size() &&
         std::memcmp(bytes.data() + one.at, one.sign.data(), one.sign.size()) == 0;
}

/// Formats that are named when they are refused.
constexpr Signature refused_formats[] = {{0, "GIF8", "a GIF picture"},
                                         {0, "BM", "a BMP picture"},
                                         {0, {"II*\0", 4}, "a TIFF picture"},
                                         {0, {"MM\0*", 4}, "a TIFF picture"},
                                         {4, "ftypavif", "an AVIF picture"},
                                         {4, "ftypheic", "a HEIF picture"},
                                         {4, "ftypmif1", "a HEIF picture"},
                                         {4, "jP  ", "a JPEG 2000 picture"},
                                         {0, {"\0\0\1\0", 4}, "an icon"},
                                         {0, "8BPS", "a Photoshop picture"},
                                         {0, "<svg", "an SVG drawing"},
                                         {0, "<?xml", "an XML file"},
                                         {0, "%PDF", "a PDF file"},
                                         {8, "AVI ", "an AVI video"},
                                         {4, "ftyp", "an MP4 or QuickTime video"},
                                         {0, "\x1A\x45\xDF\xA3", "a Matroska or WebM video"},
                                         {0, "version https://git-lfs", "a pointer of Git LFS"}};

/// The first bytes for a message, in one line.
std::string beginning(Bytes bytes) {
  const std::string_view first(reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 16));
  std::string line;
  for (const char letter : visible(first))
    line += letter == '\n' ? "\\n" : letter == '\t' ? "\\t" : std::string(1, letter);
  return line;
}

[[noreturn]] void refuse_format(Bytes bytes) {
  constexpr const char* advice = "a PNG, JPEG or WebP file was expected; convert it, or correct the path";
  if (bytes.empty()) throw ConfigError(text("the file is empty; ", advice));
  for (const auto& one : refused_formats)
    if (has_signature(bytes, one)) throw ConfigError(text("the file is ", one.name, "; ", advice));
  throw ConfigError(text("the file is no picture: it begins with \"", beginning(bytes), "\"; ", advice));
}

PictureHeader read_any(Bytes bytes, const DecodeLimits& limits, Picture* pixels) {
  if (has_signature(bytes, {0, "\x89PNG\r\n\x1A\n", ""})) return read_png(bytes, limits, pixels);
  if (has_signature(bytes, {0, "\xFF\xD8\xFF", ""})) return read_jpeg(bytes, limits, pixels);
  if (has_signature(bytes, {0, "RIFF", ""}) && has_signature(bytes, {8, "WEBP", ""}))
    return read_webp(bytes, limits, pixels);
  refuse_format(bytes);
}

void check_file(const std::filesystem::path& path, const DecodeLimits& limits) {
  if (!std::filesystem::exists(path))
    throw ConfigError("there is no such file; correct the path, or put the picture there");
  if (!std::filesystem::is_regular_file(path)) throw ConfigError("this is no regular file; a picture was expected");
  const auto size = std::filesystem::file_size(path);
  if (size > static_cast<std::uintmax_t>(limits.file_bytes))
    throw ConfigError(
        text("the file has ", size, " bytes, above the limit of ", limits.file_bytes, "; a picture was expected"));
}

/// What `read` makes of the bytes of the file. Its errors begin with the path.
template <class Read>
auto read_picture_file(const std::filesystem::path& path, const DecodeLimits& limits, const Read& read) {
  try {
    check_file(path, limits);
    const auto bytes = read_file(path);
    return read(std::as_bytes(std::span(bytes)));
  } catch (const ConfigError& error) {
    throw ConfigError(text(shown_path(path), ": ", error.what()));
  } catch (const std::filesystem::filesystem_error& error) {
    throw ConfigError(text(shown_path(path), ": the file cannot be read: ", error.code().message()));
  } catch (const IoError& error) {
    throw ConfigError(error.what());
  }
}

}  // namespace

std::string describe(Size size) { return text(size.width, "x", size.height); }

std::string_view describe(Format format) {
  return format == Format::png ? "PNG" : format == Format::jpeg ? "JPEG" : "WEBP";
}

std::string_view describe(Mode mode) {
  constexpr std::string_view names[] = {"1", "L", "LA", "I;16", "P", "RGB", "RGBA", "CMYK"};
  return names[static_cast<std::size_t>(mode)];
}

int bytes_of_pixel(Mode mode) {
  constexpr int bytes[] = {1, 1, 2, 2, 1, 3, 4, 4};
  return bytes[static_cast<std::size_t>(mode)];
}

std::span<const std::uint8_t> Picture::row(std::int64_t y) const {
  const auto stride = static_cast<std::size_t>(size.width * bytes_of_pixel(mode));
  return std::span(samples).subspan(static_cast<std::size_t>(y) * stride, stride);
}

void check_size(Size size, const DecodeLimits& limits) {
  if (size.width < 1 || size.height < 1)
    throw ConfigError(text("the picture has ", describe(size), " pixels; at least 1x1 was expected"));
  if (size.height > limits.pixels / size.width)
    throw ConfigError(text("the picture has ", describe(size), " pixels, above the limit of ", limits.pixels,
                           " in all; scale it down"));
}

Picture blank(Mode mode, Size size) {
  return {mode, size, std::vector<std::uint8_t>(static_cast<std::size_t>(size.pixels() * bytes_of_pixel(mode)))};
}

void refuse_damaged(Format format, const std::string& why) {
  throw ConfigError(
      text("the ", describe(format), " file is damaged or cut short: ", visible(why), "; replace it with a whole one"));
}

PictureHeader read_header(Bytes bytes, const DecodeLimits& limits) { return read_any(bytes, limits, nullptr); }

DecodedPicture decode(Bytes bytes, const DecodeLimits& limits) {
  DecodedPicture decoded;
  decoded.header = read_any(bytes, limits, &decoded.picture);
  return decoded;
}

DecodedPicture load_picture(const std::filesystem::path& path, const DecodeLimits& limits) {
  return read_picture_file(path, limits, [&](Bytes bytes) { return decode(bytes, limits); });
}

PictureHeader load_header(const std::filesystem::path& path, const DecodeLimits& limits) {
  return read_picture_file(path, limits, [&](Bytes bytes) { return read_header(bytes, limits); });
}

}  // namespace tessera::images
