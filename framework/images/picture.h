#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"

namespace tessera::images {

/// Width and height of a picture, in pixels.
struct Size {
  std::int64_t width = 0, height = 0;
  std::int64_t pixels() const { return width * height; }
  bool operator==(const Size&) const = default;
};
/// "640x480"
std::string describe(Size size);

enum class Format : std::uint8_t { png, jpeg, webp };
/// "PNG", "JPEG" or "WEBP".
std::string_view describe(Format format);

/// What the samples of a pixel are, named as Pillow names it.
enum class Mode : std::uint8_t {
  one,  ///< "1": one byte, 0 or 255
  L,    ///< grey
  LA,   ///< grey, alpha
  I16,  ///< "I;16": grey of 16 bits, the lower byte first
  P,    ///< index of a colour of the palette
  RGB,
  RGBA,
  CMYK  ///< 255: no ink is 0
};
std::string_view describe(Mode mode);
/// Bytes of one pixel.
int bytes_of_pixel(Mode mode);

/// What a file says of its picture before the pixels are decoded.
struct PictureHeader {
  Format format = Format::png;
  Mode mode = Mode::RGB;
  Size size;            ///< as stored: not turned by `orientation`
  int orientation = 1;  ///< EXIF orientation, 1 to 8; 1: as stored
  /// The file names one transparent colour (PNG tRNS), which is no alpha channel. No conversion of ours uses it.
  bool transparent_colour = false;
  /// The size after turned_upright().
  Size upright_size() const { return orientation < 5 ? size : Size{size.height, size.width}; }
};

/// A picture in memory.
struct Picture {
  Mode mode = Mode::RGB;
  Size size;
  /// Rows from the top, each of width x bytes_of_pixel(mode) bytes without padding.
  std::vector<std::uint8_t> samples;
  /// Mode P: red, green and blue of 256 colours; those that the file does not name are black. Empty in other modes.
  std::vector<std::uint8_t> palette = {};

  std::span<const std::uint8_t> row(std::int64_t y) const;
};

/// A decoded file.
struct DecodedPicture {
  PictureHeader header;
  Picture picture;
};

/// What a picture may take. The defaults accept what Pillow accepts.
struct DecodeLimits {
  /// Width x height. Checked from the header, before memory is taken for pixels. While a file is decoded, it takes at
  /// most 16 bytes for each of these pixels (a progressive JPEG or an animated WebP file; most others 4), and 16 MiB.
  std::int64_t pixels = 178'956'970;
  /// Size of a file, which is read into memory as a whole. Checked by load_picture and load_header.
  std::int64_t file_bytes = std::int64_t{512} << 20;
};

/// Reads the header of a PNG, JPEG or WebP file, whatever its name says. `bytes`: the whole file. Throws ConfigError,
/// which does not name the file, if the file is of another format (which is named), is damaged, or exceeds `limits`.
PictureHeader read_header(std::span<const std::byte> bytes, const DecodeLimits& limits = {});

/// Decodes the file `bytes` to the bytes that Pillow 9.4 to 12 gives: in the mode of the file, not turned, colours as
/// stored (gamma and colour profiles are ignored), of an animation the first frame. PNG: 16 bits of a colour channel
/// become 8 (the upper byte), grey of 2 and 4 bits becomes 8. Throws ConfigError as read_header, and if the file is cut
/// short: a PNG may lack what follows the last row, the end of its compressed stream included, and the checksums of its
/// pixels are not read, as in Pillow. Thread-safe.
DecodedPicture decode(std::span<const std::byte> bytes, const DecodeLimits& limits = {});

/// Reads and decodes a file. Throws ConfigError as decode, beginning with the path, also if there is no such file.
DecodedPicture load_picture(const std::filesystem::path& path, const DecodeLimits& limits = {});
/// The same for the header alone; does not decode the pixels.
PictureHeader load_header(const std::filesystem::path& path, const DecodeLimits& limits = {});

/// Pillow's convert("RGB"): alpha and transparent colours are dropped, grey of 16 bits is clipped at 255, CMYK becomes
/// RGB without a colour profile.
Picture to_rgb(Picture picture);
/// RGB, as qwen_vl_utils makes it: a picture of mode RGBA is laid on white, others are converted by to_rgb.
Picture on_white(Picture picture);
/// Turned and mirrored as the EXIF orientation `orientation` (1 to 8) asks; Pillow's ImageOps.exif_transpose. Other
/// values change nothing.
Picture turned_upright(Picture picture, int orientation);

/// A picture of mode RGB as the bytes of a PNG file.
std::string png_of(const Picture& picture);

}  // namespace tessera::images
