#include <png.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "framework/images/codecs.h"

namespace tessera::images {
namespace {

/// A file that libpng reads. Errors of libpng jump to `place`, which png_read_header and others set.
struct PngFile {
  std::vector<std::byte> shortened;  ///< see with_short_chunk
  Bytes bytes;
  std::size_t at = 0;
  bool ended = false;  ///< libpng wanted more bytes than there are
  std::jmp_buf place = {};
  char why[256] = "";
  png_structp png = nullptr;
  png_infop info = nullptr;

  explicit PngFile(Bytes file);
  PngFile(const PngFile&) = delete;
  PngFile& operator=(const PngFile&) = delete;
  ~PngFile() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void on_png_error(png_structp png, png_const_charp message) {
  auto& file = *static_cast<PngFile*>(png_get_error_ptr(png));
  std::strncpy(file.why, message, sizeof(file.why) - 1);
  std::longjmp(file.place, 1);
}

void on_png_warning(png_structp /*png*/, png_const_charp /*message*/) {}

void give_png_bytes(png_structp png, png_bytep into, std::size_t count) {
  auto& file = *static_cast<PngFile*>(png_get_io_ptr(png));
  file.ended = file.bytes.size() - file.at < count;
  if (file.ended) png_error(png, "the file ends before the picture does");
  std::memcpy(into, file.bytes.data() + file.at, count);
  file.at += count;
}

constexpr std::size_t signature_bytes = 8, frame_bytes = 12;  // of a chunk: length, type and checksum

/// Visits the chunks in order: their place, type and length; `length` may go beyond the end of the file. Stops when
/// `visit` returns false.
template <class Visit>
void each_chunk(Bytes bytes, const Visit& visit) {
  for (std::size_t at = signature_bytes; at < bytes.size() && bytes.size() - at >= frame_bytes - 4;) {
    const auto* chunk = reinterpret_cast<png_const_bytep>(bytes.data() + at);
    const std::size_t length = png_get_uint_32(chunk);
    if (!visit(at, std::string_view(reinterpret_cast<const char*>(chunk) + 4, 4), length)) return;
    at += frame_bytes + length;
  }
}

/// A file that ends inside a chunk of pixels, with the length of that chunk corrected to what is there of it; empty for
/// any other file. Pillow decodes such a file if all rows are there, and only the end of the stream is not; libpng
/// reads chunks in pieces and would refuse the last piece as a whole.
std::vector<std::byte> with_short_chunk(Bytes bytes) {
  std::vector<std::byte> file;
  each_chunk(bytes, [&](std::size_t at, std::string_view type, std::size_t length) {
    const std::size_t there = bytes.size() - at - (frame_bytes - 4);
    if (length <= there || type != "IDAT") return true;
    file.assign(bytes.begin(), bytes.end());
    png_save_uint_32(reinterpret_cast<png_bytep>(file.data() + at), static_cast<png_uint_32>(there));
    return false;
  });
  return file;
}

PngFile::PngFile(Bytes file) : shortened(with_short_chunk(file)), bytes(shortened.empty() ? file : Bytes(shortened)) {
  png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_png_error, on_png_warning);
  if (png) info = png_create_info_struct(png);
  must(info != nullptr, "libpng has memory for its structures");
}

/// Texts and colour profiles, whose decompressed size is not limited by that of the picture, are skipped.
void skip_chunks(png_structp png) {
  static constexpr png_byte names[] = "iCCP\0iTXt\0sPLT\0tEXt\0zTXt";
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, names, static_cast<int>(sizeof(names) / 5));
}

/// Grey of 1, 2 or 4 bits in each byte becomes 8 bits.
void widen_grey(Picture& picture, int bits) {
  const auto factor = static_cast<std::uint8_t>(255 / ((1 << bits) - 1));
  for (auto& sample : picture.samples) sample = static_cast<std::uint8_t>(sample * factor);
}

/// Grey of 16 bits as libpng gives it has the upper byte first.
void swap_bytes(Picture& picture) {
  for (std::size_t i = 0; i + 1 < picture.samples.size(); i += 2) std::swap(picture.samples[i], picture.samples[i + 1]);
}

/// Grey and alpha, of 16 bits in the file, to the RGBA that Pillow makes of it.
void spread_grey(Picture& picture) {
  std::vector<std::uint8_t> wide(picture.samples.size() * 2);
  for (std::size_t i = 0; i < picture.samples.size(); i += 2) {
    wide[2 * i] = wide[2 * i + 1] = wide[2 * i + 2] = picture.samples[i];
    wide[2 * i + 3] = picture.samples[i + 1];
  }
  picture.samples = std::move(wide);
  picture.mode = Mode::RGBA;
}

Mode png_mode(int colour, int bits) {
  switch (colour) {
    case PNG_COLOR_TYPE_GRAY:
      return bits == 16 ? Mode::I16 : bits == 1 ? Mode::one : Mode::L;
    case PNG_COLOR_TYPE_GRAY_ALPHA:
      return bits == 16 ? Mode::RGBA : Mode::LA;
    case PNG_COLOR_TYPE_PALETTE:
      return Mode::P;
    case PNG_COLOR_TYPE_RGB_ALPHA:
      return Mode::RGBA;
    default:
      return Mode::RGB;
  }
}

void read_palette(const PngFile& file, Picture& picture) {
  png_colorp colours = nullptr;
  int count = 0;
  picture.palette.assign(std::size_t{256} * 3, 0);
  if (png_get_PLTE(file.png, file.info, &colours, &count) == 0) return;
  for (std::size_t i = 0; i < static_cast<std::size_t>(std::min(count, 256)); ++i) {
    picture.palette[3 * i] = colours[i].red;
    picture.palette[3 * i + 1] = colours[i].green;
    picture.palette[3 * i + 2] = colours[i].blue;
  }
}

int png_orientation(const PngFile& file) {
  png_bytep exif = nullptr;
  png_uint_32 size = 0;
  if (png_get_eXIf_1(file.png, file.info, &size, &exif) == 0) return 1;
  return exif_orientation({reinterpret_cast<const std::byte*>(exif), size});
}

PictureHeader png_header(const PngFile& file) {
  PictureHeader header;
  header.format = Format::png;
  header.mode = png_mode(png_get_color_type(file.png, file.info), png_get_bit_depth(file.png, file.info));
  header.size = {png_get_image_width(file.png, file.info), png_get_image_height(file.png, file.info)};
  header.orientation = png_orientation(file);
  header.transparent_colour = png_get_valid(file.png, file.info, PNG_INFO_tRNS) != 0;
  return header;
}

/// Whether a chunk eXIf follows the pixels. Only looks at the heads of the chunks.
bool has_late_exif(Bytes bytes) {
  bool pixels = false, late = false;
  each_chunk(bytes, [&](std::size_t /*at*/, std::string_view type, std::size_t /*length*/) {
    pixels = pixels || type == "IDAT";
    late = pixels && type == "eXIf";
    return !late;
  });
  return late;
}

/// Whether nothing but the end of the file is missing: every row was decoded. libpng counts a row, or the seven passes
/// of an interlaced picture, before it reads what follows the last one.
bool has_all_rows(const PngFile& file, const PictureHeader& header) {
  constexpr int passes = 7;
  if (!file.ended) return false;
  if (png_get_interlace_type(file.png, file.info) != PNG_INTERLACE_NONE)
    return png_get_current_pass_number(file.png) >= passes;
  return png_get_current_row_number(file.png) >= static_cast<png_uint_32>(header.size.height);
}

/// The rows as libpng gives them without conversion of colours, in bytes.
Picture read_png_rows(PngFile& file, const PictureHeader& header) {
  const auto bits = png_get_bit_depth(file.png, file.info);
  const bool grey_alpha = png_get_color_type(file.png, file.info) == PNG_COLOR_TYPE_GRAY_ALPHA;
  auto picture = blank(grey_alpha ? Mode::LA : header.mode, header.size);
  std::vector<png_bytep> rows(static_cast<std::size_t>(header.size.height));
  const auto stride = static_cast<std::size_t>(header.size.width) * bytes_of_pixel(picture.mode);
  for (std::size_t y = 0; y < rows.size(); ++y) rows[y] = picture.samples.data() + y * stride;
  bool fits = false;
  const bool whole = completed(file.place, [&] {
    png_set_crc_action(file.png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);  // Pillow does not read those of pixels
    png_set_packing(file.png);
    if (picture.mode != Mode::I16) png_set_strip_16(file.png);
    png_set_interlace_handling(file.png);
    png_read_update_info(file.png, file.info);
    fits = png_get_rowbytes(file.png, file.info) == stride;
    if (fits) png_read_image(file.png, rows.data());
  });
  if (!whole && !has_all_rows(file, header)) refuse_damaged(Format::png, file.why);
  must(fits, "libpng gives the rows that a mode has");
  if (picture.mode == Mode::one || (picture.mode == Mode::L && bits < 8)) widen_grey(picture, bits);
  if (picture.mode == Mode::I16) swap_bytes(picture);
  if (grey_alpha && bits == 16) spread_grey(picture);
  if (picture.mode == Mode::P) read_palette(file, picture);
  return picture;
}

}  // namespace

