#include <cstdio>
#include <cstring>

#include "framework/images/codecs.h"
// After <cstdio>, which it does not include.
#include <jerror.h>
#include <jpeglib.h>

namespace tessera::images {
namespace {

/// Scans of a progressive file above which it is refused: each passes over all coefficients.
constexpr int most_scans = 500;

/// A file that libjpeg reads. Errors of libjpeg jump to `place`.
struct JpegFile {
  jpeg_decompress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg_source_mgr source = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf place = {};
  char why[JMSG_LENGTH_MAX] = "";

  explicit JpegFile(Bytes file);
  JpegFile(const JpegFile&) = delete;
  JpegFile& operator=(const JpegFile&) = delete;
  ~JpegFile() { jpeg_destroy_decompress(&jpeg); }
};

JpegFile& jpeg_file_of(j_common_ptr jpeg) { return *static_cast<JpegFile*>(jpeg->client_data); }

[[noreturn]] void on_jpeg_error(j_common_ptr jpeg) {
  auto& file = jpeg_file_of(jpeg);
  if (file.why[0] == 0) jpeg->err->format_message(jpeg, file.why);
  std::longjmp(file.place, 1);
}

/// Warnings of damaged data are no errors, as in Pillow.
void on_jpeg_message(j_common_ptr /*jpeg*/, int /*level*/) {}

void begin_source(j_decompress_ptr /*jpeg*/) {}

boolean no_more_bytes(j_decompress_ptr jpeg) {
  std::strncpy(jpeg_file_of(reinterpret_cast<j_common_ptr>(jpeg)).why, "the file ends before the picture does",
               JMSG_LENGTH_MAX - 1);
  ERREXIT(jpeg, JERR_INPUT_EOF);
  return FALSE;
}

void skip_bytes(j_decompress_ptr jpeg, long count) {
  if (count <= 0) return;
  if (static_cast<std::size_t>(count) > jpeg->src->bytes_in_buffer) no_more_bytes(jpeg);
  jpeg->src->next_input_byte += count;
  jpeg->src->bytes_in_buffer -= static_cast<std::size_t>(count);
}

void count_scans(j_common_ptr jpeg) {
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= most_scans) return;
  std::snprintf(jpeg_file_of(jpeg).why, JMSG_LENGTH_MAX, "it has more than %d scans", most_scans);
  on_jpeg_error(jpeg);
}

JpegFile::JpegFile(Bytes file) {
  jpeg.err = jpeg_std_error(&errors);
  errors.error_exit = on_jpeg_error;
  errors.emit_message = on_jpeg_message;
  jpeg.client_data = this;
  const bool made = completed(place, [&] { jpeg_create_decompress(&jpeg); });
  must(made, "libjpeg has memory for its structures");
  source.next_input_byte = reinterpret_cast<const JOCTET*>(file.data());
  source.bytes_in_buffer = file.size();
  source.init_source = source.term_source = begin_source;
  source.fill_input_buffer = no_more_bytes;
  source.skip_input_data = skip_bytes;
  source.resync_to_restart = jpeg_resync_to_restart;
  jpeg.src = &source;
  progress.progress_monitor = count_scans;
  jpeg.progress = &progress;
}

/// EXIF data may be cut into several markers.
int jpeg_orientation(const JpegFile& file) {
  std::vector<std::byte> exif;
  for (const auto* marker = file.jpeg.marker_list; marker; marker = marker->next) {
    const Bytes data(reinterpret_cast<const std::byte*>(marker->data), marker->data_length);
    if (data.size() < 6 || std::memcmp(data.data(), "Exif\0\0", 6) != 0) continue;
    exif.insert(exif.end(), data.begin() + 6, data.end());
  }
  return exif_orientation(exif);
}

PictureHeader read_jpeg_header(JpegFile& file) {
  const bool whole = completed(file.place, [&] {
    jpeg_save_markers(&file.jpeg, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&file.jpeg, TRUE);
  });
  if (!whole) refuse_damaged(Format::jpeg, file.why);
  PictureHeader header;
  header.format = Format::jpeg;
  header.size = {file.jpeg.image_width, file.jpeg.image_height};
  switch (file.jpeg.num_components) {
    case 1:
      header.mode = Mode::L;
      break;
    case 3:
      header.mode = Mode::RGB;
      break;
    case 4:
      header.mode = Mode::CMYK;
      break;
    default:
      refuse_damaged(Format::jpeg, text("it has ", file.jpeg.num_components, " components; 1, 3 or 4 were expected"));
  }
  header.orientation = jpeg_orientation(file);
  return header;
}

J_COLOR_SPACE jpeg_colours(Mode mode) {
  return mode == Mode::L ? JCS_GRAYSCALE : mode == Mode::CMYK ? JCS_CMYK : JCS_RGB;
}

Picture read_jpeg_rows(JpegFile& file, const PictureHeader& header) {
  auto picture = blank(header.mode, header.size);
  auto* first = picture.samples.data();
  const auto stride = picture.row(0).size();
  const bool whole = completed(file.place, [&] {
    file.jpeg.out_color_space = jpeg_colours(header.mode);
    jpeg_start_decompress(&file.jpeg);
    while (file.jpeg.output_scanline < file.jpeg.output_height) {
      JSAMPROW row = first + stride * file.jpeg.output_scanline;
      jpeg_read_scanlines(&file.jpeg, &row, 1);
    }
    jpeg_finish_decompress(&file.jpeg);
  });
  if (!whole) refuse_damaged(Format::jpeg, file.why);
  // Every program that writes CMYK writes it as Adobe's do: 255 is no ink.
  if (header.mode == Mode::CMYK)
    for (auto& sample : picture.samples) sample = static_cast<std::uint8_t>(255 - sample);
  return picture;
}

}  // namespace

PictureHeader read_jpeg(Bytes bytes, const DecodeLimits& limits, Picture* pixels) {
  JpegFile file(bytes);
  const auto header = read_jpeg_header(file);
  check_size(header.size, limits);
  // Coefficients of a progressive file: two bytes each, four components.
  file.jpeg.mem->max_memory_to_use = static_cast<long>(header.size.pixels() * 12 + (std::int64_t{16} << 20));
  if (pixels) *pixels = read_jpeg_rows(file, header);
  return header;
}

}  // namespace tessera::images