PictureHeader read_png(Bytes bytes, const DecodeLimits& limits, Picture* pixels) {
  PngFile file(bytes);
  const bool whole = completed(file.place, [&] {
    png_set_user_limits(file.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_read_fn(file.png, &file, give_png_bytes);
    skip_chunks(file.png);
    png_read_info(file.png, file.info);
  });
  if (!whole) refuse_damaged(Format::png, file.why);
  auto header = png_header(file);
  check_size(header.size, limits);
  if (!pixels) {
    if (header.orientation != 1 || !has_late_exif(bytes)) return header;
    Picture unused;  // libpng reads what follows the pixels after them
    return read_png(bytes, limits, &unused);
  }
  *pixels = read_png_rows(file, header);
  // What follows the pixels may be damaged; only the orientation is looked for in it.
  if (!completed(file.place, [&] { png_read_end(file.png, file.info); })) file.why[0] = 0;
  header.orientation = png_orientation(file);
  return header;
}

std::string png_of(const Picture& picture) {
  must(picture.mode == Mode::RGB, "a picture that is written is of mode RGB");
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.size.width);
  image.height = static_cast<png_uint_32>(picture.size.height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, picture.samples.data(), 0, nullptr) == 0)
    throw ConfigError(text("the picture cannot be written as PNG: ", image.message));
  bytes.resize(size);
  return bytes;
}

}  // namespace tessera::images
